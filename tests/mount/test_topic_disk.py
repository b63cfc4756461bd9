"""Topics produced to as a whole, on disks that are cut off and that are full."""

import errno
import os
import random
import subprocess
import threading
import time

import pytest
from disk import MIB, start_on
from support import log, read_file, wait_for, write_all, write_file

PARTS = 3


# ---- power cuts ----


def write_until_cut(path, name, acked):
    try:
        fd = os.open(path, os.O_WRONLY)
    except OSError:
        return
    try:
        for n in range(100000):
            record = b"%s-%d " % (name, n) + b"x" * (n * 37 % 3000)
            write_all(fd, record + b"\n")
            os.fsync(fd)
            acked.append(record.split(b" ")[0])
    except OSError as error:
        assert error.errno in (errno.EIO, errno.EROFS, errno.ENOTCONN), error
    finally:
        try:
            os.close(fd)
        except OSError:
            pass


def seen(mount, name):
    found = set()
    for number in range(PARTS):
        found.update(line.split(b" ")[0] for line in log(mount.part(name, number)).splitlines())
    return found


def cut_round(disk, mount, name):
    """One power cut in the middle of fsyncs; what was acknowledged and is lost."""
    acked = []
    mount.make(name, partitions=PARTS)
    threads = [threading.Thread(target=write_until_cut, args=(mount.topic(name) + "/produce", b"%d" % n, acked))
               for n in range(6)]
    for thread in threads:
        thread.start()
    wait_for(lambda: acked, "the first record")
    time.sleep(random.uniform(0.002, 0.03))
    disk.cut_off()
    for thread in threads:
        thread.join()
    mount.kill()
    disk.back_again()
    mount.start()
    wanted = set(acked)
    try:
        wait_for(lambda: wanted <= seen(mount, name), "all that was acknowledged", limit_s=8)
    except AssertionError:
        pass
    return wanted - seen(mount, name)


@pytest.mark.limit(300)
def test_acknowledged_records_survive_power_cuts(disks, mounts):
    disk = disks(64 * MIB)
    m = start_on(disk, mounts)
    for number in range(int(os.environ.get("NARADFS_POWER_CUTS", "40"))):
        lost = cut_round(disk, m, f"t{number}")
        assert not lost, (number, len(lost))


