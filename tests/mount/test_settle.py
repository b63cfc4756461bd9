"""fsync on `consume` settles what the disk has taken: when that fails, the program rolls back and nothing is lost."""

import errno
import os
import subprocess
import sys

import pytest
from disk import fill
from support import (Consumer, configure, drain, fails, lines, log, number, produce, take, wait_for)
from test_faults import Inject, need_strace

NAMES = ["1", "2", "3", "4", "5"]


def read_some(consumer, *expected):
    assert [consumer.read() for _ in expected] == [lines(name) for name in expected]


def test_full_disk(small_disk, on_small_disk):
    m = on_small_disk
    part = m.make("q")
    produce(part, *NAMES)
    filler = fill(small_disk)
    with Consumer(part) as consumer:
        read_some(consumer, "1", "2", "3")
        assert fails(os.fsync, consumer.fd) == errno.ENOSPC
        assert (number(part, "frontier"), number(part, "in_flight")) == (0, 3)
        assert fails(os.fsync, consumer.fd) == errno.ENOSPC  # told each time
        read_some(consumer, "4")
    assert drain(part) == lines(*NAMES)  # given back at once, and in order
    os.unlink(filler)


def test_full_disk_then_space(small_disk, on_small_disk):
    m = on_small_disk
    part = m.make("q")
    produce(part, *NAMES)
    filler = fill(small_disk)
    with Consumer(part) as consumer:
        read_some(consumer, "1", "2", "3")
        assert fails(os.fsync, consumer.fd) == errno.ENOSPC
        os.unlink(filler)
        consumer.sync()
        assert (number(part, "frontier"), number(part, "in_flight")) == (3, 0)
        read_some(consumer, "4")
    m.kill()
    m.start()
    assert drain(part) == lines("4", "5")


def test_worker_that_exits_on_a_full_disk(small_disk, on_small_disk):
    """A worker of its own process, as it would be written: read, work, fsync; on an error roll back and exit."""
    m = on_small_disk
    part = m.make("q")
    produce(part, *NAMES)
    filler = fill(small_disk)
    worker = ("import os, sys\nfd = os.open(sys.argv[1], os.O_RDWR)\nwork = [os.read(fd, 99) for _ in range(3)]\n"
              "try:\n    os.fsync(fd)\nexcept OSError as error:\n    sys.exit(error.errno)\n")
    done = subprocess.run([sys.executable, "-c", worker, part + "/consume"], check=False, timeout=30)
    assert done.returncode == errno.ENOSPC
    os.unlink(filler)
    m.restart()
    assert drain(part) == lines(*NAMES)


@pytest.mark.local("the data directory")
def test_a_file_that_speaks_of_records_to_come(m):
    """Before it is put right no record gets an offset that it calls settled; then every record is delivered."""
    part = m.make("q")
    produce(part, "first")
    m.stop()
    with open(m.data_part("q") + "/consumer.offset", "wb") as file:
        file.write((3).to_bytes(8, "big"))
    in_the_way = m.data_part("q") + "/consumer.ahead.tmp"
    os.mkdir(in_the_way)
    m.start()
    assert fails(produce, part, *NAMES) == errno.EIO
    assert log(part) == lines("first")
    os.rmdir(in_the_way)
    produce(part, *NAMES)
    m.kill()
    m.start()
    assert drain(part) == lines("first", *NAMES)


def consumed_one(m, topic, **config):
    """A partition with records, and a consumer.ahead for strace to look at."""
    part = m.make(topic, **config)
    produce(part, "0", *NAMES)
    with Consumer(part) as consumer:
        read_some(consumer, "0")
        consumer.sync()
    return part, m.data_part(topic) + "/consumer.ahead"


