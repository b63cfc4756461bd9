"""Builds and runs every test of the repository; scripts/test installs what this needs and starts it.

The last line is `N passed, N failed` and counts unit subtests, tests through the mount and the checks. Each kind of
test must have run: a runner that found none is a failure.
"""

import argparse
import glob
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
BUILD = os.environ.get("NARADFS_BUILD", "build")
PYTHON = "/usr/bin/python3"
BUILDS = {
    "gcc": (BUILD, "gcc", ["-Dwerror=true"]),
    "clang": (BUILD + "-clang", "clang", ["-Dwerror=true"]),
    # gcc's warnings are not reliable in instrumented code, and its plain build has -Werror already
    "sanitizers": (BUILD + "-san", "gcc", ["-Db_sanitize=address,undefined", "-Doptimization=1", "-Dwerror=false"]),
    # clang: its runtime sees more of the C library's calls; -Db_lundef=false is what meson wants with clang's sanitizers
    "threads": (BUILD + "-tsan", "clang", ["-Db_sanitize=thread", "-Db_lundef=false", "-Doptimization=1", "-Dwerror=false"]),
}
UNIT_LIMIT_S = 900  # against hangs: far more than a busy machine takes
MOUNT_LIMIT_S = 2400
SERVERS_LIMIT_S = 7200  # of tests over three servers, each with leaders to elect
OF_SERVERS = "test_jetstream*.py"  # what is about the other engine alone
THREADS_LIMIT_S = 2400
SWEEP_LIMIT_S = 600
FUZZ_SECONDS = int(os.environ.get("NARADFS_FUZZ_SECONDS", "60"))  # for each target, in CI and with --long
FUZZ_JOBS = 6  # 25 targets in five turns: with the build of them that ends about when the tests through the mount do
FUZZ_LEAST = 1  # execution of each: how many there are the table tells
FUZZ_LIMIT_S = 1200 + 30 * FUZZ_SECONDS


class Tally:
    def __init__(self):
        self.passed = 0
        self.failed = 0
        self.skipped = []
        self.start = time.monotonic()

    def say(self, word, what, detail=""):
        print(f"[{time.monotonic() - self.start:6.1f} s] {word:4} {what}{detail}", flush=True)

    def one(self, what, good, output=""):
        if good:
            self.passed += 1
        else:
            self.failed += 1
            print(tail(output, 80))
        self.say("ok" if good else "FAIL", what)
        return good

    def many(self, what, passed, failed, skipped=()):
        self.passed += passed
        self.failed += failed
        self.skipped += skipped
        self.say("FAIL" if failed else "ok", what, f": {passed} passed, {failed} failed, {len(skipped)} skipped")


def tail(text, n_lines):
    return "\n".join(text.splitlines()[-n_lines:])


def run(command, limit_s=600, env=None):
    """Runs a command in the repository; (succeeded, output). Whatever it started is killed when the time is over."""
    with tempfile.TemporaryFile() as out:
        process = subprocess.Popen(command, cwd=ROOT, env={**os.environ, **(env or {})}, stdin=subprocess.DEVNULL,
                                   stdout=out, stderr=subprocess.STDOUT, start_new_session=True)
        return finish(process, out, limit_s)


def finish(process, out, limit_s):
    note = ""
    try:
        process.wait(limit_s)
    except subprocess.TimeoutExpired:
        note = f"\n{process.args[0]}: killed after {limit_s} s"
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    out.seek(0)
    return process.returncode == 0, out.read().decode(errors="replace") + note


def build(tally, name):
    folder, compiler, options = BUILDS[name]
    good, output = True, ""
    if not os.path.exists(os.path.join(ROOT, folder, "build.ninja")):
        good, output = run(["/usr/bin/meson", "setup", folder] + options, env={"CC": compiler})
    if good:
        good, output = run(["ninja", "-C", folder])
    return tally.one(f"build with {name}", good, output)


