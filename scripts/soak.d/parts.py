"""The parts of the soak: what is done to a daemon under load. Each is a function of (bench, amount)."""

import collections
import errno
import os
import random
import re
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.normpath(os.path.join(HERE, "..", "..", "tests", "mount")))

from disk import MIB, Disk, fill, run  # noqa: E402
from support import Failed, Mount, log, number, produce, read_file, wait_for, write_file, xattr  # noqa: E402
from test_faults import Inject  # noqa: E402
from test_memory import can_be_asked_to_forget  # noqa: E402
from world import Broken, World, must  # noqa: E402

WARM_SAMPLES = 60
NODE_BYTES = 264  # with its places in the tables, measured
USED_GROWTH_KIB = 4096
MAX_NODES = 12500 if can_be_asked_to_forget() else 1 << 40
GENERATION = 25  # rounds with the same topics
IN_THE_CLEAR = {"EAGAIN", "ESTALE", "ENOTCONN", "ECONNABORTED", "ENODEV", "ENOENT", "EIDRM"}


class Bench:
    """One part's folder, chance and progress."""

    def __init__(self, folder, name, seed, verbose=True):
        self.folder, self.name, self.seed = os.path.join(folder, name), name, seed
        self.rng = random.Random(f"{seed} {name}")
        random.seed(f"{seed} {name}")
        self.verbose, self.start = verbose, time.monotonic()
        shutil.rmtree(self.folder, ignore_errors=True)
        os.makedirs(self.folder)

    def say(self, *what, always=False):
        if self.verbose or always:
            print(f"[{time.monotonic() - self.start:7.1f} s] {self.name}:", *what, flush=True)

    def mount(self, data=None, **options):
        mount = Mount(os.path.join(self.folder, "m"), **options)
        if data:
            mount.data = data
            os.makedirs(data, exist_ok=True)
        return mount


def totals(world):
    told = f"{world.n_promised} promised, {world.n_settled} settled, {world.n_records} records compared"
    return f"{told}, second copies that may be: {world.n_more[0]} in topics, {world.n_more[1]} in children"


# ---- rounds that end with a blow ----


class Rounds:
    """Load, a blow, recovery, and everything checked; again and again."""

    def __init__(self, bench, mount, errors=frozenset()):
        self.bench, self.mount = bench, mount
        self.world = World(mount, bench.rng)
        self.allowed = IN_THE_CLEAR | errors

    def run(self, n_rounds, blow, generation=GENERATION):
        n_twice = 0
        for n in range(n_rounds):
            if n % generation == 0:
                self.renew(n)
            n_twice += self.round(blow)
            if (n + 1) % 10 == 0:
                self.bench.say(f"{n + 1} of {n_rounds} rounds;", totals(self.world))
        self.world.finish()
        self.mount.stop()
        return f"{n_rounds} rounds, {n_twice} of them with a second blow during recovery; {totals(self.world)}"

    def renew(self, n):
        if n:
            self.world.finish()
        self.world.begin()

    def round(self, blow):
        self.world.go()
        self.world.wait_for_promises(6)
        time.sleep(self.bench.rng.random() ** 2 * 0.5)
        before = blow(self.mount)
        self.world.stop(before)
        must(set(self.world.errors) <= self.allowed, "the clients met", dict(self.world.errors))
        twice = self.again() if self.bench.rng.random() < 0.15 else 0
        self.mount.start()
        if self.bench.rng.random() < 0.1:
            self.mount.restart()  # a clean end between
        self.world.verify()
        return twice

    def again(self):
        """Killed while it recovers."""
        self.mount.spawn()
        time.sleep(self.bench.rng.random() * 0.15)
        self.mount.kill()
        return 1

    def end(self):
        self.world.end()
        self.mount.destroy()


def with_rounds(bench, mount, errors, body):
    mount.start()
    rounds = Rounds(bench, mount, errors)
    try:
        return body(rounds)
    finally:
        rounds.end()


def kill(bench, n_rounds):
    """kill -9."""
    def blow(mount):
        mount.kill()
        return float("inf")

    return with_rounds(bench, bench.mount(), frozenset(), lambda rounds: rounds.run(n_rounds, blow))


