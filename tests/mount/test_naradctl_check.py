"""naradctl check and dump on data directories: what they find and refuse, and that looking changes nothing."""

import base64
import json
import os
import pty
import random
import shutil
import signal
import struct
import subprocess
import time

import pytest
import seglog
from naradctl import (NARADCTL, SEED, check, ctl, data, fill, filled, patch, refused, rows, segments,  # noqa: F401
                      snapshot)
from support import number, produce, read_file, wait_for, write_file

N_DAMAGES = int(os.environ.get("NARADFS_CHECK_DAMAGES", "160"))


def relative(data, path):
    return os.path.relpath(path, data)


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