def sanitizer_env(tally):
    """How instrumented programs report; leaks are looked for where the machine lets LeakSanitizer work."""
    with tempfile.TemporaryDirectory() as folder:
        source, program = os.path.join(folder, "leak.c"), os.path.join(folder, "leak")
        with open(source, "w", encoding="utf-8") as file:
            file.write("#include <stdlib.h>\nvoid *volatile p;\nint main(void)\n{\n    p = malloc(9);\n    p = 0;\n}\n")
        run(["gcc", "-fsanitize=address", source, "-o", program])
        _, output = run([program])
    leaks = "detected memory leaks" in output
    if not leaks:
        tally.say("note", "LeakSanitizer does not work on this machine (it needs ptrace); leaks are not looked for")
    return {
        "ASAN_OPTIONS": f"detect_leaks={int(leaks)}:detect_stack_use_after_return=0:abort_on_error=0:exitcode=99",
        "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1:exitcode=99",
        "G_SLICE": "always-malloc",
    }


def unit_tests(tally, name, env, limit_s=UNIT_LIMIT_S):
    folder = BUILDS[name][0]
    what = f"unit tests, {name} build"
    logs = os.path.join(ROOT, folder, "meson-logs")
    for log in ("testlog.json", "testlog.junit.xml"):
        if os.path.exists(os.path.join(logs, log)):
            os.unlink(os.path.join(logs, log))
    good, output = run(["/usr/bin/meson", "test", "-C", folder, "--no-rebuild", "--print-errorlogs",
                        "-t", str(limit_s / UNIT_LIMIT_S)], limit_s, env)
    passed = failed = 0
    skipped = []
    failing_programs = set()
    if os.path.exists(os.path.join(logs, "testlog.junit.xml")):
        for suite in ElementTree.parse(os.path.join(logs, "testlog.junit.xml")).getroot().iter("testsuite"):
            for case in suite.findall("testcase"):
                if case.find("failure") is not None or case.find("error") is not None:
                    failed += 1
                    failing_programs.add(suite.get("name", "").split(".")[-1])
                elif case.find("skipped") is not None:
                    skipped.append(f"{what}: {suite.get('name')} {case.get('name')}")
                else:
                    passed += 1
    if os.path.exists(os.path.join(logs, "testlog.json")):
        with open(os.path.join(logs, "testlog.json"), encoding="utf-8", errors="replace") as file:
            for line in file:
                test = json.loads(line)  # a program that crashed has no failing subtest to its name
                if test["result"] not in ("OK", "SKIP", "EXPECTEDFAIL") and not failed:
                    failed += 1
                    failing_programs.add(test["name"])
    if passed + failed == 0 or (not good and failed == 0):
        failed += 1
    if failed:
        print(tail(output, 150))
    tally.many(what, passed, failed, skipped)


def mounts_below(folder):
    with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as file:
        points = [line.split()[4].replace("\\040", " ") for line in file]
    return [point for point in points if point.startswith(folder + "/")]


def unmount_below(folder):
    """Takes away what a killed test run left mounted."""
    for point in reversed(mounts_below(folder)):
        for command in (["fusermount3", "-u", "-z", point], ["umount", "-l", point]):
            if point in mounts_below(folder):
                subprocess.run(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)


