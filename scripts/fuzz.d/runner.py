"""Building and running fuzz targets; see scripts/fuzz."""

import glob
import json
import os
import re
import shutil
import subprocess
import sys
import time

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
BUILD = os.path.join(ROOT, os.environ.get("NARADFS_BUILD", "build") + "-fuzz")
SOURCES = os.path.join(ROOT, "tests", "fuzz")
CORPUS = os.path.join(SOURCES, "corpus")
FOUND = os.path.join(BUILD, "found")
CRASHES = os.path.join(BUILD, "crashes")
TOTALS = os.path.join(BUILD, "executions.json")  # of each target, over all runs with this folder

# Longest input, where libFuzzer's own choice would make runs slow without finding more.
MAX_BYTES = {"log": 1024, "scan": 1024, "frame": 512, "wal": 2048, "wal_entry": 1024, "offset_store": 300, "hwm": 64,
             "cursor": 160, "incarnation": 64, "index_file": 1024, "ctl": 64, "time_name": 64, "unpack": 6144,
             "framing_lines": 512, "framing_jsonl": 512, "framing_bin": 512, "ack": 512}
MAX_BYTES_ELSE = 1024
LINE = re.compile(rb"#(\d+)\s+\w+\s+cov: (\d+) ft: (\d+) corp: (\d+)")
TIMEOUT_S = 120  # for one input, by the clock: at idle priority a program waits for long
STOPPED_S = 240  # beyond its time, a target that does not end is ended


def targets():
    return sorted(os.path.basename(path)[len("fuzz_"):-len(".c")] for path in glob.glob(os.path.join(SOURCES, "fuzz_*.c")))


def purpose(name):
    """The first sentence of the target's own comment."""
    with open(os.path.join(SOURCES, f"fuzz_{name}.c"), encoding="utf-8") as file:
        comment = re.match(r"/\*(.*?)\*/", file.read(), re.S).group(1)
    return re.split(r"(?<=[.:;])\s", " ".join(comment.replace("\n *", " ").split()))[0].rstrip(".:;")


def environment():
    """Small quarantines: inputs are short and so are lives, and runs are several times faster."""
    asan = "detect_leaks=0:quarantine_size_mb=1:thread_local_quarantine_size_kb=64:malloc_context_size=1:" \
           "max_malloc_fill_size=0:allocator_may_return_null=1"
    return {**os.environ, "G_SLICE": "always-malloc", "ASAN_OPTIONS": asan,
            "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1"}


