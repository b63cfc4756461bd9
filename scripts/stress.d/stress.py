"""The main program of scripts/stress: starts the daemon and the processes, kills some of them now and then, ends all, and
has the result checked. Exit code 0: nothing was found."""

import argparse
import collections
import mmap
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [HERE, os.path.join(ROOT, "tests", "mount")]

import verify  # noqa: E402
from clients import VISIBILITY_S, Family, Stop, roles, write  # noqa: E402
from journal import now, parse  # noqa: E402
from support import Failed, Mount, read_file, wait_for  # noqa: E402

PARTITIONS = {"work": 6, "parent": 3, "kid": 2, "late": 1, "flash0": 2, "flash1": 1, "flash2": 1}  # 16
OPTIONS = "idle_close_ms=2000,cache_bytes=16777216,retention_check_ms=1000,cold_retention_walk_ms=2000"
AT_LEAST = {"memory_mib": 64, "threads": 48}  # what is no sign of anything, however short the run
GRACE_S = 90  # for processes to end, and for the daemon to come to rest


class World:
    """What all processes know."""

    def __init__(self, mount, seed):
        self.mount = mount
        self.mnt = mount.mnt
        self.journals = os.path.join(mount.base, "journals")
        self.seed = seed
        self.partitions = PARTITIONS
        self.flashes = [topic for topic in PARTITIONS if topic.startswith("flash")]
        self.flag = mmap.mmap(-1, 1)  # shared with the processes
        os.makedirs(self.journals)

    def over(self):
        return self.flag[0] != 0


class Crowd:
    """The processes, by pid."""

    def __init__(self, world, n, findings):
        self.world = world
        self.findings = findings
        self.roles = roles(n)
        self.lives = [0] * n
        self.pids = {}  # pid -> number
        self.killed = {}  # name -> when, at the earliest
        for number in range(n):
            self.start(number)

    def start(self, number):
        self.lives[number] += 1
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            os._exit(self.live(number))
        os.setpgid(pid, pid)  # what it starts is killed with it
        self.pids[pid] = number

    def live(self, number):
        def stop(signum, frame):
            raise Stop

        signal.signal(signal.SIGTERM, stop)
        try:
            self.roles[number](self.world, number, self.lives[number]).run()
        except Stop:
            pass
        except BaseException:
            traceback.print_exc()
            return 1
        return 0

    def kill_one(self, rng):
        pid, number = rng.choice(list(self.pids.items()))
        self.killed[f"{number}.{self.lives[number]}"] = now()
        os.killpg(pid, signal.SIGKILL)

    def reap(self, again):
        """Takes those that have ended; starts them again. One that ended by itself had no reason to."""
        while self.pids:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            number = self.pids.pop(pid)
            name = f"{number}.{self.lives[number]}"
            if status != 0 and name not in self.killed:
                self.findings.add("a process that ended", f"{name} {self.roles[number].__name__}: status {status}, see above")
            if again:
                self.start(number)

    def end(self):
        self.world.flag[0] = 1
        deadline = now() + GRACE_S
        told = 0
        while self.pids and now() < deadline:
            time.sleep(0.2)
            self.reap(again=False)
            if now() > deadline - GRACE_S + 5 and now() > told + 1:  # waiting reads
                told = now()
                for pid in self.pids:
                    os.kill(pid, signal.SIGTERM)
        for pid, number in self.pids.items():
            self.findings.add("a process that hangs", f"{number} {self.roles[number].__name__} "
                              + read_file(f"/proc/{pid}/wchan").decode(errors="replace"))
            os.killpg(pid, signal.SIGKILL)
        while self.pids:
            self.reap(again=False)
            time.sleep(0.1)


# ---- the daemon


def usage(mount):
    proc = f"/proc/{mount.process.pid}"
    with open(proc + "/status", encoding="ascii") as file:
        fields = dict(line.split(":", 1) for line in file)
    return {"memory_mib": int(fields["VmRSS"].split()[0]) // 1024, "threads": int(fields["Threads"]),
            "descriptors": len(os.listdir(proc + "/fd"))}