def cuts(bench, n_rounds):
    """Power cuts: half of the rounds on ext4, half on xfs."""
    told = []
    for kind, size, count in (("ext4", 128 * MIB, n_rounds - n_rounds // 2), ("xfs", 320 * MIB, n_rounds // 2)):
        if count and os.path.exists(f"/sbin/mkfs.{kind}"):
            told.append(f"{kind}: {cuts_on(bench, kind, size, count)}")
    return "; ".join(told)


def cuts_on(bench, kind, size, n_rounds):
    folder = os.path.join(bench.folder, kind)
    os.mkdir(folder)
    disk = Disk(folder, size, kind)
    mount = bench.mount(disk.folder + "/data")

    def blow(mount):
        before = time.monotonic()
        disk.cut_off()
        mount.kill()
        disk.back_again()
        return before

    try:
        return with_rounds(bench, mount, {"EIO", "EROFS"}, lambda rounds: rounds.run(n_rounds, blow, 10))
    finally:
        disk.destroy()


def abort(bench, n_rounds):
    """The FUSE connection is aborted: the daemon ends by itself, within 5 seconds."""
    def blow(mount):
        control = f"/sys/fs/fuse/connections/{os.minor(os.stat(mount.mnt).st_dev)}/abort"
        if not os.path.exists(control):
            run("mount", "-t", "fusectl", "none", "/sys/fs/fuse/connections")
        write_file(control, b"1")
        start = time.monotonic()
        mount.wait_exit(60)
        took = time.monotonic() - start
        mount.gone()
        must(took < 5, f"the daemon ended {took:.1f} s after the abort")
        return float("inf")

    def body(rounds):
        rounds.world.whole = True  # files of clients are closed then: what is left of a line becomes a record
        return rounds.run(n_rounds, blow)

    return with_rounds(bench, bench.mount(), frozenset(), body)


def readonly(bench, n_rounds):
    """The file system finds an error and goes read-only under the daemon; checked, mounted and used again."""
    folder = os.path.join(bench.folder, "disk")
    os.mkdir(folder)
    disk = Disk(folder, 64 * MIB, options=["-e", "remount-ro"])
    mount = bench.mount(disk.folder + "/data")

    def blow(mount):
        device = os.path.basename(run("findmnt", "-n", "-o", "SOURCE", disk.folder).stdout.decode().strip())
        before = time.monotonic()
        write_file(f"/sys/fs/ext4/{device}/trigger_fs_error", b"soak")
        part = mount.part(next(iter(os.listdir(mount.mnt + "/topics"))))
        read_file(part + "/log")  # reads go on
        time.sleep(0.2)
        mount.process.send_signal(signal.SIGTERM)
        mount.wait_exit(60)
        mount.gone()
        wait_for(disk.umount, "the disk to be let go")
        wait_for(disk.let_go, "its loop device to go away", 60)
        run("/sbin/e2fsck", "-p", "-f", disk.image)
        must(disk.mount().returncode == 0, "the disk cannot be mounted")
        return before

    try:
        return with_rounds(bench, mount, {"EIO", "EROFS"}, lambda rounds: rounds.run(n_rounds, blow, 10))
    finally:
        disk.destroy()


# ---- trouble that comes and goes while the daemon lives ----


class Trouble:
    """The same load over one daemon; what fails is tried again until it succeeds."""

    def __init__(self, bench, mount, errors):
        self.bench, self.mount, self.allowed = bench, mount, IN_THE_CLEAR | errors
        self.world = World(mount, bench.rng)
        self.world.visibility_ms = 10000  # leases are lost with answers that fail

    def run(self, n_rounds, trouble, generation=5):
        for n in range(n_rounds):
            if n % generation == 0:
                self.renew(n)
            self.world.go()
            self.world.wait_for_promises(6)
            trouble()
            self.reopen()
            self.world.wait_for_promises(self.world.clients.promises() + 4)
            self.world.stop()
            must(set(self.world.errors) <= self.allowed, "the clients met", dict(self.world.errors))
            self.reopen()
            self.world.verify()
            self.bench.say(f"{n + 1} of {n_rounds} rounds;", totals(self.world))
        self.world.finish()
        self.mount.restart()
        self.mount.stop()
        return f"{n_rounds} rounds; {totals(self.world)}; the clients met {dict(self.world.errors)}"

    def renew(self, n):
        if n:
            self.world.finish()
        self.world.begin()

    def reopen(self):
        """What an administrator does about poison."""
        for topic in self.world.topics.values():
            for part in topic.parts:
                if xattr(part.path, "poisoned") != "0":
                    write_file(part.path + "/ctl", b"reopen\n")

    def end(self):
        self.world.end()
        self.mount.destroy()


def with_trouble(bench, mount, errors, body):
    mount.start()
    trouble = Trouble(bench, mount, errors)
    try:
        return body(trouble)
    finally:
        trouble.end()


def full(bench, n_rounds):
    """A disk without room, or without inodes, again and again, with room back each time."""
    return "; ".join([full_disk(bench, "bytes", n_rounds - n_rounds // 2, ()),
                      full_disk(bench, "inodes", max(n_rounds // 2, 1), ("-N", "512"))])


def full_disk(bench, what, n_rounds, options):
    folder = os.path.join(bench.folder, what)
    os.mkdir(folder)
    disk = Disk(folder, 48 * MIB, options=options)

    def trouble():
        fillers = [fill(disk)] if what == "bytes" else use_up_inodes(disk)
        time.sleep(0.2 + bench.rng.random() * 0.6)
        for filler in fillers:
            os.unlink(filler)

    try:
        mount = bench.mount(disk.folder + "/data")
        return f"{what}: " + with_trouble(bench, mount, {"ENOSPC"}, lambda t: t.run(n_rounds, trouble, 2))
    finally:
        disk.destroy()


def use_up_inodes(disk):
    made = []
    while True:
        path = f"{disk.folder}/filler{len(made)}"
        try:
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
        except OSError as error:
            must(error.errno == errno.ENOSPC, error)
            return made
        made.append(path)


FAULTS = [("fdatasync,fsync", ("EIO", "ENOSPC")), ("pwrite64,pwritev,pwritev2", ("EIO", "ENOSPC")),
          ("pread64,preadv", ("EIO",)), ("pwrite64,ftruncate", ("EIO",)), ("openat,openat2", ("EMFILE", "EIO")),
          ("renameat,renameat2,rename", ("EIO", "ENOSPC")), ("unlinkat,unlink", ("EIO",)), ("mkdirat", ("ENOSPC", "EIO"))]


def administer(mount, seconds):
    """What makes files, renames them and removes them. Each of it may fail."""
    def attempt(call, *arguments):
        try:
            call(*arguments)
        except OSError as error:
            must(error.errno in (errno.EIO, errno.ENOSPC, errno.EMFILE, errno.ENOMEM, errno.EEXIST, errno.ENOENT, errno.EINVAL),
                 "an administrator met", error)

    end = time.monotonic() + seconds
    topics = os.listdir(mount.mnt + "/topics")
    while True:
        for topic in topics:
            attempt(write_file, mount.part(topic) + "/ctl", b"roll\n")
            attempt(write_file, mount.topic(topic) + "/config", b"linger_ms=%d\n" % random.randrange(5, 50))
        attempt(os.mkdir, mount.topic("passing"))
        attempt(os.rmdir, mount.topic("passing"))
        if time.monotonic() > end:
            break


def failing(bench, n_rounds):
    """System calls of the running daemon fail at random."""
    mount, fired = bench.mount(), collections.Counter()
    turns = iter(range(n_rounds))

    def trouble():
        calls, errors = FAULTS[next(turns) % len(FAULTS)]
        error = bench.rng.choice(errors)
        first, step = bench.rng.choice([1, 1, 2, 7, 20]), bench.rng.choice(["", "+1", "+3", "+17"])
        inject = Inject(mount, None, calls, f"error={error}:when={first}{step}")
        administer(mount, bench.rng.random() * 0.5)
        inject.stop()
        fired[f"{calls.split(',')[0]} {error}"] += inject.fired()

    told = with_trouble(bench, mount, {"EIO", "ENOSPC", "EMFILE", "ENOMEM"}, lambda t: t.run(n_rounds, trouble))
    return f"{told}; fired: {dict(fired)}"


def few(bench, n_rounds):
    """64 descriptors, and more partitions than that."""
    mount = bench.mount()
    count = 150
    mount.spawn(["prlimit", "--nofile=64", *mount.command()])
    mount.wait_mounted()
    try:
        mount.make("t", partitions=count)
        wanted = collections.defaultdict(list)
        for n in range(n_rounds * 20):
            part = bench.rng.randrange(count)
            produce(mount.part("t", part), n)
            wanted[part].append(b"%d" % n)
            if n % 20 == 19:
                part = bench.rng.choice(list(wanted))
                must(log(mount.part("t", part)).split() == wanted[part], "partition", part)
        for part, records in wanted.items():
            must(log(mount.part("t", part)).split() == records, "partition", part)
            must(number(mount.part("t", part), "hwm") == len(records), "watermark of", part)
        n_fds = len(os.listdir(f"/proc/{mount.process.pid}/fd"))
        mount.stop()
        return f"{n_rounds * 20} commits to {count} partitions with 64 descriptors ({n_fds} in use); all compared"
    finally:
        mount.destroy()


def memory(bench, n_rounds):
    """Little memory: requests fail, or the daemon ends and is started again; nothing promised is lost."""
    mount = bench.mount()
    n_ends = 0

    def blow(mount):
        nonlocal n_ends
        with open(f"/proc/{mount.process.pid}/status", encoding="utf-8") as file:
            size = int(next(line for line in file if line.startswith("VmSize")).split()[1]) * 1024
        limit = size + bench.rng.randrange(0, 4 * MIB)
        run("prlimit", "--pid", str(mount.process.pid), f"--as={limit}")
        time.sleep(0.5)
        n_ends += mount.process.poll() is not None
        mount.kill()
        return float("inf")

    told = with_rounds(bench, mount, {"ENOMEM", "EIO", "EINTR"}, lambda rounds: rounds.run(n_rounds, blow))
    return f"{told}; the daemon ended by itself {n_ends} times"


# ---- at full speed ----


def speed(bench, seconds):
    """Writers, readers and deletions by retention, as fast as they go: memory, descriptors and threads stay flat."""
    mount = bench.mount().start()
    loads = []
    try:
        samples = []
        loads = start_loads(mount)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(min(1, seconds / 10))
            samples.append(sample(mount))
            if len(samples) % 60 == 0:
                bench.say(", ".join(f"{value} {name}" for name, value in samples[-1]._asdict().items()), "(memory in KiB)")
        must(all(load.poll() is None for load in loads), "a client ended")
        n_records = sum(number(mount.part(f"s{n}"), "hwm") for n in range(3))
        return flat(samples, f"{n_records} records in {seconds} s")
    finally:
        for load in loads:
            os.killpg(load.pid, signal.SIGKILL)
            load.wait()
        mount.destroy()


LOADS = ["while :; do seq 200000 | head -c 900000 > {p}/produce || exit; done",
         "while :; do cat {p}/drain > /dev/null || exit; sleep 0.01; done",
         "while :; do tail -c 50000 {p}/log > /dev/null; ls -l {p}/segments {p}/records > /dev/null; sleep 0.05; done",
         "while :; do cat {p}/status {p}/../status > /dev/null; sleep 0.1; done"]


def start_loads(mount):
    loads = []
    for n, codec in enumerate(["none", "zstd", "none"]):
        part = mount.make(f"s{n}", codec=codec, segment_bytes=1 << 20, retention_bytes=4 << 20)
        for script in LOADS:
            loads.append(subprocess.Popen(["bash", "-c", script.format(p=part)], stdin=subprocess.DEVNULL,
                                          stderr=subprocess.DEVNULL, start_new_session=True))
    return loads


Sample = collections.namedtuple("Sample", "used resident descriptors threads nodes")  # memory in KiB


def sample(mount):
    """Memory in use is what is allocated, without the nodes of the files and folders that the kernel remembers: those it
    has forgotten are no longer among them."""
    pid = mount.process.pid
    with open(f"/proc/{pid}/statm", encoding="ascii") as file:
        pages = [int(word) for word in file.read().split()]
    resident = (pages[1] - pages[2]) * resource.getpagesize() // 1024  # of mapped files they are the page cache's
    gauges = dict(re.findall(r"^(narad_[a-z_]+) (\d+)$", read_file(mount.mnt + "/metrics").decode(), re.M))
    nodes = int(gauges["narad_nodes"])
    used = (int(gauges["narad_memory_used_bytes"]) - nodes * NODE_BYTES) // 1024
    return Sample(used, resident, len(os.listdir(f"/proc/{pid}/fd")), len(os.listdir(f"/proc/{pid}/task")), nodes)


def typical_and_most(samples):
    return [(statistics.median_low(column), max(column)) for column in zip(*samples)]


def flat(samples, what):
    """The last third against the third before: of memory in use what it was most of the time, since buffers come and go;
    of everything else the most that was seen."""
    third = len(samples) // 3
    middle = Sample(*typical_and_most(samples[third:2 * third]))
    last = Sample(*typical_and_most(samples[-third:]))
    told = "; ".join(f"{name} {a[0]} (most {a[1]}), then {b[0]} ({b[1]})" for name, a, b in zip(Sample._fields, middle, last))
    warm = len(samples) >= WARM_SAMPLES  # caches fill at first
    must(last.used[0] <= middle.used[0] + (USED_GROWTH_KIB if warm else 3 * middle.used[0]), "memory in use grows:", told)
    must(last.resident[1] <= middle.resident[1] * (1.15 if warm else 3) + 8192, "memory grows:", told)
    must(last.descriptors[1] <= middle.descriptors[1] + 16, "descriptors grow:", told)
    must(last.threads[1] <= middle.threads[1] + 2, "threads grow:", told)
    must(last.nodes[1] <= max(2 * MAX_NODES, middle.nodes[1]), "nodes grow:", told)
    return f"{what}; {told}"


PARTS = {
    # name: (function, --quick, default, --long, unit)
    "kill": (kill, 4, 100, 500, "rounds"),
    "cuts": (cuts, 4, 60, 500, "rounds"),
    "full": (full, 2, 12, 60, "rounds"),
    "failing": (failing, 2, 40, 200, "rounds"),
    "few": (few, 3, 30, 200, "rounds"),
    "memory": (memory, 1, 20, 100, "rounds"),
    "readonly": (readonly, 1, 10, 50, "rounds"),
    "abort": (abort, 1, 20, 100, "rounds"),
    "speed": (speed, 3, 60, 1800, "seconds"),
}
FAILURES = (Broken, Failed, AssertionError, OSError, subprocess.SubprocessError, StopIteration)
