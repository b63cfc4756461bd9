"""Late acks over NATS JetStream, whose servers take an ack whenever it comes: a mount has leases, it or the server that it talks
to is stopped around their end (SIGSTOP), and it goes on with its acks; another mount, at another server, has the records by
then. How many of its leases were settled by the first mount, and what that said of it.

In each round one mount leases 504 records for 3 s, so that its own clock ends them 300 ms before the servers do, and settles one
every 4 ms, from 1.5 s before their end until half a second after it. In the rounds of a mount that waits it has 100 readers, to
whom the servers send their records while it is stopped; the other mount has them then, and extends its leases."""

import contextlib
import os
import shutil
import signal
import struct
import sys
import threading
import time

from common import ROOT, attribute, fail, produce
from jetstream import JetStreamDaemon

N = 504  # what one read gives out: 8 records, then twice as many again and again
LEASE_MS = 3000
ACKS_FROM_MS, ACK_EVERY_MS = -1500, 4
N_WAITING, WAITING_LEASE_MS = 100, 2000
PARKED_S = 6  # how long the servers may keep what a mount that is gone has asked for
MOUNT, SERVER = "the mount", "its server"
CASES = [  # who is stopped, from when until when, milliseconds from the end of the leases
    (MOUNT, -900, -500),
    (MOUNT, -400, 100),
    (MOUNT, -400, 3000),
    (SERVER, -900, -500),
    (SERVER, -900, -100),
    (SERVER, -900, 100),
    (SERVER, -900, 1000),
    (SERVER, -900, 8000),
    (SERVER, -250, 1000),
]
HEAD = struct.Struct(">IIQQQI")


class Tally:
    """Of the rounds of one case."""

    def __init__(self):
        self.records = self.in_time = self.refused = self.given_up = self.late = self.counted = 0
        self.silent = 0  # rounds in which what was given up was told by no fsync

    def row(self, bench, what, wanted=None):
        bench.row(what, f"{self.late} of {self.records} late", "" if wanted is None else f"<= {wanted}",
                  None if wanted is None else self.late <= wanted)
        bench.row("  settled in time, ESTALE, given up", f"{self.in_time}, {self.refused}, {self.given_up}")
        bench.row("  narad_late_acks_total", f"{self.counted}", ">= late", self.counted >= self.late)
        bench.row("  rounds with an ack given up, and no fsync that failed", f"{self.silent}", "0", self.silent == 0)


def late_acks(daemon):
    with open(daemon.mnt + "/metrics", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("narad_late_acks_total "))


def parse(data):
    """Offset and receipt of each record."""
    at, records = 0, []
    while at < len(data):
        size, part, offset, nonce, _, _ = HEAD.unpack_from(data, at)
        records.append((offset, b"%d:%d:%d\n" % (part, offset, nonce)))
        at += 4 + size
    return records


def lease(part, size=1 << 20):
    """All that is there, in one read; nothing, when the servers do not answer."""
    fd = os.open(part + "/consume.bin", os.O_RDONLY | os.O_NONBLOCK)
    try:
        return parse(os.read(fd, size))
    except OSError:
        return []
    finally:
        os.close(fd)


class Taker:
    """Takes what there is, again and again, and settles nothing; it may keep what it has."""

    def __init__(self, part, keeps=False):
        self.part, self.keeps, self.seen, self.ends = part, keeps, {}, False
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        while not self.ends:
            self.seen.update(lease(self.part))
            if self.keeps and self.seen:
                write_some(self.part + "/ack", b"".join(b"extend " + receipt for receipt in self.seen.values()))
            time.sleep(0.02)

    def end(self):
        self.ends = True
        self.thread.join()


def wait_until(when):
    time.sleep(max(0.0, when - time.monotonic()))


def settle(part, receipts, end, taken, refused):
    """One after the other; whether the fsync behind them failed."""
    fd = os.open(part + "/ack", os.O_WRONLY)
    for i, (offset, receipt) in enumerate(receipts):
        wait_until(end + (ACKS_FROM_MS + i * ACK_EVERY_MS) / 1000)
        try:
            os.write(fd, receipt)
            taken.add(offset)
        except OSError:
            refused.add(offset)
    try:
        os.fsync(fd)
        return False
    except OSError:
        return True
    finally:
        os.close(fd)


def left(part, seconds):
    """What nobody has settled, in the end: all leases are over after that time."""
    offsets, until = set(), time.monotonic() + seconds
    while time.monotonic() < until or attribute(part, "lag") > 0:
        records = lease(part)
        offsets.update(offset for offset, _ in records)
        fd = os.open(part + "/ack", os.O_WRONLY)
        for _, receipt in records:
            os.write(fd, receipt)
        os.close(fd)
        time.sleep(0.05)
    return offsets


