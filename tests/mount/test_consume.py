"""Consuming: leases, receipts, waiting, and what becomes of what was not settled."""

import base64
import contextlib
import errno
import json
import mmap
import os
import re
import select
import signal
import subprocess
import threading
import time

import pytest
from support import (JETSTREAM, PYTHON, SANITIZED, Background, Consumer, ack, configure, drain, fails, in_order,
                     lines, number, payload_of, produce, read_file, shell, take, wait_for, write_file)


def frontier(part):
    return number(part, "frontier")


# -- consume


def test_one_record_per_read(m):
    part = m.make("t")
    produce(part, "a", "", "ccc")
    with Consumer(part) as consumer:
        assert consumer.read() == b"a\n"
        assert number(part, "in_flight") == 1
        assert consumer.read() == b"\n"
        assert consumer.read() == b"ccc\n"
        assert consumer.none()
        assert number(part, "in_flight") == 3
        assert frontier(part) == 0


def test_small_buffers_get_the_rest_later(m):
    part = m.make("t")
    produce(part, "abcdefg", "h")
    with Consumer(part) as consumer:
        assert [consumer.read(3) for _ in range(4)] == [b"abc", b"def", b"g\n", b"h\n"]


REQUEST = 1 << 20  # the kernel cuts a read(2) that is longer


def read_wide(consumer, size=4 * REQUEST):
    """One read(2) into whole pages, as a program with a large buffer does it."""
    with mmap.mmap(-1, size) as buffer:
        return buffer[:os.readv(consumer.fd, [buffer])]


def head_size(part, name):
    """Bytes of a record beside its payload, when its receipt is as long as most are."""
    sizes = []
    for _ in range(8):
        produce(part, "x")
        with Consumer(part, name) as consumer:
            sizes.append(len(consumer.read()) - 1)
        assert shell(f"echo 'seek end' > {part}/ctl").returncode == 0
    return max(sizes)


def one_record(name, data):
    return data.count(b"\n") == 1 and data.endswith(b"\n") if name != "consume.bin" else \
        int.from_bytes(data[:4], "big") + 4 == len(data)


@pytest.mark.parametrize("name", ["consume", "consume.jsonl", "consume.bin"])
@pytest.mark.parametrize("requests", [1, 2])
def test_a_record_that_fills_its_requests_is_one_read(m, name, requests):
    """The kernel asks again when a request was filled to its end: the same read(2) must not wait for another record, nor
    bring one. The number of a receipt has a digit more or less now and then, so each length is tried again and again."""
    part = m.make("t", max_record_bytes=4 * REQUEST)
    produce(part, *range(10))  # offsets of two digits
    drain(part)
    payload = requests * REQUEST - head_size(part, name)
    filled = 0
    for size in [payload + more for more in (-1, 0, 1) for _ in range(3)]:
        produce(part, "a" * size)
        with Consumer(part, name, os.O_RDONLY) as consumer:
            data = read_wide(consumer)  # waits for ever if it asks for another one
            assert one_record(name, data) and len(data) > size
            filled += len(data) == requests * REQUEST
            produce(part, "b")
            assert one_record(name, read_wide(consumer))
        assert shell(f"echo 'seek end' > {part}/ctl").returncode == 0
        produce(part, "a" * size, "b")
        with Consumer(part, name) as consumer:
            data = read_wide(consumer)
            assert name == "consume.bin" or one_record(name, data)
            filled += len(data) == requests * REQUEST
        assert shell(f"echo 'seek end' > {part}/ctl").returncode == 0
    assert filled > 0


def test_a_read_of_drain_does_not_settle_what_it_brings(m):
    """A reader that dies in the middle of a read(2) has nothing of it."""
    part = m.make("t")
    line = "c" * 1023
    produce(part, *[line] * 3 * 1024)
    with Consumer(part, "drain") as consumer:
        assert len(read_wide(consumer)) >= REQUEST
        assert frontier(part) == 0
        assert len(read_wide(consumer)) >= REQUEST
        assert frontier(part) >= 1024
    assert number(part, "lag") == 3 * 1024 - frontier(part)


