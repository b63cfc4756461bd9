"""Commits of one and of many writers, and reading `log`, against the plain disk below the mount."""

import os
import subprocess
import time

from common import MIB, fail, median

RECORD_BYTES = 250


def append(bench, seconds, n_processes, *files):
    """[(median us, records/s)] for each file."""
    command = [bench.append, "fsync", str(RECORD_BYTES), str(seconds), str(n_processes), *files]
    out = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout.decode()
    return [tuple(map(float, line.split())) for line in out.splitlines()]


def single_commit(bench, daemon):
    part = daemon.topic("single")
    ours, theirs = append(bench, bench.pick(2, 10), 1, part + "/produce", os.path.join(daemon.folder, "plain"))
    bench.row("write + fsync of 250 bytes, mount (median)", f"{ours[0]:.0f} us")
    bench.row("append + fdatasync of 250 bytes, plain file (median)", f"{theirs[0]:.0f} us")
    bench.ratio("ratio", ours[0] / theirs[0], 2)


def group_commit(bench, daemon):
    part = daemon.topic("group")
    ones, eights = [], []
    for _ in range(3):  # interleaved, so that both meet the same disk
        ones.append(append(bench, bench.pick(1, 4), 1, part + "/produce")[0][1])
        eights.append(append(bench, bench.pick(1, 4), 8, part + "/produce")[0][1])
    one, eight = median(ones), median(eights)
    bench.row("records/s, 1 writer", f"{one:.0f}")
    bench.row("records/s, 8 writers on the same partition", f"{eight:.0f}")
    bench.ratio("ratio", eight / one, 2, at_least=True)


def mb_per_s(path, size):
    start = time.monotonic()
    with open(os.devnull, "wb") as null:
        subprocess.run(["cat", path], check=True, stdout=null)
    seconds = time.monotonic() - start
    seen = int(subprocess.run(["sh", "-c", 'cat "$1" | wc -c', "-", path], check=True, stdout=subprocess.PIPE).stdout)
    if seen != size:
        fail(f"cat {path} gave {seen} of {size} bytes")
    return size / 1e6 / seconds


def read_log(bench, daemon):
    size = bench.pick(100, 1000) * 1_000_000
    plain = os.path.join(daemon.folder, "plain.log")
    block = (b"x" * (RECORD_BYTES - 1) + b"\n") * (MIB // RECORD_BYTES)
    with open(plain, "wb") as file:
        for _ in range(size // len(block)):
            file.write(block)
    size = os.path.getsize(plain)
    part = daemon.topic("big")
    start = time.monotonic()
    subprocess.run(["cp", plain, part + "/produce"], check=True)
    bench.row(f"cp of {size / 1e6:.0f} MB into produce", f"{size / 1e6 / (time.monotonic() - start):.0f} MB/s")
    rates = [(mb_per_s(part + "/log", size), mb_per_s(plain, size)) for _ in range(3)]
    cat, plain_cat = (median(column) for column in zip(*rates))
    bench.row(f"cat of a log of {size / 1e6:.0f} MB", f"{cat:.0f} MB/s", "> 300 MB/s", cat > 300)
    bench.row("cat of the plain file (page cache)", f"{plain_cat:.0f} MB/s")
    bench.row("  ratio", f"{cat / plain_cat:.2f} x")


def measure(bench):
    with bench.daemon("traffic") as daemon:
        single_commit(bench, daemon)
        group_commit(bench, daemon)
        read_log(bench, daemon)
