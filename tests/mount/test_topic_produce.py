"""Producing to a topic as a whole: produce, produce.jsonl and produce.bin in the topic's folder, through the ingress
write-ahead log."""

import errno
import json
import os
import random
import shutil
import signal
import struct
import subprocess
import threading
import time

import pytest
from support import (Background, configure, drain, fails, lines, log, number, produce, read_file, shell, take, wait_for,
                     write_all, write_file, xattr)

PARTS = 4


@pytest.fixture
def topic(m):
    m.make("t", partitions=PARTS)
    return m.topic("t")


def part_records(m, name="t", partitions=PARTS):
    return [log(m.part(name, n)).splitlines() for n in range(partitions)]


def all_records(m, name="t", partitions=PARTS):
    return [record for records in part_records(m, name, partitions) for record in records]


def arrive(m, count, name="t", partitions=PARTS, limit_s=15):
    """Visible within milliseconds, a second at most; the limit is for a loaded machine."""
    wait_for(lambda: len(all_records(m, name, partitions)) >= count, f"{count} records to arrive", limit_s)
    return all_records(m, name, partitions)


def fnv1a(key):
    value = 0x811C9DC5
    for byte in key:
        value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
    return value


# ---- what arrives where ----


def test_unkeyed_records_take_turns(m, topic):
    produce(topic, *range(400))
    arrive(m, 400)
    parts = part_records(m)
    assert [len(part) for part in parts] == [100] * PARTS
    for part in parts:  # what one writer sent keeps its order in each
        assert part == sorted(part, key=int)


def test_keys_choose_their_partition(m, topic):
    keys = [f"key-{n}" for n in range(50)]
    with open(topic + "/produce.jsonl", "w", encoding="utf-8") as file:
        for turn in range(3):
            for key in keys:
                file.write(json.dumps({"key": key, "payload": f"{key} {turn}"}) + "\n")
    arrive(m, 150)
    for n in range(PARTS):
        records = take(m.part("t", n))
        assert all(fnv1a(record["key"].encode()) % PARTS == n for record in records)
        for key in {record["key"] for record in records}:
            assert [record["payload"] for record in records if record["key"] == key] == [f"{key} {t}" for t in range(3)]


def test_binary_records(m, topic):
    payload = bytes(range(256)) + b"\n\0"
    key = b"\xff\0key"
    write_file(topic + "/produce.bin", struct.pack(">II", len(key), len(payload)) + key + payload)
    wait_for(lambda: sum(number(m.part("t", n), "hwm") for n in range(PARTS)) == 1, "the record")
    home = m.part("t", fnv1a(key) % PARTS)
    assert read_file(home + "/records/0") == payload
    assert os.getxattr(home + "/records/0", "user.narad.key") == key


def test_fsync_is_enough_over_a_crash(m, topic):
    fd = os.open(topic + "/produce", os.O_WRONLY)
    write_all(fd, lines(*range(1000)))
    os.fsync(fd)
    m.crash()
    assert sorted(arrive(m, 1000), key=int) == [b"%d" % n for n in range(1000)]
    try:
        os.close(fd)
    except OSError:
        pass


def test_ranges_tell_where_records_went(m, topic):
    fd = os.open(topic + "/produce", os.O_RDWR)
    write_all(fd, lines(*range(8)))
    os.fsync(fd)
    told = b""
    for _ in range(1000):
        told += os.read(fd, 4096)
        if told.count(b"\n") == PARTS:
            break
        time.sleep(0.01)
    os.close(fd)
    assert sorted(told.splitlines()) == [b"p%05d 0 1" % n for n in range(PARTS)]


def test_named_files_and_synchronous_writes(m, topic):
    write_file(topic + "/produce@worker-1", b"named\n")
    fd = os.open(topic + "/produce", os.O_WRONLY | os.O_DSYNC)
    assert os.write(fd, b"at once\n") == 8
    os.close(fd)
    assert set(arrive(m, 2)) == {b"named", b"at once"}


def test_background_commits(m, topic):
    fd = os.open(topic + "/produce", os.O_WRONLY)
    write_all(fd, lines(*range(10)))
    arrive(m, 10)  # linger_ms, and no fsync
    os.close(fd)


def test_a_partial_line_ends_with_the_last_close(m, topic):
    write_file(topic + "/produce", b"no newline")
    assert arrive(m, 1) == [b"no newline"]


def test_records_that_are_refused(m, topic):
    fd = os.open(topic + "/produce", os.O_WRONLY)
    assert os.write(fd, b"good\n") == 5
    too_long = b"x" * ((1 << 20) + 1) + b"\n"
    taken = os.write(fd, too_long)  # the kernel cuts it, and hides the failure of a later piece behind a short count
    assert taken < len(too_long)
    assert fails(lambda: os.write(fd, too_long[taken:])) == errno.EMSGSIZE
    assert os.write(fd, b"good too\n") == 9
    os.fsync(fd)
    os.close(fd)
    assert sorted(arrive(m, 2)) == [b"good", b"good too"]
    fd = os.open(topic + "/produce.jsonl", os.O_WRONLY)
    assert fails(os.write, fd, b"rubbish\n") == errno.EINVAL
    os.close(fd)