@pytest.mark.parametrize("name", ["consume", "consume.bin"])
def test_readers_of_one_descriptor_share_a_record(m, name):
    """Whoever comes for the rest of a record may end it before the reader of its beginning has its reply."""
    part = m.make("t")
    produce(part, *range(100, 1100))
    pieces = []
    with Consumer(part, name, os.O_RDONLY | os.O_NONBLOCK) as consumer:

        def read():
            while True:
                try:
                    pieces.append(consumer.read(3 if name == "consume" else 36))
                except BlockingIOError:
                    return

        readers = [threading.Thread(target=read) for _ in range(4)]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()
        total = sum(len(str(n)) + (1 if name == "consume" else 36) for n in range(100, 1100))
        assert sum(map(len, pieces)) == total
        assert number(part, "in_flight") == 1000


def test_fsync_settles_what_was_fully_delivered(m):
    part = m.make("t")
    produce(part, "a", "b", "cdef")
    consumer = Consumer(part, flags=os.O_RDONLY | os.O_NONBLOCK)
    consumer.read()
    consumer.read()
    assert consumer.read(2) == b"cd"
    consumer.sync()
    assert frontier(part) == 2
    assert consumer.read() == b"ef\n"
    consumer.sync()
    assert frontier(part) == 3
    assert number(part, "lag") == 0
    consumer.close()


def test_close_gives_back(m):
    part = m.make("t")
    produce(part, "a", "b")
    first = Consumer(part)
    second = Consumer(part)
    assert first.read() == b"a\n"
    assert second.read() == b"b\n"
    assert second.none()
    first.close()
    wait_for(lambda: number(part, "in_flight") == 1, "the lease to return")
    assert second.read() == b"a\n"
    second.close()


def test_lines_on_the_handle(m):
    part = m.make("t")
    produce(part, *"abcdef")
    with Consumer(part) as consumer:
        for record in (b"a\n", b"b\n", b"c\n"):
            assert consumer.read() == record
        assert consumer.write(b"ack 1\n") == 6
        assert (frontier(part), number(part, "acked_ahead")) == (0, 1)
        assert consumer.write(b"ack\n") == 4
        assert (frontier(part), number(part, "acked_ahead"), number(part, "in_flight")) == (3, 0, 0)
        assert fails(consumer.write, b"ack 1\n") == errno.ESTALE
        assert fails(consumer.write, b"ack 5\n") == errno.ESTALE
        assert fails(consumer.write, b"frobnicate\n") == errno.EINVAL
        assert fails(consumer.write, b"ack x\n") == errno.EINVAL
        assert consumer.read() == b"d\n"
        assert consumer.write(b"extend\n") == 7
        assert consumer.write(b"nack\n") == 5
        assert consumer.read() == b"d\n"


@pytest.mark.local("the order of what comes back")
def test_nacked_records_come_back_lowest_first(m):
    part = m.make("t")
    produce(part, *"abcd")
    with Consumer(part) as consumer:
        assert [consumer.read() for _ in range(3)] == [b"a\n", b"b\n", b"c\n"]
        consumer.write(b"nack 2\n")
        consumer.write(b"nack 0\n")
        assert [consumer.read() for _ in range(3)] == [b"a\n", b"c\n", b"d\n"]


def test_leases_expire(m):
    part = m.make("t", visibility_timeout_ms=300)
    produce(part, "a")
    slow = Consumer(part)
    assert slow.read() == b"a\n"
    quick = Consumer(part, flags=os.O_RDWR)
    start = time.monotonic()
    assert quick.read() == b"a\n"  # blocks until the lease has lapsed
    assert time.monotonic() - start < 10
    assert fails(slow.write, b"ack 0\n") == errno.ESTALE
    assert quick.write(b"ack 0\n") == 6
    assert frontier(part) == 1
    slow.close()
    quick.close()


def test_extend_keeps_a_lease(m):
    part = m.make("t", visibility_timeout_ms=1500)
    produce(part, "a")
    holder, other = Consumer(part), Consumer(part)
    assert holder.read() == b"a\n"
    for _ in range(8):
        time.sleep(0.4)
        assert holder.write(b"extend\n") == 7
        assert other.none()
    assert holder.write(b"ack\n") == 4
    holder.close()
    other.close()