class MountTests:
    """One run of tests/mount, or of some files of it, against one build and one engine; several run side by side."""

    def __init__(self, name, env, files=("tests/mount",), engine="local", what=""):
        self.what = f"mount tests, {name} build" + (f", {what or engine}" if what or engine != "local" else "")
        self.limit_s = SERVERS_LIMIT_S if engine != "local" or what else MOUNT_LIMIT_S
        self.folder = os.path.join(ROOT, BUILDS[name][0])
        runs = "-".join(filter(None, ["mount-tests", engine if engine != "local" else "", what]))
        self.junit = os.path.join(self.folder, runs + ".xml")
        self.base = os.path.join(self.folder, runs)
        unmount_below(self.base)
        if os.path.exists(self.junit):
            os.unlink(self.junit)
        self.out = tempfile.TemporaryFile()
        command = [PYTHON, "-m", "pytest", "-p", "no:cacheprovider", "-q", "--durations=8", "--basetemp", self.base,
                   "--junitxml", self.junit, *files]
        environment = {**os.environ, **env, "NARADFS_ENGINE": engine, "NARADFS": os.path.join(self.folder, "mount", "naradfs"),
                       "PYTHONDONTWRITEBYTECODE": "1"}
        self.process = subprocess.Popen(command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=self.out,
                                        stderr=subprocess.STDOUT, start_new_session=True)

    def finish(self, tally, limit_s=None):
        good, output = finish(self.process, self.out, limit_s or self.limit_s)
        unmount_below(self.base)
        what = self.what
        passed = failed = 0
        skipped = []
        if os.path.exists(self.junit):
            for case in ElementTree.parse(self.junit).getroot().iter("testcase"):
                if case.find("failure") is not None or case.find("error") is not None:
                    failed += 1
                elif case.find("skipped") is not None:
                    why = case.find("skipped").get("message", "")
                    skipped.append(f"{what}: {case.get('name')}: {why}")
                else:
                    passed += 1
        if passed + failed == 0 or (not good and failed == 0):
            failed += 1
        print(tail(output, 400 if failed else 12))
        tally.many(what, passed, failed, skipped)


class Fuzzing:
    """Every fuzz target for a minute, beside the tests through the mount, which mostly wait: what is built and run here takes
    the time that nobody else wants (SCHED_IDLE). scripts/fuzz runs longer ones."""

    def __init__(self):
        self.out = tempfile.TemporaryFile()
        command = ["chrt", "--idle", "0", "scripts/fuzz", "--seconds", str(FUZZ_SECONDS), "--jobs", str(FUZZ_JOBS),
                   "--at-least", str(FUZZ_LEAST)]
        self.process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=self.out,
                                        stderr=subprocess.STDOUT, start_new_session=True)

    def finish(self, tally):
        good, output = finish(self.process, self.out, FUZZ_LIMIT_S)
        print(tail(output, 30))
        tally.one(f"fuzz targets, {FUZZ_SECONDS} s each", good, output)


def run_script(tally):
    """scripts/run, twice, over folders of its own."""
    folder = os.path.join(ROOT, BUILD, "run-script")
    unmount_below(folder)
    data, mnt = os.path.join(folder, "data"), os.path.join(folder, "mnt")
    for times in ("once", "again"):
        good, output = run(["scripts/run", data, mnt], 200)
        tally.one(f"scripts/run, {times}", good and "hello from" in output, output)
    good, output = run(["fusermount3", "-u", mnt], 30)
    tally.one("unmount after scripts/run", good, output)
    unmount_below(folder)


def sweeps(tally, long):
    """The slice of the sweeps; and, with --long, that five mutations of the engine would be noticed by it."""
    good, output = run([os.path.join(BUILD, "tests", "sim", "sweep"), "--slice"], SWEEP_LIMIT_S)
    tally.one("sweeps: " + tail(output, 1), good, output)
    if long:
        tally.one("mutants", *run(["scripts/mutants", "--few"], SWEEP_LIMIT_S))


def soak(tally):
    """A slice of scripts/soak: a few rounds of each part."""
    if os.getuid() != 0 or not os.path.exists("/dev/loop-control"):
        tally.say("note", "scripts/soak takes root and loop devices; its slice is left out")
        return
    folder = os.path.join(ROOT, BUILD, "soak")
    unmount_below(folder)
    daemon = os.path.join(ROOT, BUILD, "mount", "naradfs")
    good, output = run(["scripts/soak", "--quick", "--dir", folder], 300, {"NARADFS": daemon})
    tally.one("scripts/soak, a slice", good and " parts passed, 0 failed" in output, output)
    unmount_below(folder)


