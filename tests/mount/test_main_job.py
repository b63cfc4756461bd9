"""The main job: real lines in, every one of them out, also when the daemon is killed."""

import collections
import json
import os
import random
import subprocess
import time

import pytest
from support import (HERE, JETSTREAM, PYTHON, SANITIZED, Consumer, ack, drain, lines, log, number, produce, read_file, shell, take,
                     wait_for, write_all)
from writer import check

N_LINES = 100_000


@pytest.fixture(scope="module")
def real_lines(tmp_path_factory):
    """At least 100,000 lines of this machine's own: logs, package lists, and the listing of the disk."""
    sources = ["cat /var/log/dpkg.log /var/log/alternatives.log /var/log/apt/history.log 2>/dev/null",
               "dpkg-query -W 2>/dev/null", "cat /var/lib/dpkg/status 2>/dev/null",
               "find /usr /etc /var -xdev -printf '%M %u %s %TY-%Tm-%Td %p\\n' 2>/dev/null | head -n 140000",
               "cat /usr/share/dict/* 2>/dev/null"]
    found = []
    for source in sources:
        out = subprocess.run(["sh", "-c", source], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=False).stdout
        found += [line for line in out.split(b"\n") if b"\0" not in line and len(line) < 60000]
        if len(found) > 1.3 * N_LINES:
            break
    assert len(found) > 1000
    rounds = 1
    real = found
    while len(found) < N_LINES:  # a small machine: the same lines again, marked with their round
        rounds += 1
        found = found + [b"%d: " % rounds + line for line in real]
    return found[:N_LINES + 321]


@pytest.fixture
def real_file(real_lines, tmp_path):
    path = tmp_path / "real.txt"
    path.write_bytes(lines(*real_lines))
    return str(path)


@pytest.mark.limit(120)
@pytest.mark.parametrize("codec", ["none", pytest.param("zstd", marks=pytest.mark.local("segments"))])
def test_one_writer_is_byte_identical(m, real_file, real_lines, codec):
    part = m.make("logs", codec=codec, segment_bytes=1 << 20)
    shell(f"cat {real_file} > {part}/produce", limit_s=60)
    assert number(part, "hwm") == len(real_lines)
    shell(f"cmp {real_file} {part}/log", limit_s=60)
    m.restart()
    shell(f"cmp {real_file} {part}/log", limit_s=60)
    assert JETSTREAM or number(part, "segments") > 1
    out = m.base + "/drained"
    shell(f"cat {part}/drain > {out} && cmp {real_file} {out}", limit_s=60)
    assert (number(part, "lag"), number(part, "frontier")) == (0, len(real_lines))
    assert drain(part) == b""


@pytest.mark.limit(180)
def test_several_writers_at_once(m, real_lines, tmp_path):
    part = m.make("logs")
    count = 8
    paths = []
    for n in range(count):
        path = tmp_path / f"in{n}"
        path.write_bytes(b"".join(b"%d %d " % (n, i) + line + b"\n" for i, line in enumerate(real_lines[n::count])))
        paths.append(path)
    clients = ["cat {} > {}", "dd if={} of={} bs=7777 status=none", "cp {} {}", "tee {1} < {0} > /dev/null",
               "awk '{{ print }}' {} > {}", "dd if={} of={} bs=64k oflag=append conv=notrunc,fsync status=none",
               "sed '' {} > {}", "split -b 100k --filter='cat' {} > {}"]
    writers = [subprocess.Popen(["bash", "-c", clients[n].format(path, part + "/produce")], stdin=subprocess.DEVNULL)
               for n, path in enumerate(paths)]
    assert [writer.wait(120) for writer in writers] == [0] * count
    seen = log(part).split(b"\n")
    assert seen.pop() == b""
    wanted = [path.read_bytes().split(b"\n")[:-1] for path in paths]
    assert len(seen) == sum(map(len, wanted)) == number(part, "hwm")
    per_writer = collections.defaultdict(list)
    for line in seen:
        per_writer[line.split(b" ", 1)[0]].append(line)
    for n in range(count):
        assert per_writer[b"%d" % n] == wanted[n], f"writer {n}"


