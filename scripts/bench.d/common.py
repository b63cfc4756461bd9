"""What every measurement uses: a daemon over a folder of its own, records, rows of figures."""

import contextlib
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.normpath(os.path.join(HERE, "..", ".."))
TICK_MS = 1000 / os.sysconf("SC_CLK_TCK")  # what the kernel counts CPU time in
KIB = 1024
MIB = 1 << 20


class Refused(Exception):
    """The daemon did not start."""


class Bench:
    """One run: where the data goes, how much of it, and the helpers built for it."""

    def __init__(self, folder, size):
        self.folder = folder
        self.size = size  # quick, default or full
        self.append = self.build("append")
        self.checksum = self.build("checksum", "-lisal")

    def pick(self, quick, default, full=None):
        return {"quick": quick, "default": default, "full": default if full is None else full}[self.size]

    def build(self, name, *libraries):
        program = os.path.join(self.folder, name)
        source = os.path.join(HERE, name + ".c")
        subprocess.run([os.environ.get("CC", "cc"), "-O2", "-o", program, source, *libraries], check=True)
        return program

    def row(self, what, measured, target="", good=None):
        verdict = "" if good is None else ("  ok" if good else "  MISSED")
        print(f"{what:<62} {measured:>20} {target:>14}{verdict}", flush=True)

    def ratio(self, what, value, limit, at_least=False):
        good = value >= limit if at_least else value <= limit
        self.row("  " + what, f"{value:.2f} x", f"{'>=' if at_least else '<='} {limit:g} x", good)

    def ratios(self, what, values, limit, at_least=False):
        """One value a round: the median counts, and the spread is told."""
        value = median(values)
        good = value >= limit if at_least else value <= limit
        self.row("  " + what, f"{value:.2f} x ({min(values):.2f}-{max(values):.2f})",
                 f"{'>=' if at_least else '<='} {limit:g} x", good)

    @contextlib.contextmanager
    def mirror(self, *paths):
        """The paths of the same files behind a FUSE file system that only passes their bytes on."""
        folder = os.path.join(self.folder, "mirror-mnt")
        os.makedirs(folder, exist_ok=True)
        flags = subprocess.run(["pkg-config", "--cflags", "--libs", "fuse3"], check=True, stdout=subprocess.PIPE)
        program = self.build("mirror", *flags.stdout.decode().split())
        with subprocess.Popen([program, *paths, folder], stdin=subprocess.DEVNULL) as process:
            try:
                while not os.path.exists(folder + "/0"):
                    if process.poll() is not None:
                        fail(f"the file system over {paths[0]} did not start")
                    time.sleep(0.01)
                yield [f"{folder}/{i}" for i in range(len(paths))]
            finally:
                subprocess.run(["fusermount3", "-u", "-z", folder], check=False)

    def daemon(self, name, options=""):
        return Daemon(os.path.join(self.folder, name), options)


class Daemon:
    """naradfs over folder/data at folder/mnt. With `with`, it is stopped and its data deleted at the end."""

    def __init__(self, folder, options=""):
        self.folder = folder
        self.options = options
        self.data, self.mnt = os.path.join(folder, "data"), os.path.join(folder, "mnt")
        self.binary = os.environ.get("NARADFS", os.path.join(ROOT, "build", "mount", "naradfs"))
        self.process = None
        os.makedirs(self.data, exist_ok=True)
        os.makedirs(self.mnt, exist_ok=True)

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *exception):
        self.stop()
        if not os.path.ismount(self.mnt):
            shutil.rmtree(self.folder)

    def start(self, limit_s=300):
        """Seconds from exec to a mount that answers."""
        command = [self.binary, self.data, self.mnt, "-f"] + (["-o", self.options] if self.options else [])
        with open(os.path.join(self.folder, "log"), "ab") as log:
            start = time.monotonic()
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        device = os.stat(self.folder).st_dev
        while not self.answers(device):
            if self.process.poll() is not None or time.monotonic() > start + limit_s:
                self.stop()
                with open(os.path.join(self.folder, "log"), encoding="utf-8", errors="replace") as log:
                    raise Refused(log.read()[-500:])
            time.sleep(0.001)
        return time.monotonic() - start

    def answers(self, device):
        try:
            return os.stat(self.mnt).st_dev != device and os.path.isdir(self.mnt + "/topics")
        except OSError:  # a dead mount of a killed daemon, until it is replaced
            return False

    def stop(self, signal_=signal.SIGTERM, limit_s=300):
        if self.process is None or self.process.poll() is not None:
            return
        self.process.send_signal(signal_)
        try:
            self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if signal_ == signal.SIGKILL or os.path.ismount(self.mnt):
            subprocess.run(["fusermount3", "-u", "-z", self.mnt], check=False, stderr=subprocess.DEVNULL)

    def topic(self, name, **config):
        """Makes a topic; the path of its first partition."""
        path = f"{self.mnt}/topics/{name}"
        os.mkdir(path)
        if config:
            self.configure(name, **config)
        return path + "/p00000"

    def configure(self, name, **config):
        fd = os.open(f"{self.mnt}/topics/{name}/config", os.O_WRONLY)
        os.write(fd, "".join(f"{key}={value}\n" for key, value in config.items()).encode())
        os.close(fd)

    def ticks(self):
        with open(f"/proc/{self.process.pid}/stat", encoding="utf-8") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        return int(fields[11]) + int(fields[12])

    def rss_bytes(self):
        with open(f"/proc/{self.process.pid}/status", encoding="utf-8") as file:
            return next(int(line.split()[1]) * KIB for line in file if line.startswith("VmRSS"))

    def n_descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))


def attribute(path, name):
    return int(os.getxattr(path, "user.narad." + name))


def record(size, fill=b"r"):
    """A line of size bytes, its newline among them."""
    return fill * (size - 1) + b"\n"


def commit(fd, data):
    """Seconds for one write and fsync."""
    start = time.monotonic()
    while data:
        data = data[os.write(fd, data):]
    os.fsync(fd)
    return time.monotonic() - start


def produce(part, *records):
    """One commit for each record."""
    fd = os.open(part + "/produce", os.O_WRONLY)
    for data in records:
        commit(fd, data)
    os.close(fd)


def forget_pages(path):
    """Drops a file's pages from the page cache, so that the next read goes to the disk."""
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


def median(values):
    return statistics.median(values)


def fail(what):
    sys.exit(f"bench: {what}")
