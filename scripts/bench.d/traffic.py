"""Commits of one and of many producers, and much at once, against plain files on the same disk; reading `log` against the
same bytes in a plain file behind a file system that does nothing else."""

import json
import os
import random
import subprocess
import time

from common import MIB, attribute, fail, median

RECORD_BYTES = 250
LINE_BYTES = 100
ROUNDS = 5


def append(bench, *args):
    """The numbers that the program prints."""
    out = subprocess.run([bench.append, *map(str, args)], check=True, stdout=subprocess.PIPE).stdout.decode()
    return [float(word) for word in out.split()]


def single_commit(bench, daemon):
    """One producer, and each ratio of a round whose files met the same disk at the same moments."""
    part, plain = daemon.topic("single"), os.path.join(daemon.folder, "plain")
    files = [f"fsync:{part}/produce", f"dsync:{part}/produce", f"fdatasync:{plain}"]
    rounds = [append(bench, "turns", RECORD_BYTES, bench.pick(0.5, 4), *files) for _ in range(ROUNDS)]
    fsync, dsync, theirs = (median(column) for column in zip(*rounds))
    bench.row("append + fdatasync of 250 bytes, plain file (median)", f"{theirs:.0f} us")
    bench.row("write + fsync of 250 bytes, mount (median)", f"{fsync:.0f} us")
    bench.ratios("ratio", [ours / plain for ours, _, plain in rounds], 1.1)
    bench.row("write of 250 bytes with O_DSYNC, mount (median)", f"{dsync:.0f} us")
    bench.ratios("ratio", [ours / plain for _, ours, plain in rounds], 0.95)


def rate(bench, n_processes, how, paths):
    return append(bench, "rate", RECORD_BYTES, bench.pick(0.5, 2), n_processes, *(f"{how}:{path}" for path in paths))[0]


def group_commit(bench, daemon):
    """Many producers on one partition, against one on a plain file."""
    produce, plain = [daemon.topic("group") + "/produce"], [os.path.join(daemon.folder, "plain")]
    rounds = [[rate(bench, 1, "fdatasync", plain), rate(bench, 1, "fsync", produce)] +
              [rate(bench, n, how, produce) for n in (8, 64) for how in ("fsync", "dsync")] for _ in range(ROUNDS)]
    base, one, *_ = (median(column) for column in zip(*rounds))
    bench.row("records/s, one producer on a plain file", f"{base:.0f}")
    bench.row("records/s, one producer on a partition", f"{one:.0f}")
    names = ("8 producers on one partition", "  with O_DSYNC", "64 producers on one partition", "  with O_DSYNC")
    for index, (name, target) in enumerate(zip(names, (1.5, 1.5, 2, 2)), 2):
        bench.row(f"records/s, {name}" if name[0] != " " else name, f"{median(r[index] for r in rounds):.0f}")
        bench.ratios("ratio to the plain file", [r[index] / r[0] for r in rounds], target, at_least=True)


def many_partitions(bench, daemon):
    n = 16
    daemon.topic("wide")
    daemon.configure("wide", partitions=n)
    ours = [f"{daemon.mnt}/topics/wide/p{i:05d}/produce" for i in range(n)]
    theirs = [os.path.join(daemon.folder, f"plain-{i}") for i in range(n)]
    with bench.mirror(*[path + "-passed" for path in theirs]) as passed:
        rounds = [(rate(bench, n, "fsync", ours), rate(bench, n, "dsync", ours), rate(bench, n, "fsync", passed),
                   rate(bench, n, "fdatasync", theirs)) for _ in range(ROUNDS)]
    mount, dsync, fuse, plain = (median(column) for column in zip(*rounds))
    bench.row("records/s, 16 producers on 16 plain files", f"{plain:.0f}")
    bench.row("records/s, the same through a file system that only passes on", f"{fuse:.0f}")
    bench.row("records/s, 16 producers on 16 partitions", f"{mount:.0f}")
    bench.ratios("ratio to the plain files", [r[0] / r[3] for r in rounds], 0.9, at_least=True)
    bench.ratios("ratio to the file system that only passes on", [r[0] / r[2] for r in rounds], 0.9, at_least=True)
    bench.row("  with O_DSYNC", f"{dsync:.0f}")
    bench.ratios("ratio to the plain files", [r[1] / r[3] for r in rounds], 0.9, at_least=True)


def json_lines(path, size):
    """Lines like those of a web application's log: some words repeat, some numbers do not."""
    dice = random.Random(1)
    paths = [f"/api/v1/{noun}/{i}" for noun in ("orders", "users", "items", "carts") for i in range(200)]
    with open(path, "w", encoding="ascii") as file:
        while file.tell() < size:
            file.write("".join(json.dumps({
                "time": f"2026-01-{dice.randrange(1, 29):02d}T{dice.randrange(24):02d}:{dice.randrange(60):02d}:00Z",
                "level": dice.choice(["info", "info", "info", "warn"]), "path": dice.choice(paths),
                "status": dice.choice([200, 200, 200, 304, 404]), "ms": dice.randrange(900),
                "user": f"u{dice.randrange(100000):05d}"}) + "\n" for _ in range(2000)))


