"""`log.jsonl`: the committed records as JSON, one object a line, with an exact size, seekable, growing."""

import base64
import errno
import json
import os
import random
import shutil
import subprocess

import pytest

from support import fails, log, number, open_fails, produce, shell, take, wait_for, write_all, xattr

ODD = [b"plain", b"", b"with\nnewline", b"\0nul\0", b"\xff\xfe\x80 not utf-8", "žluťoučký 🐎".encode(), b'quote " and \\ back',
       b'{"a": 1,\n "b": [true, null]}', b"12", b'"string"', b" ", b"\x01\x1f\x7f", b"x" * 5000, bytes(range(256)) * 20]


def content(part):
    with open(f"{part}/log.jsonl", "rb") as file:
        return file.read()


def records(part):
    """Everything in it, parsed; every line is one object."""
    data = content(part)
    assert data == b"" or data.endswith(b"\n")
    return [json.loads(line) for line in data.split(b"\n")[:-1]]


def payload_bytes(record):
    """The payload as it was produced, when it was no JSON with line breaks."""
    if record.get("payload_encoding") == "base64":
        return base64.b64decode(record["payload"])
    if isinstance(record["payload"], str):
        return record["payload"].encode()
    return None


def check_size(part):
    data = content(part)
    assert os.stat(f"{part}/log.jsonl").st_size == len(data)
    return data


def produce_keyed(part, *pairs):
    """Through produce.jsonl; payloads are bytes."""
    rows = []
    for key, payload in pairs:
        row = {"payload": base64.b64encode(payload).decode(), "payload_encoding": "base64"}
        if key is not None:
            row["key"] = key
        rows.append(json.dumps(row).encode() + b"\n")
    fd = os.open(f"{part}/produce.jsonl", os.O_WRONLY)
    write_all(fd, b"".join(rows))
    os.fsync(fd)
    os.close(fd)


