"""Disks that are full, that fail, and that may only be read."""

import errno
import os
import shutil
import signal
import subprocess

import pytest
import seglog
from disk import fill
from support import (Consumer, drain, fails, lines, log, number, open_fails, produce, read_file, shell, wait_for,
                     write_all, write_file, xattr)


def write_until_full(fd, record):
    """Commits this record until the disk is full; how many were acknowledged. One is left in the handle."""
    for count in range(2000):
        try:
            write_all(fd, record(count))
            os.fsync(fd)
        except OSError as error:
            assert error.errno in (errno.ENOSPC, errno.EDQUOT), error
            return count
    raise AssertionError("the disk never got full")


@pytest.mark.limit(120)
def test_full_disk(small_disk, on_small_disk):
    m = on_small_disk
    part = m.make("t")
    produce(part, "first")
    filler = fill(small_disk)
    record = lambda i: b"%06d " % i + b"z" * 20000 + b"\n"  # noqa: E731
    fd = os.open(part + "/produce", os.O_RDWR)
    count = write_until_full(fd, record)
    wanted = b"first\n" + b"".join(record(i) for i in range(count))
    assert log(part) == wanted  # nothing of the failed one is seen
    assert number(part, "hwm") == number(part, "next_offset") == count + 1
    assert number(part, "poisoned") == 0
    for _ in range(3):
        assert fails(os.fsync, fd) == errno.ENOSPC
    assert log(part) == wanted
    assert drain(part) == wanted  # consuming goes on
    os.unlink(filler)
    os.fsync(fd)  # the same handle, no restart: one copy, at the offset that the failed attempt had
    wanted += record(count)
    assert log(part) == wanted
    ranges = b""
    while not ranges.endswith(b"p00000 %d %d\n" % (count + 1, count + 1)):
        more = os.read(fd, 65536)
        assert more, ranges
        ranges += more
    os.close(fd)
    produce(part, "last")
    m.restart()
    assert log(part) == wanted + b"last\n"
    m.stop()
    records = seglog.read_partition(m.data_part("t"))
    assert lines(*[payload for _, _, _, payload in records]) == wanted + b"last\n"


def test_full_disk_with_several_producers(small_disk, on_small_disk):
    m = on_small_disk
    part = m.make("t", linger_ms=60000)
    produce(part, "first")
    filler = fill(small_disk)
    fds = [os.open(part + "/produce", os.O_WRONLY) for _ in range(3)]
    big = os.open(part + "/produce", os.O_WRONLY)
    count = write_until_full(big, lambda i: b"%06d " % i + b"z" * 20000 + b"\n")
    for n, fd in enumerate(fds):
        write_all(fd, b"".join(b"w%d-%d " % (n, i) + b"y" * 9000 + b"\n" for i in range(10)))
        try:
            os.fsync(fd)
        except OSError as error:
            assert error.errno == errno.ENOSPC
    os.unlink(filler)
    for fd in fds + [big]:
        os.fsync(fd)
        os.close(fd)
    seen = [line.split(b" ")[0] for line in log(part).splitlines()]
    expected = [b"first"] + [b"%06d" % i for i in range(count + 1)]
    expected += [b"w%d-%d" % (n, i) for n in range(3) for i in range(10)]
    assert sorted(seen) == sorted(expected)
    for n in range(3):
        assert [name for name in seen if name.startswith(b"w%d-" % n)] == [b"w%d-%d" % (n, i) for i in range(10)]


def test_full_disk_is_told_to_programs(small_disk, on_small_disk):
    m = on_small_disk
    part = m.make("t")
    produce(part, "first")
    filler = fill(small_disk)
    source = m.base + "/source"
    with open(source, "wb") as file:
        file.write(b"".join(b"%d " % i + b"x" * 1000 + b"\n" for i in range(6000)))
    for client in (f"cp {source} {part}/produce", f"dd if={source} of={part}/produce conv=fsync status=none"):
        done = shell(client, check=False)
        assert done.returncode != 0 and b"No space left" in done.stderr, (client, done)
    assert log(part).startswith(b"first\n")
    os.unlink(filler)
    wait_for(lambda: produce(part, "after") is None, "a commit")
    assert log(part).endswith(b"after\n")