def test_reading_it_is_an_empty_file(m, topic):
    assert read_file(topic + "/produce") == b""
    assert read_file(topic + "/produce.jsonl") == b""


def test_everyday_programs(m, topic):
    shell(f"seq 100 > {topic}/produce; seq 101 200 | tee -a {topic}/produce > /dev/null;"
          f"seq 201 300 | dd of={topic}/produce conv=fsync status=none; sync {topic}/produce")
    assert sorted(arrive(m, 300), key=int) == [b"%d" % n for n in range(1, 301)]


def test_many_writers(m, topic):
    writers = [Background(shell, f"for i in $(seq 20); do echo {w}-$i; done | cat > {topic}/produce@w{w}")
               for w in range(12)]
    for writer in writers:
        writer.join(30)
    records = arrive(m, 240)
    assert sorted(records) == sorted(f"{w}-{i}".encode() for w in range(12) for i in range(1, 21))


def test_topic_in_topic_out(m, topic):
    produce(topic, *range(100))
    got = []
    wait_for(lambda: got.extend(drain(topic).splitlines()) or len(got) == 100, "all of them")
    assert sorted(got, key=int) == [b"%d" % n for n in range(100)]


# ---- crashes ----


def test_kills_lose_nothing_and_double_nothing(m, topic):
    """Acknowledged by fsync, killed at any moment, again and again."""
    acknowledged = []
    for turn in range(6):
        fd = os.open(topic + "/produce", os.O_WRONLY)
        until = time.monotonic() + 0.05 * (turn + 1)
        n = 0
        while time.monotonic() < until:
            batch = [f"{turn}-{n}-{i}" for i in range(5)]
            write_all(fd, lines(*batch))
            os.fsync(fd)
            acknowledged += batch
            n += 1
        m.kill()
        try:
            os.close(fd)
        except OSError:
            pass
        m.start()
    records = arrive(m, len(acknowledged))
    time.sleep(0.5)
    records = [record.decode() for record in all_records(m)]
    assert sorted(records) == sorted(acknowledged)


def test_a_clean_stop_leaves_nothing_behind(m, topic):
    produce(topic, *range(100))
    m.stop()
    m.start()
    assert len(all_records(m)) == 100
    time.sleep(0.3)
    assert len(all_records(m)) == 100


# ---- trouble ----


@pytest.mark.local("the data directory")
def test_a_partition_out_of_service_is_passed_over(m, topic):
    produce(topic, *range(8))
    arrive(m, 8)
    m.stop()
    segment = m.data_part("t", 1) + "/00000000000000000000.log"
    os.rename(segment, segment + ".aside")
    os.mkdir(segment)
    m.start()
    produce(topic, *range(100, 140))
    wait_for(lambda: sum(number(m.part("t", n), "hwm") for n in (0, 2, 3)) == 6 + 40, "the siblings to take them")
    os.rmdir(segment)
    os.rename(segment + ".aside", segment)
    write_file(m.part("t", 1) + "/ctl", b"reopen\n")
    assert len(all_records(m)) == 48


def test_deleted_under_a_producer(m, topic):
    fd = os.open(topic + "/produce", os.O_WRONLY)
    write_all(fd, b"old\n")
    os.fsync(fd)
    write_file(topic + "/ctl", f"delete {xattr(topic, 'incarnation')}\n".encode())
    assert fails(os.write, fd, b"more\n") == errno.EIDRM
    assert fails(os.fsync, fd) == errno.EIDRM
    os.close(fd)
    m.make("t", partitions=PARTS)
    time.sleep(0.5)
    assert all_records(m) == []
    m.restart()
    assert all_records(m) == []


def test_a_topic_whose_records_are_on_their_way_is_not_empty(m, topic):
    fd = os.open(topic + "/produce", os.O_WRONLY)
    write_all(fd, b"one\n")
    os.fsync(fd)
    os.close(fd)
    assert fails(os.rmdir, topic) in (errno.ENOTEMPTY, errno.EBUSY)


def test_permissions_are_the_topics_own(m, topic):
    os.chmod(topic + "/produce", 0o600)
    m.restart()
    assert os.stat(topic + "/produce").st_mode & 0o777 == 0o600
    assert os.stat(m.part("t") + "/produce").st_mode & 0o777 != 0o600


