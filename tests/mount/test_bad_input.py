"""Receipts that are wrong, readers with tiny buffers, handles that are left behind, and topics that go away under
everybody who has them open."""

import errno
import json
import os
import select
import subprocess

import pytest
from support import (PYTHON, SANITIZED, Background, Consumer, ack, fails, in_order, lines, log, name_of, number,
                     produce, take, wait_for, write_file)
from test_framings import binary, obj, parse, resident_mib

FILES = ["consume", "consume.jsonl", "consume.bin"]


def frontier(part):
    return number(part, "frontier")


def handles_of(folder):
    return [item["handle"] for item in take(folder)]


def delete(m, name):
    ident = os.getxattr(m.topic(name), "user.narad.incarnation").decode()
    write_file(m.topic(name) + "/ctl", f"delete {ident}\n".encode())


# -- receipts


@pytest.fixture(params=["partition", "topic"])
def leased(request, m):
    """A folder with ten leased records, their receipts, and another partition's and another topic's."""
    m.make("t", partitions=2)
    other = m.make("u")
    part = m.part("t")
    produce(part, *range(10))
    receipts = handles_of(part)
    produce(other, *range(10))
    folder = part if request.param == "partition" else m.topic("t")
    return m, folder, part, receipts, handles_of(other)


def test_wrong_receipts(leased):
    m, folder, part, receipts, foreign = leased
    partition, offset, nonce = (int(field) for field in receipts[3].split(":"))
    stale = [f"0:{offset}:{nonce ^ 1}", f"0:{offset}:0", f"0:{offset + 1}:{nonce}", f"0:9223372036854775807:{nonce}",
             f"0:10:{nonce}", f"0:{offset}:{(1 << 63) - 1}", f"0:18446744073709551615:{nonce}",
             f"0:9223372036854775808:{nonce}", foreign[3]]
    malformed = [f"0:18446744073709551616:{nonce}", f"4294967296:{offset}:{nonce}",
                 f"0:{offset}:18446744073709551616", f"0:{offset}:" + "9" * 40, "0" * 200 + f":{offset}:{nonce}",
                 f"0:{offset}:{nonce}:1", f"0:{offset}", "x" * 4000, f"0:{offset}:{nonce}\0", "\0", "ack", "nack", "extend",
                 f"ack nack {receipts[3]}", f"NACK {receipts[3]}", f"{receipts[3]} {receipts[4]}"]
    for verb in ("", "ack", "nack", "extend"):
        for receipt in stale:
            assert fails(lambda text=receipt: ack(folder, text, verb=verb)) == errno.ESTALE, (verb, receipt)
        for receipt in malformed:
            assert fails(lambda text=receipt: ack(folder, text, verb=verb)) == errno.EINVAL, (verb, receipt)
        # a partition that is not there, or not this one's
        assert fails(lambda: ack(folder, f"7:{offset}:{nonce}", verb=verb)) in (errno.EINVAL, errno.ESTALE)
    assert (number(part, "in_flight"), number(part, "lag"), frontier(part)) == (10, 10, 0)
    assert number(m.part("u"), "in_flight") == 10
    assert ack(folder, *receipts) == sum(len(receipt) + 1 for receipt in receipts)
    assert frontier(part) == 10


def test_a_receipt_is_good_once(leased):
    m, folder, part, receipts, _ = leased
    for verb in ("", "nack"):
        first, *receipts = receipts
        assert ack(folder, first, verb=verb) > 0
        for again in ("", "ack", "nack", "extend"):
            assert fails(lambda: ack(folder, first, verb=again)) == errno.ESTALE, (verb, again)
    (item,) = take(part)
    assert item["offset"] == 1 and item["handle"] != first  # the one that was given back, under a number of its own
    assert fails(lambda: ack(folder, first)) == errno.ESTALE
    assert ack(folder, item["handle"]) > 0
    assert frontier(part) == 2


@pytest.mark.parametrize("bad,error", [("0:3:1", errno.ESTALE), ("0:3", errno.EINVAL), ("", errno.EINVAL),
                                       ("nack 0:900:7", errno.ESTALE), ("x" * 300, errno.EINVAL)])