def test_topics_on_a_full_disk(small_disk, on_small_disk):
    m = on_small_disk
    produce(m.make("t"), "x")
    filler = fill(small_disk)
    for n in range(200):  # file systems keep a little for names
        try:
            os.mkdir(m.topic(f"new{n}"))
        except OSError as error:
            assert error.errno == errno.ENOSPC
            break
    else:
        pytest.fail("200 topics fit on a full disk")
    names = sorted(os.listdir(m.mnt + "/topics"))
    assert f"new{n}" not in names
    os.unlink(filler)
    os.mkdir(m.topic(f"new{n}"))
    produce(m.part(f"new{n}"), "y")
    m.restart()
    assert sorted(os.listdir(m.mnt + "/topics")) == sorted(names + [f"new{n}"])
    assert log(m.part("t")) == b"x\n"


def test_a_topic_that_cannot_be_made(m):
    """It is taken back, and the log says just that."""
    need_strace()
    m.make("t")
    inject = Inject(m, m.data + "/topics", "mkdirat", "error=ENOSPC")
    assert fails(os.mkdir, m.topic("new")) == errno.ENOSPC
    assert inject.fired() > 0
    inject.stop()
    assert os.listdir(m.mnt + "/topics") == ["t"]
    assert "the topic cannot be made: " in m.stderr() and "out of service" not in m.stderr(), m.stderr()
    os.mkdir(m.topic("new"))


def test_read_only_disk(small_disk, on_small_disk):
    m = on_small_disk
    produce(m.make("t"), "x", "y")
    m.stop()
    small_disk.remount("ro")
    try:
        assert not m.try_start(), "mounted for writing over a read-only file system"
        assert "read-only" in m.stderr().lower(), m.stderr()
        m.options = "ro"
        m.start()
        assert log(m.part("t")) == b"x\ny\n"
        assert open_fails(m.part("t") + "/produce", os.O_WRONLY) == errno.EROFS
        m.stop()
    finally:
        small_disk.remount("rw")


