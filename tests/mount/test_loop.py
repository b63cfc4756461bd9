"""The daemon's session loop: however it is ended, and whatever is under way, every thread comes back."""

import errno
import os
import signal
import subprocess
import threading

import pytest

from support import NARADFS, SANITIZED, WATCHES_THREADS, Background, drain, log, mountinfo, produce, read_file, wait_for

ENDED = (errno.ENOTCONN, errno.ECONNABORTED, errno.ENODEV, errno.ENOENT, errno.EIO, errno.EINTR)


class Load:
    """Clients that commit, read and look, until they are told to stop; what fails once the mount is gone is no matter."""

    def __init__(self, mount, n=6):
        self.part = mount.part("t")
        self.n_done = 0
        self.has_committed = False
        self.wrong = None
        self.over = threading.Event()
        self.threads = [threading.Thread(target=self.run, args=(turn,), daemon=True) for turn in range(n)]
        for thread in self.threads:
            thread.start()

    def run(self, turn):
        calls = (lambda: produce(self.part, "x"), lambda: os.getxattr(self.part, "user.narad.hwm"),
                 lambda: os.stat(self.part + "/log"))
        while not self.over.is_set():
            try:
                calls[turn % 3]()
                self.n_done += 1
                self.has_committed |= turn % 3 == 0
            except OSError as error:
                if error.errno not in ENDED:
                    self.wrong = error
                self.over.wait(0.01)

    def wait_running(self):
        before = self.n_done
        wait_for(lambda: self.n_done > before + 20 and self.has_committed, "the load")

    def stop(self):
        self.over.set()
        for thread in self.threads:
            thread.join(30)
            assert not thread.is_alive()
        assert self.wrong is None, self.wrong


def n_threads(m):
    """Threads that take requests."""
    tasks = f"/proc/{m.process.pid}/task"
    return sum(read_file(f"{tasks}/{task}/comm") == b"naradfs-request\n" for task in os.listdir(tasks))


def cut(m):
    control = f"/sys/fs/fuse/connections/{os.minor(os.stat(m.mnt).st_dev)}/abort"
    if not os.path.exists(control):
        subprocess.run(["mount", "-t", "fusectl", "none", "/sys/fs/fuse/connections"], check=False, timeout=20,
                       stderr=subprocess.DEVNULL)
    if not os.path.exists(control):
        pytest.skip("no fusectl on this machine")
    with open(control, "w", encoding="ascii") as file:
        file.write("1")


def ends_under_load(m, how, limit_s=20):
    load = Load(m)
    load.wait_running()
    how(m)
    code = m.wait_exit(limit_s)
    load.stop()
    m.gone()
    return code


@pytest.mark.limit(300)
def test_connection_cut_under_load(m):
    """Again and again, since it is about moments."""
    m.make("t")
    for _ in range(10 if SANITIZED else 50):
        assert ends_under_load(m, cut) == 0
        m.start()
    assert number_of_records(m) > 0


def number_of_records(m):
    return len(log(m.part("t")).splitlines())


@pytest.mark.limit(120)
def test_stop_under_load(m):
    m.make("t")
    for _ in range(10):
        assert ends_under_load(m, lambda m: m.process.send_signal(signal.SIGTERM)) == 0
        assert mountinfo(m.mnt) is None
        m.start()


@pytest.mark.limit(120)
@pytest.mark.parametrize("option", ["-l", "-f"])
def test_unmounted_by_force_under_load(m, option):
    part = m.make("t")
    held = os.open(part + "/produce", os.O_WRONLY)
    load = Load(m)
    load.wait_running()
    subprocess.run(["umount", option, m.mnt], check=False, timeout=30, stderr=subprocess.DEVNULL)
    load.stop()
    try:
        os.close(held)
    except OSError as error:
        assert error.errno in ENDED
    if mountinfo(m.mnt) is not None:  # a forced one cuts the connection; it may leave the name
        subprocess.run(["umount", "-l", m.mnt], check=False, timeout=30, stderr=subprocess.DEVNULL)
    assert m.wait_exit(20) == 0
    m.gone()
    m.start()
    assert number_of_records(m) > 0


@pytest.mark.limit(90)
@pytest.mark.parametrize("arguments,limit", [(["-s"], 1), (["-o", "max_threads=1"], 1),
                                             (["-o", "max_threads=3,clone_fd"], 3),
                                             (["-o", "max_threads=100000"], 1024)])
def test_numbers_of_threads(mounts, arguments, limit):
    m = mounts(start=False)
    m.spawn(m.command() + arguments)
    m.wait_mounted()
    m.make("t")
    load = Load(m, 12)
    load.wait_running()
    assert n_threads(m) <= limit
    load.stop()
    assert drain(m.part("t")) != b""
    m.stop()