@pytest.mark.limit(180)
def test_receipts_over_everything(m, real_lines):
    count = 10_000 if SANITIZED else 30_000
    part = m.make("logs", max_in_flight=4000, consume_wait_ms=0)
    wanted = real_lines[:count]
    produce(part, *wanted)
    seen = {}
    acks = os.open(part + "/ack", os.O_WRONLY)
    rng = random.Random(1)
    while True:
        items = take(part, 900)
        if not items:
            break
        for item in items:
            assert item["offset"] not in seen
            seen[item["offset"]] = item
        rng.shuffle(items)
        write_all(acks, "".join(item["handle"] + "\n" for item in items).encode())
    os.fsync(acks)
    os.close(acks)
    assert (number(part, "frontier"), number(part, "lag"), number(part, "in_flight")) == (count, 0, 0)
    assert sorted(seen) == list(range(count))
    for offset in range(0, count, 97):
        record = wanted[offset]
        item = seen[offset]
        if "payload_encoding" in item:
            continue
        if isinstance(item["payload"], str) and not record.startswith(b'"'):
            assert item["payload"].encode() == record
        else:
            assert item["payload"] == json.loads(record)
    m.crash()
    assert drain(part) == b""


def test_tail_follows(m, real_lines):
    part = m.make("logs")
    produce(part, *real_lines[:100])
    out_path = m.base + "/tailed"
    with open(out_path, "wb") as out:
        tail = subprocess.Popen(["tail", "-n", "+1", "-f", part + "/log"], stdin=subprocess.DEVNULL, stdout=out)
    try:
        wait_for(lambda: read_file(out_path) == lines(*real_lines[:100]), "tail to print what is there")
        for start in range(100, 700, 200):
            produce(part, *real_lines[start:start + 200])
            wait_for(lambda: read_file(out_path) == lines(*real_lines[:start + 200]), "tail to follow")
    finally:
        tail.kill()
        tail.wait(20)


def test_getfattr_shows_everything(m):
    part = m.make("logs")
    produce(part, "a", "b")
    shown = shell(f"getfattr -d {part}").stdout.decode()
    for name in ("hwm", "incarnation", "poisoned", "poison_reason", "oldest_offset", "next_offset", "frontier", "lag",
                 "in_flight", "acked_ahead", "segments", "size_bytes", "durability"):
        assert f"user.narad.{name}=" in shown, shown
    assert 'user.narad.hwm="2"' in shown and 'user.narad.poisoned="0"' in shown


# -- kill -9


class Writers:
    """Writer processes and what they were promised, over several lives of the daemon."""

    def __init__(self, m, part, count):
        self.m = m
        self.part = part
        self.count = count
        self.acked = [0] * count  # next sequence not promised
        self.started = [0] * count
        self.lives = [[] for _ in range(count)]  # runs of promised sequences, [first, last)

    def acked_path(self, n):
        return f"{self.m.base}/acked{n}"

    def start(self):
        self.processes = []
        for n in range(self.count):
            name = "produce" if n % 2 else f"produce@w{n}"
            command = [PYTHON, HERE + "/writer.py", f"{self.part}/{name}", self.acked_path(n), f"w{n}",
                       str(self.started[n])]
            if n % 3 == 2:
                command.append("reopen")
            self.processes.append(subprocess.Popen(command, stdin=subprocess.DEVNULL))

    def finish(self):
        for process in self.processes:
            assert process.wait(30) == 0
        for n in range(self.count):
            if os.path.exists(self.acked_path(n)):
                told = read_file(self.acked_path(n)).split()
                if told:
                    self.acked[n] = int(told[-1])

    def total(self):
        return sum(os.path.getsize(self.acked_path(n)) for n in range(self.count) if os.path.exists(self.acked_path(n)))

    def verify(self):
        """Every promised record once, in order; nothing torn; the rest is a continuation."""
        seen = collections.defaultdict(list)
        for record in log(self.part).split(b"\n")[:-1]:
            whole = check(record)
            assert whole is not None, f"torn or fabricated: {record[:200]!r}"
            seen[whole[0]].append(whole[1])
        for n in range(self.count):
            sequences = seen[f"w{n}"]
            assert sequences == sorted(sequences), f"order of writer {n}"
            counts = collections.Counter(sequences)
            promised = [i for first, last in self.lives[n] for i in range(first, last)]
            assert all(counts[i] == 1 for i in promised), f"writer {n}: lost or doubled"
            # the next life of the writer begins above whatever this life may have left
            self.started[n] = max(sequences + [self.acked[n]]) + 100
        return sum(map(len, seen.values()))


