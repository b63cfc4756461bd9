"""Isolation: what three partitions lose in commits while the disk below a fourth fails, against all being well."""

import ctypes
import mmap
import multiprocessing
import os
import subprocess
import time

from common import HERE, Daemon, commit, fail, record

SICK = {"n": "writes find no room", "e": "a sync failed, poisoned", "s": "syncs take 0.2 s", "h": "syncs hang"}
OTHERS = 3


def client(part, counter, going):
    """One record a commit, for ever; who is refused waits a moment, as any client does."""
    line = record(250)
    fd = os.open(part + "/produce", os.O_WRONLY)
    while True:
        if not going.value:
            time.sleep(0.005)
            continue
        try:
            commit(fd, line)
            counter.value += 1
        except OSError:
            time.sleep(0.01)


class Clients:
    """Four of them, in processes of their own; the first one's partition is the sick one."""

    def __init__(self, topic):
        self.counters = [multiprocessing.Value(ctypes.c_uint64, lock=False) for _ in range(1 + OTHERS)]
        self.going = [multiprocessing.Value(ctypes.c_bool, lock=False) for _ in range(1 + OTHERS)]
        self.processes = []
        for i, (counter, going) in enumerate(zip(self.counters, self.going)):
            part = os.path.join(topic, f"p{i:05}")
            self.processes.append(multiprocessing.Process(target=client, args=(part, counter, going), daemon=True))
            self.processes[-1].start()

    def rate(self, seconds, first_too=True):
        """Commits a second of the others, while the first one works too, or rests."""
        for going in self.going[1:]:
            going.value = True
        self.going[0].value = first_too
        time.sleep(0.1)
        before, start = [counter.value for counter in self.counters], time.monotonic()
        time.sleep(seconds)
        took = time.monotonic() - start
        self.moved = [counter.value - n for counter, n in zip(self.counters, before)]
        return sum(self.moved[1:]) / took

    def stop(self):
        for process in self.processes:
            process.kill()
            process.join()


class SickDaemon(Daemon):
    """One below which the disk of the first partition of topic t can be made to fail."""

    def __init__(self, folder, shim):
        super().__init__(folder)
        path = os.path.join(folder, "control")
        with open(path, "wb") as file:
            file.write(b"w")
        with open(path, "r+b") as file:
            self.control = mmap.mmap(file.fileno(), 1)
        self.environment = {"LD_PRELOAD": shim, "SICK_CONTROL": path, "SICK_FOLDER": "/topics/t/p00000"}

    def start(self, limit_s=300):
        before = {name: os.environ.get(name) for name in self.environment}
        os.environ.update(self.environment)
        try:
            return super().start(limit_s)
        finally:
            for name, value in before.items():
                os.environ.pop(name)
                if value is not None:
                    os.environ[name] = value

    def be(self, how):
        self.control[0:1] = how.encode()

    def reopen(self):
        with open(f"{self.mnt}/topics/t/p00000/ctl", "w", encoding="utf-8") as file:
            file.write("reopen\n")


def pair(daemon, clients, how, seconds, sick_first):
    """Rates of the others: beside a client of a sick partition, of a well one, and of none."""
    rates = {}
    for state in (how, "w", "none") if sick_first else ("none", "w", how):
        daemon.be("w" if state == "none" else state)
        rates[state] = clients.rate(seconds, state != "none")
        if state == how and how in "neh" and clients.moved[0] > 1:
            fail(f"{clients.moved[0]} commits succeeded on the sick disk")
        if state == "w" and clients.moved[0] == 0:
            fail("the partition did not get well again")
        daemon.be("w")
        if state == "e":
            daemon.reopen()
    return rates[how] / rates["w"], rates[how] / rates["none"], rates["w"]


def measure(bench):
    shim = os.path.join(bench.folder, "sick_disk.so")
    subprocess.run([os.environ.get("CC", "cc"), "-O2", "-shared", "-fPIC", "-o", shim, os.path.join(HERE, "sick_disk.c"), "-ldl"],
                   check=True)
    n_pairs, seconds = bench.pick(7, 31, 41), bench.pick(0.3, 0.3, 1)
    with SickDaemon(os.path.join(bench.folder, "isolation"), shim) as daemon:
        topic = os.path.dirname(daemon.topic("t", partitions=1 + OTHERS))
        clients = Clients(topic)
        try:
            clients.rate(seconds)  # all files are there, all caches warm
            for how, what in SICK.items():
                pairs = [pair(daemon, clients, how, seconds, n % 2 == 0) for n in range(n_pairs)]
                with_well, with_none, rates = zip(*pairs)
                if how == "n":
                    bench.row(f"commits/s of {OTHERS} partitions, a fourth one working", f"{sorted(rates)[n_pairs // 2]:,.0f}")
                bench.ratios(f"the fourth one's disk is sick: {what}", with_well, 0.9, at_least=True)
                bench.ratios("... against a fourth one that nobody uses", with_none, 0.9, at_least=True)
        finally:
            daemon.be("w")
            clients.stop()
