"""A mount for one test, and small helpers on top of plain system calls.

Python's file objects buffer, seek and stat, which says little about a stream file; tests use os.open, os.read and
os.write.
"""

import errno
import json
import os
import re
import shutil
import signal
import subprocess
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.normpath(os.path.join(HERE, "..", ".."))
NARADFS = os.path.abspath(os.environ.get("NARADFS") or os.path.join(ROOT, "build", "mount", "naradfs"))
JETSTREAM = os.environ.get("NARADFS_ENGINE", "local") == "jetstream"  # the engine that mounts are of
DURABILITY = "quorum" if JETSTREAM else "fsync"
SEGMENTS = {} if JETSTREAM else {"segments": "1"}  # how many a partition has that was made just now
PYTHON = "/usr/bin/python3"
XATTRS = ("hwm incarnation poisoned poison_reason oldest_offset next_offset frontier lag in_flight acked_ahead segments "
          "size_bytes durability").split()
CONFIG_KEYS = ("partitions retention_ms retention_bytes segment_bytes codec zstd_level linger_ms visibility_timeout_ms "
               "max_in_flight max_acked_ahead consume_wait_ms max_record_bytes fanout_delay_ms").split()


def _calls(symbol):
    try:
        with open(NARADFS, "rb") as file:
            return symbol in file.read()
    except OSError:
        return False


WATCHES_THREADS = _calls(b"__tsan_init")
SANITIZED = WATCHES_THREADS or _calls(b"__asan_init")


class Failed(AssertionError):
    """The daemon did something that no test can go on with."""


def wait_for(condition, what, limit_s=15.0, step_s=0.01):
    """Polls until condition() is true; its value."""
    deadline = time.monotonic() + limit_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise Failed(f"waited {limit_s} s for {what}")
        time.sleep(step_s)


def freeze(process):
    """Stops it, and returns when each of its threads has stopped."""
    process.send_signal(signal.SIGSTOP)

    def stopped():
        tasks = f"/proc/{process.pid}/task"
        for task in os.listdir(tasks):
            with open(f"{tasks}/{task}/stat", encoding="utf-8", errors="replace") as file:
                if file.read().rsplit(")", 1)[1].split()[0] != "T":
                    return False
        return True

    wait_for(stopped, f"process {process.pid} to stop")


def mountinfo(path):
    """The file system type mounted at path, or None."""
    wanted = os.path.realpath(os.path.dirname(path)) + "/" + os.path.basename(path)
    found = None
    with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as file:
        for line in file:
            fields = line.split()
            if fields[4].replace("\\040", " ") == wanted:
                found = fields[fields.index("-") + 1]
    return found