def build(names, source=ROOT, folder=BUILD, quiet=False):
    """True when the programs are there."""
    commands = []
    if not os.path.exists(os.path.join(folder, "build.ninja")):
        commands.append(["meson", "setup", folder, source, "-Dfuzz=enabled", "-Dtests=false", "-Db_lundef=false",
                         "-Dwerror=false"])
    commands.append(["ninja", "-C", folder] + [f"tests/fuzz/fuzz_{name}" for name in names])
    for command in commands:
        done = subprocess.run(command, cwd=source, env={**os.environ, "CC": "clang"}, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        if done.returncode != 0:
            if not quiet:
                print(done.stdout.decode(errors="replace")[-4000:])
                print("the fuzz targets could not be built; they need clang with libFuzzer (scripts/deps)")
            return False
    return True


class Limits:
    def __init__(self, seconds, runs, least=0):
        self.seconds = seconds
        self.runs = runs
        self.least = least  # executions; a target that does not come so far has shown nothing


class Run:
    """One target at work."""

    def __init__(self, name, limits, fresh, program=None, found=FOUND, crashes=CRASHES):
        self.name = name
        self.limits = limits
        self.executions = self.total = self.edges = self.corpus = 0
        self.start = time.monotonic()
        self.seconds = 0.0
        self.found = os.path.join(found, name)
        self.crashes = os.path.join(crashes, name)
        if fresh:
            shutil.rmtree(self.found, ignore_errors=True)
        for folder in (self.found, self.crashes):
            os.makedirs(folder, exist_ok=True)
        self.before = set(os.listdir(self.crashes))
        self.log_path = os.path.join(self.crashes, "..", f"{name}.log")
        self.log = open(self.log_path, "w+b")
        self.program = program or os.path.join(BUILD, "tests", "fuzz", f"fuzz_{name}")
        self.process = subprocess.Popen(self.command(), env=environment(), stdin=subprocess.DEVNULL, stdout=self.log,
                                        stderr=subprocess.STDOUT, preexec_fn=lambda: os.nice(10))

    def command(self):
        command = [self.program, f"-artifact_prefix={self.crashes}/", "-print_final_stats=1", f"-timeout={TIMEOUT_S}",
                   "-rss_limit_mb=3072", f"-max_len={MAX_BYTES.get(self.name, MAX_BYTES_ELSE)}"]
        if self.limits.runs:
            command.append(f"-runs={self.limits.runs}")
        if self.limits.seconds:
            command.append(f"-max_total_time={max(1, int(self.limits.seconds))}")
        dictionary = os.path.join(SOURCES, f"{self.name}.dict")
        if os.path.exists(dictionary):
            command.append(f"-dict={dictionary}")
        return command + [folder for folder in (self.found, os.path.join(CORPUS, self.name)) if os.path.isdir(folder)]

    def poll(self):
        """Reads how far it is; True when it has ended."""
        ended = self.process.poll() is not None
        self.seconds = time.monotonic() - self.start
        if not ended and self.limits.seconds and self.seconds > self.limits.seconds + STOPPED_S:
            self.process.kill()
            self.process.wait()
            ended = True
        with open(self.log_path, "rb") as log:
            log.seek(max(0, os.path.getsize(self.log_path) - 16384))
            text = log.read()
        for match in LINE.finditer(text):
            self.executions, self.edges, self.corpus = int(match.group(1)), int(match.group(2)), int(match.group(4))
        counted = re.search(rb"stat::number_of_executed_units:\s*(\d+)", text)
        if counted:
            self.executions = int(counted.group(1))
        return ended

    def result(self):
        """What it found, as paths of inputs; None when it ended well."""
        if self.process.returncode == 0 and self.executions >= self.limits.least:
            return None
        return sorted(os.path.join(self.crashes, name) for name in set(os.listdir(self.crashes)) - self.before)

    def share(self):
        by_runs = self.executions / self.limits.runs if self.limits.runs else 0
        by_time = self.seconds / self.limits.seconds if self.limits.seconds else 0
        return min(1.0, max(by_runs, by_time))


def count(run):
    """Adds the executions of a run that has ended to those of its target; returns the sum."""
    totals = {}
    if os.path.exists(TOTALS):
        with open(TOTALS, encoding="utf-8") as file:
            totals = json.load(file)
    totals[run.name] = totals.get(run.name, 0) + run.executions
    with open(TOTALS + ".tmp", "w", encoding="utf-8") as file:
        json.dump(totals, file, indent=1, sort_keys=True)
    os.rename(TOTALS + ".tmp", TOTALS)
    return totals[run.name]


def bar(share):
    full = int(share * 24)
    return "[" + "#" * full + "." * (24 - full) + f"] {share * 100:3.0f}%"


def tell(finished, n_targets, active):
    if not sys.stdout.isatty() or not active:
        return
    whole = (finished + sum(run.share() for run in active)) / n_targets
    what = ", ".join(f"{run.name} {run.executions:,} at {run.executions / max(run.seconds, 0.1):,.0f}/s" for run in active)
    print(f"\r{bar(whole)} {what}"[:shutil.get_terminal_size().columns] + "\033[K", end="", flush=True)


def explain(run):
    """A target that failed: why, and how to see it again."""
    inputs = run.result()
    if run.process.returncode == 0:
        print(f"FAILED {run.name}: {run.executions:,} executions in {run.seconds:.0f} s, fewer than {run.limits.least:,}")
        return
    with open(run.log_path, "rb") as log:
        lines = log.read().decode(errors="replace").splitlines()
    print(f"FOUND {run.name}:")
    for line in [line for line in lines if re.search(r"does not hold|runtime error|ERROR:|assertion failed", line)][:4]:
        print(f"  {line}")
    for path in inputs:
        print(f"  input:   {os.path.relpath(path, ROOT)}")
        print(f"  replay:  {os.path.relpath(run.program, ROOT)} {os.path.relpath(path, ROOT)}")
        print(f"  keep it: cp {os.path.relpath(path, ROOT)} tests/fuzz/corpus/{run.name}/  (a test of `meson test` then)")
    if not inputs:
        print(f"  it did not run to its end (exit code {run.process.returncode}); see {os.path.relpath(run.log_path, ROOT)}")


def table(runs):
    print(f"{'target':14} {'executions':>12} {'so far':>12} {'per second':>11} {'seconds':>8} {'edges':>6} {'inputs':>6}  result")
    for run in runs:
        print(f"{run.name:14} {run.executions:12,} {run.total:12,} {run.executions / max(run.seconds, 0.1):11,.0f} {run.seconds:8.0f} "
              f"{run.edges:6} {run.corpus:6}  {'ok' if run.result() is None else 'FOUND' if run.process.returncode else 'too few'}")
    total = sum(run.executions for run in runs)
    print(f"{'all':14} {total:12,}")


def run(names, limits, jobs, fresh):
    waiting, active, done = list(names), [], []
    try:
        while waiting or active:
            while waiting and len(active) < jobs:
                active.append(Run(waiting.pop(0), limits, fresh))
            time.sleep(0.2)
            for one in [one for one in active if one.poll()]:
                active.remove(one)
                done.append(one)
                one.total = count(one)
                if not sys.stdout.isatty():
                    print(f"{one.name}: {one.executions:,} executions in {one.seconds:.0f} s", flush=True)
                if one.result() is not None:
                    print()
                    explain(one)
            tell(len(done), len(names), active)
    except KeyboardInterrupt:
        for one in active:
            one.process.terminate()
            one.process.wait()
            one.poll()
            count(one)
    print()
    table(sorted(done, key=lambda one: one.name))
    return 0 if len(done) == len(names) and all(one.result() is None for one in done) else 1