def package(tally):
    """The Debian package: built, installed, used, removed. In CI alone: on a machine of somebody's nothing is installed."""
    how = ["--install"] if os.getuid() == 0 else []
    tally.one("Debian package", *run(["scripts/package", *how], env={"DEB_BUILD_OPTIONS": "nocheck"}))


def threads(tally, long):
    """Many processes at once, and, with --long, races and lock orders; for longer: scripts/stress, scripts/tsan."""
    if long:
        tally.one("data races and lock orders (scripts/tsan --quick)", *run(["scripts/tsan", "--quick"], THREADS_LIMIT_S))
    folder = os.path.join(ROOT, BUILD, "stress")
    tally.one("64 processes at once (scripts/stress, 10 s)",
              *run(["scripts/stress", "--seconds", "10", "--folder", folder, "--daemon",
                    os.path.join(ROOT, BUILD, "mount", "naradfs")]))
    unmount_below(folder)


def tell(tally):
    for line in tally.skipped:
        print("skipped:", line)
    print(f"took {time.monotonic() - tally.start:.0f} s")
    print(f"{tally.passed} passed, {tally.failed} failed", flush=True)
    return 1 if tally.failed else 0


def other_engine(tally):
    """The tests of JetStream alone, and beside them those that run on both engines."""
    if build(tally, "gcc"):
        files = sorted(glob.glob(os.path.join(ROOT, "tests", "mount", OF_SERVERS)))
        for tests in [MountTests("gcc", {}, files, what="its-own"), MountTests("gcc", {}, engine="jetstream")]:
            tests.finish(tally)
    return tell(tally)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="one build, its unit tests and its mount tests")
    parser.add_argument("--long", action="store_true",
                        help="also what takes builds of its own: fuzzing (in CI always), ThreadSanitizer, mutants")
    parser.add_argument("--engine", choices=["jetstream"],
                        help="only the tests through a mount that this engine has: its own, and those that run on both")
    options = parser.parse_args()
    tally = Tally()
    if options.engine:
        return other_engine(tally)

    tally.one("floors: the checker's self-test", *run(["scripts/check-floors", "--self-test"]))
    tally.one("floors", *run(["scripts/check-floors"]))
    tally.one("format", *run(["scripts/check-format"]))
    tally.one("conformance", *run(["scripts/check-conformance"]))
    tally.one("mutants can be made", *run(["scripts/mutants", "--check"]))
    good, output = run(["scripts/deps", "promtool", "build/tools"], 120)
    if not good:
        tally.say("note", "promtool could not be fetched; the tests that need it are skipped: ", tail(output, 2))
    names = ["gcc"] if options.quick else ["gcc", "clang", "sanitizers"]
    built = [name for name in names if build(tally, name)]
    tested = [name for name in built if name != "clang"]
    envs = {name: sanitizer_env(tally) if name == "sanitizers" else {} for name in tested}
    for name in tested:
        unit_tests(tally, name, envs[name])
    if "gcc" in built:
        sweeps(tally, options.long)
    # Three servers and their elections take minutes: with --long.
    short = () if options.long else (f"--ignore-glob=*/{OF_SERVERS}",)
    beside = [MountTests(name, envs[name], ("tests/mount", *short)) for name in tested]
    if options.long and "gcc" in tested:
        beside.append(MountTests("gcc", {}, engine="jetstream"))
    if (options.long or os.environ.get("CI")) and not options.quick:
        beside.append(Fuzzing())
    for tests in beside:
        tests.finish(tally)
    if "gcc" in built and not options.quick:
        run_script(tally)
        threads(tally, options.long)
        soak(tally)
        if os.environ.get("CI"):
            package(tally)

    return tell(tally) or (0 if tested else 1)


if __name__ == "__main__":
    sys.exit(main())