@pytest.mark.limit(120)
def test_readers_never_share(m, tmp_path):
    part = m.make("t", consume_wait_ms=0)
    count = 600 if SANITIZED else 2000
    produce(part, *[f"r{i}" for i in range(count)])
    script = """
import os, sys
fd = os.open(sys.argv[1], os.O_RDONLY)
out = open(sys.argv[2], "wb")
while True:
    record = os.read(fd, 4096)
    if not record: break
    out.write(record)
    os.fsync(fd)
"""
    readers = [subprocess.Popen([PYTHON, "-c", script, part + "/consume", str(tmp_path / f"out{i}")]) for i in range(4)]
    assert [reader.wait(90) for reader in readers] == [0] * 4
    seen = b"".join((tmp_path / f"out{i}").read_bytes() for i in range(4)).split()
    assert sorted(seen) == sorted(b"r%d" % i for i in range(count))
    assert frontier(part) == count


def test_max_in_flight_bounds_leases(m):
    part = m.make("t", max_in_flight=2)
    produce(part, *"abcd")
    with Consumer(part) as consumer, Consumer(part) as waiting:
        assert [consumer.read(), consumer.read()] == [b"a\n", b"b\n"]
        assert waiting.none()
        consumer.write(b"ack 0\n")
        assert waiting.read() == b"c\n"
        assert waiting.none()


def held_leases(m):
    return int(re.search(rb"^narad_held_leases (\d+)$", read_file(m.mnt + "/metrics"), re.M).group(1))


@pytest.mark.limit(120)
def test_a_reader_who_never_settles_is_not_remembered_for_ever(m):
    """Its leases lapse and others settle the records; what it was once given is let go, and it is told."""
    part = m.make("t", visibility_timeout_ms=300 if JETSTREAM else 100, max_in_flight=10000)
    careless = Consumer(part, flags=os.O_RDWR)
    for _ in range(6):
        produce(part, *range(3000))
        for _ in range(3000):
            careless.read(100)
        wait_for(lambda: number(part, "in_flight") == 0, "the leases to lapse")
        wait_for(lambda: not drain(part) and number(part, "lag") == 0, "all of it to be settled", 60)
    assert held_leases(m) <= 4096 + 3000
    if JETSTREAM:  # an ack of a drain that the servers could not confirm in time is told by the next fsync, once
        with contextlib.suppress(OSError):
            ack(part, sync=True)
    produce(part, "last")
    assert careless.read() == b"last\n"
    assert fails(careless.sync) == errno.ESTALE  # not all that it was given is settled by it
    assert held_leases(m) == 0
    careless.sync()
    careless.close()


def test_live_leases_are_remembered_however_many(m):
    part = m.make("t", max_in_flight=20000)
    produce(part, *range(10000))
    with Consumer(part) as consumer:
        for _ in range(10000):
            consumer.read(100)
        assert held_leases(m) == 10000
        consumer.sync()
        assert (held_leases(m), number(part, "frontier")) == (0, 10000)


# -- the shell


def test_bash_while_read(m):
    part = m.make("t", consume_wait_ms=0)
    produce(part, "one two", "", "three  four")
    done = shell(f"while IFS= read -r line; do echo \"<$line>\"; done < {part}/consume")
    assert done.stdout == b"<one two>\n<>\n<three  four>\n"
    wait_for(lambda: number(part, "in_flight") == 0, "the leases to return")
    assert frontier(part) == 0


def test_bash_worker_loop(m):
    part = m.make("t", consume_wait_ms=0)
    produce(part, *[f"job {i}" for i in range(1, 7)])
    done = shell(f"""
exec 3<> {part}/consume
while read -r line <&3; do
    if [ "$line" = "job 3" ] && [ ! -e tried ]; then touch tried; echo nack >&3; continue; fi
    echo "$line"
    echo ack >&3
done
""", cwd=m.base)
    assert done.stdout.decode().split("\n") == ["job 1", "job 2", "job 3", "job 4", "job 5", "job 6", ""]
    assert frontier(part) == 6


def test_sync_reaches_the_session_of_a_descriptor(m):
    part = m.make("t")
    produce(part, "a", "b")
    shell(f"exec 3< {part}/consume; read -r one <&3; [ \"$one\" = a ]; sync /dev/fd/3")
    assert frontier(part) == 1