def bulk_once(bench, how, path, lines, total):
    """Bytes a second."""
    written, seconds = append(bench, "bulk", total, f"{how}:{path}", lines)
    return written / seconds


def segment_bytes(daemon, topic):
    folder = f"{daemon.data}/topics/{topic}/p00000"
    return sum(os.stat(f"{folder}/{name}").st_size for name in os.listdir(folder) if name.endswith(".log"))


def bulk(bench, daemon, name, lines, target, **config):
    """In writes of 1 MiB, each synced; every round on files of its own. The last round's bytes in the log over those that
    were written."""
    total = bench.pick(100, 1000) * 1_000_000
    plain, rounds, stored = os.path.join(daemon.folder, "plain-bulk"), [], 0
    for i in range(bench.pick(3, ROUNDS)):
        topic = f"{name}{i}"
        part = daemon.topic(topic, **config)
        rounds.append((bulk_once(bench, "fsync", part + "/produce", lines, total),
                       bulk_once(bench, "fdatasync", plain, lines, total)))
        stored = segment_bytes(daemon, topic)
        os.unlink(plain)
        with open(f"{daemon.mnt}/topics/{topic}/ctl", "wb", buffering=0) as ctl:
            ctl.write(b"delete " + os.getxattr(part, "user.narad.incarnation") + b"\n")
    bench.row(f"{total / 1e6:.0f} MB of {name} lines, 1 MiB a write and sync, plain file",
              f"{median(plain for _, plain in rounds) / 1e6:.0f} MB/s")
    bench.row("  the same into produce", f"{median(mount for mount, _ in rounds) / 1e6:.0f} MB/s")
    bench.ratios("ratio", [mount / plain for mount, plain in rounds], target, at_least=True)
    return stored / total


def bulk_lines(bench, daemon):
    plain_lines, lines = os.path.join(daemon.folder, "lines"), os.path.join(daemon.folder, "json-lines")
    with open(plain_lines, "wb") as file:
        file.write((b"x" * (LINE_BYTES - 1) + b"\n") * (64 * MIB // LINE_BYTES))
    bulk(bench, daemon, "short", plain_lines, 0.7)
    json_lines(lines, 64 * MIB)
    stored = bulk(bench, daemon, "json", lines, 0.7, codec="zstd")
    bench.ratio("its bytes on the disk, of those that were written", stored, 0.2)


def mb_per_s(path, size):
    start = time.monotonic()
    with open(os.devnull, "wb") as null:
        subprocess.run(["cat", path], check=True, stdout=null)
    seconds = time.monotonic() - start
    return size / 1e6 / seconds


def count_bytes(path):
    return int(subprocess.run(["sh", "-c", 'cat "$1" | wc -c', "-", path], check=True, stdout=subprocess.PIPE).stdout)


def read_log(bench, daemon):
    size = bench.pick(100, 1024) * MIB // LINE_BYTES * LINE_BYTES
    plain = os.path.join(daemon.folder, "plain.log")
    with open(plain, "wb") as file:
        for _ in range(size // (LINE_BYTES * 1000)):
            file.write((b"x" * (LINE_BYTES - 1) + b"\n") * 1000)
    size = os.path.getsize(plain)
    part = daemon.topic("big")
    subprocess.run(["cp", plain, part + "/produce"], check=True)
    if count_bytes(part + "/log") != size or attribute(part, "hwm") != size // LINE_BYTES:
        fail(f"cat {part}/log does not give the {size} bytes that were produced")
    with bench.mirror(plain) as (mirror,):
        if count_bytes(mirror) != size:
            fail(f"cat {mirror} does not give {size} bytes")
        rounds = [(mb_per_s(part + "/log", size), mb_per_s(mirror, size), mb_per_s(plain, size)) for _ in range(ROUNDS)]
    ours, fuse, disk = (median(column) for column in zip(*rounds))
    bench.row("cat of a plain file, warm", f"{disk:.0f} MB/s")
    bench.row("cat of it through a file system that only passes it on, warm", f"{fuse:.0f} MB/s")
    bench.row(f"cat of a log of {size / MIB:.0f} MiB of 100-byte records, warm", f"{ours:.0f} MB/s")
    bench.ratios("ratio to the file system that only passes on", [r[0] / r[1] for r in rounds], 0.7, at_least=True)


def measure(bench):
    with bench.daemon("traffic") as daemon:
        single_commit(bench, daemon)
        group_commit(bench, daemon)
        many_partitions(bench, daemon)
        bulk_lines(bench, daemon)
        read_log(bench, daemon)
        for name in os.listdir(daemon.folder):
            if name.startswith("plain"):
                os.unlink(os.path.join(daemon.folder, name))