def test_stop_while_producing(m, topic):
    program = subprocess.Popen(["bash", "-c", f"i=0; while echo $((i++)); do :; done > {topic}/produce"],
                               stderr=subprocess.DEVNULL)
    time.sleep(0.3)
    m.process.send_signal(signal.SIGTERM)
    assert m.wait_exit(20) == 0
    program.kill()
    program.wait()
    m.gone()
    m.start()
    records = sorted(int(record) for record in all_records(m))
    assert records == sorted(set(records))


def test_configured_growth_takes_its_share(m, topic):
    configure(topic, partitions=6)
    produce(topic, *range(60))
    arrive(m, 60, partitions=6)
    assert [number(m.part("t", n), "hwm") for n in range(6)] == [10] * 6


@pytest.mark.local("the ingress log")
def test_read_only_mount_leaves_the_wal_alone(mounts):
    m = mounts()
    m.make("t", partitions=2)
    produce(m.topic("t"), *range(10))
    m.stop()
    before = sorted(os.listdir(m.data + "/ingress"))
    m.options = "ro"
    m.start()
    assert fails(os.open, m.topic("t") + "/produce", os.O_WRONLY) == errno.EROFS
    assert read_file(m.topic("t") + "/produce") == b""
    m.stop()
    assert sorted(os.listdir(m.data + "/ingress")) == before


# ---- order around partitions that fail ----


def strace_failing_syncs(m):
    """Every thread's 25th fdatasync fails, and every 31st from there on."""
    if not shutil.which("strace"):
        pytest.skip("strace is not installed")
    process = subprocess.Popen(["strace", "-f", "-qq", "-o", m.base + "/strace", "-e", "trace=fdatasync", "-e",
                                "inject=fdatasync:error=EIO:when=25+31", "-p", str(m.process.pid)],
                               stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def attached():
        if process.poll() is not None:
            pytest.skip("strace cannot attach to a process on this machine")
        for task in os.listdir(f"/proc/{m.process.pid}/task"):
            with open(f"/proc/{m.process.pid}/task/{task}/status", encoding="utf-8") as file:
                if "TracerPid:\t0\n" in file.read():
                    return False
        return True

    wait_for(attached, "strace to attach")
    return process


def sync_in_the_end(fd):
    for _ in range(500):
        try:
            os.fsync(fd)
            return
        except OSError:
            time.sleep(0.01)
    raise AssertionError("fsync never succeeded")


def write_keyed(path, writer, count):
    for n in range(count):
        fd = os.open(path, os.O_WRONLY)
        write_all(fd, json.dumps({"key": f"key{writer}", "payload": f"{writer}-{n}"}).encode() + b"\n")
        sync_in_the_end(fd)
        os.close(fd)


def reopen_until(m, partitions, done):
    while not done.wait(random.uniform(0.02, 0.3)):
        for number in range(partitions):
            try:
                write_file(m.part("o", number) + "/ctl", b"reopen")
            except OSError:
                pass


def out_of_order(records):
    last, wrong = {}, []
    for record in records:
        writer, n = map(int, record.split(b"-"))
        if n <= last.get(writer, -1):
            wrong.append(record)
        last[writer] = max(n, last.get(writer, -1))
    return wrong


@pytest.mark.local("a disk that fails")
@pytest.mark.limit(120)
def test_keys_keep_their_order_around_failing_partitions(m):
    """Partitions are poisoned, records go elsewhere, partitions get well: in each the records of a key stand in order."""
    m.make("o", partitions=3)
    strace, done = strace_failing_syncs(m), threading.Event()
    writers = [threading.Thread(target=write_keyed, args=(m.topic("o") + "/produce.jsonl", n, 150)) for n in range(4)]
    healer = threading.Thread(target=reopen_until, args=(m, 3, done))
    try:
        for thread in writers + [healer]:
            thread.start()
        for thread in writers:
            thread.join()
        arrive(m, 600, "o", 3, limit_s=40)
    finally:
        done.set()
        healer.join()
        strace.send_signal(signal.SIGTERM)
        strace.wait(20)
    assert b"INJECTED" in read_file(m.base + "/strace")
    parts = part_records(m, "o", 3)
    assert sum(map(len, parts)) == 600
    assert [out_of_order(part) for part in parts] == [[], [], []]


def test_deleted_with_records_on_their_way(m):
    """No alarm: what was acknowledged and is not in its partition yet goes with the topic."""
    for _ in range(30):
        topic = m.topic("gone")
        m.make("gone", partitions=4)
        fd = os.open(topic + "/produce", os.O_WRONLY)
        write_all(fd, b"".join(b"%d\n" % n for n in range(2000)))
        os.fsync(fd)
        write_file(topic + "/ctl", f"delete {xattr(topic, 'incarnation')}\n".encode())
        assert fails(os.fsync, fd) == errno.EIDRM
        os.close(fd)
    time.sleep(0.5)
    assert "out of service" not in m.stderr(), m.stderr()
