"""naradctl on real data directories and mounts: what it finds, what it refuses, and that looking changes nothing."""

import base64
import errno
import io
import json
import os
import pty
import random
import re
import select
import shutil
import signal
import struct
import subprocess
import tarfile
import tempfile
import time

import pytest
import seglog
from support import (NARADFS, ROOT, Mount, ack, configure, fails, log, number, produce, read_file, take, wait_for, write_file,
                     xattr)

NARADCTL = os.path.join(os.path.dirname(os.path.dirname(NARADFS)), "ctl", "naradctl")
SEED = int(os.environ.get("NARADFS_SEED", "20260101"))
N_DAMAGES = int(os.environ.get("NARADFS_CHECK_DAMAGES", "160"))


def ctl(*arguments, code=0, stdin=b""):
    """Runs naradctl and requires its exit status; standard output."""
    done = subprocess.run([NARADCTL, *map(str, arguments)], input=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          check=False)
    assert done.returncode == code, (arguments, done.returncode, done.stdout[-3000:], done.stderr[-3000:])
    return done.stdout


def refused(*arguments, code=1):
    """Runs naradctl and requires a failure; its sentence."""
    done = subprocess.run([NARADCTL, *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, check=False)
    assert done.returncode == code, (done.returncode, done.stdout[-3000:], done.stderr[-3000:])
    assert done.stderr.count(b"\n") == 1, done.stderr
    return done.stderr.decode()


def check(data, code=0):
    """naradctl check --json; (findings, summary)."""
    *findings, last = [json.loads(line) for line in ctl("check", "--json", data, code=code).splitlines()]
    assert last["summary"]["exit"] == code
    assert last["summary"]["errors"] == sum(f["severity"] == "error" for f in findings)
    return findings, last["summary"]


def snapshot(folder):
    """Everything below a folder: names, contents, times."""
    found = {}
    for where, folders, files in os.walk(folder):
        for name in folders + files:
            path = os.path.join(where, name)
            st = os.lstat(path)
            found[path] = (st.st_mode, st.st_size, st.st_mtime_ns, st.st_ctime_ns)
            if name in files:
                with open(path, "rb") as file:
                    found[path] += (file.read(),)
    return found


def patch(path, pos, data):
    with open(path, "r+b") as file:
        file.seek(pos)
        file.write(data)


def segments(folder):
    return [f"{folder}/{name}" for name in sorted(os.listdir(folder)) if name.endswith(".log")]


def relative(data, path):
    return os.path.relpath(path, data)


def fill(m):
    """Topics t (three segments in p00000, one of them compressed, something settled; p00001) and u."""
    part = m.make("t", segment_bytes=65536, partitions=2)
    for i in range(3):
        configure(m.topic("t"), codec="zstd" if i == 1 else "none")
        for k in range(4):
            produce(part, *[b"%d.%d.%d " % (i, k, n) + b"x" * (n * 13 % 90) for n in range(40)])
        if i < 2:
            write_file(part + "/ctl", b"roll\n")
    handles = [item["handle"] for item in take(part, 9)]
    ack(part, *handles[:4], handles[6], sync=True)
    produce(m.part("t", 1), *range(50))
    produce(m.make("u"), "one", "two")
    return 3 * 4 * 40 + 50 + 2


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """A data directory that a clean stop left; not to be changed."""
    m = Mount(tmp_path_factory.mktemp("filled")).start()
    try:
        n_records = fill(m)
        m.stop()
        yield m.data, n_records
    finally:
        wrong = m.destroy()
        assert wrong is None, wrong


@pytest.fixture
def data(filled, tmp_path):
    """A copy of it."""
    shutil.copytree(filled[0], tmp_path / "data")
    return str(tmp_path / "data")


# -- check: what is well


def test_check_finds_nothing_in_a_directory_that_was_closed_cleanly(filled):
    before = snapshot(filled[0])
    findings, summary = check(filled[0])
    assert findings == []
    assert (summary["topics"], summary["partitions"], summary["segments"]) == (2, 3, 5)
    assert summary["records"] == filled[1]
    assert snapshot(filled[0]) == before
    assert ctl("check", filled[0]).count(b"\n") == 1


def test_check_knows_the_side_files_of_log_jsonl(m):
    """Measured ones of sealed segments and of the active one; and one whose segment is gone."""
    fill(m)
    part = m.part("t")
    assert os.stat(part + "/log.jsonl").st_size == len(read_file(part + "/log.jsonl"))
    m.stop()
    folder = f"{m.data}/topics/t/p00000"
    assert sum(name.endswith(".rendered") for name in os.listdir(folder)) == 3
    findings, _ = check(m.data)
    assert findings == []
    with open(f"{folder}/{7:020d}.rendered", "w", encoding="utf-8") as file:
        file.write("x")
    findings, _ = check(m.data)
    assert [(f["severity"], f["kind"], f["path"]) for f in findings] == [
        ("note", "stray", f"topics/t/p00000/{7:020d}.rendered")]
    assert "side file" in findings[0]["message"]


def test_check_prints_nothing_that_a_terminal_obeys(data):
    for name in ("a\x1b[31m", "b\u009b31m", "c\u00e9"):
        with open(f"{data}/{name}", "w", encoding="utf-8"):
            pass
    text = ctl("check", data).decode()
    assert "a?[31m: " in text and "b?31m: " in text and "c\u00e9: " in text


def test_check_refuses_while_a_daemon_serves_the_directory(m):
    produce(m.make("t"), "a")
    assert f"pid {m.process.pid}" in refused("check", m.data, code=8)


def test_check_of_what_is_no_data_directory(tmp_path):
    (tmp_path / "file").write_text("x")
    assert "not a data directory" in refused("check", tmp_path, code=8)
    assert "No such file" in refused("check", tmp_path / "nothing", code=8)
    assert "argument is missing" in refused("check", code=16)
    assert "--nonsense" in refused("check", "--nonsense", tmp_path, code=16)
    assert os.listdir(tmp_path) == ["file"]
    new = tmp_path / "new"
    new.mkdir()
    (new / "format").write_text("1\n")  # a crash may come before the folders are made
    assert sorted((f["severity"], f["path"]) for f in check(new)[0]) == \
        [("note", "ingress"), ("note", "meta"), ("note", "topics")]
    (new / "format").write_text("2\n")
    assert "newer" in refused("check", new, code=8)


# -- check: damage


def test_check_reports_damage_in_any_committed_frame(data, filled):
    """Flips, cuts and zeros at random places of random files. Never a crash; damage in a segment or a topic record is
    always an error that names the file; damage in a side index never is one."""
    rng = random.Random(f"{SEED} damage")
    files = [os.path.join(where, name) for where, _, names in os.walk(data) for name in sorted(names) if name != "lock"]
    files = sorted(path for path in files if os.path.getsize(path))
    pools = [[path for path in files if path.endswith(".log")], files]
    for number in range(N_DAMAGES):
        path = rng.choice(pools[number % 2])
        with open(path, "rb") as file:
            whole = file.read()
        damaged = bytearray(whole)
        how = rng.choice(["flip", "cut", "zero", "noise"])
        pos = rng.randrange(len(whole))
        end = rng.randrange(pos + 1, min(len(whole), pos + 3000) + 1)
        if how == "flip":
            damaged[pos] ^= 1 << rng.randrange(8)
        elif how == "cut":
            del damaged[pos:]
        elif how == "zero":
            damaged[pos:end] = bytes(end - pos)
        else:
            damaged[pos:end] = rng.randbytes(end - pos)
        if damaged == whole:
            continue
        with open(path, "wb") as file:
            file.write(damaged)
        done = subprocess.run([NARADCTL, "check", "--json", data], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              check=False)
        what = (number, how, path, pos, end, done.stdout[-2000:], done.stderr[-2000:])
        newer = path.endswith("/format") and b"use a newer naradfs" in done.stderr
        assert done.returncode == 8 if newer else done.returncode in (0, 4), what
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        errors = [row["path"] for row in rows[:-1] if row["severity"] == "error"]
        if path.endswith(".log"):
            assert subprocess.run([NARADCTL, "dump", "-p", path], stdout=subprocess.DEVNULL,
                                  check=False).returncode in (0, 1), what
        if path.endswith((".log", ".topic")):
            assert relative(data, path) in errors, what
        if path.endswith(".index"):
            assert errors == [], what
        if path.endswith("/hwm") and how == "flip":
            assert errors != [], what
        with open(path, "wb") as file:
            file.write(whole)
    assert check(data)[0] == []


def test_check_tells_a_torn_tail_from_damage_below_the_high_watermark(data):
    folder = f"{data}/topics/t/p00000"
    last = segments(folder)[-1]
    size = os.path.getsize(last)
    with open(last, "rb") as file:
        whole = file.read()
    frame = list(seglog.frames(whole))[-1]

    with open(last, "ab") as file:  # a commit that was on its way when the power went
        file.write(whole[frame.pos:frame.pos + 60])
    findings, _ = check(data)
    assert [(f["severity"], f["kind"], f["pos"]) for f in findings] == [("note", "tail", size)]

    with open(last, "wb") as file:  # the last committed frame is torn
        file.write(whole[:-5])
    findings, _ = check(data, code=4)
    (error,) = [f for f in findings if f["severity"] == "error"]
    assert (error["kind"], error["offset"], error["end_offset"]) == ("frame", frame.base, frame.base + frame.n_records)

    os.truncate(f"{folder}/hwm", 0)  # the same after a crash: nobody knows whether it was promised
    findings, _ = check(data)
    assert sorted(f["kind"] for f in findings) == ["hwm", "tail"]


def test_check_after_a_crash_is_clean(mounts):
    m = mounts()
    fill(m)
    m.kill()
    findings, _ = check(m.data)
    assert {f["severity"] for f in findings} == {"note"}
    assert "hwm" in {f["kind"] for f in findings}


def test_check_finds_a_high_watermark_that_hides_records(data):
    folder = f"{data}/topics/t/p00000"
    with open(segments(folder)[-1], "rb") as file:
        frames = list(seglog.frames(file.read()))
    for value, word in ((frames[-1].base + 3, "within a frame"), (frames[-1].base, "hides committed records")):
        patch(f"{folder}/hwm", 0, struct.pack(">Q", value))
        findings, _ = check(data, code=4)
        (error,) = [f for f in findings if f["severity"] == "error"]
        assert (error["kind"], error["path"]) == ("hwm", "topics/t/p00000/hwm") and word in error["message"]


def test_check_misses_segments(m):
    """Gone or emptied, before and after a start that took the directory into service so; retention's are no loss."""
    part = m.make("t")
    for first in (0, 10, 20):
        produce(part, *range(first, first + 10))
        write_file(part + "/ctl", b"roll\n")
    produce(part, 30)
    m.stop()
    shutil.copytree(m.data, m.base + "/whole")

    def lost(code=4):
        found = [f for f in check(m.data, code=code)[0] if f["severity"] == "error" and "offset" in f]
        return sorted((f["offset"], f["end_offset"]) for f in found if f["kind"] in ("missing", "frame"))

    def again(remove=(), empty=()):
        shutil.rmtree(m.data)
        shutil.copytree(m.base + "/whole", m.data)
        for name in remove:
            os.unlink(f"{m.data}/topics/t/p00000/{name}")
        for base in empty:
            os.truncate(f"{m.data}/topics/t/p00000/{base:020d}.log", 0)

    def used():
        m.start()
        produce(part, "more")
        m.stop()

    cases = [([0], [(0, 10)]), ([10], [(10, 20)]), ([30], [(30, 31)]), ([0, 20], [(0, 10), (20, 30)])]
    for bases, expected in cases:
        again(remove=[f"{base:020d}.log" for base in bases])
        assert set(lost()) == set(expected), bases
        used()
        assert set(lost()) == set(expected), bases
        again(empty=bases)
        assert set(lost()) == set(expected), bases
        used()
        assert set(lost()) == set(expected), bases
    again(remove=[f"{base:020d}.log" for base in (0, 10, 20, 30)])
    assert (0, 31) in lost()
    used()
    assert lost() == [(0, 31)]
    again(remove=[f"{30:020d}.log", "hwm"])
    assert lost() == [(30, 31)]
    again(remove=[f"{10:020d}.log", f"{10:020d}.index"])
    assert lost() == [(10, 20)]
    again()
    m.start()
    write_file(part + "/ctl", b"trim 20\n")
    m.stop()
    assert lost(code=0) == []


def test_check_warns_of_what_the_next_start_deletes(m):
    """A topic's folder without its record: how many records there are in it."""
    m.make("t", partitions=2)
    produce(m.part("t", 0), *range(7))
    produce(m.part("t", 1), *range(5))
    m.make("none")
    m.stop()
    for topic in ("t", "none"):
        os.rename(f"{m.data}/meta/{topic}.topic", f"{m.base}/{topic}.topic")
    found = {f["path"]: f for f in check(m.data, code=4)[0] if f["kind"] == "orphan"}
    said = found["topics/t"]["message"]
    assert found["topics/t"]["severity"] == "error"
    assert "DELETES it with its 12 records" in said and "put meta/t.topic back" in said
    assert found["topics/none"]["severity"] == "note"
    assert "no record in it" in found["topics/none"]["message"] and "DELETES" not in found["topics/none"]["message"]
    os.rename(f"{m.base}/t.topic", f"{m.data}/meta/t.topic")
    assert "topics/t" not in {f["path"] for f in check(m.data)[0]}
    m.start()
    assert number(m.part("t", 0), "hwm") == 7 and not os.path.exists(m.topic("none"))


def test_check_misses_folders_of_partitions(m):
    m.make("t", partitions=3)
    produce(m.part("t", 1), "x")
    m.stop()
    shutil.rmtree(m.data + "/topics/t/p00001")
    (found,) = check(m.data)[0]  # a crash in the middle of mkdir leaves as much
    assert (found["severity"], found["kind"], found["path"]) == ("note", "folder", "topics/t")
    later = time.time() + 60
    os.utime(m.data + "/topics/t", (later, later))
    (found,) = check(m.data, code=4)[0]
    assert found["severity"] == "error" and "1 of 3 partition folders is missing" in found["message"]
    assert "lost" in found["message"]


def test_check_finds_times_that_go_back(data):
    path = segments(f"{data}/topics/u/p00000")[0]
    with open(path, "rb") as file:
        frame = next(seglog.frames(file.read()))
    stored = bytearray(frame.stored)
    second = 4 + struct.unpack_from(">I", stored)[0]
    time_pos = second + 4 + 2  # length, version, empty key
    stored[time_pos:time_pos + 8] = struct.pack(">Q", 12345)
    head = seglog.HEADER.pack(seglog.MAGIC, frame.flags, frame.n_records, frame.base, frame.raw_size, frame.size, 0)
    crc = seglog.crc32c(head[2:23] + bytes(stored))
    patch(path, frame.pos, head[:23] + struct.pack(">I", crc) + bytes(stored))
    findings, _ = check(data, code=4)
    assert [f["kind"] for f in findings if f["severity"] == "error"] == ["time"]
    # it tells of a clock: what is there is exported, and imported as it is
    archive = data + ".tar"
    ctl("export", data, "u/p00000", archive)
    shutil.rmtree(f"{data}/topics/u/p00000")
    ctl("import", data, "u/p00000", archive)
    again, _ = check(data, code=4)
    assert [f["kind"] for f in again if f["severity"] == "error"] == ["time"]


def test_check_looks_at_markers_and_strays(data):
    marker = f"{data}/topics/t/incarnation"
    with open(marker, "rb") as file:
        mine = file.read()
    with open(marker, "wb") as file:
        file.write(b"0123456789abcdef")
    findings, _ = check(data, code=4)
    assert [(f["kind"], f["path"]) for f in findings] == [("incarnation", "topics/t/incarnation")]
    with open(marker, "wb") as file:
        file.write(mine)
    os.mkdir(f"{data}/topics/gone.stale-0123456789abcdef")
    os.rename(f"{data}/meta/u.topic", f"{data}/meta/u.topic.tmp")
    for name in ("x", "topics/t/readme", "topics/t/p00001/0.index", f"topics/t/p00001/{7:020d}.index", "ingress/x"):
        with open(f"{data}/{name}", "w", encoding="utf-8") as file:
            file.write("x")
    findings, _ = check(data, code=4)
    assert sorted((f["kind"], f["path"]) for f in findings) == sorted(
        [("orphan", "topics/gone.stale-0123456789abcdef"), ("stray", "meta/u.topic.tmp"), ("orphan", "topics/u"),
         ("stray", "x"), ("stray", "topics/t/readme"), ("stray", "topics/t/p00001/0.index"),
         ("stray", f"topics/t/p00001/{7:020d}.index"), ("stray", "ingress/x")])
    shutil.rmtree(f"{data}/topics/t")
    os.rename(f"{data}/meta/u.topic.tmp", f"{data}/meta/u.topic")
    findings, _ = check(data, code=4)
    assert [f["path"] for f in findings if f["severity"] == "error"] == ["topics/t"]


def test_check_reads_what_consumers_have_settled(data):
    folder = f"{data}/topics/t/p00000"
    with open(f"{folder}/consumer.ahead", "rb") as file:
        newest = max((file.read(4096), file.read(4096)), key=lambda slot: slot[8:16])
    older = newest[:8] + struct.pack(">Q", struct.unpack(">Q", newest[8:16])[0] - 1) + newest[16:4092]
    whole = older[:4092] + struct.pack(">I", seglog.crc32c(older)) + newest
    if newest[8:16] == struct.pack(">Q", 1):
        whole = newest + bytes(4096)
    with open(f"{folder}/consumer.ahead", "wb") as file:
        file.write(whole)
    assert check(data)[0] == []
    pos = 4096 + 20 if whole[4096] else 4200  # a byte of the slot that does not have to count
    patch(f"{folder}/consumer.ahead", pos, b"\x55")
    findings, _ = check(data)
    assert [(f["severity"], f["kind"]) for f in findings] == [("note", "frontier")]
    patch(f"{folder}/consumer.ahead", 20, b"\x55")
    findings, _ = check(data, code=4)
    assert "no valid slot" in findings[0]["message"]
    with open(f"{folder}/consumer.ahead", "wb") as file:
        file.write(whole)
    body = newest[:16] + struct.pack(">Q", 10**6) + newest[24:4092]
    patch(f"{folder}/consumer.ahead", 0, body + struct.pack(">I", seglog.crc32c(body)))
    findings, _ = check(data, code=4)
    assert "slot 0 says that offsets below" in findings[0]["message"]
    with open(f"{folder}/consumer.ahead", "wb") as file:
        file.write(whole)
    patch(f"{folder}/consumer.offset", 0, struct.pack(">Q", 10**6))
    findings, _ = check(data)
    assert "is settled, but the records end" in findings[0]["message"]
    assert "nothing comes again" in findings[0]["message"]
    os.unlink(f"{folder}/consumer.ahead")
    findings, _ = check(data, code=4)
    assert "is settled, but the records end" in findings[0]["message"]
    assert "may be delivered again" in findings[0]["message"]


def test_check_reads_the_ingress_wal(mounts):
    m = mounts()
    m.make("t", partitions=3)
    for i in range(6):
        produce(m.topic("t"), *[b"%d %d" % (i, k) * 20 for k in range(30)])
    m.kill()
    findings, summary = check(m.data)
    assert summary["ingress_entries"] == 6
    wals = sorted(name for name in os.listdir(f"{m.data}/ingress") if name.endswith(".wal"))
    path = f"{m.data}/ingress/{wals[0]}"
    with open(path, "rb") as file:
        whole = file.read()
    last = whole.rindex(b"NRDE")  # damage that reaches it is what a crash leaves
    written = len(whole.rstrip(b"\0"))  # what is behind was written ahead
    rng = random.Random(f"{SEED} wal")
    for _ in range(40):
        pos = rng.randrange(written)
        end = min(len(whole), pos + rng.choice((1, 1, 50, 3000)))
        damaged = whole[:pos] + rng.randbytes(end - pos) + whole[end:]
        with open(path, "wb") as file:
            file.write(damaged)
        findings, _ = check(m.data, code=0 if end > last or damaged == whole else 4)
        assert damaged == whole or {"ingress", "tail"} & {f["kind"] for f in findings}, (pos, end)
    with open(path, "wb") as file:
        file.write(whole)
    second = whole.index(b"NRDE", 1)
    with open(path, "wb") as file:  # room that was given back
        file.write(bytes(second) + whole[second:])
    zeros = [f for f in check(m.data)[0] if f["message"].startswith("zeros")]
    assert zeros[0]["pos"] == 0 and zeros[0]["end_pos"] == second
    assert [f["end_pos"] for f in zeros[1:]] == [len(whole)] and zeros[1]["pos"] >= written
    with open(path, "wb") as file:
        file.write(whole)
    patch(path, 100, b"\xff\xfe\xfd")
    findings, _ = check(m.data, code=4)
    (error,) = [f for f in findings if f["severity"] == "error"]
    assert (error["kind"], error["pos"]) == ("ingress", 0)
    with open(path, "wb") as file:
        file.write(whole[:100] + b"\xff\xfe\xfd" + whole[103:] + b"NRDE" + bytes(70))
    assert "tail" in {f["kind"] for f in check(m.data, code=4)[0]}
    if os.path.exists(f"{m.data}/ingress/checkpoint"):
        patch(f"{m.data}/ingress/checkpoint", 17, b"\x77")
        assert "checkpoint" in {f["kind"] for f in check(m.data, code=4)[0]}


def test_check_can_be_interrupted(data):
    """Interrupted while its output waits for a reader: it stops in the middle, says so, and 32 is its status."""
    for i in range(3000):
        with open(f"{data}/topics/stray {i:060d}", "w", encoding="utf-8"):
            pass
    process = subprocess.Popen([NARADCTL, "check", data], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert os.read(process.stdout.fileno(), 5) == b"note:"
    process.send_signal(signal.SIGINT)
    out = process.stdout.read()
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(30) == 32
    assert b"interrupted" in out.splitlines()[-1]
    assert out.count(b"\n") < 3000


def test_check_shows_a_bar_on_a_terminal_only(data):
    master, slave = pty.openpty()
    done = subprocess.run([NARADCTL, "check", data], stdout=subprocess.PIPE, stderr=slave, check=False)
    os.close(slave)
    shown = os.read(master, 65536)
    os.close(master)
    assert done.returncode == 0
    assert b"% " in shown and shown.endswith(b"\r\033[K")  # taken away at the end
    piped = subprocess.run([NARADCTL, "check", data], stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    assert piped.stderr == b""
    assert piped.stdout == done.stdout


def test_check_notes_a_partition_whose_files_are_gone(mounts):
    m = mounts()
    produce(m.make("t", partitions=2), "a")
    m.stop()
    assert check(m.data)[0] == []  # p00001 was never used
    for name in os.listdir(m.data_part("t")):
        os.unlink(f"{m.data_part('t')}/{name}")
    later = os.stat(m.data + "/format").st_mtime + 60
    os.utime(m.data_part("t"), (later, later))
    (found,), summary = check(m.data)
    assert (found["severity"], found["kind"], found["path"]) == ("note", "folder", "topics/t/p00000")
    assert "whose files somebody removed" in found["message"]


def test_check_passes_over_holes_and_misses_nothing_behind_them(data):
    """A segment of a terabyte that takes next to nothing on the disk: no minutes, and damage far behind is found."""
    *sealed, active = segments(data + "/topics/t/p00000")
    for path in (sealed[-1], active):
        good, huge = read_file(path), 1 << 40
        try:
            os.truncate(path, huge)
        except OSError as error:
            pytest.skip(f"no file of a terabyte here: {error}")
        findings, summary = check(data)
        assert not [finding for finding in findings if finding["kind"] in ("stray", "tail")]
        patch(path, huge - 4097, b"x")
        findings, _ = check(data)
        (found,) = [finding for finding in findings if finding["kind"] in ("stray", "tail")]
        assert (found["path"], found["end_pos"]) == (relative(data, path), huge)
        with open(path, "wb") as file:
            file.write(good)


def cursor_slot(sequence, offset):
    slot = b"NRDFANCU" + struct.pack(">IIQQQQ12x", 1, 0, sequence, 11, 22, offset)
    return slot + struct.pack(">I", seglog.crc32c(slot))


def test_check_reads_the_cursors_of_fanout(data):
    path = f"{data}/topics/u/p00000/fanout-c.offset"
    for first, second, word in ((cursor_slot(1, 2), bytes(64), None), (cursor_slot(3, 1), cursor_slot(2, 9), None),
                                (cursor_slot(3, 1), cursor_slot(4, 3), "offsets below 3 were copied"),
                                (b"\xff" + cursor_slot(1, 2)[1:], bytes(64), "no valid slot")):
        with open(path, "wb") as file:
            file.write(first.ljust(4096, b"\0") + second)
        findings, _ = check(data, code=4 if word else 0)
        assert [f["kind"] for f in findings] == (["cursor"] if word else [])
        assert not word or word in findings[0]["message"]


def test_check_notes_what_makes_a_child_get_records_twice(mounts):
    m = mounts()
    m.make("p")
    m.make("c")
    os.mkdir(m.topic("p") + "/children/c")
    produce(m.part("p"), *range(5))
    wait_for(lambda: number(m.part("c"), "hwm") == 5, "the copies")
    m.stop()
    path = f"{m.data}/topics/p/p00000/fanout-c.offset"
    whole = read_file(path)
    assert check(m.data)[0] == []
    for bad in (whole[:4100] + bytes([whole[4100] ^ 1]) + whole[4101:], whole[:2000], None):
        os.unlink(path)
        if bad is not None:
            with open(path, "wb") as file:
                file.write(bad)
        findings, _ = check(m.data)
        assert [(f["severity"], f["kind"]) for f in findings] == [("note", "cursor")], findings
        with open(path, "wb") as file:
            file.write(whole)


# -- dump


def dump(path, *options, code=0):
    return [json.loads(line) for line in ctl("dump", "--json", "--payload", *options, path, code=code).splitlines()]


def dumped_bytes(row, name):
    if row.get(name + "_encoding") == "base64":
        return base64.b64decode(row[name])
    return row.get(name, "").encode()


def test_dump_shows_every_frame_and_record(data, mounts):
    m = mounts()
    part = m.make("t")
    produce(part, *[b"line %d" % i for i in range(5)])
    fd = os.open(part + "/produce.jsonl", os.O_WRONLY)
    os.write(fd, b'{"key":"k\\u00e4\\u0001","payload":"AP/+","payload_encoding":"base64"}\n{"payload":"caf\\u00e9 \\"q\\" \\\\"}\n')
    os.fsync(fd)
    os.close(fd)
    m.stop()
    paths = [path for folder in (m.data_part("t"), f"{data}/topics/t/p00000") for path in segments(folder)]
    assert len(paths) == 4
    for path in paths:
        shown = dump(path)
        with open(path, "rb") as file:
            frames = list(seglog.frames(file.read()))
        assert [(row["pos"], row["end_pos"], row["offset"], row["records"], row["codec"], int(row["crc"], 16))
                for row in shown if row["type"] == "frame"] == \
            [(f.pos, f.end, f.base, f.n_records, ["none", "zstd"][f.codec], f.crc) for f in frames]
        assert [(row["offset"], row["timestamp"], dumped_bytes(row, "key"), dumped_bytes(row, "payload"))
                for row in shown if row["type"] == "record"] == [record for f in frames for record in f.records()]
        assert shown[-1] == {"type": "end", "frames": len(frames), "records": sum(f.n_records for f in frames),
                            "damaged": 0, "next_offset": frames[-1].base + frames[-1].n_records}
    text = ctl("dump", "--payload", paths[0]).decode()
    assert 'key "k\u00e4\\x01"' in text and '"\\x00\\xff\\xfe"' in text and '"caf\u00e9 \\"q\\" \\\\"' in text
    assert "caf" not in ctl("dump", paths[0]).decode()


def test_dump_shows_damage_and_goes_on_behind_it(data, tmp_path):
    path = segments(f"{data}/topics/t/p00000")[0]
    with open(path, "rb") as file:
        frames = list(seglog.frames(file.read()))
    patch(path, frames[1].pos + 40, b"\xff")
    shown = dump(path, code=1)
    (damage,) = [row for row in shown if row["type"] == "damage"]
    assert (damage["pos"], damage["end_pos"], damage["reason"]) == (frames[1].pos, frames[1].end, "bad crc")
    assert (damage["lost_offset"], damage["lost_end_offset"]) == (frames[1].base, frames[2].base)
    assert damage["header"]["records"] == frames[1].n_records
    assert [row["offset"] for row in shown if row["type"] == "frame"] == [f.base for f in frames if f is not frames[1]]
    assert b"DAMAGE at" in ctl("dump", path, code=1)
    # a copy under another name, and one that is no segment at all
    shutil.copy(segments(f"{data}/topics/t/p00000")[1], tmp_path / "copy")
    assert dump(tmp_path / "copy")[0]["offset"] == 160
    (tmp_path / "noise").write_bytes(random.Random(SEED).randbytes(5000))
    assert [row["type"] for row in dump(tmp_path / "noise", code=1)] == ["damage", "end"]
    (tmp_path / "zeros").write_bytes(bytes(5000))
    assert [row["type"] for row in dump(tmp_path / "zeros")] == ["zeros", "end"]
    assert "Is a directory" in refused("dump", tmp_path)
    assert "No such file" in refused("dump", tmp_path / "nothing")
    refused("dump", "--base", "-5", tmp_path / "noise", code=2)


# -- topics, describe


def test_dump_of_what_is_no_segment(m, tmp_path):
    """Empty, cut within its first header, a folder, another kind of file: each gets its sentence."""
    part = m.make("t")
    produce(part, "x")
    write_file(part + "/ctl", b"roll\n")
    m.stop()
    folder = m.data_part("t")
    empty = segments(folder)[1]
    assert b"the file is empty" in ctl("dump", empty) and [row["type"] for row in dump(empty)] == ["end"]
    assert b", 1 record, codec none" in ctl("dump", segments(folder)[0])
    assert "Is a directory; name a file in it: <20 digits>.log" in refused("dump", folder)
    assert "No such file" in refused("dump", folder + "/nothing")
    assert "is no segment but the side index of a segment" in refused("dump", f"{folder}/{0:020d}.index")
    assert "not a regular file" in refused("dump", "/dev/null")
    for n in (1, 26, 30):
        cut = tmp_path / f"{0:020d}.log"
        cut.write_bytes(read_file(segments(folder)[0])[:n])
        assert b"no whole frame is in it" in ctl("dump", cut, code=1), n
    assert b"no whole frame is in it" in ctl("dump", m.data + "/format", code=1)


def rows(*arguments):
    return [json.loads(line) for line in ctl(*arguments).splitlines()]


def test_topics_has_a_row_for_each_topic(m):
    assert rows("topics", "--json", m.mnt) == []
    part = m.make("orders", partitions=2)
    produce(part, *range(10))
    produce(m.part("orders", 1), *range(5))
    m.make("empty")
    handles = [item["handle"] for item in take(part, 4)]
    ack(part, *handles[:3], sync=True)
    size = sum(number(m.part("orders", i), "size_bytes") for i in range(2))
    assert rows("topics", "--json", m.mnt) == [
        {"topic": "empty", "partitions": 1, "records": 0, "lag": 0, "in_flight": 0, "size_bytes": 0, "state": "ok"},
        {"topic": "orders", "partitions": 2, "records": 15, "lag": 12, "in_flight": number(part, "in_flight"),
         "size_bytes": size, "state": "ok"}]
    text = ctl("topics", m.mnt).decode().splitlines()
    assert text[0].split()[:3] == ["topic", "partitions", "records"]
    assert [line.split()[:4] for line in text[1:]] == [["empty", "1", "0", "0"], ["orders", "2", "15", "12"]]


def test_topics_tells_what_is_out_of_service(mounts):
    m = mounts()
    produce(m.make("good"), "a")
    produce(m.make("bad"), "a")
    m.stop()
    patch(f"{m.data}/meta/bad.topic", 30, b"\xff")
    m.start()
    states = {row["topic"]: row["state"] for row in rows("topics", "--json", m.mnt)}
    assert states["good"] == "ok"
    assert states["bad"].startswith("out of service: ")
    assert rows("describe", "--json", m.mnt, "bad")[0]["state"] == states["bad"]


def test_topics_counts_partitions_that_are_not_well(mounts):
    m = mounts()
    m.make("t", partitions=3)
    for n in range(3):
        produce(m.part("t", n), "a")
        produce(m.part("t", n), "b")
    m.stop()
    patch(f"{m.data_part('t', 1)}/{0:020d}.log", 40, b"\xff")
    os.rename(f"{m.data_part('t', 2)}/{0:020d}.log", m.base + "/aside")
    os.mkdir(f"{m.data_part('t', 2)}/{0:020d}.log")
    m.start()
    assert read_file(m.part("t", 1) + "/log") == b"b\n"
    assert fails(read_file, m.part("t", 2) + "/log") == errno.EIO
    (row,) = rows("topics", "--json", m.mnt)
    assert row["state"] == "1 of 3 partitions out of service, 1 of 3 partitions damaged"


def test_describe_tells_settings_and_partitions(m):
    part = m.make("t", partitions=2, segment_bytes=65536, consume_wait_ms=-1)
    produce(part, *range(7))
    ack(part, take(part, 1)[0]["handle"], sync=True)
    (row,) = rows("describe", "--json", m.mnt, "t")
    assert row["topic"] == "t" and row["state"] == "ok"
    assert row["incarnation"] == xattr(m.topic("t"), "incarnation")
    config = dict(line.split("=") for line in read_file(m.topic("t") + "/config").decode().splitlines())
    assert {key: str(value) for key, value in row["settings"].items()} == config
    assert row["settings"]["consume_wait_ms"] == -1
    for i, partition in enumerate(row["partitions"]):
        assert partition.pop("partition") == i and partition.pop("state") == "ok"
        assert partition == {name: number(m.part("t", i), name) for name in partition}
        assert {"oldest_offset", "hwm", "frontier", "lag", "in_flight", "segments", "size_bytes"} < set(partition)
    assert row["partitions"][0]["hwm"] == 7 and row["partitions"][0]["frontier"] == 1
    text = ctl("describe", m.mnt, "t").decode()
    assert "segment_bytes          65536" in text and "\np00001 " in text
    assert "there is no topic x" in refused("describe", m.mnt, "x")
    m.make("-odd")
    for words in (("--", m.mnt, "-odd"), (m.mnt, "--", "-odd")):
        assert rows("describe", "--json", *words)[0]["topic"] == "-odd"
    assert "no name of a topic" in refused("describe", m.mnt, "../t")
    assert "no naradfs is mounted" in refused("describe", m.base, "t")


@pytest.fixture
def somebody():
    """naradctl run in a folder by a user who owns nothing."""
    folder = tempfile.mkdtemp(prefix="naradctl-")  # where that user can start it from
    os.chmod(folder, 0o755)
    shutil.copy(NARADCTL, folder)

    def run(*words, cwd="/"):
        return subprocess.run([folder + "/naradctl", *words], cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, check=False, user=65534, group=65534, extra_groups=[])

    yield run
    shutil.rmtree(folder)


@pytest.fixture
def as_somebody(mounts, somebody):
    """The same in a mount for others, and that mount."""
    m = mounts(options="allow_other")
    return m, lambda *words: somebody(*words, cwd=m.mnt)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user")
def test_another_user_is_told_what_to_do(m, somebody):
    m.make("t")
    for words in (("topics", m.mnt), ("describe", m.mnt, "t"), ("describe", m.topic("t")), ("delete", "--yes", m.mnt, "t")):
        done = somebody(*words)
        assert done.returncode == 1 and f"the mount {m.mnt} cannot be used".encode() in done.stderr, (words, done)
        assert b"without -o allow_other" in done.stderr and done.stderr.count(b"\n") == 1, done.stderr
    m.stop()
    for words in (("check", m.data), ("export", m.data, "t/p00000", "/dev/null")):
        done = somebody(*words)
        assert done.returncode != 0 and b"as the user that it belongs to" in done.stderr, done
        assert b"start naradfs" not in done.stderr and b"chown" not in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user")
def test_what_cannot_be_read_is_told_by_the_exit_status(as_somebody):
    m, run = as_somebody
    for name in ("mine", "open"):
        m.make(name, partitions=2)
    verbs = (["topics", "."], ["topics", "--json", "."], ["describe", ".", "mine"], ["describe", "--json", ".", "mine"],
             ["top", "-n", "1", "-d", "0.05", "."])
    for verb in verbs:
        assert (run(*verb).returncode, run(*verb).stderr) == (0, b""), verb
    closed = [(m.topic("mine"), verbs), (m.topic("mine") + "/status", verbs), (m.part("mine", 1), verbs),
              (m.topic("mine") + "/config", verbs[2:4]), (m.part("mine", 1) + "/status", verbs[2:4]),
              (m.topic("mine") + "/children", verbs[2:4])]
    for path, those in closed:
        mode = os.stat(path).st_mode & 0o777
        os.chmod(path, 0)
        for verb in those:
            done = run(*verb)
            assert done.returncode == 1 and b"mine could not be read in full: Permission denied" in done.stderr or \
                b"mine cannot be looked at" in done.stderr, (path, verb, done)
            assert done.stderr.count(b"\n") == 1
            assert b"open" in done.stdout or verb[0] == "describe"  # the rest is shown all the same
        os.chmod(path, mode)
    assert run("config", ".", "mine").returncode == 0
    os.chmod(m.topic("mine") + "/config", 0)
    assert run("config", ".", "mine").returncode == 1
    for verb in verbs:
        assert (run(*verb).returncode == 0) == (verb[0] != "describe"), verb


def test_a_partition_is_named_in_the_same_ways_everywhere(m, tmp_path):
    produce(m.make("big", partitions=12), *range(5))
    produce(m.part("big", 11), *range(7))
    for name, first in (("big/p00000", 1), ("big/p0", 2), ("big/0", 3), (m.topic("big") + "/p0", 4)):
        ctl("ctl", *([] if name.startswith("/") else [m.mnt]), name, "seek", str(first))
        assert number(m.part("big"), "frontier") == first, name
        assert rows("describe", "--json", *([] if name.startswith("/") else [m.mnt]), name)[0]["topic"] == "big"
        assert "is a partition of big" in refused("delete", "--yes", *([] if name.startswith("/") else [m.mnt]), name)
    ctl("ctl", m.mnt, "big/p11", "seek", "end")
    assert number(m.part("big", 11), "frontier") == 7
    assert "no name of a topic" in refused("ctl", m.mnt, "big/q0", "seek", "1")
    for words in (("ctl", m.mnt, "big/p12", "roll"), ("describe", m.mnt, "big/12"), ("describe", m.topic("big") + "/p12")):
        assert "big has 12 partitions, the last one is p00011" in refused(*words), words
    m.stop()
    tars = []
    for name in ("big/p00011", "big/p11", "big/11", "big/00011"):
        ctl("export", "-q", m.data, name, tmp_path / "one.tar")
        tars.append((tmp_path / "one.tar").read_bytes())
        os.unlink(tmp_path / "one.tar")
    assert len({len(tar) for tar in tars}) == 1
    for name in ("big/p", "big/p-1", "big/pp1", "big/p100000", "big/"):
        assert "names no partition" in refused("export", m.data, name, tmp_path / "one.tar"), name


def settings(m, topic):
    return dict(line.split("=") for line in read_file(m.topic(topic) + "/config").decode().splitlines())


def test_config_shows_and_changes_settings(m):
    m.make("t", partitions=2)
    (row,) = rows("config", "--json", m.mnt, "t")
    assert row["topic"] == "t" and {key: str(value) for key, value in row["settings"].items()} == settings(m, "t")
    header, *table = ctl("config", m.mnt, "t").decode().splitlines()
    assert header.split() == ["setting", "value", "default", "allowed"]
    assert [line.split()[0] for line in table] == list(settings(m, "t"))
    assert "partitions             2              1              a number from 1 to 1024" in table
    assert "codec                  none           none           none or zstd" in table
    assert ctl("config", m.mnt, "t", "linger_ms=7", "codec=zstd", "partitions=3") == b""
    assert {"linger_ms": "7", "codec": "zstd", "partitions": "3"}.items() <= settings(m, "t").items()
    assert rows("config", "-j", m.mnt, "t", "linger_ms=8")[0]["settings"]["linger_ms"] == 8
    m.make("-odd")
    assert ctl("config", "--", m.mnt, "-odd", "linger_ms=9") == b"" and settings(m, "-odd")["linger_ms"] == "9"


@pytest.mark.parametrize("words,sentence", [
    (["linger_ms=70000"], "linger_ms cannot be \"70000\": a number from 0 to 60000 is allowed"),
    (["codec=gzip"], "codec cannot be \"gzip\": none or zstd is allowed"),
    (["retention_ms=5"], "retention_ms cannot be \"5\": 0 or a number from 1000 up is allowed"),
    (["zstd_level="], "zstd_level cannot be \"\": a number from 1 to 19 is allowed"),
    (["lingerms=7"], "there is no setting \"lingerms\"; `config` lists them"),
    (["partitions=1"], "partitions can only grow, from 2 up"),
    (["retention_bytes=65536"], "retention_bytes (65536) cannot be less than segment_bytes (67108864)"),
    (["fanout_delay_ms=7"], "fanout_delay_ms stays as it is while the topic is a child of another one; detach it first"),
])
def test_config_says_what_is_refused_and_changes_nothing(m, words, sentence):
    m.make("t", partitions=2)
    m.make("parent")
    os.mkdir(m.topic("parent") + "/children/t")
    before = read_file(m.topic("t") + "/config")
    for order in (["linger_ms=9", "max_in_flight=9", *words], [*words, "linger_ms=9"]):
        if words[0].startswith("linger_ms"):
            order = [word for word in order if word != "linger_ms=9"]
        said = refused("config", m.mnt, "t", *order)
        assert sentence in said and said.endswith("; nothing was changed\n"), said
    assert read_file(m.topic("t") + "/config") == before


def test_config_and_what_is_no_setting(m):
    m.make("t", linger_ms=7)
    m.make("child", fanout_delay_ms=7200000)
    os.mkdir(m.topic("t") + "/children/child")
    assert "an hour more than the delay of each child" in refused("config", m.mnt, "t", "retention_ms=3600000")
    assert '"linger_ms" is not KEY=VALUE' in refused("config", m.mnt, "t", "codec=zstd", "linger_ms", code=2)
    assert "is not KEY=VALUE" in refused("config", m.mnt, "t", "linger_ms=1\ncodec=zstd", code=2)
    assert "a setting is written KEY=VALUE" in refused("config", m.mnt, "t", "linger_ms", code=2)
    assert "no topic is named" in refused("config", "linger_ms=7", code=2)
    assert "there is no topic x" in refused("config", m.mnt, "x", "linger_ms=8")
    assert settings(m, "t")["linger_ms"] == "7" and settings(m, "t")["codec"] == "none"
    m.stop()
    m.options = "ro"
    m.start()
    assert "Read-only file system; nothing was changed" in refused("config", m.mnt, "t", "linger_ms=8")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a mount namespace of its own")
def test_the_mount_is_found_when_it_is_the_only_one(mounts):
    m, other = mounts("only"), mounts("other")
    m.make("t")

    def alone(keep):
        """Runs naradctl topics where only those mounts are to be seen, whatever comes and goes elsewhere."""
        script = """awk '$3 == "fuse.naradfs" { print $2 }' /proc/self/mounts | while read -r point; do
            case " $* " in *" $point "*) ;; *) umount -l "$(printf %b "$point")" ;; esac
        done; exec "$0" topics --json"""
        return subprocess.run(["unshare", "-m", "sh", "-c", script, NARADCTL, *keep], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, check=False)

    done = alone([m.mnt])
    assert (done.returncode, json.loads(done.stdout)["topic"]) == (0, "t"), done.stderr
    done = alone([m.mnt, other.mnt])
    assert done.returncode == 1 and b"several naradfs are mounted" in done.stderr
    done = alone([])
    assert done.returncode == 1 and b"no naradfs is mounted; mount one" in done.stderr
    assert os.path.isdir(m.topic("t"))  # nothing was unmounted outside


def test_a_path_names_the_mount_and_the_topic(mounts):
    """Several are mounted: a path, or the working folder, says which is meant, for every verb alike."""
    m, other = mounts("one"), mounts("other")
    produce(m.make("t"), "x")
    other.make("u")

    def at(cwd, *arguments, code=0):
        done = subprocess.run([NARADCTL, *arguments], cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              stdin=subprocess.DEVNULL, check=False)
        assert done.returncode == code, (arguments, done.stderr)
        return (done.stderr if code else done.stdout).decode()

    topic = m.topic("t")
    part = m.part("t")
    for path in (topic, topic + "/", part, part + "/log", os.path.relpath(topic, "/")):
        assert json.loads(at("/", "describe", "--json", path))["topic"] == "t"
        assert json.loads(at("/", "config", "--json", path))["topic"] == "t"
    assert at("/", "config", topic, "linger_ms=7") == "" and settings(m, "t")["linger_ms"] == "7"
    for cwd in (m.mnt, m.mnt + "/topics", topic, part + "/records"):
        assert json.loads(at(cwd, "topics", "--json"))["topic"] == "t"
        assert "t  " in at(cwd, "top", "-n", "1")
        assert json.loads(at(cwd, "describe", "--json", "t"))["topic"] == "t"
        assert "there is no topic u at " + m.mnt in at(cwd, "describe", "u", code=1)
    assert json.loads(at(topic, "describe", "--json", "."))["topic"] == "t"
    assert json.loads(at(part, "describe", "--json", ".."))["topic"] == "t"
    assert json.loads(at(m.mnt, "describe", "--json", "topics/t"))["topic"] == "t"
    assert json.loads(at(m.mnt, "topics", "--json", other.mnt))["topic"] == "u"
    assert json.loads(at("/", "topics", "--json", other.topic("u")))["topic"] == "u"
    assert "no naradfs is mounted at /etc" in at("/", "topics", "/etc", code=1)
    assert "is no name of a topic" in at(m.mnt, "describe", m.base, code=1)
    assert "is a partition of t" in at("/", "delete", "--yes", part, code=1) and os.path.isdir(topic)
    assert at("/", "delete", "--yes", topic) == "" and not os.path.exists(topic)


def test_ctl_says_why_not(m):
    """The reasons that a shell's echo does not learn; the topic's status shows the last one."""
    part = m.make("t")
    produce(part, *range(3))
    ctl("ctl", m.mnt, "t/p00000", "roll")
    ctl("ctl", part, "seek", "2")
    assert number(part, "segments") == 2 and number(part, "frontier") == 2
    ctl("ctl", m.topic("t"), "partitions", "2")
    m.make("roll")
    ctl("ctl", m.mnt, "roll", "partitions", "2")  # a topic that is called like a verb
    assert os.path.isdir(m.topic("roll") + "/p00001")
    for arguments, sentence in [
            ((part, "trim", "99"), "p00000: ctl: \"trim 99\" refused: the offset is above the high watermark"),
            ((part, "trim", "x"), "trim takes an offset"),
            ((part, "seek", "nowhere"), "seek takes an offset, start or end"),
            ((part, "roll", "now"), "no such verb; a partition's ctl knows"),
            ((m.topic("t"), "partitions", "1"), "the number of partitions only grows"),
            ((m.topic("t"), "partitions", "2000"), "partitions cannot be"),
            ((m.topic("t"), "delete", "0" * 16), "that is not this topic's incarnation id"),
            ((m.topic("t"), "roll"), "roll is a verb of a partition: t/p00000"),
            ((part, "delete", "0" * 16), "delete is a verb of a topic: t, not its p00000"),
            ((m.topic("t") + "x", "roll"), "there is no topic tx"),
    ]:
        assert sentence in refused("ctl", *arguments), arguments
    time.sleep(1.1)  # an old refusal is no answer to what fails otherwise
    assert "t has 2 partitions, the last one is p00001" in refused("ctl", m.mnt, "t/p00009", "roll")
    for arguments in [(), ("t",), ("t", "explode"), (m.mnt, "t", "seek", "1", "2")]:
        refused("ctl", *arguments, code=2)
    for what, sentence in [(b"linger_ms = 5\n", "without blanks"), (b"linger_ms=5\r\n", "carriage return"),
                           (b" linger_ms=5\n", "without blanks"), (b"nonsense=5\n", "there is no setting")]:
        assert fails(write_file, m.topic("t") + "/config", what) == errno.EINVAL
        line = re.search(r"^refused      \d{4}-\S+Z: (config refused: .*)$", read_file(m.topic("t") + "/status").decode(), re.M)
        assert sentence in line.group(1) and "nothing was changed" in line.group(1)
    assert fails(write_file, part + "/ctl", b"roll\r\n") == errno.EINVAL
    assert "p00000: ctl: \"roll?\" refused: it ends with a carriage return" in read_file(m.topic("t") + "/status").decode()
    assert fails(os.rmdir, m.topic("t")) == errno.ENOTEMPTY
    assert "rmdir refused: the topic retains records" in read_file(m.topic("t") + "/status").decode()


def test_help_and_usage():
    assert b"usage: naradctl VERB" in ctl("--help")
    assert ctl("--version").startswith(b"naradctl 0.")
    assert b"there is no verb" in subprocess.run([NARADCTL, "nonsense"], stderr=subprocess.PIPE, check=False).stderr
    verbs = [line.split()[0].decode() for line in ctl("--help").splitlines() if line.startswith(b"  ")]
    assert {"check", "dump", "topics", "describe"} <= set(verbs)
    for verb in verbs:
        assert b"naradctl " + verb.encode() in ctl(verb, "--help")


# -- export, import


@pytest.fixture
def target(mounts):
    """A stopped data directory with a topic t of two partitions that never held a record."""
    m = mounts("target")
    m.make("t", partitions=2, segment_bytes=65536, retention_ms=0)
    m.stop()
    return m


def tar_entries(path):
    with tarfile.open(path) as archive:
        return [(entry, archive.extractfile(entry).read()) for entry in archive.getmembers()]


def write_tar(path, entries):
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as archive:
        for entry, content in entries:
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))


def test_export_and_import_carry_a_partition(data, target, tmp_path):
    source = f"{data}/topics/t/p00000"
    records = seglog.read_partition(source)
    before = snapshot(data)
    ctl("export", data, "t/p00000", tmp_path / "t.tar")
    assert snapshot(data) == before
    assert ctl("export", data, "t/p00000", "-") == (tmp_path / "t.tar").read_bytes()
    entries = tar_entries(tmp_path / "t.tar")
    assert [entry.name for entry, _ in entries] == \
        ["manifest", *[os.path.basename(path) for path in segments(source)], "hwm", "consumer.offset", "consumer.ahead"]

    out = ctl("import", target.data, "t/p00001", "-", stdin=(tmp_path / "t.tar").read_bytes())
    assert b"480 records" in out
    check(target.data)
    assert seglog.read_partition(target.data_part("t", 1)) == records
    target.start()
    part = target.part("t", 1)
    assert (number(part, "oldest_offset"), number(part, "hwm")) == (0, 480)
    assert (number(part, "frontier"), number(part, "acked_ahead")) == (4, 1)
    assert [item["offset"] for item in take(part, 5)] == [4, 5, 7, 8, 9]
    assert log(part) == b"".join(payload + b"\n" for _, _, _, payload in records)
    for offset, time_ms, _, payload in records[::37]:
        path = f"{part}/records/{offset}"
        assert (read_file(path), number(path, "timestamp")) == (payload, time_ms)
    produce(part, "the record after")
    assert number(part, "hwm") == 481
    assert number(target.part("t", 0), "hwm") == 0


def test_export_and_import_say_which_records(m, target, tmp_path):
    """Offsets are inclusive in words, as everywhere; a partition without a record has none."""
    m.make("t", partitions=2)
    produce(m.part("t"), *range(3))
    for verb in ("export", "import"):
        assert "unmount it first" in refused(verb, m.data, "t/p00000", tmp_path / "a.tar")
    m.stop()
    assert b"t/p00000: 3 records, offsets 0 to 2, written to" in ctl("export", m.data, "t/p00000", tmp_path / "a.tar")
    assert b"t/p00001: no record, the next offset is 0, " in ctl("export", m.data, "t/p00001", tmp_path / "b.tar")
    assert b"t/p00000: 3 records, offsets 0 to 2, imported" in ctl("import", target.data, "t/p00000", tmp_path / "a.tar")


def test_export_keeps_keys_binary_and_what_retention_left(m, target, tmp_path):
    """Offsets that do not begin at 0, keys, payloads of any bytes, and a log that was not closed."""
    part = m.make("t", segment_bytes=65536)
    for i in range(3):
        fd = os.open(part + "/produce.bin", os.O_WRONLY)
        for k in range(20):
            key, payload = b"k\x00%d" % k if k % 2 else b"", bytes(range(256)) * (k % 4)
            os.write(fd, struct.pack(">II", len(key), len(payload)) + key + payload)
        os.fsync(fd)
        os.close(fd)
        write_file(part + "/ctl", b"roll\n")
    write_file(part + "/ctl", b"trim 20\n")
    wait_for(lambda: number(part, "oldest_offset") == 20, "the trim")
    produce(part, "last")
    m.kill()
    with open(segments(m.data_part("t"))[-1], "ab") as file:
        file.write(b"\xca\xfe torn")
    ctl("export", m.data, "t/0", tmp_path / "t.tar")
    ctl("import", target.data, "t/0", tmp_path / "t.tar")
    m.start()
    assert len(log(part).splitlines()) > 0  # an open cuts the torn tail
    m.stop()
    records = seglog.read_partition(m.data_part("t"))
    assert [record[0] for record in records] == list(range(20, 61))
    assert seglog.read_partition(target.data_part("t")) == records
    target.start()
    assert (number(target.part("t"), "oldest_offset"), number(target.part("t"), "hwm")) == (20, 61)


def test_import_refuses_a_damaged_archive_and_changes_nothing(data, target, tmp_path):
    ctl("export", data, "t/p00000", tmp_path / "t.tar")
    whole = (tmp_path / "t.tar").read_bytes()
    entries = tar_entries(tmp_path / "t.tar")
    before = snapshot(target.data)
    rng = random.Random(f"{SEED} archive")
    cases = {"cut": whole[:len(whole) // 2], "empty": b"", "no tar": rng.randbytes(5000)}
    for entry, content in entries:
        if content:
            pos = whole.index(content)
            for _ in range(4):
                flipped = bytearray(whole)
                flipped[pos + rng.randrange(len(content))] ^= 1 << rng.randrange(8)
                cases[f"a bit of {entry.name} {_}"] = bytes(flipped)
    for what, made in (("a file is missing", entries[:2] + entries[3:]), ("the last is missing", entries[:-1]),
                       ("another order", [entries[0], entries[2], entries[1], *entries[3:]]),
                       ("one more", entries + [(tarfile.TarInfo("../../x"), b"x")]),
                       ("no manifest", entries[1:])):
        write_tar(tmp_path / "made.tar", made)
        cases[what] = (tmp_path / "made.tar").read_bytes()
    for what, archive in cases.items():
        (tmp_path / "bad.tar").write_bytes(archive)
        done = subprocess.run([NARADCTL, "import", target.data, "t/p00000", tmp_path / "bad.tar"],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
        assert done.returncode == 1 and b"nothing was imported" in done.stderr, (what, done)
        now = snapshot(target.data)
        topic = f"{target.data}/topics/t"  # its times tell of the folder that was made there and removed
        assert {path: now[path] for path in now if path != topic} == \
            {path: before[path] for path in before if path != topic}, what
    ctl("import", target.data, "t/p00000", tmp_path / "t.tar")


def test_import_refuses_what_is_whole_and_not_true(data, target, tmp_path):
    """A manifest and checksums that match, over segments that do not: somebody made it."""
    ctl("export", data, "t/p00000", tmp_path / "t.tar")
    entries = tar_entries(tmp_path / "t.tar")
    for index, pos in ((1, 50), (len(entries) - 2, 7)):  # a byte of a frame; of consumer.offset
        made = [(entry, bytearray(content)) for entry, content in entries]
        made[index][1][pos] ^= 0x01
        lines = bytes(made[0][1]).decode().splitlines()[:-1]
        name = made[index][0].name
        for i, line in enumerate(lines):
            words = line.split()
            if words[:2] == ["file", name]:
                words[3] = f"{seglog.crc32c(bytes(made[index][1])):08x}"
                lines[i] = " ".join(words)
        text = "".join(line + "\n" for line in lines).encode()
        made[0] = (made[0][0], text + b"crc32c %08x\n" % seglog.crc32c(text))
        write_tar(tmp_path / "made.tar", made)
        refused("import", target.data, "t/p00000", tmp_path / "made.tar")
        assert not segments(target.data_part("t"))


def test_import_only_into_a_partition_that_never_held_a_record(data, target, tmp_path):
    ctl("export", data, "t/p00000", tmp_path / "t.tar")
    assert "there is no topic x" in refused("import", target.data, "x/p00000", tmp_path / "t.tar")
    assert "the last one is p00001" in refused("import", target.data, "t/p00002", tmp_path / "t.tar")
    assert "names no partition" in refused("import", target.data, "t", tmp_path / "t.tar")
    target.start()
    assert f"pid {target.process.pid}" in refused("import", target.data, "t/p00000", tmp_path / "t.tar")
    assert f"pid {target.process.pid}" in refused("export", target.data, "t/p00000", tmp_path / "x.tar")
    produce(target.part("t"), "one")
    target.stop()
    assert "holds records" in refused("import", target.data, "t/p00000", tmp_path / "t.tar")
    assert "holds records" in refused("import", data, "t/p00000", tmp_path / "t.tar")
    os.truncate(f"{target.data_part('t')}/hwm", 0)  # as after a crash
    assert "holds records" in refused("import", target.data, "t/p00000", tmp_path / "t.tar")
    os.mkdir(f"{target.data_part('t', 1)}/{5:020d}.log")
    assert "holds records" in refused("import", target.data, "t/p00001", tmp_path / "t.tar")
    os.rmdir(f"{target.data_part('t', 1)}/{5:020d}.log")
    assert len(seglog.read_partition(target.data_part("t"))) == 1
    # what an import left that was cut short is in nobody's way
    os.mkdir(f"{target.data}/topics/t/.import-p00001")
    with open(f"{target.data}/topics/t/.import-p00001/{0:020d}.log", "w", encoding="utf-8") as file:
        file.write("rubbish")
    assert sorted(f["kind"] for f in check(target.data)[0]) == ["hwm", "stray"]
    ctl("import", target.data, "t/p00001", tmp_path / "t.tar")
    assert [f["path"] for f in check(target.data)[0]] == ["topics/t/p00000/hwm"]


def test_export_refuses_damage_and_replaces_nothing(data, tmp_path):
    (tmp_path / "t.tar").write_bytes(b"precious")
    assert "it exists" in refused("export", data, "t/p00000", tmp_path / "t.tar")
    assert (tmp_path / "t.tar").read_bytes() == b"precious"
    patch(segments(f"{data}/topics/t/p00000")[0], 60, b"\xff")
    assert "damaged" in refused("export", data, "t/p00000", tmp_path / "u.tar")
    assert sorted(os.listdir(tmp_path)) == ["data", "t.tar"]
    with open("/dev/full", "wb") as full:
        done = subprocess.run([NARADCTL, "export", data, "u/p00000", "-"], stdout=full, stderr=subprocess.PIPE,
                              check=False)
    assert done.returncode == 1 and b"No space left" in done.stderr, done


def test_export_refuses_to_leave_records_behind(m, tmp_path):
    """A high watermark that was set back; the log was closed with more than it tells."""
    part = m.make("t")
    for text in ("a", "b", "c"):
        produce(part, text)
    m.stop()
    with open(m.data + "/topics/t/p00000/hwm", "wb") as file:
        file.write(struct.pack(">Q", 2))
    assert "hwm is damaged (it hides committed records)" in refused("export", m.data, "t/p00000", tmp_path / "t.tar")
    assert not [name for name in os.listdir(tmp_path) if "tar" in name]


# -- delete, top


def on_terminal(arguments, typed, until=None, limit_s=20):
    """Runs naradctl on a terminal of its own; types when `until` has been shown. (status, what was shown)"""
    pid, fd = pty.fork()
    if pid == 0:
        os.execv(NARADCTL, [NARADCTL, *map(str, arguments)])
    shown = b""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        if select.select([fd], [], [], 0.1)[0]:
            try:
                piece = os.read(fd, 65536)
            except OSError:  # the terminal is gone with the last process on it
                break
            if not piece:
                break
            shown += piece
        if typed and (until is None or until in shown):
            os.write(fd, typed)
            typed = b""
    os.close(fd)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status), shown.replace(b"\r\n", b"\n")


def test_delete_asks_and_says_what_will_be_lost(m):
    produce(m.make("jobs", partitions=2), *range(12))
    ack(m.part("jobs"), *[item["handle"] for item in take(m.part("jobs"), 2)], sync=True)
    for answer in (b"yes\n", b"\n", b"job\n", b"\x04"):
        status, shown = on_terminal(["delete", m.mnt, "jobs"], answer, until=b"to delete it: ")
        assert status == 1 and b"jobs was not deleted" in shown, shown
        assert b"2 partitions with 12 records" in shown and b"not settled 10." in shown
    assert "--yes" in refused("delete", m.mnt, "jobs")
    assert number(m.part("jobs"), "hwm") == 12
    status, shown = on_terminal(["delete", m.mnt, "jobs"], b"jobs\n", until=b"to delete it: ")
    assert status == 0, shown
    assert os.listdir(m.mnt + "/topics") == []
    produce(m.make("jobs"), "of another topic of that name")
    assert ctl("delete", "--yes", m.mnt, "jobs") == b""
    assert os.listdir(m.mnt + "/topics") == []
    assert "there is no topic jobs" in refused("delete", "-y", m.mnt, "jobs")


def test_top_shows_rates_in_a_pipe(m):
    part = m.make("t")
    m.make("idle")
    process = subprocess.Popen([NARADCTL, "top", "-n", "3", "-d", "0.5", m.mnt], stdout=subprocess.PIPE)
    n = 0
    while process.poll() is None:
        produce(part, *range(100))
        n += 100
    out = process.stdout.read().decode()
    process.stdout.close()
    assert process.returncode == 0 and "\033" not in out
    pages = [line.split() for line in out.splitlines() if line.startswith("t ")]
    assert len(pages) == 3 and any(int(row[1]) > 0 for row in pages), out
    assert int(pages[0][3]) <= int(pages[1][3]) <= int(pages[2][3]) <= n
    assert [line.split()[1] for line in out.splitlines() if line.startswith("idle ")] == ["0", "0", "0"]
    one = ctl("top", "-d", "0.05", m.mnt).decode().splitlines()  # not a terminal: one page
    assert len(one) == 4 and one[0].startswith("2 topics; ")
    refused("top", "-d", "0", m.mnt, code=2)


def test_top_takes_a_number_from_1(m):
    m.make("t")
    assert ctl("top", "--number", "1", "--delay", "0.05", m.mnt).decode().startswith("1 topic; ")
    for n_pages in (0, -1):
        assert "--number a number from 1 up" in refused("top", f"--number={n_pages}", m.mnt, code=2)


def test_top_on_a_terminal_ends_with_q(m):
    produce(m.make("orders"), *range(42))
    status, shown = on_terminal(["top", "-d", "0.1", m.mnt], b"q", until=b"orders ")
    assert status == 0
    assert b"q quits" in shown
    assert shown.startswith(b"\033[?1049h") and shown.endswith(b"\033[?1049l")  # the screen is given back


# -- bench


def test_bench_measures_and_leaves_nothing(m, tmp_path):
    produce(m.make("mine"), "kept")
    (tmp_path / "beside").mkdir()
    found = rows("bench", "--json", "--seconds", "0.2", "--beside", tmp_path / "beside", m.mnt)
    assert [row["measure"] for row in found] == ["fsync_1", "fsync_8", "bulk", "log", "drain"]
    assert all(row["naradfs"] > 0 and row["plain"] > 0 for row in found)
    assert all(abs(row["ratio"] / (row["naradfs"] / row["plain"]) - 1) < 0.001 for row in found)
    assert os.listdir(m.mnt + "/topics") == ["mine"] and os.listdir(tmp_path / "beside") == []
    text = ctl("bench", "--seconds", "0.1", m.mnt).decode()
    assert text.count("\n") == 5 and "ratio" not in text
    refused("bench", "--beside", tmp_path / "nothing", m.mnt)
    refused("bench", "--seconds", "0", m.mnt, code=2)
    assert os.listdir(m.mnt + "/topics") == ["mine"]


def test_bench_cleans_up_when_it_is_interrupted(m, tmp_path):
    process = subprocess.Popen([NARADCTL, "bench", "--seconds", "30", "--beside", tmp_path, m.mnt],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    wait_for(lambda: os.listdir(m.mnt + "/topics"), "its topic")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode == 1
    assert os.listdir(m.mnt + "/topics") == []
    assert not [name for name in os.listdir(tmp_path) if name.startswith("naradctl-bench")]


# -- manual, completion


def options_of(verb):
    """The long options that a verb's --help lists."""
    return set(re.findall(r"--[a-z]+", ctl(verb, "--help").decode())) - {"--help"}


def verbs():
    return [line.split()[0].decode() for line in ctl("--help").splitlines() if line.startswith(b"  ")]


@pytest.mark.skipif(not shutil.which("mandoc"), reason="mandoc is not installed")
def test_the_manual_is_well_formed_and_whole():
    page = f"{ROOT}/ctl/naradctl.1"
    done = subprocess.run(["mandoc", "-Tlint", page], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    assert [line for line in done.stdout.decode().splitlines() if "mandoc.db" not in line] == []
    text = subprocess.run(["mandoc", "-Tascii", page], stdout=subprocess.PIPE, check=True).stdout.decode()
    text = re.sub(".\b", "", text)
    for verb in verbs():
        synopsis = re.search(rf"^ +naradctl {verb}( .*\n(?:      .*\n)*)", text, re.M)
        assert synopsis, verb
        assert options_of(verb) == set(re.findall(r"--[a-z]+", synopsis.group(1))), verb


def complete(*words):
    """What bash offers for the last word."""
    script = ('source "$1"; shift; COMP_WORDS=(naradctl "$@"); COMP_CWORD=$#; _naradctl; '
              'printf "%s\\n" "${COMPREPLY[@]}"')
    done = subprocess.run(["bash", "-c", script, "bash", f"{ROOT}/ctl/completion/naradctl.bash", *map(str, words)],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=True)
    assert done.stderr == b""
    return {word.decode() for word in done.stdout.splitlines() if word}


def test_bash_completes_verbs_options_topics_and_partitions(m):
    m.make("orders", partitions=2)
    m.make("other")
    m.make("jobs")
    assert complete("") == {*verbs(), "--help", "--version"}
    for verb in verbs():
        assert complete(verb, "--") == options_of(verb) | {"--help"}, verb
    assert complete("describe", m.mnt, "o") == {"orders", "other"}
    assert complete("delete", "--yes", m.mnt, "j") == {"jobs"}
    assert m.mnt in complete("topics", m.base)
    assert m.data in complete("check", m.data[:-1])
    assert complete("export", m.data, "ord") == {"orders/p00000", "orders/p00001"}
    assert complete("bench", "--seconds", "") == set()
    keys = {key + "=" for key in settings(m, "orders")}
    assert complete("config", m.mnt, "o") == {"orders", "other"}
    assert complete("config", m.mnt, "orders", "") == keys
    assert complete("config", "--json", m.mnt, "orders", "codec=zstd", "re") == {"retention_ms=", "retention_bytes="}


@pytest.mark.skipif(not shutil.which("zsh"), reason="zsh is not installed")
def test_zsh_can_read_its_completion():
    path = f"{ROOT}/ctl/completion/_naradctl"
    subprocess.run(["zsh", "-n", path], check=True)
    with open(path, encoding="utf-8") as file:
        text = file.read()
    for verb in verbs():
        assert f"'{verb}:" in text
        assert all(option in text for option in options_of(verb)), verb


def test_import_cleans_up_when_it_is_interrupted(data, target):
    archive = ctl("export", data, "t/p00000", "-")
    process = subprocess.Popen([NARADCTL, "import", target.data, "t/p00000", "-"], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdin.write(archive[:20000])
    process.stdin.flush()
    wait_for(lambda: os.path.isdir(f"{target.data}/topics/t/.import-p00000"), "the archive to be unpacked")
    process.send_signal(signal.SIGINT)
    _, sentence = process.communicate(archive[20000:], timeout=30)
    assert process.returncode == 1 and b"interrupted; nothing was imported" in sentence
    assert sorted(os.listdir(f"{target.data}/topics/t")) == ["incarnation", "p00000", "p00001"]
    ctl("import", target.data, "t/p00000", "-", stdin=archive)


def test_delete_says_why_a_topic_stays(m):
    m.make("t")
    os.rename(m.data + "/meta", m.base + "/meta")
    said = refused("delete", "--yes", m.mnt, "t")
    assert "meta/ is missing in the data directory: put it back" in said
    assert os.path.exists(m.topic("t"))
    os.rename(m.base + "/meta", m.data + "/meta")
    m.stop()
    os.rename(m.data + "/meta/t.topic", m.data + "/meta/other.topic")
    m.start()
    said = refused("delete", "--yes", m.mnt, "other")
    assert ("other cannot be deleted: other is out of service: meta/other.topic: it is the record of the topic t, under "
            "another name: give it its own back") in said


def test_import_brings_back_a_folder_that_is_missing(m, tmp_path):
    part = m.make("t", partitions=2)
    produce(part, "a", "b")
    m.stop()
    archive = tmp_path / "t.tar"
    ctl("export", m.data, "t/p00000", archive)
    shutil.rmtree(m.data_part("t"))
    said = refused("export", m.data, "t/p00000", tmp_path / "none.tar")
    assert "topics/t/p00000 is missing: put the folder back from a backup" in said and "start of the daemon" not in said
    with open(archive, "rb") as file:
        whole = file.read()
    (tmp_path / "torn.tar").write_bytes(whole[:len(whole) // 2])
    refused("import", m.data, "t/p00000", tmp_path / "torn.tar")
    assert not os.path.exists(m.data_part("t"))  # a damaged archive changes nothing
    ctl("import", m.data, "t/p00000", archive)
    m.start()
    assert log(part) == b"a\nb\n"
    produce(part, "c")
    assert log(part) == b"a\nb\nc\n"