@pytest.mark.limit(90)
def test_threads_are_bounded_and_stay(m):
    """Sixteen for requests, however many clients there are."""
    m.make("t")
    load = Load(m, 40)
    load.wait_running()
    assert 1 <= n_threads(m) <= 16
    load.stop()
    assert 1 <= n_threads(m) <= 16


@pytest.mark.limit(60)
def test_a_signal_for_the_threads_from_outside_does_nothing(m):
    part = m.make("t")
    load = Load(m)
    for _ in range(50):
        m.process.send_signal(signal.SIGUSR1)
        load.wait_running()
    load.stop()
    assert m.process.poll() is None
    produce(part, "still here")


def blocked_signals(m):
    """By thread: what it does not take."""
    tasks = f"/proc/{m.process.pid}/task"
    masks = {}
    for task in os.listdir(tasks):
        try:
            text = read_file(f"{tasks}/{task}/status").decode()
        except OSError:
            continue  # it has just ended
        fields = dict(line.split(":", 1) for line in text.splitlines())
        masks[int(task)] = int(fields["SigBlk"], 16)
    return masks


def is_blocked(mask, number):
    return bool(mask & 1 << number - 1)


def right_masks(m):
    return all(is_blocked(mask, number) == (number != signal.SIGBUS and task != m.process.pid)
               for task, mask in blocked_signals(m).items()
               for number in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM, signal.SIGBUS))


@pytest.mark.local("the ingress log")
@pytest.mark.skipif(WATCHES_THREADS, reason="ThreadSanitizer has a thread of its own, which takes no signal")
@pytest.mark.limit(60)
def test_which_thread_takes_which_signal(m):
    """Those that end the daemon come to the main thread; a SIGBUS to who looked, or it would end the process."""
    m.make("t")
    produce(m.topic("t"), "x")  # workers of the ingress
    os.mkdir(m.topic("c"))
    os.mkdir(m.topic("t") + "/children/c")
    load = Load(m)
    load.wait_running()
    assert len(blocked_signals(m)) > 4
    wait_for(lambda: right_masks(m), "threads with right masks")  # one that is just starting has everything blocked
    load.stop()


@pytest.mark.local("the data directory")
@pytest.mark.limit(60)
def test_stop_in_the_background_under_load(mounts):
    m = mounts(start=False)
    subprocess.run(m.command(foreground=False), check=True, timeout=30, stdin=subprocess.DEVNULL)
    pid = int(subprocess.run(["pgrep", "-f", f"^{NARADFS} {m.data} "], check=True,
                             stdout=subprocess.PIPE).stdout.split()[0])
    m.make("t")
    load = Load(m)
    load.wait_running()
    os.kill(pid, signal.SIGTERM)
    wait_for(lambda: mountinfo(m.mnt) is None, "the mount to go away")
    load.stop()
    wait_for(lambda: not os.path.exists(f"/proc/{pid}"), "the daemon's end")
    m.start()
    assert number_of_records(m) > 0


@pytest.mark.limit(120)
def test_interrupts_that_come_too_late(m):
    """Readers are killed while records come to them, and the daemon stops at once: an interrupt whose request is answered
    already is not kept to the end. In a build that looks for leaks it would be one; and since nothing of libfuse is
    excused, so would be a request that nobody answers."""
    part = m.make("t")
    for _ in range(5):
        readers = [subprocess.Popen(["cat", part + "/consume"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                   for _ in range(24)]
        load = Load(m, 3)
        load.wait_running()
        for reader in readers:
            reader.kill()
        m.process.send_signal(signal.SIGTERM)
        load.stop()
        for reader in readers:
            reader.wait(30)
        assert m.wait_exit(30) == 0
        m.gone()
        m.start()


@pytest.mark.limit(60)
def test_all_threads_in_removals(mounts):
    """rmdir waits a moment for closes, on a thread; with one thread the close comes after it, and nobody hangs."""
    m = mounts(start=False)
    m.spawn(m.command() + ["-s"])
    m.wait_mounted()
    part = m.make("t")
    held = os.open(part + "/log", os.O_RDONLY)
    work = [Background(os.rmdir, m.topic("t")) for _ in range(4)]
    for one in work:
        one.join(30)
        assert one.error.errno == errno.EBUSY
    os.close(held)
    wait_for(lambda: not removal_fails(m.topic("t")), "the removal")
    m.stop()


def removal_fails(path):
    try:
        os.rmdir(path)
    except OSError:
        return True
    return False