@pytest.mark.local("a disk that fails")
@pytest.mark.parametrize("calls", ["fdatasync,fsync", "pwritev,pwrite64,pwritev2"])
@pytest.mark.parametrize("after", ["close", "retry", "kill"])
def test_failing_disk(m, calls, after):
    need_strace()
    part, path = consumed_one(m, "q")
    fault = Inject(m, path, calls, "error=EIO")
    with Consumer(part) as consumer:
        try:
            read_some(consumer, "1", "2", "3")
            assert fails(os.fsync, consumer.fd) == errno.EIO
            assert fault.fired() >= 1
        finally:
            if after != "kill":
                fault.stop()
        assert (number(part, "frontier"), number(part, "in_flight")) == (1, 3)
        if after == "retry":
            consumer.sync()
        if after == "kill" and calls.startswith("pw"):
            fault.stop()
        if after == "kill":  # what was written and never synced was written over, in the page cache
            m.kill()
            if fault.process.poll() is None:
                fault.process.wait(20)
            m.start()
    expected = NAMES[3:] if after == "retry" else NAMES
    assert drain(part) == lines(*expected)
    m.restart()
    assert drain(part) == b""
    assert log(part) == lines("0", *NAMES)


@pytest.mark.local("a disk that fails")
@pytest.mark.parametrize("number_", [0, 1])
def test_failing_partition_of_a_topic(m, number_):
    """They are settled in order, up to the one that fails."""
    need_strace()
    part, path = consumed_one(m, "q", partitions=2)
    second = m.topic("q") + "/p00001"
    produce(second, "z", "a", "b")
    with Consumer(second) as consumer:
        read_some(consumer, "z")
        consumer.sync()
    failing, other = (part, second) if number_ == 0 else (second, part)
    fault = Inject(m, path if number_ == 0 else m.data_part("q", 1) + "/consumer.ahead", "fdatasync,fsync", "error=EIO")
    with Consumer(m.topic("q")) as consumer:
        try:
            got = {consumer.read() for _ in range(7)}
            assert got == {lines(name) for name in [*NAMES, "a", "b"]}
            assert fails(os.fsync, consumer.fd) == errno.EIO
        finally:
            fault.stop()
        assert (number(failing, "frontier"), number(failing, "in_flight")) == (1, 5 if number_ == 0 else 2)
        assert number(other, "in_flight") == (2 if number_ == 0 else 0)
    assert drain(part) == (lines(*NAMES) if number_ == 0 else b"")
    assert drain(second) == lines("a", "b")


@pytest.mark.parametrize("how", ["fsync", "line"])
def test_lapsed_leases_are_told_once(m, how):
    """What can be settled is; that something could not be is said, once."""
    part = m.make("q", visibility_timeout_ms=100)
    produce(part, "1", "2", "3")
    with Consumer(part) as consumer:
        read_some(consumer, "1")
        wait_for(lambda: number(part, "in_flight") == 0, "the lease to lapse")
        configure(m.topic("q"), visibility_timeout_ms=600000)
        assert len(take(part, 1)) == 1  # somebody else has it now
        read_some(consumer, "2", "3")

        def settle():
            if how == "fsync":
                consumer.sync()
            else:
                consumer.write(b"ack\n")

        assert fails(settle) == errno.ESTALE
        assert (number(part, "acked_ahead"), number(part, "in_flight")) == (2, 1)
        settle()
    assert drain(part) == b""


def test_kept_line_that_cannot_take_effect(m):
    """The fsync that finds it fails, so it settles nothing, until the line has been finished."""
    part = m.make("q")
    produce(part, "1", "2")
    with Consumer(part) as consumer:
        read_some(consumer, "1", "2")
        assert consumer.write(b"extend\nnonsense") == 15
        for _ in range(2):
            assert fails(os.fsync, consumer.fd) == errno.EINVAL
        assert (number(part, "frontier"), number(part, "in_flight")) == (0, 2)
        assert fails(consumer.write, b"\n") == errno.EINVAL
        consumer.sync()
        assert (number(part, "frontier"), number(part, "in_flight")) == (2, 0)