def test_head_takes_one(m):
    part = m.make("t")
    produce(part, "a", "b")
    assert shell(f"head -n 1 {part}/consume").stdout == b"a\n"
    wait_for(lambda: number(part, "in_flight") == 0, "the lease to return")


# -- waiting


def test_a_commit_wakes_one_reader(m):
    part = m.make("t")
    consumers = [Consumer(part, flags=os.O_RDWR) for _ in range(4)]
    reads = [Background(consumer.read) for consumer in consumers]
    time.sleep(0.3)
    assert all(read.running() for read in reads)
    produce(part, "a")
    wait_for(lambda: sum(not read.running() for read in reads) == 1, "one reader")
    time.sleep(0.2)
    assert sum(read.running() for read in reads) == 3
    produce(part, "b", "c", "d")
    assert sorted(read.join() for read in reads) == [b"a\n", b"b\n", b"c\n", b"d\n"]
    for consumer in consumers:
        consumer.close()


def test_a_nack_wakes_a_reader(m):
    part = m.make("t")
    produce(part, "a")
    holder, waiting = Consumer(part), Consumer(part, flags=os.O_RDWR)
    assert holder.read() == b"a\n"
    read = Background(waiting.read)
    time.sleep(0.2)
    assert read.running()
    holder.write(b"nack\n")
    assert read.join() == b"a\n"
    holder.close()
    waiting.close()


def test_a_close_wakes_a_reader(m):
    part = m.make("t")
    produce(part, "a")
    holder, waiting = Consumer(part), Consumer(part, flags=os.O_RDWR)
    assert holder.read() == b"a\n"
    read = Background(waiting.read)
    time.sleep(0.2)
    assert read.running()
    holder.close()
    assert read.join() == b"a\n"
    waiting.close()


def test_signals_interrupt(m):
    part = m.make("t")
    script = f"""
import os, signal, sys
def stop(number, frame): raise KeyError("interrupted")
signal.signal(signal.SIGUSR1, stop)
fd = os.open({part + '/consume'!r}, os.O_RDONLY)
print("reading", flush=True)
try:
    os.read(fd, 100)
except KeyError:
    print("stopped", flush=True)
fd = os.open({part + '/consume'!r}, os.O_RDONLY | os.O_NONBLOCK)
print(os.read(fd, 100), flush=True)
"""
    child = subprocess.Popen([PYTHON, "-c", script], stdout=subprocess.PIPE)
    assert child.stdout.readline() == b"reading\n"
    time.sleep(0.5)
    child.send_signal(signal.SIGUSR1)
    ready, _, _ = select.select([child.stdout], [], [], 20)
    assert ready, "the read was not interrupted"
    assert child.stdout.readline() == b"stopped\n"
    child.wait(20)  # nothing to read: it ends with an exception
    produce(part, "a")
    with Consumer(part) as consumer:
        assert consumer.read() == b"a\n"  # the interrupted reader took nothing with it


def test_killed_readers_leave_at_once(m):
    part = m.make("t")
    readers = [subprocess.Popen(["cat", part + "/consume"], stdout=subprocess.PIPE) for _ in range(5)]
    time.sleep(0.5)
    for reader in readers:
        assert reader.poll() is None
        reader.kill()
    for reader in readers:
        assert reader.wait(10) == -signal.SIGKILL
        reader.stdout.close()
    produce(part, "a", "b")
    with Consumer(part) as consumer:
        assert wait_for(lambda: consumer.read(), "the record") == b"a\n"


def test_nonblocking_and_bounded_waits(m):
    part = m.make("t")
    with Consumer(part) as consumer:
        assert fails(consumer.read) == errno.EAGAIN
    configure(m.topic("t"), consume_wait_ms=400)
    with Consumer(part, flags=os.O_RDONLY) as consumer:
        start = time.monotonic()
        assert consumer.read() == b""
        assert 0.3 < time.monotonic() - start < 10
        read = Background(consumer.read)
        produce(part, "a")
        assert read.join() in (b"a\n", b"")
    configure(m.topic("t"), consume_wait_ms=0)
    with Consumer(m.make("u", consume_wait_ms=0), flags=os.O_RDONLY) as consumer:
        assert consumer.read() == b""