def test_a_cut_disk_comes_back_although_a_namespace_keeps_it(disks):
    """Other tests, and services that start on this machine, copy the mount table: the helper copes."""
    disk = disks(16 * MIB)
    write_file(disk.folder + "/kept", b"synced", os.O_CREAT | os.O_SYNC)
    keeper = subprocess.Popen(["unshare", "-m", "sh", "-c", "echo; exec cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert keeper.stdout.readline() == b"\n"
    disk.cut_off()
    disk.back_again()
    assert read_file(disk.folder + "/kept") == b"synced"
    write_file(disk.folder + "/new", b"x", os.O_CREAT | os.O_SYNC)
    keeper.communicate(timeout=20)


# ---- full disks ----


def record_of(name, n, size):
    return b"%s-%d " % (name, n) + b"z" * size + b"\n"


def write_until_refused(path, name, size, acked, batch=1):
    """Commits batches of records until the disk has no room, with which the open file is left."""
    fd = os.open(path, os.O_WRONLY)
    for first in range(0, 1000000, batch):
        records = [record_of(name, n, size) for n in range(first, first + batch)]
        names = [record.split(b" ")[0] for record in records]
        try:
            write_all(fd, b"".join(records))
            os.fsync(fd)
        except OSError as error:
            assert error.errno in (errno.ENOSPC, errno.EDQUOT), error
            return fd
        acked.extend(names)
    raise AssertionError("the disk never got full")


def many_until_refused(path, size, acked, batch):
    """The same by several at once, with much on its way."""
    fds = []
    threads = [threading.Thread(target=lambda n=n: fds.append(
        write_until_refused(path, b"m%d" % n, size, acked, batch))) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(fds) == len(threads)
    for fd in fds:
        close_quietly(fd)


def close_quietly(fd):
    try:
        os.close(fd)
    except OSError:
        pass


def pending(mount):
    with open(mount.mnt + "/metrics", encoding="utf-8") as file:
        for line in file:
            if line.startswith("narad_ingress_pending_parts "):
                return int(line.split()[1])
    raise AssertionError("no such metric")


@pytest.mark.limit(120)
@pytest.mark.parametrize("size,batch", [(700, 300), (30000, 10)])
def test_a_full_disk_takes_what_was_acknowledged(disks, mounts, size, batch):
    """The ingress log does not use up the room that its records need in their partitions."""
    m = start_on(disks(14 * MIB), mounts)
    m.make("t", partitions=PARTS)
    acked = []
    many_until_refused(m.topic("t") + "/produce", size, acked, batch)
    wait_for(lambda: set(acked) <= seen(m, "t"), "all that was acknowledged")
    fd = write_until_refused(m.topic("t") + "/produce", b"w", size, acked)
    assert len(acked) * size > 3 * MIB  # it is not refused long before
    wait_for(lambda: set(acked) <= seen(m, "t"), "all that was acknowledged")
    wait_for(lambda: pending(m) == 0, "the ingress to be empty")
    for number in range(PARTS):
        write_file(m.part("t", number) + "/ctl", b"roll")
        write_file(m.part("t", number) + "/ctl", b"trim %d" % number_of(m, number))
    wait_for(lambda: succeeds(os.fsync, fd), "the commit of what was refused")  # it may have been sent before the trim
    write_all(fd, b"last\n")
    os.fsync(fd)
    os.close(fd)
    wait_for(lambda: b"last" in seen(m, "t"), "a record after the trim")


def test_a_refusal_is_told(disks, mounts):
    """Once, with the topic, in the log; in status for as long as it is so; and that it is over."""
    disk = disks(14 * MIB)
    m = start_on(disk, mounts)
    m.make("t", partitions=PARTS)
    m.make("other", partitions=PARTS)
    ballast = disk.folder + "/ballast"
    with open(ballast, "wb", buffering=0) as file, pytest.raises(OSError):
        while True:
            file.write(bytes(4096))
    fd = os.open(m.topic("t") + "/produce", os.O_WRONLY)
    os.write(fd, b"a\n")
    for _ in range(3):
        assert not succeeds(os.fsync, fd)
    refused = [line for line in m.stderr().splitlines() if "are refused" in line]
    assert len(refused) == 1 and "topic=t" in refused[0] and "No space left on device" in refused[0], refused
    assert m.stderr().count("are taken again") == 0
    assert "1 topic that cannot be produced to as a whole" in status(m.mnt)
    assert "\nnarad_ingress_refused_topics 1\n" in read_file(m.mnt + "/metrics").decode()
    assert "\nproduce      refused: No space left on device\nto do        make room " in status(m.topic("t"))
    assert "refused" not in status(m.topic("other"))
    os.unlink(ballast)
    assert "refused" not in status(m.topic("t"))  # nobody has to try again for that
    os.fsync(fd)
    os.close(fd)
    assert m.stderr().count("records for the topic are taken again topic=t") == 1
    assert m.stderr().count("are refused") == 1
    wait_for(lambda: "\nstate        ok\n" in status(m.mnt), "status to say that all is well")


def status(folder):
    return read_file(folder + "/status").decode()


def number_of(mount, number):
    return int(os.getxattr(mount.part("t", number), "user.narad.hwm"))


def succeeds(call, *args):
    try:
        call(*args)
        return True
    except OSError as error:
        assert error.errno == errno.ENOSPC, error
        return False


def fill_slowly(path, done):
    """Takes all the room there is, and whatever gets free, until told."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    while not done.is_set():
        try:
            os.write(fd, bytes(65536))
        except OSError as error:
            assert error.errno == errno.ENOSPC
            time.sleep(0.005)
    os.close(fd)


@pytest.mark.limit(120)
def test_room_that_somebody_else_took(disks, mounts):
    """Records that were acknowledged wait until there is room again, and then arrive, without a restart and with one."""
    disk = disks(14 * MIB)
    m = start_on(disk, mounts)
    m.make("t", partitions=PARTS)
    acked = []
    for turn in range(3):
        done = threading.Event()
        filler = threading.Thread(target=fill_slowly, args=(disk.folder + "/filler", done))
        filler.start()
        fds = [write_until_refused(m.topic("t") + "/produce", b"%d.%d" % (turn, n), 3000, acked) for n in range(2)]
        time.sleep(0.2)
        if turn == 1:
            m.crash()
        done.set()
        filler.join()
        os.unlink(disk.folder + "/filler")
        for fd in fds:
            close_quietly(fd)
        wait_for(lambda: set(acked) <= seen(m, "t"), "all that was acknowledged")
        wait_for(lambda: pending(m) == 0, "the ingress to be empty")
