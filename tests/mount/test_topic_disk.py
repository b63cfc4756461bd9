"""Topics produced to as a whole, on disks that are cut off and that are full."""

import errno
import fcntl
import os
import random
import subprocess
import threading
import time

import pytest
from support import log, mountinfo, wait_for, write_all

MIB = 1 << 20
SHUTDOWN = 0x8004587D  # FS_IOC_SHUTDOWN of ext4
NO_LOG_FLUSH = (2).to_bytes(4, "little")
PARTS = 3


class Disk:
    """A small ext4 file system of its own, that can be cut off."""

    def __init__(self, base, size):
        self.image, self.folder = f"{base}/disk.img", f"{base}/disk"
        os.mkdir(self.folder)
        with open(self.image, "wb") as file:
            file.truncate(size)
        subprocess.run(["/sbin/mkfs.ext4", "-q", "-m", "0", "-F", self.image], check=True, stdin=subprocess.DEVNULL)
        done = self.mount()
        if done.returncode != 0:
            pytest.skip("no loop device: " + done.stderr.decode().strip())

    def mount(self):
        return subprocess.run(["mount", "-o", "loop", self.image, self.folder], stdin=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, check=False)

    def umount(self, lazily=False):
        command = ["umount"] + ["-l"] * lazily + [self.folder]
        return subprocess.run(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode == 0

    def cut_off(self):
        """What is not on the disk by now never gets there, as in a power cut."""
        fd = os.open(self.folder, os.O_RDONLY)
        fcntl.ioctl(fd, SHUTDOWN, NO_LOG_FLUSH)
        os.close(fd)

    def back_again(self):
        wait_for(self.umount, "the disk to be let go")
        done = self.mount()
        assert done.returncode == 0, done.stderr

    def destroy(self):
        if mountinfo(self.folder) and not self.umount():
            self.umount(lazily=True)
        os.unlink(self.image)


@pytest.fixture
def disks(tmp_path):
    made = []

    def make(size):
        made.append(Disk(tmp_path, size))
        return made[-1]

    yield make
    for disk in made:
        disk.destroy()


def start_on(disk, mounts):
    mount = mounts(start=False)
    mount.data = disk.folder + "/data"
    os.mkdir(mount.data)
    return mount.start()


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