@pytest.mark.limit(90)
def test_a_hundred_parked_readers_hinder_nobody(m):
    part = m.make("t")
    m.make("other")
    script = f"""
import os, threading, time
def read():
    os.read(os.open({part + '/consume'!r}, os.O_RDONLY), 100)
for i in range(100): threading.Thread(target=read, daemon=True).start()
time.sleep(1)
print("parked", flush=True)
time.sleep(600)
"""
    child = subprocess.Popen([PYTHON, "-c", script], stdout=subprocess.PIPE)
    try:
        assert child.stdout.readline() == b"parked\n"
        start = time.monotonic()
        shell(f"ls -lR {m.mnt} > /dev/null", limit_s=10)
        produce(m.part("other"), "x")
        assert drain(m.part("other")) == b"x\n"
        assert time.monotonic() - start < 5
    finally:
        child.kill()
        child.wait(20)
        child.stdout.close()
    produce(part, "a")
    with Consumer(part) as consumer:
        assert consumer.read() == b"a\n"


def switches(pid, tids):
    """How often each thread has given its processor up by itself; a sleeper that is woken must sleep again."""
    counts = {}
    for tid in tids:
        with open(f"/proc/{pid}/task/{tid}/status", encoding="ascii") as file:
            counts[tid] = next(int(line.split()[1]) for line in file if line.startswith("voluntary_ctxt"))
    return counts


@pytest.mark.limit(90)
@pytest.mark.parametrize("where", ["partition", "topic"])
@pytest.mark.parametrize("name", ["consume", "consume.jsonl", "consume.bin"])
def test_one_commit_wakes_one_of_a_hundred_readers(m, name, where):
    part = m.make("t")
    path = f"{part if where == 'partition' else m.topic('t')}/{name}"
    script = f"""
import os, threading
def read():
    fd = os.open({path!r}, os.O_RDONLY)
    os.write(1, b"%d\\n" % threading.get_native_id())
    data = os.read(fd, 300)
    os.write(1, b"%d %s\\n" % (threading.get_native_id(), data.hex().encode()))
    threading.Event().wait()
threads = [threading.Thread(target=read, daemon=True) for _ in range(100)]
for thread in threads: thread.start()
threads[0].join()
"""
    child = subprocess.Popen([PYTHON, "-c", script], stdout=subprocess.PIPE)
    try:
        tids = [int(child.stdout.readline()) for _ in range(100)]
        last = {}

        def at_rest():
            before, last["counts"] = last.get("counts"), switches(child.pid, tids)
            return last["counts"] == before

        wait_for(at_rest, "a hundred readers at rest", step_s=0.5)
        for n in range(1, 4):
            produce(part, f"record {n}")
            tid, record = child.stdout.readline().split(b" ", 1)
            assert b"record %d" % n in bytes.fromhex(record.decode())
            assert number(part, "in_flight") == n
            after = switches(child.pid, tids)
            assert {t for t in tids if after[t] != last["counts"][t]} <= {int(tid)}
            tids.remove(int(tid))
    finally:
        child.kill()
        child.wait(20)
        child.stdout.close()


def test_poll_tells_readability(m):
    part = m.make("t")
    consumer = Consumer(part)
    poll = select.poll()
    poll.register(consumer.fd, select.POLLIN)
    assert poll.poll(0) == []
    assert poll.poll(200) == []
    waiting = Background(poll.poll, 15000)
    time.sleep(0.2)
    produce(part, "a")
    assert waiting.join() == [(consumer.fd, select.POLLIN)]
    assert consumer.read() == b"a\n"
    assert poll.poll(0) == []
    consumer.write(b"nack\n")
    assert poll.poll(10000) == [(consumer.fd, select.POLLIN)]
    consumer.close()


def test_epoll_tells_readability(m):
    part = m.make("t", visibility_timeout_ms=500)
    consumers = [Consumer(part), Consumer(part)]
    epoll = select.epoll()
    for consumer in consumers:
        epoll.register(consumer.fd, select.EPOLLIN)
    assert epoll.poll(0.1) == []
    produce(part, "a")
    assert wait_for(lambda: len(epoll.poll(1)) == 2, "both to be readable")
    assert consumers[0].read() == b"a\n"
    assert wait_for(lambda: epoll.poll(0.05) == [], "both to be unreadable")
    assert epoll.poll(15)  # the lease lapses
    epoll.close()
    for consumer in consumers:
        consumer.close()