@pytest.mark.limit(240)
def test_kill_in_the_middle_of_producing(m):
    part = m.make("logs", segment_bytes=65536, linger_ms=20)
    rng = random.Random(7)
    writers = Writers(m, part, 6)
    settled = set()
    for _ in range(3 if SANITIZED else 6):
        starts = list(writers.started)
        before = writers.total()
        writers.start()
        wait_for(lambda: writers.total() > before + 200, "the writers to get going", 30)
        settled |= settle_some(part, rng)
        time.sleep(rng.random() * 0.7)
        m.kill()
        writers.finish()
        for n in range(writers.count):
            if writers.acked[n] > starts[n]:
                writers.lives[n].append((starts[n], writers.acked[n]))
        m.start()
        found = writers.verify()
        assert number(part, "hwm") == number(part, "next_offset") == found
        for offset in sample_of_deliverable(part):
            assert offset not in settled, f"offset {offset} was settled durably and came back"
    assert settled
    rest = [item["offset"] for item in drain_all_jsonl(part)]
    assert not settled & set(rest)
    assert settled | set(rest) == set(range(number(part, "hwm"))), "an unsettled record was skipped"
    m.stop()


def settle_some(part, rng):
    """Leases some records, acks a random half of them durably, gives the rest back; the offsets acked."""
    items = take(part, 60)
    chosen = [item for item in items if rng.random() < 0.5]
    others = [item for item in items if item not in chosen]
    if chosen:
        ack(part, *[item["handle"] for item in chosen], sync=True)
    if others:
        ack(part, *[item["handle"] for item in others], verb="nack")
    return {item["offset"] for item in chosen}


def sample_of_deliverable(part):
    items = take(part, 200)
    if items:
        ack(part, *[item["handle"] for item in items], verb="nack")
    return [item["offset"] for item in items]


def drain_all_jsonl(part):
    everything = []
    while True:
        items = take(part, 500)
        if not items:
            return everything
        everything += items
        ack(part, *[item["handle"] for item in items])


@pytest.mark.local("a mount that was killed")
@pytest.mark.limit(120)
def test_kill_in_the_middle_of_consuming(m):
    part = m.make("logs")
    produce(part, *range(3000))
    seen = collections.Counter()
    promised = set()
    for _ in range(3):
        with Consumer(part, "consume", os.O_RDONLY | os.O_NONBLOCK) as consumer:
            batch = []
            for i in range(300):
                batch.append(int(consumer.read()))
                if i % 50 == 49:
                    consumer.sync()
                    promised.update(batch)
            for value in batch:
                seen[value] += 1
            m.kill()
        m.start()
    rest = [int(value) for value in drain(part).split()]
    assert not promised & set(rest)
    assert set(seen) | set(rest) == set(range(3000))


def test_order_and_offsets_after_many_restarts(m):
    part = m.make("logs", segment_bytes=65536)
    wanted = []
    for n in range(8):
        rows = [b"%d-%d " % (n, i) + b"v" * (i % 300) for i in range(150)]
        produce(part, *rows)
        wanted += rows
        if n % 2:
            m.restart()
        else:
            m.crash()
        assert log(part) == lines(*wanted)
        assert number(part, "next_offset") == len(wanted)