def fill(part, n, seed=1, commits=20):
    """n records of many kinds in some commits; their payloads."""
    rng = random.Random(seed)
    payloads = [rng.choice(ODD) if rng.random() < 0.3 else rng.randbytes(rng.randrange(400)) for _ in range(n)]
    for i in range(commits):
        share = payloads[i * n // commits:(i + 1) * n // commits]
        if share:
            produce_keyed(part, *[(None if rng.random() < 0.5 else f"k{rng.randrange(9)}", p) for p in share])
    return payloads


def check_everywhere(part, data, seed=2, n=60):
    """Any read at any position gives the slice."""
    rng = random.Random(seed)
    fd = os.open(f"{part}/log.jsonl", os.O_RDONLY)
    try:
        assert os.lseek(fd, 0, os.SEEK_END) == len(data)
        for _ in range(n):
            pos, size = rng.randrange(len(data) + 10), rng.randrange(1, 70000)
            assert os.pread(fd, size, pos) == data[pos:pos + size], (pos, size)
    finally:
        os.close(fd)


@pytest.mark.local("sizes of logs")
@pytest.mark.parametrize("codec", ["none", pytest.param("zstd", marks=pytest.mark.local("segments"))])
def test_every_record_in_order_and_exactly_sized(m, codec):
    part = m.make("t", codec=codec, segment_bytes=65536)
    payloads = fill(part, 600)
    assert number(part, "segments") > 1
    for how in (None, m.restart, m.crash):
        if how:
            how()
        data = check_size(part)
        rows = records(part)
        assert [row["offset"] for row in rows] == list(range(600))
        assert {row["partition"] for row in rows} == {0}
        for row, payload in zip(rows, payloads):
            assert list(row)[:4] == ["partition", "offset", "timestamp", "key"] and "handle" not in row
            plain = payload_bytes(row)
            if plain is None or json_of(payload) is not None:
                assert row["payload"] == json_of(payload), payload
            else:
                assert plain == payload
        check_everywhere(part, data)


def json_of(payload):
    """What a payload says that is JSON; None when it is not."""
    try:
        return json.loads(payload.decode())
    except ValueError:
        return None


def test_an_object_is_the_one_of_consume_without_its_handle(m):
    part = m.make("t")
    produce_keyed(part, *[("k", payload) for payload in ODD], (None, b"x"), ("\u0000 \"\n", b"y"))
    taken = take(part)
    for record in taken:
        del record["handle"]
    assert records(part) == taken
    for row in records(part):
        assert int(xattr(f"{part}/records/{row['offset']}", "timestamp")) == row["timestamp"]


@pytest.mark.local("sizes of logs")
def test_an_empty_partition_and_the_first_record(m):
    part = m.make("t")
    fd = os.open(f"{part}/log.jsonl", os.O_RDONLY)
    assert os.fstat(fd).st_size == 0 and os.read(fd, 100) == b"" and content(part) == b""
    produce(part, "one")
    wanted = content(part)
    assert json.loads(wanted)["payload"] == "one"
    assert os.fstat(fd).st_size == len(wanted) and os.read(fd, 1000) == wanted and os.read(fd, 10) == b""
    os.close(fd)


@pytest.mark.local("sizes of logs")
def test_it_grows_with_the_high_watermark(m):
    part = m.make("t", segment_bytes=65536)
    fd = os.open(f"{part}/log.jsonl", os.O_RDONLY)
    seen = b""
    for i in range(60):
        produce_keyed(part, ("k", os.urandom(3000)))
        assert os.fstat(fd).st_size == os.stat(f"{part}/log.jsonl").st_size
        while chunk := os.read(fd, 700 + i):
            seen += chunk
        assert os.fstat(fd).st_size == len(seen)
    os.close(fd)
    assert number(part, "segments") > 1
    assert seen == check_size(part)


def test_unsynced_records_are_not_in_it(m):
    part = m.make("t")
    produce(part, "one")
    before = content(part)
    fd = os.open(f"{part}/produce", os.O_WRONLY)
    os.write(fd, b"two\n")
    assert content(part) == before
    os.fsync(fd)
    os.close(fd)
    assert len(content(part)) > len(before)


@pytest.mark.local("sizes of logs")
def test_tools(m):
    part = m.make("t", segment_bytes=65536)
    fill(part, 300)
    data = content(part)
    path = f"{part}/log.jsonl"
    assert int(shell(f"stat -c %s {path}").stdout) == len(data)
    assert int(shell(f"wc -c < {path}").stdout) == len(data)
    assert int(shell(f"wc -l < {path}").stdout) == 300
    assert shell(f"tail -n 1 {path}").stdout == data.split(b"\n")[-2] + b"\n"
    assert shell(f"tail -c 100 {path}").stdout == data[-100:]
    assert shell(f"tac {path}").stdout == b"".join(reversed(data.splitlines(keepends=True)))
    shell(f"cp -a {path} {m.base}/copy && cmp {path} {m.base}/copy")
    if shutil.which("rsync"):
        shell(f"rsync -a {path} {m.base}/synced && cmp {path} {m.base}/synced")
    if shutil.which("jq"):
        assert shell(f"jq -c .offset {path}").stdout == b"".join(b"%d\n" % i for i in range(300))


def position(pid, fd):
    """Of an open file of a process; None: it has none."""
    try:
        with open(f"/proc/{pid}/fdinfo/{fd}", encoding="ascii") as file:
            return int(file.readline().split()[1])  # pos: N
    except FileNotFoundError:
        return None


def test_tail_follows(m):
    part = m.make("t")
    produce(part, "old")
    tail = subprocess.Popen(["tail", "-n", "0", "-s", "0.05", "-f", f"{part}/log.jsonl"], stdout=subprocess.PIPE)
    try:
        there = len(content(part))
        wait_for(lambda: position(tail.pid, 3) == there, "tail to come to the end")
        seen = b""
        for i in range(5):
            produce(part, f"new {i}")
        while seen.count(b"\n") < 5:
            seen += os.read(tail.stdout.fileno(), 10000)
        wanted = content(part).splitlines(keepends=True)[-seen.count(b"\n"):]
        assert seen == b"".join(wanted) and json.loads(wanted[-1])["payload"] == "new 4"
    finally:
        tail.kill()
        tail.wait()
        tail.stdout.close()


@pytest.mark.local("sizes of logs")
def test_positions_stay_when_retention_cuts_the_head(m):
    part = m.make("t", segment_bytes=65536)
    fill(part, 600)
    data = content(part)
    held = os.open(f"{part}/log.jsonl", os.O_RDONLY)
    reading = os.open(f"{part}/log.jsonl", os.O_RDONLY)
    fresh = os.open(f"{part}/log.jsonl", os.O_RDONLY)  # nobody has asked it anything yet
    assert os.read(reading, 1000) == data[:1000]
    assert os.fstat(held).st_size == len(data)
    with open(f"{part}/ctl", "w", encoding="ascii") as ctl:
        ctl.write(f"trim {number(part, 'hwm')}\n")
    oldest = number(part, "oldest_offset")
    assert oldest > 0
    produce(part, "after")
    after = [json.loads(line) for line in content(part).splitlines()]
    assert after[0]["offset"] == oldest and after[-1]["payload"] == "after"
    rest = check_size(part)
    whole = data + rest.splitlines(keepends=True)[-1]
    assert whole.endswith(rest)
    for fd in (held, fresh):
        assert os.fstat(fd).st_size == len(whole)
        for pos in (0, 1, 65000, 100000, len(whole) - len(rest) - 1, len(whole) - 7):
            assert os.pread(fd, 5000, pos) == whole[pos:pos + 5000], pos
    assert b"".join(iter(lambda: os.read(reading, 50000), b"")) == whole[1000:]
    for fd in (held, reading, fresh):
        os.close(fd)


def side_files(m, topic="t"):
    folder = m.data_part(topic)
    return sorted(os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(".rendered"))


@pytest.mark.local("the data directory")
def test_side_files_are_made_used_and_removed(m):
    part = m.make("t", segment_bytes=65536)
    fill(part, 600)
    assert side_files(m) == []
    os.listdir(part)
    assert side_files(m) == [], "a listing measured the log"
    data = check_size(part)
    segments = number(part, "segments")
    assert len(side_files(m)) == segments - 1 > 1
    with open(f"{part}/ctl", "w", encoding="ascii") as ctl:
        ctl.write(f"trim {number(part, 'hwm')}\n")
    assert side_files(m) == []
    assert data.endswith(content(part)) and len(content(part)) < len(data)
    m.stop()
    names = {name.split(".")[0] for name in os.listdir(m.data_part("t")) if name.endswith(".log")}
    assert {os.path.basename(path).split(".")[0] for path in side_files(m)} <= names


@pytest.mark.local("the data directory")
@pytest.mark.parametrize("how", ["removed", "cut", "flipped", "foreign", "longer", "empty"])
def test_bad_side_files_change_nothing(m, how):
    part = m.make("t", segment_bytes=65536)
    fill(part, 400)
    data = check_size(part)
    m.stop()
    paths = side_files(m)
    assert paths
    for path in paths:
        with open(path, "rb") as file:
            good = file.read()
        bad = {"cut": good[:-1], "flipped": good[:70] + bytes([good[70] ^ 1]) + good[71:], "longer": good + b"\0",
               "foreign": b"NRDR" + bytes(200), "empty": b"", "removed": None}[how]
        os.unlink(path)
        if bad is not None:
            with open(path, "wb") as file:
                file.write(bad)
    m.start()
    assert check_size(part) == data
    check_everywhere(part, data, n=20)
    for path in paths[:-1]:  # the last one is of the segment that is written to
        assert os.path.getsize(path) > 80, "it was not written again"


@pytest.mark.local("the data directory")
def test_a_side_file_spares_the_reading(m):
    """With it, the size is known although the segment's records cannot be read any more."""
    part = m.make("t", segment_bytes=65536)
    fill(part, 400)
    data = check_size(part)
    m.stop()
    first = f"{m.data_part('t')}/{0:020d}.log"
    with open(first, "r+b") as file:
        file.seek(100)
        file.write(b"\xee" * 8)
    m.start()
    assert os.stat(f"{part}/log.jsonl").st_size == len(data)
    rows = records(part)  # the read meets the damage
    assert 0 < len(rows) < 400
    check_size(part)


@pytest.mark.local("the data directory")
def test_orphaned_side_files_are_removed(m):
    part = m.make("t", segment_bytes=65536)
    fill(part, 400)
    check_size(part)
    m.stop()
    orphan = f"{m.data_part('t')}/{10**9:020d}.rendered"
    shutil.copy(side_files(m)[0], orphan)
    m.start()
    check_size(part)
    assert not os.path.exists(orphan)


@pytest.mark.local("the data directory")
def test_damage_is_passed_over(m):
    part = m.make("t", segment_bytes=65536)
    for i in range(300):
        produce(part, f"{i} " + "x" * 700)
    data = check_size(part)
    assert number(part, "segments") > 2
    first = f"{m.data_part('t')}/{0:020d}.log"
    m.stop()
    with open(first, "r+b") as file:
        file.seek(20000)
        file.write(b"\xee" * 40)
    for path in side_files(m):
        os.unlink(path)
    m.start()
    left = check_size(part)
    offsets = [json.loads(line)["offset"] for line in left.splitlines()]
    lost = sorted(set(range(300)) - set(offsets))
    assert 1 <= len(lost) <= 2
    wanted = data.splitlines(keepends=True)
    assert left == b"".join(line for i, line in enumerate(wanted) if i not in lost)
    assert len(log(part).splitlines()) == 300 - len(lost)
    check_everywhere(part, left)
    assert "damaged frame" in m.stderr()
    m.restart()
    assert check_size(part) == left


@pytest.mark.local("the data directory")
def test_read_only(mounts):
    m = mounts()
    part = m.make("t", segment_bytes=65536)
    fill(part, 300)
    data = check_size(part)
    m.stop()
    for path in side_files(m):
        os.unlink(path)
    m.options = "ro"
    m.start()
    assert check_size(part) == data
    check_everywhere(part, data, n=20)
    assert side_files(m) == []


def test_times_modes_and_attributes_are_those_of_log(m):
    part = m.make("t")
    produce(part, "one")
    own, of_log = os.stat(f"{part}/log.jsonl"), os.stat(f"{part}/log")
    assert own.st_mode == of_log.st_mode and own.st_mtime_ns == of_log.st_mtime_ns and own.st_ino != of_log.st_ino
    assert own.st_mode & 0o777 == 0o444
    assert xattr(f"{part}/log.jsonl", "hwm") == "1"
    assert "log.jsonl" in os.listdir(part)
    assert open_fails(f"{part}/log.jsonl", os.O_WRONLY) in (errno.EACCES, errno.EPERM)
    os.chmod(f"{part}/log", 0o400)
    assert os.stat(f"{part}/log.jsonl").st_mode & 0o777 == 0o400, "who may not read the one may not read the other"


@pytest.mark.local("opening and closing of partitions")
def test_a_closed_partition_is_not_opened_for_its_size(m):
    part = m.make("t")
    produce(part, "one", "two")
    m.make("unused")
    opened = opened_so_far(m)
    size = len(content(part))
    for _ in range(3):
        m.restart()
        assert os.stat(f"{part}/log.jsonl").st_size == size
        assert os.stat(f"{m.part('unused')}/log.jsonl").st_size == 0
        assert opened_so_far(m) == 0 < opened, "a stat has opened a partition that a clean close left measured"
    assert len(content(part)) == size
    assert opened_so_far(m) == 1


def opened_so_far(m):
    with open(f"{m.mnt}/metrics", encoding="ascii") as file:
        return int(next(line for line in file if line.startswith("narad_partitions_opened_total")).split()[1])


def test_deletion_under_an_open_one(m):
    part = m.make("t")
    produce(part, "one")
    fd = os.open(f"{part}/log.jsonl", os.O_RDONLY)
    with open(m.topic("t") + "/ctl", "w", encoding="ascii") as ctl:
        ctl.write(f"delete {xattr(part, 'incarnation')}\n")
    assert fails(os.pread, fd, 10, 0) == errno.EIDRM
    assert fails(os.fstat, fd) in (errno.EIDRM, errno.ESTALE)
    os.close(fd)


@pytest.mark.local("sizes of logs")
def test_many_read_at_once_while_it_grows_and_rolls(m):
    part = m.make("t", segment_bytes=65536)
    fill(part, 100)
    script = f"""
import os, random, sys
seen = b""
fd = os.open({part!r} + "/log.jsonl", os.O_RDONLY)
while seen.count(b"\\n") < 700:
    chunk = os.read(fd, random.randrange(1, 60000))
    size = os.fstat(fd).st_size
    seen += chunk
    assert size >= len(seen), (size, len(seen))
    if seen:
        pos = random.randrange(len(seen))
        assert os.pread(fd, 500, pos)[:len(seen) - pos] == seen[pos:pos + 500], pos
print(hash(seen) and len(seen))
"""
    readers = [subprocess.Popen(["/usr/bin/python3", "-c", script], stdout=subprocess.PIPE) for _ in range(3)]
    fill(part, 600, seed=5, commits=60)
    answers = [reader.communicate()[0] for reader in readers]
    assert all(reader.returncode == 0 for reader in readers)
    assert {int(answer) for answer in answers} == {len(check_size(part))}