# -- drain


def test_drain_takes_all_and_settles(m):
    part = m.make("t")
    produce(part, *range(5000))
    assert shell(f"cat {part}/drain").stdout == lines(*range(5000))
    assert (frontier(part), number(part, "lag")) == (5000, 0)
    assert drain(part) == b""
    produce(part, "more")
    assert drain(part) == b"more\n"


def test_drain_settles_on_the_next_read_only(m):
    part = m.make("t")
    produce(part, *[b"%04d" % i for i in range(100)])
    with Consumer(part, "drain", os.O_RDONLY) as consumer:
        assert consumer.read(50) == lines(*[b"%04d" % i for i in range(10)])
        assert frontier(part) == 0
        assert consumer.read(52) == lines(*[b"%04d" % i for i in range(10, 20)])
        assert frontier(part) == 10
    wait_for(lambda: number(part, "in_flight") == 0, "the last batch to return")
    assert frontier(part) == 10
    assert in_order(drain(part).split()) == [b"%04d" % i for i in range(10, 100)]


def test_drain_of_a_record_longer_than_the_buffer(m):
    part = m.make("t")
    produce(part, b"x" * 10000, "y")
    with Consumer(part, "drain", os.O_RDONLY) as consumer:
        text = b""
        while len(text) < 10001:
            text += consumer.read(4096)
        assert text.startswith(b"x" * 10000 + b"\n")
    assert in_order(drain(part).split()) == [b"x" * 10000, b"y"]
    assert frontier(part) == 2


@pytest.mark.parametrize("name,size", [("drain", 2), ("drain", 4), ("consume.bin", 37), ("consume.bin", 74)])
def test_what_had_no_room_leaves_those_before_it_in_their_places(m, name, size):
    """A batch ends with a record that does not fit; what is asked for next may be the one before that."""
    part = m.make("t")
    rows = ["a", "b", "c", "d"]
    produce(part, *rows)
    with Consumer(part, name) as consumer:
        assert len(consumer.read(size + 1)) == size
    write_file(part + "/ctl", b"seek start\n")
    assert [item["payload"] for item in take(part, 4)] == rows
    write_file(part + "/ctl", b"seek start\n")
    with Consumer(part, name) as consumer:
        assert len(consumer.read(size + 1)) == size
    write_file(part + "/ctl", b"seek start\n")
    assert drain(part) == lines(*rows)


def test_two_drains_share_the_records(m):
    part = m.make("t")
    produce(part, *range(20000))
    drains = [subprocess.Popen(["cat", part + "/drain"], stdout=subprocess.PIPE) for _ in range(3)]
    outs = [Background(child.communicate) for child in drains]
    seen = b"".join(out.join(40)[0] for out in outs)
    wait_for(lambda: number(part, "in_flight") == 0, "no lease")
    seen += drain(part)  # what a drain gave back between the ends of the others
    assert sorted(map(int, seen.split())) == list(range(20000))
    assert (frontier(part), number(part, "lag")) == (20000, 0)


# -- consume.jsonl and receipts


@pytest.mark.parametrize("record", ['{"a":1,  "b": [2, 3]}', "42", "true", "null", '"text"', "[]", "-1.50e3",
                                    '{"k":"caf\u00e9 \\u00e9"}', ' {"spaces": 1} '])
def test_json_payloads_are_verbatim(m, record):
    part = m.make("t")
    produce(part, record.encode())
    with Consumer(part, "consume.jsonl") as consumer:
        text = consumer.read().decode()
    assert '"payload":' + record in text or '"payload":' + record.strip() in text, text
    assert json.loads(text)["payload"] == json.loads(record)


@pytest.mark.parametrize("record", [b"plain", b"", b"two words", b"{broken", b'{"a":1} x', b"01", b"NaN", b"a\0b",
                                    b'quote " back\\slash', b"\x01\x1f\x7f", "gr\u00fc\u00df \U0001f600".encode(),
                                    b"\xff\xfe", b"\xc0\x80", b"\xed\xa0\x80", b"\xf5\x80\x80\x80"])