@pytest.mark.parametrize("at", [0, 1, 5, 9])
def test_a_bad_line_among_good_ones(leased, bad, error, at):
    """The count of bytes says how far it went; nothing behind the bad line has had an effect."""
    m, folder, part, receipts, _ = leased
    text = [f"{('', 'ack ', 'extend ')[n % 3]}{receipt}\n" for n, receipt in enumerate(receipts)]
    acked = [n for n in range(10) if n % 3 != 2]
    fd = os.open(folder + "/ack", os.O_WRONLY)
    good = "".join(text[:at])
    data = (good + bad + "\n" + "".join(text[at:])).encode()
    if at == 0:
        assert fails(os.write, fd, data) == error
    else:
        assert os.write(fd, data) == len(good)
        assert fails(os.write, fd, data[len(good):]) == error
    assert number(part, "lag") == 10 - len([n for n in acked if n < at])
    assert os.write(fd, "".join(text[at:]).encode()) == len("".join(text[at:]))
    os.close(fd)
    assert number(part, "lag") == 10 - len(acked)


def test_blanks_and_line_ends_of_other_systems(leased):
    m, folder, part, receipts, _ = leased
    text = (f"{receipts[0]}\r\nack  {receipts[1]}\nack\t{receipts[2]}\r\nnack   \t {receipts[3]}\nextend  {receipts[4]}\r\n"
            f"ack {receipts[4]}\r").encode()
    assert write_file(folder + "/ack", text) == len(text)
    assert (frontier(part), number(part, "lag"), number(part, "in_flight")) == (3, 6, 5)
    for bad in (f" {receipts[5]}", f"{receipts[5]} ", f"ack {receipts[5]} x", "\r", f"{receipts[5]}\r\r"):
        assert fails(lambda text=bad: ack(folder, text)) == errno.EINVAL, bad


def test_blanks_and_line_ends_on_consume(m):
    part = m.make("t")
    produce(part, *range(6))
    with Consumer(part) as consumer:
        for n in range(6):
            assert consumer.read() == b"%d\n" % n
        for line in (b"ack  0\r\n", b"ack\t1\n", b"nack   2\r\n", b"extend 3\r\n"):
            assert consumer.write(line) == len(line)
        assert (frontier(part), number(part, "in_flight")) == (2, 3)
        assert consumer.read() == b"2\n"
        assert consumer.write(b"ack\r\n") == 5
    assert number(part, "lag") == 0


# -- readers with tiny buffers


PAYLOADS = [b"", b"x", b"two\nlines", b"nul \0 nul", b"\xff\xfe", b"y" * 3000, b"", b"last"]


@pytest.mark.parametrize("where", ["partition", "topic"])
@pytest.mark.parametrize("size", [1, 2, 7])
@pytest.mark.parametrize("name", FILES + ["drain"])
def test_tiny_buffers(m, name, size, where):
    """Every byte once and in order; what is settled is what was read to its end."""
    part = m.make("t")
    folder = part if where == "partition" else m.topic("t")
    fd = os.open(part + "/produce.bin", os.O_WRONLY)
    os.write(fd, b"".join(binary(payload, b"k") for payload in PAYLOADS))
    os.fsync(fd)
    os.close(fd)
    flags = {"consume": os.O_RDWR, "drain": os.O_RDONLY}.get(name, os.O_RDONLY) | os.O_NONBLOCK
    with Consumer(folder, name, flags) as consumer:
        data = b""
        while True:
            try:
                piece = consumer.read(size)
            except BlockingIOError:
                break
            if not piece:
                break
            assert len(piece) <= size
            data += piece
        if name in ("consume", "drain"):
            assert data == lines(*PAYLOADS)
        if name == "consume":
            assert number(part, "in_flight") == len(PAYLOADS)
            consumer.sync()
        elif name == "consume.jsonl":
            items = [json.loads(row) for row in data.splitlines()]
            assert [item["offset"] for item in items] == list(range(len(PAYLOADS)))
            ack(folder, *[item["handle"] for item in items])
        elif name == "consume.bin":
            items = parse(data)
            assert [item["payload"] for item in items] == PAYLOADS
            ack(folder, *[item["handle"] for item in items])
    assert (number(part, "lag"), number(part, "in_flight")) == (0, 0)


# -- handles left behind


ABANDON = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
part, topic = sys.argv[1:]
names = [(part + "/produce", os.O_RDWR), (part + "/produce.jsonl", os.O_WRONLY), (part + "/produce.bin", os.O_WRONLY),
         (topic + "/produce", os.O_RDWR), (part + "/consume", os.O_RDWR), (part + "/consume.jsonl", os.O_RDONLY),
         (part + "/consume.bin", os.O_RDONLY), (part + "/drain", os.O_RDONLY), (topic + "/consume", os.O_RDWR),
         (topic + "/drain", os.O_RDONLY), (part + "/ack", os.O_WRONLY), (part + "/log", os.O_RDONLY),
         (part + "/from/end", os.O_RDONLY), (topic + "/config", os.O_RDWR), (part + "/status", os.O_RDONLY)]