class Mount:
    """naradfs over a data directory; start, stop, kill and start again."""

    live = []  # every running daemon of this process, for the watchdog

    def __init__(self, base, options="", binary=None):
        self.base = str(base)
        self.data = os.path.join(self.base, "data")
        self.mnt = os.path.join(self.base, "mnt")
        self.options = options
        self.variables = {}  # of the daemon's environment, beside what is there
        self.binary = binary or NARADFS
        self.process = None
        self.n_starts = 0
        self.stderr_path = None
        for folder in self.folders():
            os.makedirs(folder, exist_ok=True)

    def folders(self):
        return [self.data, self.mnt]

    # -- life

    def env(self):
        env = {**os.environ, **self.variables}
        log = f"log_path={self.base}/sanitizer"
        for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS"):
            env[name] = ":".join(filter(None, [env.get(name), log]))
        return env

    def command(self, foreground=True):
        command = [self.binary, self.data, self.mnt]
        if foreground:
            command.append("-f")
        if self.options:
            command += ["-o", self.options]
        return command

    def spawn(self, command=None):
        """Starts the daemon without waiting for anything."""
        self.n_starts += 1
        self.stderr_path = os.path.join(self.base, f"stderr.{self.n_starts}")
        with open(self.stderr_path, "wb") as err:
            self.process = subprocess.Popen(command or self.command(), stdin=subprocess.DEVNULL, stdout=err,
                                            stderr=err, env=self.env(), start_new_session=True)
        Mount.live.append(self)
        return self.process

    def start(self):
        self.spawn()
        self.wait_mounted()
        return self

    def wait_mounted(self, limit_s=30):
        def ready():
            if self.process and self.process.poll() is not None:
                raise Failed(f"naradfs ended with {self.process.returncode}: {self.stderr()}")
            return (mountinfo(self.mnt) or "").startswith("fuse") and self.answers()

        wait_for(ready, "the mount", limit_s)

    def answers(self):
        try:
            os.stat(self.mnt + "/topics")
            return True
        except OSError:
            return False

    def try_start(self, limit_s=30):
        """Starts; True when mounted, False when the daemon refused (its reason is in stderr())."""
        self.spawn()

        def decided():
            return self.process.poll() is not None or (
                (mountinfo(self.mnt) or "").startswith("fuse") and self.answers())

        wait_for(decided, "the mount or a refusal", limit_s)
        if self.process.poll() is None:
            return True
        self.gone()
        return False

    def stderr(self):
        with open(self.stderr_path, encoding="utf-8", errors="replace") as file:
            return file.read()

    def gone(self):
        if self in Mount.live:
            Mount.live.remove(self)
        self.check_reports()

    def check_reports(self):
        """No sanitizer has said anything."""
        for name in sorted(os.listdir(self.base)):
            if name.startswith("sanitizer"):
                with open(os.path.join(self.base, name), encoding="utf-8", errors="replace") as file:
                    text = file.read()
                raise Failed(f"sanitizer report {name}:\n{text[:6000]}")
            if name.startswith("stderr."):
                with open(os.path.join(self.base, name), encoding="utf-8", errors="replace") as file:
                    text = file.read()
                for word in ("runtime error:", "AddressSanitizer", "LeakSanitizer", "ThreadSanitizer"):
                    if word in text:
                        raise Failed(f"sanitizer report in {name}:\n{text[-6000:]}")

    def wait_exit(self, limit_s=30):
        try:
            return self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            raise Failed(f"naradfs still runs after {limit_s} s: {self.stderr()[-2000:]}{self.stacks()}") from None

    def stacks(self):
        """Where its threads are, if there is a debugger to ask."""
        if not shutil.which("gdb"):
            return ""
        done = subprocess.run(["gdb", "-p", str(self.process.pid), "-batch", "-ex", "thread apply all bt 30"],
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        return "\n" + done.stdout.decode(errors="replace")[-20000:]

    def stop(self, how="term", limit_s=30):
        """Stops cleanly (SIGTERM, or by unmounting) and requires exit code 0."""
        if how == "term":
            self.process.send_signal(signal.SIGTERM)
        else:
            subprocess.run(["fusermount3", "-u", self.mnt], check=True, stdin=subprocess.DEVNULL, timeout=30)
        code = self.wait_exit(limit_s)
        self.gone()
        if code != 0:
            raise Failed(f"naradfs ended with {code}: {self.stderr()[-4000:]}")
        wait_for(lambda: mountinfo(self.mnt) is None, "the mount to go away")

    def restart(self):
        self.stop()
        return self.start()

    def kill(self):
        """kill -9; leaves the dead mount."""
        self.process.kill()
        self.process.wait(30)
        self.gone()

    def crash(self):
        self.kill()
        return self.start()

    def destroy(self):
        """Whatever the state: nothing runs and nothing is mounted afterwards. Returns what went wrong, or None."""
        wrong = None
        try:
            if self.process and self.process.poll() is None:
                self.stop()
            else:
                self.check_reports()
        except (Failed, OSError, subprocess.SubprocessError) as error:
            wrong = error
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait(30)
        if self in Mount.live:
            Mount.live.remove(self)
        for _ in range(4):
            if mountinfo(self.mnt) is None:
                break
            for command in (["fusermount3", "-u", "-z", self.mnt], ["umount", "-l", self.mnt]):
                if mountinfo(self.mnt) is not None:
                    subprocess.run(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False,
                                   timeout=30)
        return wrong

    def discard(self):
        """Frees the disk space of a test that passed."""
        if mountinfo(self.mnt) is None:
            shutil.rmtree(self.data, ignore_errors=True)

    # -- places

    def topic(self, name):
        return f"{self.mnt}/topics/{name}"

    def part(self, name, number=0):
        return f"{self.mnt}/topics/{name}/p{number:05d}"

    def data_part(self, name, number=0):
        return f"{self.data}/topics/{name}/p{number:05d}"

    def kept_topics(self):
        """The topics whose records are still kept somewhere, in order: that is what a daemon of tomorrow would find."""
        records = {name[:-len(".topic")] for name in os.listdir(self.data + "/meta")}
        return sorted(records | set(os.listdir(self.data + "/topics")))

    def make(self, name, **config):
        """Makes a topic with these settings; the path of its first partition."""
        os.mkdir(self.topic(name))
        if config:
            configure(self.topic(name), **config)
        return self.part(name)


# -- system calls


def configure(topic, **config):
    write_file(topic + "/config", "".join(f"{key}={value}\n" for key, value in config.items()).encode())


def write_file(path, data, flags=0):
    """One write(2) and a close; the count of bytes written."""
    fd = os.open(path, os.O_WRONLY | flags)
    try:
        return os.write(fd, data)
    finally:
        os.close(fd)


def write_all(fd, data):
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view):]


def read_file(path, size=1 << 20):
    """Reads to the end of file with plain reads."""
    fd = os.open(path, os.O_RDONLY)
    try:
        return read_rest(fd, size)
    finally:
        os.close(fd)


def read_rest(fd, size=1 << 20):
    parts = []
    while True:
        part = os.read(fd, size)
        if not part:
            return b"".join(parts)
        parts.append(part)