def test_other_payloads_are_strings_or_base64(m, record):
    part = m.make("t")
    produce(part, record)
    (item,) = take(part)
    try:
        record.decode("utf-8")
        assert item["payload"] == record.decode() and "payload_encoding" not in item
    except UnicodeDecodeError:
        assert item["payload_encoding"] == "base64"
        assert base64.b64decode(item["payload"], validate=True) == record


def test_objects_say_what_they_are(m):
    m.make("t", partitions=2)
    part = m.part("t", 1)
    before = time.time()
    produce(part, "a", "b")
    items = take(part)
    assert [item["offset"] for item in items] == [0, 1]
    for item in items:
        assert item["partition"] == 1
        partition, offset, nonce = item["handle"].split(":")
        assert (partition, offset) == ("1", str(item["offset"]))
        assert 0 <= int(nonce) < 1 << 63
        assert before * 1000 - 2000 <= item["timestamp"] <= time.time() * 1000 + 2000
    assert items[0]["handle"].split(":")[2] != items[1]["handle"].split(":")[2]


def test_receipts_outlive_the_handle(m):
    part = m.make("t")
    produce(part, "a", "b", "c")
    items = take(part)
    assert number(part, "in_flight") == 3
    assert ack(part, *[item["handle"] for item in items], sync=True) > 0
    assert (frontier(part), number(part, "lag"), number(part, "in_flight")) == (3, 0, 0)


def test_doubled_forged_and_foreign_receipts(m):
    m.make("t", partitions=2)
    part = m.part("t", 0)
    produce(part, "a", "b")
    produce(m.part("t", 1), "x")
    first, second = [item["handle"] for item in take(part)]
    (foreign,) = [item["handle"] for item in take(m.part("t", 1))]
    assert ack(part, first) == len(first) + 1
    assert fails(ack, part, first) == errno.ESTALE
    partition, offset, nonce = second.split(":")
    assert fails(ack, part, f"{partition}:{offset}:{int(nonce) ^ 1}") == errno.ESTALE
    assert fails(ack, part, f"{partition}:{int(offset) + 5}:{nonce}") == errno.ESTALE
    assert fails(ack, part, foreign) == errno.EINVAL
    assert ack(part, second, verb="extend") > 0
    assert ack(part, second, verb="nack") > 0
    assert fails(ack, part, second) == errno.ESTALE
    assert frontier(part) == 1


@pytest.mark.parametrize("bad", ["", "x", "0", "0:0", "0:0:", "0:0:1:2", "0:0:x", "-0:0:1", "+0:0:1", " 0:0:1", "0:0:1 ",
                                 "00:0:1", "0:00:1", "0:0:01", "0x0:0:1", "0:0:18446744073709551616", "0:-1:1",
                                 "4294967296:0:1", "frob 0:0:1", "ack", "ack\r0:0:1", "ACK 0:0:1", "0:0:1\0", "0:0:1\r\r"])
def test_malformed_receipts(m, bad):
    part = m.make("t")
    produce(part, "a")
    take(part)
    assert fails(ack, part, bad) == errno.EINVAL
    assert number(part, "in_flight") == 1


def test_a_write_takes_the_lines_before_a_bad_one(m):
    part = m.make("t")
    produce(part, *"abc")
    handles = [item["handle"] for item in take(part)]
    good = f"{handles[0]}\nack {handles[1]}\n".encode()
    fd = os.open(part + "/ack", os.O_WRONLY)
    assert os.write(fd, good + b"0:9:9\n" + handles[2].encode() + b"\n") == len(good)
    assert fails(os.write, fd, b"0:9:9\n" + handles[2].encode() + b"\n") == errno.ESTALE
    assert os.write(fd, handles[2].encode() + b"\n") > 0
    os.fsync(fd)
    os.close(fd)
    assert frontier(part) == 3


