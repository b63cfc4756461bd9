"""Reads of consume.bin and drain that follow each other, one full answer after the other: what is leased, when, and in which
order, whatever happens between them."""

import errno
import os
import struct
import threading

import pytest
from support import Consumer, ack, configure, fails, number, produce, wait_for, write_file

HEAD = struct.Struct(">IIQQQI")
SIZE = 4096  # of a read
PAYLOAD = 100
PER_BIN, PER_DRAIN = SIZE // (HEAD.size + PAYLOAD), SIZE // (PAYLOAD + 1)


def text(n):
    return b"%0*d" % (PAYLOAD, n)


def parse_bin(data):
    """(offset, receipt) of each record, whose bytes are those of its offset."""
    found = []
    while data:
        length, partition, offset, nonce, _, key = HEAD.unpack(data[:HEAD.size])
        assert key == 0 and data[HEAD.size:4 + length] == text(offset)
        found.append((offset, f"{partition}:{offset}:{nonce}"))
        data = data[4 + length:]
    return found


class Reader:
    """Of one of the two files; a read gives the offsets of its records."""

    def __init__(self, part, name):
        self.fd, self.name = os.open(f"{part}/{name}", os.O_RDONLY | os.O_NONBLOCK), name
        self.receipts = {}

    def read(self, size=SIZE):
        data = os.read(self.fd, size)
        if self.name == "drain":
            return [int(line) for line in data.splitlines()]
        found = parse_bin(data)
        self.receipts.update(found)
        return [offset for offset, _ in found]

    def close(self):
        os.close(self.fd)


@pytest.fixture
def part(m):
    part = m.make("t")
    produce(part, *(text(n) for n in range(1000)))
    return part


@pytest.fixture(params=["consume.bin", "drain"])
def reader(request, part):
    reader = Reader(part, request.param)
    yield reader
    reader.close()


def per(reader):
    return PER_DRAIN if reader.name == "drain" else PER_BIN


def begin(reader):
    """Two full reads; how many records they had."""
    n = per(reader)
    assert reader.read() == list(range(n))
    assert reader.read() == list(range(n, 2 * n))
    return 2 * n


def leased(reader, n_read):
    """By now: a drain has settled all but its last answer."""
    return per(reader) if reader.name == "drain" else n_read


def test_nothing_is_leased_before_it_is_read(reader, part):
    n = begin(reader)
    for _ in range(10):
        assert number(part, "in_flight") == leased(reader, n)
        last = reader.read()
        assert last == list(range(n, n + per(reader)))
        n += per(reader)


def test_everything_comes_once_and_in_order(reader):
    found = []
    while len(found) < 1000:
        found += reader.read()
    assert found == list(range(1000))


def test_another_consumer_takes_the_next(reader, part):
    n = begin(reader)
    with Consumer(part) as other:
        assert other.read() == text(n) + b"\n"
        assert other.read() == text(n + 1) + b"\n"
        assert reader.read() == list(range(n + 2, n + 2 + per(reader)))
    wait_for(lambda: number(part, "in_flight") == leased(reader, n + per(reader)), "the records to come back")
    assert reader.read()[:2] == [n, n + 1]


def test_two_readers_in_turns(reader, part):
    other = Reader(part, reader.name)
    found = []
    while len(found) < 900:
        for each in (reader, other):
            found += each.read()
    assert found == list(range(len(found)))
    other.close()


def test_reads_of_another_size(reader):
    n = begin(reader)
    for size in (1000, 70000, 200, SIZE, SIZE, SIZE, 5000):
        offsets = reader.read(size)
        assert offsets == list(range(n, n + len(offsets))) and offsets
        n += len(offsets)


def test_seek(reader, part):
    begin(reader)
    write_file(part + "/ctl", b"seek start\n")
    assert reader.read() == list(range(per(reader)))
    begin_at = 500
    reader.read()
    write_file(part + "/ctl", b"seek %d\n" % begin_at)
    assert reader.read() == list(range(begin_at, begin_at + per(reader)))
    write_file(part + "/ctl", b"seek end\n")
    if reader.name == "drain":
        assert reader.read() == []
    else:
        assert fails(reader.read) == errno.EAGAIN


def test_what_came_back_is_first(part):
    reader = Reader(part, "consume.bin")
    n = begin(reader)
    ack(part, reader.receipts[3], reader.receipts[7], verb="nack")
    offsets = reader.read()
    assert offsets[:2] == [3, 7]
    assert offsets[2:] == list(range(n, n + len(offsets) - 2))
    reader.close()


def test_limits_that_come_meanwhile(reader, part):
    n = begin(reader)
    configure(os.path.dirname(part), max_in_flight=leased(reader, n) + 5)
    # a drain settles its last answer first: so many more
    n_more = min(per(reader), 5 + (per(reader) if reader.name == "drain" else 0))
    assert reader.read() == list(range(n, n + n_more))
    if reader.name == "consume.bin":
        assert fails(reader.read) == errno.EAGAIN


def test_retention_meanwhile(m):
    part = m.make("r")
    produce(part, *(text(n) for n in range(300)))
    write_file(part + "/ctl", b"roll\n")
    produce(part, *(text(n) for n in range(300, 600)))
    reader = Reader(part, "consume.bin")
    begin(reader)
    write_file(part + "/ctl", b"trim 300\n")
    assert number(part, "oldest_offset") == 300
    assert reader.read() == list(range(300, 300 + PER_BIN))
    reader.close()


def test_a_deleted_topic(reader, part):
    begin(reader)
    topic = os.path.dirname(part)
    write_file(topic + "/ctl", b"delete %s\n" % os.getxattr(topic, "user.narad.incarnation"))
    assert fails(reader.read) == errno.EIDRM


def test_threads_that_share_a_descriptor(part):
    reader = Reader(part, "consume.bin")
    found, errors = [], []

    def run():
        try:
            while True:
                found.extend(reader.read())
        except BlockingIOError:
            pass
        except BaseException as error:  # pylint: disable=broad-except
            errors.append(error)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert sorted(found) == list(range(1000))
    reader.close()


def test_many_readers(part):
    configure(os.path.dirname(part), max_in_flight=10000)
    produce(part, *(text(n) for n in range(1000, 6000)))
    readers = [Reader(part, "consume.bin") for _ in range(40)]
    found = []
    for _ in range(4):
        for reader in readers:
            found += reader.read()
    assert found == list(range(40 * 4 * PER_BIN))
    for reader in readers:
        reader.close()
