"""Delivery: consuming many records and one at a time, wake-ups, a batch for many partitions, and what leases and parked
readers cost. Everything is a ratio to what the same mount or disk does without that work, measured in turns with it.

The bare round trip is a read(2) of `ack`, which is answered with nothing: no lock, no look at any state."""

import os
import struct
import subprocess
import time

from common import KIB, TICK_MS, fail, median, record

READ_BYTES = 128 * KIB  # what cat reads at a time
BATCH_RECORDS = 4096  # as many as a partition gives out beyond its frontier, when it is told to
N_LEASES = 100_000


def deliver(program, *args):
    """The numbers that the program prints."""
    out = subprocess.run([program, *map(str, args)], check=True, stdout=subprocess.PIPE).stdout.decode()
    return [float(word) for word in out.split()]


def produce_many(part, n, size=100):
    with open(part + "/produce", "wb", buffering=0) as file:
        for start in range(0, n, 10_000):
            file.write(record(size) * min(10_000, n - start))
        os.fsync(file.fileno())


def seek_start(part):
    with open(part + "/ctl", "wb", buffering=0) as file:
        file.write(b"seek start\n")


def batches(bench, program, part, n):
    """Records a second of log, drain and consume.bin, settled; each column is measured next to the others."""
    rounds = []
    batch_bytes = BATCH_RECORDS * (36 + 100)
    for _ in range(bench.pick(3, 7)):
        seconds = []
        for args in (["log", part + "/log", READ_BYTES], ["drain", part + "/drain", READ_BYTES],
                     ["bin", part + "/consume.bin", part + "/ack", READ_BYTES],
                     ["bin", part + "/consume.bin", part + "/ack", batch_bytes]):
            seek_start(part)
            count, elapsed = deliver(program, *args)
            if count != n:
                fail(f"{args[1]} gave {count:.0f} of {n} records")
            seconds.append(elapsed)
        rounds.append(seconds)
    log, *others = (median(column) for column in zip(*rounds))
    bench.row("records of 100 bytes, log", f"{n / log / 1e6:.1f} M/s")
    names = ("drain", f"consume.bin + ack, {READ_BYTES // 136} a read", f"consume.bin + ack, {BATCH_RECORDS} a read")
    for index, (name, seconds) in enumerate(zip(names, others), 1):
        bench.row(f"  {name}", f"{n / seconds / 1e6:.1f} M/s")
        bench.ratio("ratio to log", median(r[0] / r[index] for r in rounds), 0.5, at_least=True)


def one_at_a_time(bench, program, part):
    """Also the bare round trip in microseconds."""
    n = bench.pick(2_000, 10_000)
    rounds, trips = [], []
    seek_start(part)
    for _ in range(9):
        count, bare, micros = deliver(program, "trips", part + "/ack", n)
        _, ours = deliver(program, "consume", part + "/consume", n)
        rounds.append((count / bare, count / ours))
        trips.append(micros)
    bare, ours = (median(column) for column in zip(*rounds))
    bench.row("bare round trips: read of an empty answer (median)", f"{bare / 1000:.0f} k/s, {median(trips):.1f} us")
    bench.row("consume, one record a read", f"{ours / 1000:.0f} k/s")
    bench.ratio("ratio", median(o / b for b, o in rounds), 0.5, at_least=True)
    return median(trips)


def wake_up(bench, daemon, program, bare_us):
    """bare_us: a bare round trip among many. One after a rest finds the answering thread on the processor that asks; the
    wake-up, like one among many, wakes somebody elsewhere."""
    part = daemon.topic("wake")
    plain = os.path.join(daemon.folder, "plain")
    rounds = [deliver(program, "wake", part, plain, bench.pick(50, 200)) for _ in range(5)]
    woken, with_write, sync, trip = (median(column) for column in zip(*rounds))
    bench.row("append + fdatasync of 100 bytes, plain file (median)", f"{sync:.0f} us")
    bench.row("bare round trip after a rest (median)", f"{trip:.0f} us")
    bench.row("write + fsync to the return of a waiting read (median)", f"{with_write:.0f} us")
    bench.row("fsync to the return of a waiting read (median)", f"{woken:.0f} us")
    bench.ratio("ratio to the append and three round trips", median(w / (s + 3 * bare_us) for w, _, s, _ in rounds), 1)
    bench.ratio("  to the append and three round trips after a rest", median(w / (s + 3 * t) for w, _, s, t in rounds),
                1.2)


def keyed_batch(n):
    """Binary records with keys that go to all partitions."""
    return b"".join(struct.pack(">II", 8, 100) + b"%08d" % i + b"v" * 100 for i in range(n))


def seconds_of(fd, data):
    start = time.monotonic()
    if os.write(fd, data) != len(data):
        fail("a write of produce.bin was short")
    os.fsync(fd)
    return time.monotonic() - start