class Ground:
    """Three servers, a mount at the first and one at the second."""

    def __init__(self, bench, cluster, stack):
        self.bench, self.cluster, self.stack, self.n_topics, self.n_mounts = bench, cluster, stack, 0, 0
        self.one, self.two = (self.mount(server) for server in cluster.servers[:2])

    def mount(self, server):
        self.n_mounts += 1
        daemon = JetStreamDaemon(os.path.join(self.bench.folder, f"fence-{self.n_mounts}"),
                                 f"engine=jetstream,replicas=3,url=nats://127.0.0.1:{server.port}")
        self.stack.callback(daemon.stop)
        daemon.start()
        self.stack.callback(daemon.process.send_signal, signal.SIGCONT)
        return daemon

    def come_back(self):
        """A mount that has left its server stays where it went: another one in its place."""
        self.one.stop()
        self.one = self.mount(self.cluster.servers[0])

    def topic(self, lease_ms):
        """The partition at both mounts; the first mount's server leads neither its stream nor its consumer."""
        while True:
            self.n_topics += 1
            name = f"t{self.n_topics}"
            part = self.one.topic(name, visibility_timeout_ms=lease_ms, max_in_flight=100_000)
            produce(part, b"first\n")
            (_, receipt), = lease(part)
            write(part + "/ack", receipt)
            if self.cluster.servers[0].name not in self.leaders(name):
                break
        there = f"{self.two.mnt}/topics/{name}/p00000"
        while not os.path.exists(there):
            time.sleep(0.05)
        return part, there

    def leaders(self, name):
        incarnation = os.getxattr(f"{self.one.mnt}/topics/{name}", "user.narad.incarnation").decode()
        stream = f"narad_{name}_{incarnation}_p00000"
        consumer, = self.cluster.ask("$JS.API.CONSUMER.NAMES." + stream)["consumers"]
        infos = [self.cluster.stream_info(stream), self.cluster.ask(f"$JS.API.CONSUMER.INFO.{stream}.{consumer}")]
        return [info["cluster"].get("leader") for info in infos]

    def process(self, who):
        return (self.one if who == MOUNT else self.cluster.servers[0]).process


def write_some(path, data):
    """Whatever becomes of each line."""
    fd = os.open(path, os.O_WRONLY)
    lines = data.splitlines(True)
    while lines:
        try:
            lines = b"".join(lines)[os.write(fd, b"".join(lines)):].splitlines(True)
        except OSError:
            lines = lines[1:]
    os.close(fd)


def write(path, data):
    fd = os.open(path, os.O_WRONLY)
    os.write(fd, data)
    os.fsync(fd)
    os.close(fd)


def one_round(ground, who, from_ms, until_ms, tally):
    if who == SERVER:
        ground.come_back()
    part, there = ground.topic(LEASE_MS)
    produce(there, b"r\n" * N)
    before = late_acks(ground.one)
    begun = time.monotonic()
    receipts = lease(part)
    end = begun + LEASE_MS / 1000
    if len(receipts) != N:
        fail(f"a read gave {len(receipts)} of {N} records")
    taken, refused, told = set(), set(), []
    taker = Taker(there)
    acks = threading.Thread(target=lambda: told.append(settle(part, receipts, end, taken, refused)))
    acks.start()
    wait_until(end + from_ms / 1000)
    ground.process(who).send_signal(signal.SIGSTOP)
    wait_until(end + until_ms / 1000)
    ground.process(who).send_signal(signal.SIGCONT)
    acks.join()
    time.sleep(1)
    taker.end()
    again = left(there, 2 * LEASE_MS / 1000 + 1)
    tally.records += N
    tally.refused += len(refused)
    tally.late += len(taker.seen.keys() - again)
    tally.in_time += N - len(taker.seen.keys() | again)
    tally.given_up += len(taken & again)
    tally.silent += bool(taken & again) and not told[0]
    tally.counted += late_acks(ground.one) - before


def read_and_settle(fd, part, refused):
    """Until the mount ends."""
    with contextlib.suppress(OSError):
        while True:
            for offset, receipt in parse(os.read(fd, 4096)):
                try:
                    write(part + "/ack", receipt)
                except OSError:
                    refused.add(offset)


def waiting_round(ground, after_ms, tally):
    """Its readers wait; the records are sent to it while it is stopped, and to the other mount when their time is over."""
    part, there = ground.topic(WAITING_LEASE_MS)
    before, refused = late_acks(ground.one), set()
    for _ in range(N_WAITING):
        fd = os.open(part + "/consume.bin", os.O_RDONLY)
        threading.Thread(target=read_and_settle, args=(fd, part, refused), daemon=True).start()
    time.sleep(1)
    ground.one.process.send_signal(signal.SIGSTOP)
    produce(there, b"r\n" * N_WAITING)
    taker = Taker(there, keeps=True)
    time.sleep((WAITING_LEASE_MS + after_ms) / 1000)
    ground.one.process.send_signal(signal.SIGCONT)
    time.sleep(1)
    ground.one.process.send_signal(signal.SIGSTOP)  # its readers still wait, and would get what comes again
    taker.end()
    again = left(there, PARKED_S + 2 * WAITING_LEASE_MS / 1000)
    ground.one.process.send_signal(signal.SIGCONT)
    tally.records += N_WAITING
    tally.late += len(taker.seen.keys() - again)
    tally.in_time += N_WAITING - len(taker.seen.keys() | again)
    tally.refused += len(refused)
    tally.counted += late_acks(ground.one) - before


def name_of(who, from_ms, until_ms):
    def side(ms):
        return f"{abs(ms)} ms {'before' if ms < 0 else 'after'}"

    return f"{who} stopped, {side(from_ms)} to {side(until_ms)} the end"


def measure(bench):
    sys.path.insert(0, os.path.join(ROOT, "tests", "mount"))
    from nats import Cluster  # pylint: disable=import-outside-toplevel

    if not shutil.which("nats-server"):
        bench.row("fence: nats-server is missing", "left out")
        return
    n_rounds = bench.pick(1, 3)
    with contextlib.ExitStack() as stack:
        cluster = Cluster(os.path.join(bench.folder, "servers"))
        stack.callback(cluster.end)
        cluster.start()
        ground = Ground(bench, cluster, stack)
        for who, from_ms, until_ms in CASES:
            tally = Tally()
            for _ in range(n_rounds):
                one_round(ground, who, from_ms, until_ms, tally)
            tally.row(bench, name_of(who, from_ms, until_ms), 0 if who == MOUNT else None)
        for after_ms in (100, 3000):
            tally = Tally()
            for _ in range(n_rounds):
                waiting_round(ground, after_ms, tally)
            tally.row(bench, f"the mount stopped while it waits, until {after_ms} ms after the end", 0)
