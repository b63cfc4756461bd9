"""Many partitions: how long a start takes, what a closed and an open one cost, and that idle ones cost nothing.

The store is filled by copying the folder of one partition, made through the mount, into all of them: frames do not say
whose they are. So all have sealed segments with their side indexes, as after a clean stop."""

import os
import resource
import time

from common import KIB, TICK_MS, median, produce, record

PER_TOPIC = 10
START_ROUNDS = 7
REST_S = 125  # after one to two minutes a partition gives back what it kept to read on
LEVEL_S = 35  # what was settled is written out 30 s later: work of the use, not of being idle


def make_topics(bench, daemon, n_topics):
    start = time.monotonic()
    for n in range(n_topics):
        daemon.topic(f"t{n}")
    bench.row(f"making {n_topics} topics of {PER_TOPIC} partitions",
              f"{(time.monotonic() - start) * 1000 / n_topics:.1f} ms each")


def folders(daemon):
    for topic in sorted(os.listdir(daemon.data + "/topics")):
        for number in range(PER_TOPIC):
            yield f"{daemon.data}/topics/{topic}/p{number:05d}"


def template_files(bench, size):
    """{name: bytes} of a partition with about size bytes in sealed segments and an empty active one."""
    segment_bytes = max(64 * KIB, size // 4)
    with bench.daemon("template") as daemon:
        part = daemon.topic("t", segment_bytes=segment_bytes)
        produce(part, *[record(1000)] * (size // 1000))
        fd = os.open(part + "/ctl", os.O_WRONLY)
        os.write(fd, b"roll\n")
        os.close(fd)
        daemon.stop()
        folder = f"{daemon.data}/topics/t/p00000"
        found = {}
        for name in os.listdir(folder):
            with open(f"{folder}/{name}", "rb") as file:
                found[name] = file.read()
        return found


def fill(daemon, files):
    total = 0
    for folder in folders(daemon):
        for name, data in files.items():
            with open(f"{folder}/{name}", "wb") as file:
                file.write(data)
            total += len(data)
    os.sync()
    return total


def start_times(*daemons):
    """The median milliseconds of several starts of each, in turns, so that all meet the same machine."""
    rounds = []
    for _ in range(START_ROUNDS):
        rounds.append([daemon.start() * 1000 for daemon in daemons if daemon.stop() is None])
    return [median(column) for column in zip(*rounds)]


def use(part):
    """One commit, and one record consumed and settled."""
    produce(part, b"one record\n")
    fd = os.open(part + "/consume", os.O_RDONLY | os.O_NONBLOCK)
    os.read(fd, 1 << 20)
    os.fsync(fd)
    os.close(fd)


def memory_and_descriptors(bench, daemon, idle, n):
    closed = daemon.rss_bytes()
    each = (closed - idle["rss"]) / n / KIB
    bench.row("  resident memory of a closed partition", f"{each:.2f} KiB", "<= 1 KiB", each <= 1)
    start = time.monotonic()
    for topic in sorted(os.listdir(daemon.mnt + "/topics")):
        for number in range(PER_TOPIC):
            use(f"{daemon.mnt}/topics/{topic}/p{number:05d}")
    bench.row(f"produce + fsync, consume + fsync, on each of {n}",
              f"{(time.monotonic() - start) * 1000 / n:.2f} ms each")
    each = (daemon.rss_bytes() - closed) / n / KIB
    bench.row("  resident memory that the first use adds", f"{each:.1f} KiB")
    time.sleep(bench.pick(5, REST_S))
    each = (daemon.rss_bytes() - closed) / n / KIB
    bench.row("  the same at rest", f"{each:.1f} KiB", "<= 16 KiB", each <= 16)
    limit = n + 64 + idle["descriptors"]
    count = daemon.n_descriptors()
    bench.row("  descriptors", f"{count}", f"<= {limit}", count <= limit)


def memory_used(daemon):
    """What is allocated. The resident memory also rises by what has been given back and is touched again."""
    with open(daemon.mnt + "/metrics", encoding="ascii") as file:
        return next(float(line.split()[1]) for line in file if line.startswith("narad_memory_used_bytes "))


def handles(bench, daemon):
    """What an open file costs on top of its partition."""
    paths = [f"{daemon.mnt}/topics/{topic}/p{number:05d}" for topic in sorted(os.listdir(daemon.mnt + "/topics"))
             for number in range(PER_TOPIC)][:bench.pick(1000, 5000)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    for name in ("produce", "consume"):
        before = memory_used(daemon)
        files = [os.open(f"{path}/{name}", os.O_WRONLY if name == "produce" else os.O_RDONLY) for path in paths]
        each = (memory_used(daemon) - before) / len(files) / KIB
        for fd in files:
            os.close(fd)
        bench.row(f"  memory in use for an open {name}", f"{each:.2f} KiB", "<= 4 KiB", each <= 4)


def idle_cpu(bench, daemon, n, seconds):
    time.sleep(LEVEL_S)
    before = daemon.ticks()
    time.sleep(seconds)
    used_ms = (daemon.ticks() - before) * TICK_MS
    bench.row(f"CPU of {n} open, idle partitions over {seconds} s", f"{used_ms:.0f} ms", f"<= {TICK_MS:.0f} ms",
              used_ms <= TICK_MS)


def measure(bench):
    n_topics = bench.pick(100, 1000)
    n = n_topics * PER_TOPIC
    with bench.daemon("idle") as daemon:
        idle = {"rss": daemon.rss_bytes(), "descriptors": daemon.n_descriptors()}
    files = template_files(bench, bench.pick(200, 200, 2000) * 1000)
    with bench.daemon("shape", f"partitions={PER_TOPIC}") as shape, bench.daemon("many", shape.options) as daemon:
        make_topics(bench, shape, n_topics)
        for n_ in range(n_topics):
            daemon.topic(f"t{n_}")
        for each in (shape, daemon):
            each.stop()
            for folder in folders(each):
                os.makedirs(folder, mode=0o700, exist_ok=True)
        total = fill(daemon, files)
        empty, full = start_times(shape, daemon)
        shape.stop()
        bench.row(f"exec to ready, {n} empty partitions", f"{empty:.0f} ms")
        bench.row(f"exec to ready, the same with {total / 1e9:.1f} GB in them", f"{full:.0f} ms")
        bench.ratio("ratio", full / empty, 1.5)
        memory_and_descriptors(bench, daemon, idle, n)
        handles(bench, daemon)
        idle_cpu(bench, daemon, n, bench.pick(5, 20))