class Inject:
    """strace that makes calls of the running daemon on one file fail (without a path: on any)."""

    def __init__(self, m, path, calls, fault):
        self.err = m.base + "/strace"
        on = ["-P", path] if path else []
        self.process = subprocess.Popen(
            ["strace", "-f", "-qq", "-o", self.err, "-e", f"trace={calls}", "-e", f"inject={calls}:{fault}", *on,
             "-p", str(m.process.pid)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_for(lambda: self.attached(m.process.pid), "strace to attach")

    def attached(self, pid):
        if self.process.poll() is not None:
            pytest.skip("strace cannot attach to a process on this machine")
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/status", encoding="utf-8") as file:
                if "TracerPid:\t0\n" in file.read():
                    return False
        return True

    def fired(self):
        return read_file(self.err).count(b"INJECTED")

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(20)


def need_strace():
    if not shutil.which("strace"):
        pytest.skip("strace is not installed")


def active_segment(m, topic):
    folder = m.data_part(topic)
    return f"{folder}/{seglog.segment_names(folder)[-1]}"


def test_failed_sync_poisons_until_reopen(m):
    need_strace()
    part = m.make("t", linger_ms=60000)
    witness = m.make("u")
    produce(part, "a", "b")
    fault = Inject(m, active_segment(m, "t"), "fdatasync,fsync", "error=EIO")
    fd = os.open(part + "/produce", os.O_RDWR)  # opened now: starting a process closes it there, and a close commits
    os.write(fd, b"c\nd\n")
    try:
        assert fails(os.fsync, fd) == errno.EIO
        assert fault.fired() >= 1
    finally:
        fault.stop()
    assert number(part, "poisoned") == 1
    assert xattr(part, "poison_reason") != ""
    assert fails(os.fsync, fd) == errno.EIO  # the disk is well again, and that proves nothing
    other = os.open(part + "/produce", os.O_WRONLY)
    try:
        os.write(other, b"x\n")
        assert fails(os.fsync, other) == errno.EIO
    except OSError as error:
        assert error.errno == errno.EIO
    try:
        os.close(other)
    except OSError as error:
        assert error.errno == errno.EIO
    assert log(part) == b"a\nb\n"  # reads go on
    assert drain(part) == b"a\nb\n"
    status = read_file(part + "/status")
    assert b"poison" in status.lower() or xattr(part, "poison_reason").encode() in status
    produce(witness, "others are served")
    assert log(witness) == b"others are served\n"
    write_file(part + "/ctl", b"reopen\n")
    assert (number(part, "poisoned"), xattr(part, "poison_reason")) == (0, "")
    assert log(part) == b"a\nb\n"
    os.fsync(fd)
    assert log(part) == b"a\nb\nc\nd\n"
    assert os.read(fd, 100) == b"p00000 2 3\n"
    os.close(fd)
    m.restart()
    assert log(part) == b"a\nb\nc\nd\n"


def test_poison_does_not_outlive_the_daemon(m):
    need_strace()
    part = m.make("t")
    produce(part, "a")
    fault = Inject(m, active_segment(m, "t"), "fdatasync,fsync", "error=EIO")
    fd = os.open(part + "/produce", os.O_WRONLY)
    try:
        os.write(fd, b"b\n")
        assert fails(os.fsync, fd) == errno.EIO
    finally:
        fault.stop()
    try:
        os.close(fd)
    except OSError:
        pass
    m.crash()
    assert number(part, "poisoned") == 0
    assert log(part) in (b"a\n", b"a\nb\n")  # b was never acknowledged: it may be there, once
    produce(part, "c")
    assert log(part).endswith(b"c\n")


@pytest.mark.parametrize("error", ["EIO", "ENOSPC"])
def test_failed_write_leaves_nothing(m, error):
    need_strace()
    part = m.make("t", linger_ms=60000)
    produce(part, "a", "b")
    fault = Inject(m, active_segment(m, "t"), "pwrite64,pwritev,pwritev2,write,writev", f"error={error}")
    fd = os.open(part + "/produce", os.O_RDWR)
    os.write(fd, b"c\nd\n")
    try:
        assert fails(os.fsync, fd) == getattr(errno, error)
        assert fault.fired() >= 1
        assert log(part) == b"a\nb\n"
    finally:
        fault.stop()
    assert number(part, "poisoned") == 0
    os.fsync(fd)
    assert log(part) == b"a\nb\nc\nd\n"
    assert os.read(fd, 100) == b"p00000 2 3\n"
    os.close(fd)
    m.restart()
    assert log(part) == b"a\nb\nc\nd\n"


def test_enosys_of_the_disk_does_not_end_fsync(m):
    """The kernel would answer every later fsync of the mount itself, with success."""
    need_strace()
    part = m.make("t", linger_ms=60000)
    produce(part, "a", "b")
    consumer = Consumer(part)
    assert consumer.read() == b"a\n"
    fault = Inject(m, None, "fdatasync,fsync", "error=ENOSYS")
    try:
        assert fails(consumer.sync) == errno.EIO
        assert fault.fired() >= 1
    finally:
        fault.stop()
    consumer.sync()
    produce(part, "c")
    m.kill()
    consumer.close()
    m.start()
    assert log(part) == b"a\nb\nc\n"
    assert drain(part) == b"b\nc\n"


@pytest.mark.parametrize("name,data", [("produce", b"c\nd\n"), ("produce.jsonl", b'{"payload":"c"}\n{"payload":"d"}\n'),
                                       ("produce.bin", bytes(7) + b"\1c" + bytes(7) + b"\1d")])
@pytest.mark.parametrize("call", ["write", "fsync", "close"])
def test_failed_background_commit_is_told_later(m, name, data, call):
    """To a program that never syncs: by the next write, fsync or close of that handle, and nobody else's."""
    need_strace()
    part = m.make("t", linger_ms=10)
    produce(part, "a", "b")
    bystander = os.open(part + "/produce", os.O_WRONLY)
    fd = os.open(f"{part}/{name}", os.O_RDWR)
    fault = Inject(m, active_segment(m, "t"), "pwrite64,pwritev,pwritev2,write,writev", "error=ENOSPC")
    try:
        assert os.write(fd, data) == len(data)
        wait_for(fault.fired, "the background commit")
        wait_for(lambda: said(m, "No space left"), "its failure")
        calls = {"write": lambda: os.write(fd, data), "fsync": lambda: os.fsync(fd), "close": lambda: os.close(os.dup(fd))}
        assert fails(calls[call]) == errno.ENOSPC
        assert log(part) == b"a\nb\n"
    finally:
        fault.stop()
    os.close(bystander)
    os.fsync(fd)
    assert log(part) == b"a\nb\nc\nd\n"
    os.close(fd)


def said(m, word):
    return word in m.stderr()


def test_failed_read_gives_the_lease_back(m):
    need_strace()
    part = m.make("t")
    produce(part, "a", "b")
    m.restart()  # nothing of it is in memory
    consumer = Consumer(part)  # the partition is open, and no record read yet
    fault = Inject(m, active_segment(m, "t"), "pread64,preadv,preadv2,read", "error=EIO")
    try:
        assert fails(consumer.read) == errno.EIO
        assert fault.fired() >= 1
    finally:
        fault.stop()
    assert number(part, "frontier") == 0  # not skipped
    wait_for(lambda: number(part, "in_flight") == 0, "the lease to return")
    assert consumer.read() == b"a\n"
    assert consumer.read() == b"b\n"
    consumer.close()


def test_failed_read_at_open(m):
    """A partition that could not be opened is tried again at its next use."""
    need_strace()
    part = m.make("t")
    produce(part, "a")
    m.make("u")
    m.crash()
    fault = Inject(m, active_segment(m, "t"), "pread64,preadv,preadv2,read", "error=EIO")
    try:
        assert fails(lambda: log(part)) == errno.EIO
        assert b"out of service" in read_file(part + "/status")
        assert fails(lambda: log(part)) == errno.EIO
        produce(m.part("u"), "others go on")
        assert fault.fired() >= 1
    finally:
        fault.stop()
    assert m.stderr().count("the partition could not be opened") == 1
    assert log(part) == b"a\n"
    assert b"out of service" not in read_file(part + "/status")


def test_few_descriptors(mounts):
    """More partitions than descriptors."""
    m = mounts(start=False)
    m.spawn(["bash", "-c", "ulimit -n 128; exec \"$@\"", "-", *m.command()])
    m.wait_mounted()
    m.make("t", partitions=300)
    for n in range(0, 300, 7):
        produce(m.part("t", n), n)
    for n in range(0, 300, 7):
        assert log(m.part("t", n)) == b"%d\n" % n


@pytest.mark.limit(300)
def test_many_partitions_under_few_descriptors(mounts):
    """All of them used, by producers and consumers of their topics, which keep them open. NARADFS_PARTITIONS=10000 tries as
    many under 256 descriptors."""
    n_topics, n_partitions = 10, int(os.environ.get("NARADFS_PARTITIONS", "1000")) // 10
    n_descriptors = 256 if n_partitions > 500 else 64
    m = mounts(start=False)
    m.spawn(["bash", "-c", f"ulimit -n {n_descriptors}; exec \"$@\"", "-", *m.command()])
    m.wait_mounted()
    for t in range(n_topics):
        m.make(f"t{t}", partitions=n_partitions)
        produce(m.topic(f"t{t}"), *range(n_partitions))
    for t in range(n_topics):
        found = []

        def drained(path=m.topic(f"t{t}") + "/drain", found=found):
            with open(path, "rb", buffering=0) as file:
                found += [int(line) for line in file.read().split()]
            return len(found) >= n_partitions

        wait_for(drained, "every record of the topic to be placed and drained")
        assert sorted(found) == list(range(n_partitions))
    for t in range(0, n_topics, 3):
        assert sum(number(m.part(f"t{t}", n), "hwm") for n in range(n_partitions)) == n_partitions
    assert "refused" not in m.stderr() and "could not" not in m.stderr(), m.stderr()
    m.stop(limit_s=200)