fds = []
for n in range(1000):
    path, flags = names[n % len(names)]
    fd = os.open(path, flags | os.O_NONBLOCK)
    fds.append(fd)
    try:
        if "produce" in path:
            os.write(fd, b'{"payload":' if "jsonl" in path else b"\\0\\0" if "bin" in path else b"")
        elif "consume" in path or "log" in path:
            os.read(fd, 3)
    except BlockingIOError:
        pass
print("open", flush=True)
sys.stdin.read()
"""


@pytest.mark.limit(120)
def test_a_thousand_handles_left_behind(m):
    """A process with a thousand of them is killed, again and again: descriptors, leases and memory come back."""
    part = m.make("t", max_in_flight=2000)
    m.make("warm")
    produce(part, *[f"record {n}" for n in range(600)])
    seen = []
    for _ in range(4):
        process = subprocess.Popen([PYTHON, "-c", ABANDON, part, m.topic("t")], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE)
        assert process.stdout.readline() == b"open\n"
        assert number(part, "in_flight") > 0
        process.kill()
        process.wait(30)
        process.stdin.close()
        process.stdout.close()
        wait_for(lambda: number(part, "in_flight") == 0, "the leases", 30)
        wait_for(lambda: len(os.listdir(f"/proc/{m.process.pid}/fd")) < 60, "the descriptors", 30)
        seen.append(resident_mib(m))
    if not SANITIZED:  # which keeps what was freed for a while
        assert seen[-1] - seen[0] < 16, seen
    assert number(part, "hwm") == 600  # nothing unfinished has become a record
    with Consumer(part) as consumer:
        got = [consumer.read() for _ in range(600)]
    assert in_order(got) == in_order(b"record %d\n" % n for n in range(600))


# -- a topic that goes away


def told(call, *arguments):
    """What a call on a deleted topic says; closes may say nothing."""
    try:
        call(*arguments)
    except OSError as error:
        return error.errno
    return 0


@pytest.mark.parametrize("where", ["partition", "topic"])
def test_deletion_under_every_kind_of_handle(m, where):
    m.make("t", linger_ms=60000)
    part = m.part("t")
    folder = part if where == "partition" else m.topic("t")
    produce(part, *range(20))
    writers = {name: os.open(f"{folder}/{name}", os.O_RDWR) for name in ("produce", "produce.jsonl", "produce.bin")}
    for name, data in (("produce", b"old\nold"), ("produce.jsonl", obj("old") + b'{"payload":"ol'),
                       ("produce.bin", binary(b"old") + b"\0\0")):
        os.write(writers[name], data)
    readers = {name: os.open(f"{part}/{name}", os.O_RDONLY) for name in ("log", "from/3", "from/end", "records/4")}
    acks = os.open(folder + "/ack", os.O_WRONLY)
    drained = Consumer(folder, "drain")
    assert drained.read(4) == b"0\n1\n"
    holders = [Consumer(folder, name) for name in FILES]
    receipts = [holder.read() for holder in holders]  # the last one takes all that is left
    assert all(receipts)
    parked = [Consumer(folder, name, os.O_RDONLY) for name in FILES]
    reads = [Background(reader.read) for reader in parked]
    polled = [Consumer(folder, name) for name in FILES]
    polls = []
    for consumer in polled:
        poll = select.poll()
        poll.register(consumer.fd, select.POLLIN)
        polls.append(Background(poll.poll))
    wait_for(lambda: all(read.running() for read in reads), "the readers")

    delete(m, "t")
    for read in reads:
        assert read.join() is None and read.error.errno == errno.EIDRM, read.error
    for poll in polls:
        ((_, events),) = poll.join()
        assert events & select.POLLERR and events & select.POLLHUP
    new = m.make("t", linger_ms=0)
    produce(new, "new")
    for name, fd in writers.items():
        for _ in range(3):
            assert fails(os.write, fd, {"produce": b"old\n", "produce.jsonl": b'd"}\n' + obj("old"),
                                        "produce.bin": binary(b"old")}[name]) == errno.EIDRM, name
            assert fails(os.fsync, fd) == errno.EIDRM, name
            assert fails(os.fdatasync, fd) == errno.EIDRM, name
            assert fails(os.read, fd, 100) == errno.EIDRM, name
    for name, fd in readers.items():
        assert told(os.pread, fd, 100, 0) == errno.EIDRM, name
    for consumer in holders + [drained] + parked + polled:
        assert fails(consumer.read) == errno.EIDRM
        assert fails(consumer.sync) == errno.EIDRM
    assert fails(holders[0].write, b"ack\n") == errno.EIDRM
    handle = json.loads(receipts[1])["handle"]
    assert fails(os.write, acks, f"{handle}\n".encode()) == errno.EIDRM
    assert fails(lambda: ack(new, handle)) == errno.ESTALE  # the new topic's record was never leased under that number
    for fd in [acks, *writers.values(), *readers.values()]:
        assert told(os.close, fd) in (0, errno.EIDRM)
    for consumer in holders + [drained] + parked + polled:
        fd, consumer.fd = consumer.fd, -1
        assert told(os.close, fd) in (0, errno.EIDRM)
    produce(new, "newer")
    assert log(new) == b"new\nnewer\n"
    assert frontier(new) == 0
    m.restart()
    assert log(new) == b"new\nnewer\n"


OLD_WRITER = """
import os, sys
path, data = sys.argv[1], sys.argv[2].encode() + b"\\n"
fd = os.open(path, os.O_WRONLY)
print("open", flush=True)
while True:
    try:
        os.write(fd, data * 5)
        os.fsync(fd)
    except OSError as error:
        print(error.errno, flush=True)
        break