def n_records(mount, topic):
    return sum(int(os.getxattr(mount.part(topic, part), "user.narad.hwm")) for part in range(PARTITIONS[topic]))


def make_topics(mount):
    for topic, n in PARTITIONS.items():
        mount.make(topic, partitions=n, retention_ms=0, segment_bytes=300_000, visibility_timeout_ms=int(VISIBILITY_S * 1000))
    write(mount.topic("work") + "/config", "max_acked_ahead=4096\n")
    write(mount.topic("late") + "/config", "fanout_delay_ms=300\n")
    os.mkdir(mount.topic("parent") + "/children/late")


def progress(mount, crowd, t_start):
    used = usage(mount)
    records = " ".join(f"{topic} {n_records(mount, topic)}" for topic in ("work", "parent", "kid", "late"))
    print(f"[{now() - t_start:6.1f} s] records: {records}; killed {len(crowd.killed)}; {used['memory_mib']} MiB, "
          f"{used['threads']} threads, {used['descriptors']} descriptors", flush=True)
    return used


def run(mount, crowd, seconds, rng):
    """Returns what the daemon used when a third of the time was over."""
    t_start = now()
    early = None
    next_look = next_kill = t_start
    while now() < t_start + seconds:
        time.sleep(0.1)
        crowd.reap(again=True)
        if now() > next_kill:
            crowd.kill_one(rng)
            next_kill = now() + rng.random() * 3
        if now() > next_look:
            used = progress(mount, crowd, t_start)
            next_look = now() + max(seconds / 30, 2)
            if early is None or now() < t_start + seconds / 3:
                early = {name: max(value, (early or used)[name]) for name, value in used.items()}
    return early


def settled_down(mount):
    """All that is due is dispatched and copied: nothing grows any more."""
    before = None
    for _ in range(GRACE_S):
        counts = [n_records(mount, topic) for topic in ("work", "parent", "kid", "late")]
        if counts == before and counts[1] == counts[3]:
            return True
        before = counts
        time.sleep(1)
    return False


def forget_names(mount):
    """Of each name that somebody has looked up the daemon keeps a node as long as the kernel remembers it, which is until
    it needs the memory. A remount makes it forget those of this mount; only root may."""
    if os.getuid() == 0:
        subprocess.run(["mount", "-i", "-o", "remount,rw", mount.mnt], check=False, stdin=subprocess.DEVNULL)


