"""The wall clock is set, by an hour and by ten years, forwards and back, under a running daemon and between two."""

import glob
import json
import os
import time

import pytest
from support import (SANITIZED, Consumer, ack, configure, drain, lines, log, number, produce, read_file, take, wait_for,
                     write_file)

LIBRARY = sorted(glob.glob("/usr/lib/*/faketime/libfaketimeMT.so.1"))
HOUR_MS = 3600000
YEAR_MS = 365 * 24 * HOUR_MS
DELAY_MS = 1500
SHIFTS = {"hour-on": HOUR_MS, "hour-back": -HOUR_MS, "years-on": 10 * YEAR_MS, "years-back": -10 * YEAR_MS}

pytestmark = [pytest.mark.skipif(not LIBRARY, reason="libfaketime is not installed"),
              pytest.mark.skipif(SANITIZED, reason="a preloaded library comes before the sanitizers' own")]


class Clock:
    """What the daemon takes for the time of day; its monotonic clock and the times of files stay the machine's."""

    def __init__(self, m):
        self.path, self.shift_ms = m.base + "/clock", 0
        self.set(0)
        m.variables = {"LD_PRELOAD": LIBRARY[0], "FAKETIME_TIMESTAMP_FILE": self.path, "FAKETIME_NO_CACHE": "1",
                       "FAKETIME_DONT_FAKE_MONOTONIC": "1", "DONT_FAKE_MONOTONIC": "1", "NO_FAKE_STAT": "1"}

    def set(self, shift_ms):
        """By a new file: a file that is written to is empty for a moment."""
        with open(self.path + ".new", "w", encoding="ascii") as file:
            file.write(f"{shift_ms // 1000:+d}\n")
        os.rename(self.path + ".new", self.path)
        self.shift_ms = shift_ms

    def now_ms(self):
        return time.time() * 1000 + self.shift_ms


@pytest.fixture
def clock(mounts):
    m = mounts(start=False)
    m.clock = Clock(m)
    return m.start()


def times(part):
    return [json.loads(row)["timestamp"] for row in read_file(part + "/log.jsonl").splitlines()]


def three_segments(m):
    part = m.make("t", retention_ms=HOUR_MS // 2)
    for n in range(3):
        produce(part, f"before {n}")
        write_file(part + "/ctl", b"roll\n")
    assert abs(times(part)[-1] - m.clock.now_ms()) < 60000  # the clock is the one that is set here
    return part


def sweep(m):
    """Retention of all partitions, started by one that is too large."""
    m.n_sweeps = getattr(m, "n_sweeps", 0) + 1
    part = m.make(f"large{m.n_sweeps}", segment_bytes=65536, retention_bytes=65536)
    for _ in range(4):
        produce(part, "x" * 50000)
    wait_for(lambda: number(part, "oldest_offset") > 0, "a sweep")


def goes_on(m, part, shift_ms):
    """What has to be so whatever the clock says: nothing is lost, times do not decrease, all kinds of use go on."""
    for _ in range(2):
        assert log(part) == lines("before 0", "before 1", "before 2")  # open from now on, for the sweep
        sweep(m)
    first = times(part)[0]
    produce(m.topic("t"), "through the topic")  # first: beside a producer of the partition a crash may repeat it
    wait_for(lambda: number(part, "hwm") == 4, "the ingress")
    produce(part, "after")
    told = times(part)
    assert told == sorted(told)
    if shift_ms > 0:
        assert abs(told[-1] - m.clock.now_ms()) < 60000
    else:
        assert told[-1] - told[0] < 60000  # raised to the newest one
    assert os.path.basename(os.readlink(f"{part}/by-time/{first}")) == "0"
    assert os.path.basename(os.readlink(f"{part}/by-time/{told[-1] + 1}")) in ("5", "end")
    assert log(part) == lines("before 0", "before 1", "before 2", "through the topic", "after")


@pytest.mark.parametrize("shift_ms", SHIFTS.values(), ids=SHIFTS)
def test_set_while_running(clock, shift_ms):
    m = clock
    part = three_segments(m)
    with Consumer(part) as holder:
        assert holder.read() == b"before 0\n"
        m.clock.set(shift_ms)
        items = take(part, 1)
        assert [item["offset"] for item in items] == [1]  # the lease of 0 has not lapsed
        ack(part, items[0]["handle"], sync=True)
        goes_on(m, part, shift_ms)
        holder.sync()
    m.clock.set(0)
    m.crash()
    assert drain(part) == lines("before 2", "through the topic", "after")
    assert times(part) == sorted(times(part))


@pytest.mark.parametrize("end", ["stop", "crash"])
@pytest.mark.parametrize("shift_ms", SHIFTS.values(), ids=SHIFTS)
def test_set_between_two_starts(clock, shift_ms, end):
    m = clock
    part = three_segments(m)
    ack(part, take(part, 1)[0]["handle"], sync=True)
    m.stop() if end == "stop" else m.kill()
    m.clock.set(shift_ms)
    m.start()
    goes_on(m, part, shift_ms)
    m.stop() if end == "stop" else m.kill()
    m.clock.set(0)
    m.start()
    produce(part, "right again")
    assert times(part) == sorted(times(part))
    assert drain(part) == lines("before 1", "before 2", "through the topic", "after", "right again")


@pytest.mark.skipif(os.getuid() != 0, reason="only root serves what belongs to somebody else")
def test_the_time_is_kept_in_data_of_somebody_else(clock):
    """It is the time of the lock file, which root's daemon has to be able to set."""
    m = clock
    m.stop()
    os.chown(m.data + "/lock", 5001, 5001)
    m.clock.set(-10 * YEAR_MS)
    m.start()
    m.stop()
    assert abs(os.stat(m.data + "/lock").st_mtime * 1000 - m.clock.now_ms()) < 60000


@pytest.mark.parametrize("shift_ms", SHIFTS.values(), ids=SHIFTS)
def test_delays_when_the_clock_is_set(clock, shift_ms):
    """A child with a delay gets each record once, and never before its time by the clock."""
    m = clock
    parent = m.make("p", retention_ms=0)
    child = m.make("c", fanout_delay_ms=DELAY_MS, retention_ms=0)
    os.mkdir(m.topic("p") + "/children/c")
    first = time.monotonic()
    produce(parent, "a")
    m.clock.set(shift_ms)
    in_time = time.monotonic() - first < DELAY_MS / 1000  # else "a" was due before, on a machine that is slow
    second = time.monotonic()
    produce(parent, "b")
    if shift_ms > 0:
        wait_for(lambda: log(child) == lines("a", "b"), "what is due by the new clock")
        assert time.monotonic() - second > DELAY_MS / 1000 - 0.1
    else:
        time.sleep(DELAY_MS / 1000 + 1)
        assert log(child) in ([b""] if in_time else [b"", b"a\n"])  # by the clock nothing is due for long
        m.clock.set(0)
        wait_for(lambda: log(child) == lines("a", "b"), "what is due by the right clock")
    m.clock.set(0)
    m.restart()
    configure(m.topic("p"), linger_ms=5)
    assert log(child) == lines("a", "b")
