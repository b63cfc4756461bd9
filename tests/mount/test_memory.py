"""What the daemon keeps: nothing of files that were closed and topics that are gone, and a bounded number of nodes."""

import os
import re
import subprocess

import pytest
from support import SANITIZED, Consumer, lines, number, produce, read_file, wait_for, write_file, xattr

ROUNDS = 2000 if SANITIZED else 20000
WARM = 1000
LEAK_BYTES = 24  # a round; what glibc allocates least
BOUNDED = "max_threads=2,cache_bytes=65536"  # threads have buffers of 1 MiB; both are full after the warm-up
LINES_PER_WRITE = 10000
PRUNE_ABOVE = 10000  # NRD_PRUNE_ABOVE of fs/prune.h
STEP = PRUNE_ABOVE // 4


def gauges(m):
    text = read_file(m.mnt + "/metrics").decode()
    return {name: int(value) for name, value in re.findall(r"^(narad_[a-z_]+) (\d+)$", text, re.M)}


def forget_names(m):
    """A remount makes the kernel forget every name that is not in use; only root may."""
    if os.getuid() != 0:
        pytest.skip("only root may remount")
    subprocess.run(["mount", "-i", "-o", "remount,rw", m.mnt], check=True, stdin=subprocess.DEVNULL)


def at_rest(m):
    """The gauges when releases and forgets, which nobody waits for, are through."""
    forget_names(m)
    wait_for(lambda: gauges(m)["narad_open_files"] == 0 and gauges(m)["narad_nodes"] <= 3, "rest")  # / and metrics
    found = gauges(m)
    assert found["narad_held_leases"] == 0
    return found


def assert_level(before, after, n_rounds):
    growth = after["narad_memory_used_bytes"] - before["narad_memory_used_bytes"]
    assert growth < n_rounds * LEAK_BYTES, f"{growth} bytes more after {n_rounds} rounds"


def open_and_close(path, flags, n):
    for _ in range(n):
        os.close(os.open(path, flags))


@pytest.mark.limit(180)
@pytest.mark.parametrize("names", [("produce", "produce.jsonl", "produce@me"), ("consume", "consume.jsonl", "drain"),
                                   ("ack", "log", "log.jsonl")])
def test_what_was_closed_leaves_nothing(mounts, names):
    m = mounts(options=BOUNDED)
    part = m.make("t", consume_wait_ms=0)
    produce(part, "a", "b", "c")

    def rounds(n):
        for name in names:
            flags = os.O_WRONLY if name.startswith(("produce", "ack")) else os.O_RDONLY
            open_and_close(f"{part}/{name}", flags, n // len(names))

    rounds(WARM)
    before = at_rest(m)
    rounds(ROUNDS)
    assert_level(before, at_rest(m), ROUNDS)


@pytest.mark.limit(180)
def test_what_was_consumed_leaves_nothing(mounts):
    m = mounts(options=BOUNDED)
    part = m.make("t", consume_wait_ms=0)

    def rounds(n):
        for first in range(0, n, 100):
            produce(part, *range(100))
            with Consumer(part) as consumer:
                for _ in range(100):
                    consumer.read()
                consumer.write(b"ack\n")

    rounds(WARM)
    before = at_rest(m)
    rounds(ROUNDS)
    assert number(part, "lag") == 0
    assert_level(before, at_rest(m), ROUNDS)


@pytest.mark.limit(180)
def test_topics_that_are_gone_leave_nothing(mounts):
    m = mounts(options=BOUNDED)

    def rounds(n):
        for _ in range(n):
            part = m.make("t", partitions=2)
            m.make("child")
            os.mkdir(m.topic("t") + "/children/child")
            produce(part, "a")
            with Consumer(part) as consumer:
                consumer.read()
            os.rmdir(m.topic("t") + "/children/child")
            for topic in (m.topic("t"), m.topic("child")):
                write_file(topic + "/ctl", f"delete {xattr(topic, 'incarnation')}\n".encode())

    rounds(50)
    before = at_rest(m)
    rounds(200)
    after = at_rest(m)
    assert after["narad_topics"] == after["narad_partitions"] == 0
    growth = after["narad_memory_used_bytes"] - before["narad_memory_used_bytes"]
    assert growth < 400 * 512, growth  # a topic that stayed would be more


# -- nodes


def can_be_asked_to_forget():
    return tuple(int(part) for part in re.match(r"(\d+)\.(\d+)", os.uname().release).groups()) >= (6, 18)


needs_prune = pytest.mark.skipif(not can_be_asked_to_forget(), reason="Linux before 6.18 forgets only what it likes")


def many_records(m, n):
    part = m.make("t", visibility_timeout_ms=3600000)
    fd = os.open(part + "/produce", os.O_WRONLY)
    for first in range(0, n, LINES_PER_WRITE):
        os.write(fd, lines(*range(first, min(first + LINES_PER_WRITE, n))))
    os.close(fd)
    wait_for(lambda: number(part, "hwm") == n, "the records")
    return part


@needs_prune
@pytest.mark.limit(180)
def test_the_kernel_is_asked_to_forget(m):
    n = 2 * PRUNE_ABOVE
    part = many_records(m, n)
    for i in range(n):
        os.stat(f"{part}/records/{i}")
    wait_for(lambda: gauges(m)["narad_nodes"] <= PRUNE_ABOVE + STEP, "old nodes to go")
    wait_for(lambda: gauges(m)["narad_nodes"] <= PRUNE_ABOVE + 100, "the rest, at the next look")


@needs_prune
@pytest.mark.limit(180)
def test_what_is_in_use_is_not_forgotten(m):
    n = 2 * PRUNE_ABOVE
    part = many_records(m, n)
    held = [os.open(f"{part}/records/{i}", os.O_RDONLY) for i in range(20)]
    folder = os.open(part + "/records", os.O_RDONLY)
    with Consumer(part) as consumer:
        first = consumer.read()
        for i in range(20, n):
            os.stat(f"{part}/records/{i}")
        wait_for(lambda: gauges(m)["narad_nodes"] <= PRUNE_ABOVE + STEP, "old nodes to go")
        assert [os.read(fd, 100) for fd in held] == [b"%d" % i for i in range(20)]
        assert os.readlink(f"/proc/self/fd/{held[0]}") == part + "/records/0"
        assert os.readlink(f"/proc/self/fd/{folder}") == part + "/records"
        assert os.stat("5", dir_fd=folder).st_size == 1
        assert first == b"0\n" and consumer.read() == b"1\n"
    for fd in [*held, folder]:
        os.close(fd)