def check_usage(mount, start, early, findings):
    """At rest the daemon is back where it began, or where it was under load early on: what it keeps does not grow."""
    forget_names(mount)
    limits = {"memory_mib": max(early["memory_mib"] * 5 // 4 + 16, AT_LEAST["memory_mib"]),
              "threads": max(early["threads"], AT_LEAST["threads"]),
              "descriptors": start["descriptors"] + 16}
    try:
        wait_for(lambda: all(usage(mount)[name] <= limit for name, limit in limits.items()), "rest", GRACE_S, 0.5)
    except Failed:
        findings.add("the daemon keeps more than it had", f"{usage(mount)}, allowed {limits}")
    return usage(mount)


def stop(mount, findings):
    t0 = now()
    try:
        mount.stop(limit_s=GRACE_S)
    except Failed as failure:
        findings.add("the daemon did not stop cleanly", str(failure))
    return now() - t0


def check_store(mount, findings):
    program = os.path.join(os.path.dirname(os.path.dirname(mount.binary)), "ctl", "naradctl")
    done = subprocess.run([program, "check", mount.data], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, check=False)
    if done.returncode != 0:
        findings.add("naradctl check", f"exit code {done.returncode}: {done.stdout.decode(errors='replace')[-1500:]}")


def check_messages(mount, findings):
    for line in mount.stderr().splitlines():
        if "error" in line.lower().split(":")[1:2] or "Sanitizer" in line:
            findings.add("said by the daemon", line)


def drain_rest(mount):
    """After the restart, what is not settled."""
    rest = {}
    for topic in ("work", "parent"):
        write(mount.topic(topic) + "/config", "max_in_flight=1000000\nmax_acked_ahead=4096\n")
        rest[topic] = set()
        for part in range(PARTITIONS[topic]):
            for record in read_file(mount.part(topic, part) + "/drain", 4 << 20).split(b"\n")[:-1]:
                rest[topic].add(parse(record)[0])
    return rest


def judge(world, crowd, findings):
    """Restarts the daemon and compares; returns figures to print."""
    mount = world.mount
    mount.start()
    told = verify.Told(world.journals, crowd.killed, findings)
    stored = verify.Stored(mount.mnt, PARTITIONS, told, findings)
    n_acked = verify.check_produced(told, stored, findings)
    verify.check_copies(told, stored, findings)
    n_pairs = verify.check_leases(told, stored, findings)
    drained = drain_rest(mount)
    verify.check_consumed(told, stored, drained, findings)
    stop(mount, findings)
    check_store(mount, findings)
    incarnations = {acked[2] for acked in told.acked if acked[1] in world.flashes}
    figures = {
        "records acknowledged": sum(last - first + 1 for _, _, _, first, last, _, _ in told.acked),
        "of topics that are there": n_acked,
        "deleted topics with acknowledged records": len(incarnations - set(stored.incarnation.values())),
        "records stored": sum(len(ids) for ids in stored.ids.values()),
        "cut by their producer's end": sum(map(verify.is_cut, (one for ids in stored.ids.values() for one in ids))),
        "deliveries": sum(len(leases) for leases in told.leases.values()),
        "redeliveries compared": n_pairs,
        "settled": len(told.settled),
        "refused as lapsed": len(told.refused),
        "reopened": sum(len(times) for times in told.reopened.values()),
        "left to drain": sum(len(ids) for ids in drained.values()),
        "syncs retried": sum(n for name, n in told.counts.items() if name.endswith(" retry")),
    }
    verify.check_the_checks(told, stored, drained, findings)
    return figures


def attend(world, options, findings):
    """The whole run, once the daemon is there."""
    mount, rng = world.mount, random.Random(options.seed)
    make_topics(mount)
    start = usage(mount)
    crowd = Crowd(world, options.processes, findings)
    kinds = collections.Counter(role.__name__ for role in crowd.roles)
    print("processes: " + ", ".join(f"{n} {kind}" for kind, n in kinds.items()), flush=True)
    try:
        early = run(mount, crowd, options.seconds, rng)
    finally:
        crowd.end()
    if not settled_down(mount):
        findings.add("not at rest", "records still come, or the delayed child is not where its parent is")
    end = check_usage(mount, start, early, findings)
    took_s = stop(mount, findings)
    check_messages(mount, findings)
    check_store(mount, findings)
    figures = judge(world, crowd, findings)
    print(f"start {start}\nearly {early}\nend   {end}\nstopped in {took_s:.1f} s")
    for name, value in figures.items():
        print(f"{value:10d} {name}")


def main():
    parser = argparse.ArgumentParser(prog="scripts/stress")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--processes", type=int, default=64)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--daemon", default=os.path.join(ROOT, "build", "mount", "naradfs"))
    parser.add_argument("--folder", default=os.path.join(ROOT, "build", "stress"), help="for everything it writes; emptied first")
    parser.add_argument("--keep", action="store_true", help="keep the folder also when nothing is found")
    options = parser.parse_args()
    print(f"seed {options.seed}, {options.seconds:.0f} s, {options.daemon}", flush=True)
    if os.path.exists(options.folder):
        Mount(options.folder).destroy()
        shutil.rmtree(options.folder)
    os.makedirs(options.folder)
    findings = verify.Findings()
    mount = Mount(options.folder, OPTIONS, os.path.abspath(options.daemon))
    try:
        attend(World(mount.start(), options.seed), options, findings)
    except Failed as failure:
        findings.add("failed", str(failure))
    finally:
        wrong = mount.destroy()
    if wrong:
        findings.add("the daemon", str(wrong))
    findings.print()
    print(f"stress: {len(findings)} findings, seed {options.seed}" + (f"; see {options.folder}" if len(findings) else ""))
    if not findings and not options.keep:
        shutil.rmtree(options.folder)
    return 1 if len(findings) else 0


if __name__ == "__main__":
    sys.exit(main())