def test_lapsed_receipts(m):
    part = m.make("t", visibility_timeout_ms=200)
    produce(part, "a")
    (old,) = take(part)
    wait_for(lambda: number(part, "in_flight") == 0, "the lease to lapse")
    assert fails(ack, part, old["handle"]) == errno.ESTALE
    (new,) = take(part)
    assert new["handle"] != old["handle"]
    assert fails(ack, part, old["handle"]) == errno.ESTALE


def test_receipts_from_before_a_restart(m):
    part = m.make("t")
    produce(part, "a")
    (old,) = take(part)
    m.restart()
    (new,) = take(part)
    assert fails(ack, part, old["handle"]) == errno.ESTALE
    assert ack(part, new["handle"]) > 0


# -- frontier and what is acked ahead of it


def test_acks_out_of_order(m):
    part = m.make("t")
    produce(part, *range(10))
    handles = [item["handle"] for item in take(part)]
    ack(part, handles[3], handles[1], handles[9])
    assert (frontier(part), number(part, "acked_ahead"), number(part, "lag")) == (0, 3, 7)
    ack(part, handles[0])
    assert (frontier(part), number(part, "acked_ahead")) == (2, 2)
    ack(part, handles[2])
    assert (frontier(part), number(part, "acked_ahead")) == (4, 1)
    ack(part, *handles[4:9])
    assert (frontier(part), number(part, "acked_ahead"), number(part, "lag")) == (10, 0, 0)


@pytest.mark.local("max_acked_ahead")
def test_the_cap_on_acked_ahead(m):
    part = m.make("t", max_acked_ahead=4)
    produce(part, *range(10))
    handles = [item["handle"] for item in take(part)]
    assert len(handles) == 10
    ack(part, *handles[1:5])
    assert number(part, "acked_ahead") == 4
    assert fails(ack, part, handles[5]) == errno.EAGAIN
    ack(part, handles[5], handles[7], verb="nack")
    with Consumer(part) as consumer:
        assert consumer.none()  # only offset 0 may be served now, and it is leased
        ack(part, handles[0], verb="nack")
        assert consumer.read() == b"0\n"
        assert consumer.none()
        assert consumer.write(b"ack\n") == 4
        assert (frontier(part), number(part, "acked_ahead")) == (5, 0)
        assert consumer.read() == b"5\n"
        assert consumer.read() == b"7\n"


@pytest.mark.local("the number in flight")
@pytest.mark.parametrize("how", ["clean", "kill"])
def test_settled_records_stay_settled_over_a_restart(m, how):
    part = m.make("t")
    produce(part, *range(20))
    handles = [item["handle"] for item in take(part)]
    ack(part, *handles[0:5], handles[7], handles[11])
    if how == "kill":
        time.sleep(2.5)  # longer than the write-out takes
        m.crash()
    else:
        m.restart()
    assert (frontier(part), number(part, "acked_ahead"), number(part, "in_flight")) == (5, 2, 0)
    assert number(part, "lag") == 13
    assert [item["offset"] for item in take(part)] == [5, 6, 8, 9, 10, *range(12, 20)]


@pytest.mark.local("a mount that was killed")
def test_fsync_of_ack_survives_a_kill(m):
    part = m.make("t")
    produce(part, *range(10))
    handles = [item["handle"] for item in take(part)]
    ack(part, *handles[0:4], handles[6], sync=True)
    m.crash()
    assert (frontier(part), number(part, "acked_ahead")) == (4, 1)
    assert [item["offset"] for item in take(part)] == [4, 5, 7, 8, 9]


def test_fsync_of_consume_survives_a_kill(m):
    part = m.make("t")
    produce(part, *range(10))
    consumer = Consumer(part)
    for _ in range(6):
        consumer.read()
    consumer.sync()
    m.kill()
    consumer.close()
    m.start()
    assert frontier(part) == 6
    assert drain(part) == lines(*range(6, 10))


@pytest.mark.local("a mount that was killed")
def test_unsettled_leases_come_back_after_a_kill(m):
    part = m.make("t")
    produce(part, "a", "b")
    take(part)
    m.crash()
    assert drain(part) == b"a\nb\n"


def test_payload_helper_and_log_agree(m):
    part = m.make("t")
    rows = [b"plain", b"\xff\x00", "gr\u00fc\u00df".encode(), b""]
    produce(part, *rows)
    assert [payload_of(item) for item in take(part)] == rows