for _ in range(200):  # it does not believe it
    for call in (lambda: os.write(fd, data), lambda: os.fsync(fd)):
        try:
            call()
            print("taken", flush=True)
        except OSError as error:
            assert error.errno == %d, error
""" % errno.EIDRM


@pytest.mark.limit(120)
@pytest.mark.parametrize("name", ["p00000/produce", "p00000/produce.jsonl", "produce", "produce.jsonl"])
def test_no_record_of_the_old_topic_in_the_new_one(m, name):
    """Writers that go on while their topic is deleted and made again, several times."""
    for turn in range(3):
        part = m.make("t", linger_ms=5)
        text = f'{{"payload":"old{turn}"}}' if name.endswith("jsonl") else f"old{turn}"
        writers = [subprocess.Popen([PYTHON, "-c", OLD_WRITER, f"{m.topic('t')}/{name}", text], stdout=subprocess.PIPE)
                   for _ in range(3)]
        for writer in writers:
            assert writer.stdout.readline() == b"open\n"
        wait_for(lambda: number(part, "hwm") > 30, "some records")
        delete(m, "t")
        new = m.make("t")
        produce(new, *[f"new{turn} {n}" for n in range(50)])
        for writer in writers:
            assert writer.stdout.readline() == b"%d\n" % errno.EIDRM
            assert writer.stdout.read() == b""
            assert writer.wait(30) == 0
            writer.stdout.close()
        assert log(new) == lines(*[f"new{turn} {n}" for n in range(50)])
        delete(m, "t")
    m.make("t")
    m.restart()
    assert log(m.part("t")) == b""


# -- long lines


@pytest.mark.limit(120)
@pytest.mark.parametrize("where", ["partition", "topic"])
def test_a_line_of_100_mb_on_produce(m, where):
    """Without a newline: refused whole, in bounded memory, and the next line is a record."""
    m.make("t", linger_ms=60000)
    folder = m.part("t") if where == "partition" else m.topic("t")
    fd = os.open(folder + "/produce", os.O_WRONLY)
    os.write(fd, b"before\n")
    refused = 0
    for _ in range(100):
        try:
            os.write(fd, b"x" * 1000000)
        except OSError as error:
            assert error.errno == errno.EMSGSIZE, name_of(error.errno)
            refused += 1
    assert refused > 0
    assert resident_mib(m) < (2000 if SANITIZED else 300)
    os.write(fd, b"end\nafter\n")
    os.fsync(fd)
    os.close(fd)
    wait_for(lambda: number(m.part("t"), "hwm") == 2, "the records")
    assert log(m.part("t")) == b"before\nafter\n"


# -- known defects


@pytest.mark.local("segments")
def test_retention_by_bytes_keeps_what_fits(m):
    """A limit of one segment: after a segment is full the newest records are still there."""
    part = m.make("t", segment_bytes=65536)
    write_file(m.topic("t") + "/config", b"retention_bytes=65536\n")
    for n in range(300):
        produce(part, b"%05d" % n + b"x" * 1000)
        assert number(part, "oldest_offset") <= n, f"record {n} was deleted when it was committed"
