"""Seeking in `log`: a read at a random position costs the same with 1 segment and with 100: of that size each, which also
is a hundred times the data, for every cache; and of that size together, which leaves the number of segments alone."""

import os
import random
import time

from common import KIB, MIB, attribute, commit, median, record

FRAME_BYTES = 4000
READ_BYTES = 100


def fill(daemon, name, segment_bytes, n_segments):
    part = daemon.topic(name, segment_bytes=segment_bytes)
    fd = os.open(part + "/produce", os.O_WRONLY)
    line = record(FRAME_BYTES)
    while attribute(part, "segments") <= n_segments:
        for _ in range(max(1, segment_bytes // FRAME_BYTES // 8)):
            commit(fd, line)
    os.close(fd)
    return part + "/log"


def seek_us(path, rng, n_reads):
    """Median time of a read at a random position that the kernel has no pages of."""
    times = []
    fd = os.open(path, os.O_RDONLY)
    size = os.fstat(fd).st_size - READ_BYTES
    for _ in range(n_reads):
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        pos = rng.randrange(size)
        start = time.monotonic()
        data = os.pread(fd, READ_BYTES, pos)
        times.append((time.monotonic() - start) * 1e6)
        assert len(data) == READ_BYTES
    os.close(fd)
    return median(times)


def measure(bench):
    rng = random.Random(1)
    segment_bytes = bench.pick(256 * KIB, MIB)
    with bench.daemon("seek") as daemon:
        paths = [fill(daemon, "small", segment_bytes, 1), fill(daemon, "hundred", segment_bytes, 100),
                 fill(daemon, "large", segment_bytes * 100, 1)]
        rounds = [[seek_us(path, rng, bench.pick(500, 2000)) for path in paths] for _ in range(5)]
        small, hundred, large = (median(column) for column in zip(*rounds))
    size = segment_bytes / MIB
    bench.row(f"read of {READ_BYTES} bytes at a random place, 1 segment of {size:g} MiB", f"{small:.1f} us")
    bench.row(f"the same with 1 segment of {size * 100:g} MiB", f"{large:.1f} us")
    bench.row(f"the same with 100 segments of {size:g} MiB", f"{hundred:.1f} us")
    bench.ratio("ratio to 1 segment of that size", hundred / small, 1.5)
    bench.ratio("ratio to 1 segment with as much in it", hundred / large, 1.5)
