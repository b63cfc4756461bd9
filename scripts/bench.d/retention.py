"""Retention: commits go on while a sweep deletes 1,000 expired segments."""

import os
import time

from common import KIB, Refused, attribute, commit, fail, median, record

SWEEP_MS = 1000
SEGMENT_BYTES = 64 * KIB


def longest_ms(part, seconds):
    """The longest and the median commit of one writer."""
    fd = os.open(part + "/produce", os.O_WRONLY)
    line = record(250)
    times = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        times.append(commit(fd, line) * 1000)
    os.close(fd)
    return max(times), median(times)


def one_round(daemon, name, n_segments, seconds):
    part = daemon.topic(name, segment_bytes=SEGMENT_BYTES)
    fd = os.open(part + "/produce", os.O_WRONLY)
    for _ in range(n_segments):
        commit(fd, record(SEGMENT_BYTES))  # fills a segment
    os.close(fd)
    os.sync()
    without, ordinary = longest_ms(part, seconds)
    before = attribute(part, "segments")
    daemon.configure(name, retention_ms=1000)
    beside, _ = longest_ms(part, seconds)
    deleted = before - attribute(part, "segments")
    if deleted < n_segments / 2:
        fail(f"{deleted} of {before} segments were deleted within {seconds} s")
    return without, beside, ordinary


def measure(bench):
    n_segments = bench.pick(300, 1000)
    seconds = 3 * SWEEP_MS / 1000
    try:
        with bench.daemon("retention", f"retention_check_ms={SWEEP_MS}") as daemon:
            rounds = [one_round(daemon, f"r{n}", n_segments, seconds) for n in range(bench.pick(3, 9))]
    except Refused:
        bench.row("retention: this daemon has no option retention_check_ms", "skipped")
        return
    without, beside, ordinary = (median(column) for column in zip(*rounds))
    limit = max(2 * without, without + ordinary)
    bench.row(f"longest commit in {seconds:.0f} s, nothing to delete", f"{without:.2f} ms")
    bench.row(f"longest commit while {n_segments} segments expire", f"{beside:.2f} ms", f"<= {limit:.2f} ms",
              beside <= limit)