def many_partitions(bench, daemon):
    daemon.topic("wide")
    daemon.configure("wide", partitions=16)
    daemon.topic("narrow")
    topics = daemon.mnt + "/topics"
    paths = [f"{topics}/wide/produce.bin", f"{topics}/narrow/produce.bin", f"{topics}/narrow/p00000/produce.bin"]
    files = [os.open(path, os.O_WRONLY) for path in paths]
    for n in (16, 1000):
        data = keyed_batch(n)
        rounds = [[seconds_of(fd, data) * 1e6 for fd in files] for _ in range(bench.pick(50, 200))]
        wide, narrow, direct = (median(column) for column in zip(*rounds))
        bench.row(f"{n} keyed records over 16 partitions, produce of the topic", f"{wide:.0f} us")
        bench.row("  the same into a topic of one partition", f"{narrow:.0f} us")
        bench.ratio("ratio", wide / narrow, 1.5)
        bench.row("  the same into the partition itself", f"{direct:.0f} us")
        bench.ratio("ratio", wide / direct, 1.5)
    for fd in files:
        os.close(fd)


def hold(program, path, n):
    """A process with that many leases."""
    process = subprocess.Popen([program, "hold", path, str(n), str(READ_BYTES)], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE)
    if process.stdout.readline() != b"held\n":
        fail(f"{path}: the leases were not given")
    return process


def let_go(process):
    process.stdin.close()
    process.wait()
    process.stdout.close()


def leases(bench, program):
    """Several times as many leases at once, in a daemon of their own: the first ones may live in memory that was freed
    before."""
    for name in ("consume.bin", "consume"):
        with bench.daemon("leases") as daemon:
            parts = [daemon.topic(f"t{i}", max_in_flight=2 * N_LEASES, visibility_timeout_ms=600_000) for i in range(4)]
            for part in parts:
                produce_many(part, N_LEASES, 10)
            sizes, processes = [], []
            for part in parts:
                processes.append(hold(program, f"{part}/{name}", N_LEASES))
                sizes.append(daemon.rss_bytes())
            for process in processes:
                let_go(process)
        each = (sizes[3] - sizes[1]) / (2 * N_LEASES)
        bench.row(f"memory of a lease, {N_LEASES} by {name}", f"{each:.0f} bytes", "<= 128 bytes", each <= 128)


def settle_down(daemon, limit_s=60):
    """Waits until the daemon has used no CPU for two seconds."""
    deadline = time.monotonic() + limit_s
    last = None
    while time.monotonic() < deadline and daemon.ticks() != last:
        last = daemon.ticks()
        time.sleep(2)


def parked(bench, program):
    """Readers that wait, a few hundred in read(2) and the others in poll(2), each on a partition of its own."""
    n_topics, per_topic = bench.pick(2, 10), bench.pick(500, 1000)
    n = n_topics * per_topic
    seconds = bench.pick(5, 15)
    with bench.daemon("parked", f"partitions={per_topic}") as daemon:
        parts = []
        for i in range(n_topics):
            daemon.topic(f"t{i}")
            parts += [f"{daemon.mnt}/topics/t{i}/p{number:05d}" for number in range(per_topic)]
        start = time.monotonic()
        with subprocess.Popen([program, "park", "300"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            process.stdin.write("".join(part + "/consume\n" for part in parts).encode() + b"\n")
            process.stdin.flush()
            if process.stdout.readline() != b"parked\n":
                fail("the readers could not be parked")
            settle_down(daemon)
            bench.row(f"opening {n} of consume, on a partition each", f"{time.monotonic() - start:.0f} s")
            bench.row("  descriptors of the daemon", f"{daemon.n_descriptors()}")
            before = daemon.ticks()
            time.sleep(seconds)
            used_ms = (daemon.ticks() - before) * TICK_MS
            bench.row(f"CPU with {n} parked readers over {seconds} s", f"{used_ms:.0f} ms", "0 ms", used_ms == 0)
            produce_many(parts[0], 1)
            if process.stdout.readline() != b"read 100\n":
                fail("a reader was not woken by a record")
            process.stdin.close()


def measure(bench):
    program = bench.build("deliver", "-lpthread")
    with bench.daemon("delivery") as daemon:
        n = bench.pick(300_000, 1_000_000)
        part = daemon.topic("many", max_in_flight=BATCH_RECORDS, max_acked_ahead=BATCH_RECORDS)
        produce_many(part, n)
        batches(bench, program, part, n)
        bare_us = one_at_a_time(bench, program, part)
        wake_up(bench, daemon, program, bare_us)
        many_partitions(bench, daemon)
    leases(bench, program)
    parked(bench, program)