def produce(part, *records, name="produce"):
    """Writes records as lines and fsyncs."""
    fd = os.open(f"{part}/{name}", os.O_WRONLY)
    try:
        write_all(fd, b"".join(as_bytes(record) + b"\n" for record in records))
        os.fsync(fd)
    finally:
        os.close(fd)


def as_bytes(value):
    return value if isinstance(value, bytes) else str(value).encode()


def lines(*records):
    return b"".join(as_bytes(record) + b"\n" for record in records)


def log(part):
    return read_file(part + "/log")


def xattr(path, name):
    return os.getxattr(path, "user.narad." + name).decode()


def metric(mount, name):
    """What the mount's metrics say; the name with its labels."""
    return int(re.search(rf"^{re.escape(name)} (\d+)$", read_file(mount.mnt + "/metrics").decode(), re.M).group(1))


def number(path, name):
    return int(xattr(path, name))


def fails(call, *arguments):
    """The errno that a call fails with; fails the test when it succeeds."""
    try:
        value = call(*arguments)
    except OSError as error:
        return error.errno
    raise AssertionError(f"{getattr(call, '__name__', call)}{arguments} succeeded: {value!r}")


def open_fails(path, flags, mode=0o666):
    def opened():
        os.close(os.open(path, flags, mode))

    return fails(opened)


def name_of(number_):
    return errno.errorcode.get(number_, str(number_))


# -- consuming


def in_order(records):
    """Of records that were given back, for a comparison: over servers they come in the order in which that was done."""
    return sorted(records) if JETSTREAM else list(records)


class Consumer:
    """An open consuming file."""

    def __init__(self, part, name="consume", flags=None):
        if flags is None:  # only consume takes lines
            flags = (os.O_RDWR if name == "consume" else os.O_RDONLY) | os.O_NONBLOCK
        self.fd = os.open(f"{part}/{name}", flags)

    def read(self, size=1 << 20):
        return os.read(self.fd, size)

    def none(self):
        """True when nothing is deliverable now."""
        try:
            os.read(self.fd, 1 << 20)
        except BlockingIOError:
            return True
        return False

    def write(self, data):
        return os.write(self.fd, data)

    def sync(self):
        os.fsync(self.fd)

    def close(self):
        if self.fd >= 0:
            fd, self.fd = self.fd, -1
            try:
                os.close(fd)
            except OSError as error:  # the daemon may have been killed or stopped under it
                if error.errno not in (errno.ENOTCONN, errno.ECONNABORTED, errno.ENODEV, errno.EIO):
                    raise

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()


def take(part, count=None):
    """Objects read from consume.jsonl until none is left (or count of them); their leases stay."""
    objects = []
    with Consumer(part, "consume.jsonl", os.O_RDONLY | os.O_NONBLOCK) as consumer:
        while count is None or len(objects) < count:
            try:
                text = consumer.read(4 << 20)
            except BlockingIOError:
                break
            if not text:
                break
            assert text.endswith(b"\n") and text.count(b"\n") == 1, text
            objects.append(json.loads(text))
    return objects


def payload_of(record):
    """The payload of a consume.jsonl object as bytes (strings and base64 only)."""
    import base64

    if record.get("payload_encoding") == "base64":
        return base64.b64decode(record["payload"], validate=True)
    payload = record["payload"]
    return payload.encode() if isinstance(payload, str) else json.dumps(payload).encode()


def ack(part, *receipts, verb="", sync=False):
    """Writes receipts to ack, one write; bytes taken."""
    fd = os.open(part + "/ack", os.O_WRONLY)
    try:
        text = "".join((verb + " " if verb else "") + receipt + "\n" for receipt in receipts)
        count = os.write(fd, text.encode())
        if sync:
            os.fsync(fd)
        return count
    finally:
        os.close(fd)


def drain(part):
    return read_file(part + "/drain")


class Background:
    """A call in a thread; its result or its OSError."""

    def __init__(self, call, *arguments):
        self.value = None
        self.error = None
        self.call = call
        self.arguments = arguments
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        try:
            self.value = self.call(*self.arguments)
        except OSError as error:
            self.error = error

    def running(self):
        return self.thread.is_alive()

    def join(self, limit_s=20):
        self.thread.join(limit_s)
        if self.thread.is_alive():
            raise Failed(f"{self.call.__name__}{self.arguments} still blocks after {limit_s} s")
        return self.value


def shell(script, limit_s=30, **options):
    """Runs bash; the completed process, whose exit code must be 0 unless check=False."""
    options.setdefault("check", True)
    try:
        done = subprocess.run(["bash", "-c", script], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, timeout=limit_s, **{**options, "check": False})
    except subprocess.TimeoutExpired as late:
        raise Failed(f"{script!r} still runs after {limit_s} s: {late.stdout} {late.stderr}") from None
    if options["check"] and done.returncode != 0:
        raise Failed(f"{script!r} ended with {done.returncode}: {done.stdout!r} {done.stderr!r}")
    return done
