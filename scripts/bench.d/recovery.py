"""Recovery: how fast an active segment that a kill -9 left is read and checked, until its first record is served,
against reading and checksumming the file and nothing else. Both from the disk, not from the page cache."""

import os
import signal
import subprocess
import time

from common import MIB, Daemon, commit, fail, forget_pages, median, record

FRAME_BYTES = 4096
FRAME_OVERHEAD = 27 + 4 + 10  # header, record length, envelope
ROUNDS = 5


def crashed(bench, name, n_frames):
    """A store with one segment of n_frames frames, after kill -9; the daemon and the segment's path."""
    daemon = Daemon(os.path.join(bench.folder, name))
    daemon.start()
    part = daemon.topic("t", segment_bytes=64 * MIB)
    fd = os.open(part + "/produce", os.O_WRONLY)
    line = record(FRAME_BYTES - FRAME_OVERHEAD + 1)
    for _ in range(n_frames):
        commit(fd, line)
    daemon.stop(signal.SIGKILL)
    try:
        os.close(fd)
    except OSError:
        pass  # its daemon is gone
    return daemon, f"{daemon.data}/topics/t/p00000/{0:020d}.log"


def first_record_s(daemon, segment):
    """Seconds from exec until the first record is read; killed again afterwards, so that nothing has changed."""
    forget_pages(segment)
    start = time.monotonic()
    daemon.start()
    fd = os.open(daemon.mnt + "/topics/t/p00000/log", os.O_RDONLY)
    if os.pread(fd, 10, 0) != b"r" * 10:
        fail("the first record was not served after a crash")
    seconds = time.monotonic() - start
    os.close(fd)
    daemon.stop(signal.SIGKILL)
    return seconds


def checksum_s(bench, segment, size):
    forget_pages(segment)
    out = subprocess.run([bench.checksum, segment, str(size)], check=True, stdout=subprocess.PIPE).stdout
    return float(out)


def measure(bench):
    n_frames = bench.pick(16, 63) * MIB // FRAME_BYTES
    size = n_frames * FRAME_BYTES
    small, small_segment = crashed(bench, "recovery-small", 1)
    big, big_segment = crashed(bench, "recovery", n_frames)
    ours, theirs = [], []
    for _ in range(ROUNDS):  # what a start costs anyway is taken off
        ours.append(-first_record_s(small, small_segment) + first_record_s(big, big_segment))
        theirs.append(checksum_s(bench, big_segment, size))
    for daemon in (small, big):
        daemon.__exit__()
    ours_rate, theirs_rate = (size / 1e6 / max(median(times), 1e-6) for times in (ours, theirs))
    bench.row(f"recovery of {size / MIB:.0f} MiB in 4 KiB frames, to the first record", f"{ours_rate:.0f} MB/s")
    bench.row("reading and checksumming that file", f"{theirs_rate:.0f} MB/s")
    bench.ratio("ratio", ours_rate / theirs_rate, 0.5, at_least=True)
