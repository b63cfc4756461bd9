"""A small file system of its own for a test, on a loop device: to be full, read-only, or cut off as in a power cut."""

import errno
import fcntl
import os
import subprocess

import pytest
from support import Failed, mountinfo, wait_for

MIB = 1 << 20
SHUTDOWN = 0x8004587D  # FS_IOC_SHUTDOWN of ext4 and xfs
NO_LOG_FLUSH = (2).to_bytes(4, "little")
LET_GO_S = 2
MAKE = {"ext4": ["/sbin/mkfs.ext4", "-q", "-m", "0", "-F"], "xfs": ["/sbin/mkfs.xfs", "-q", "-f"]}


def run(*command):
    return subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)


class Disk:
    def __init__(self, base, size, kind="ext4", options=()):
        self.image, self.folder, self.n_images = f"{base}/disk.img", f"{base}/disk", 1
        self.options = "loop,nouuid" if kind == "xfs" else "loop"  # a copy of a disk that is kept has its name, too
        os.mkdir(self.folder)
        with open(self.image, "wb") as file:
            file.truncate(size)
        done = run(*MAKE[kind], *options, self.image)
        if done.returncode != 0:
            raise Failed(f"no {kind} could be made: {done.stderr.decode()}")
        done = self.mount()
        if done.returncode != 0:
            os.unlink(self.image)
            pytest.skip("no loop device: " + done.stderr.decode().strip())

    def mount(self):
        return run("mount", "-o", self.options, self.image, self.folder)

    def umount(self, lazily=False):
        return run("umount", *["-l"] * lazily, self.folder).returncode == 0

    def remount(self, how):
        done = run("mount", "-o", f"remount,{how}", self.folder)
        assert done.returncode == 0, done.stderr

    def cut_off(self):
        """What is not on the disk by now never gets there, as in a power cut."""
        fd = os.open(self.folder, os.O_RDONLY)
        fcntl.ioctl(fd, SHUTDOWN, NO_LOG_FLUSH)
        os.close(fd)

    def back_again(self):
        """Mounted anew, as after the power is back.

        A mount namespace that was made meanwhile (unshare -m, a service's sandbox) has a copy of this mount and keeps the
        file system, cut off as it is, and its loop device. Mounting the same image would give that file system again: a
        copy of the image is mounted then, which has what was on the disk.
        """
        wait_for(self.umount, "the disk to be let go")
        try:
            wait_for(self.let_go, "the loop device to go away", LET_GO_S)
        except Failed:
            self.move_to_a_copy()
        done = self.mount()
        assert done.returncode == 0, done.stderr

    def let_go(self):
        return run("losetup", "-j", self.image).stdout == b""

    def move_to_a_copy(self):
        self.n_images += 1
        copy = f"{self.folder}.{self.n_images}.img"
        done = run("cp", "--sparse=always", self.image, copy)
        assert done.returncode == 0, done.stderr
        os.unlink(self.image)
        self.image = copy

    def destroy(self):
        if mountinfo(self.folder) and not self.umount():
            self.umount(lazily=True)
        os.unlink(self.image)


def start_on(disk, mounts):
    """A daemon whose data lies on this disk."""
    mount = mounts(start=False)
    mount.data = disk.folder + "/data"
    os.mkdir(mount.data)
    return mount.start()


def fill(disk):
    """Takes all the space there is; the file to remove."""
    path = disk.folder + "/filler"
    fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    for size in (MIB, 65536, 4096, 512):
        while True:
            try:
                os.write(fd, bytes(size))
            except OSError as error:
                assert error.errno == errno.ENOSPC
                break
    os.fsync(fd)
    os.close(fd)
    return path
