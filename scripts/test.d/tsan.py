"""Everything that scripts/tsan does; see there. How glib is made visible stands in tests/tsan/glib_calls.c."""

import argparse
import os
import re
import subprocess
import sys
import tempfile

from suite import BUILDS, ROOT, MountTests, Tally, build, run, unit_tests

NAME = "threads"
FOLDER = os.path.join(ROOT, BUILDS[NAME][0])
QUICK = ["test_loop.py", "test_traffic.py", "test_waiting.py", "test_topic_produce.py"]
UNIT_LIMIT_S = 4500
MOUNT_LIMIT_S = 5400
# case of tests/tsan/probe.c -> what is reported; None: nothing
PROBES = {
    "bare": "data race",
    "mutex-removed": "data race",
    "two-mutexes": "data race",
    "pthread-mutex-removed": "data race",
    "table-unlocked": "data race",
    "pushed-and-kept": "data race",
    "lock-order": "lock-order-inversion",
    "right": None,
}
# functions of glib that order threads, or wait for them
SYNCHRONISES = re.compile(r"g_(mutex|rec_mutex|rw_lock|cond|async_queue|thread_pool|once|static_\w*|bit_lock|pointer_bit\w*|"
                          r"atomic_rc_box|rc_box|ref_string|main_context|main_loop|private)_\w+$")
SEEN_OTHERWISE = {
    "g_cond_init", "g_cond_clear", "g_cond_signal", "g_cond_broadcast",  # what they order, the mutex orders
    "g_async_queue_new", "g_async_queue_unref", "g_thread_pool_stop_unused_threads",
}


def environment(suppress=True):
    options = ["exitcode=66", "halt_on_error=0", "second_deadlock_stack=1", "io_sync=0"]
    if suppress:
        options.append(f"suppressions={ROOT}/tests/tsan/suppressions")
    return {"TSAN_OPTIONS": ":".join(options), "G_SLICE": "always-malloc"}


def probe(tally):
    """The set-up finds what is wrong, and calls nothing wrong that is right."""
    for case, report in PROBES.items():
        good, output = run([os.path.join(FOLDER, "tests", "tsan", "tsan_probe"), case], 60, environment())
        if report:
            right = not good and f"ThreadSanitizer: {report}" in output
        else:
            right = good and "ThreadSanitizer" not in output
        tally.one(f"probe {case}: {report or 'nothing'} reported", right, output)


def unseen(folder):
    """What the project calls of glib's synchronisation that nobody tells ThreadSanitizer of."""
    with open(os.path.join(ROOT, "tests", "tsan", "meson.build"), encoding="utf-8") as file:
        told = set(re.findall(r"'(g_\w+)'", file.read()))
    objects = [os.path.join(path, name) for path, _, names in os.walk(folder) for name in names
               if name.endswith(".o") and "glib_calls" not in name]
    symbols = subprocess.run(["nm", "-u", "--no-sort", *objects], stdout=subprocess.PIPE, check=True).stdout.decode()
    called = {line.split()[-1] for line in symbols.splitlines() if line.startswith(" ")}
    return len(objects), sorted(name for name in called if SYNCHRONISES.match(name) and name not in told | SEEN_OTHERWISE)


def all_seen(tally):
    n_objects, missing = unseen(FOLDER)
    tally.one(f"all synchronisation of {n_objects} objects is seen", n_objects > 100 and not missing,
              "tests/tsan/glib_calls.c says nothing about: " + " ".join(missing))


def unseen_is_found(tally):
    """That check on an object that uses what is not told."""
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "other.c"), "w", encoding="utf-8") as file:
            file.write("void g_rw_lock_reader_lock(void *);\nvoid f(void)\n{\n    g_rw_lock_reader_lock(0);\n}\n")
        good, output = run(["clang", "-c", os.path.join(folder, "other.c"), "-o", os.path.join(folder, "other.o")])
        good = good and unseen(folder)[1] == ["g_rw_lock_reader_lock"]
    tally.one("a lock that is not seen would be noticed", good, output)


def main():
    parser = argparse.ArgumentParser(prog="scripts/tsan")
    parser.add_argument("--quick", action="store_true", help="all unit tests, some tests through the mount")
    parser.add_argument("files", nargs="*", help="only these test files of tests/mount, after the probes")
    options = parser.parse_args()
    tally = Tally()
    if build(tally, NAME):
        probe(tally)
        unseen_is_found(tally)
        all_seen(tally)
        if not options.files:
            unit_tests(tally, NAME, environment(), UNIT_LIMIT_S)
        files = options.files or ([f"tests/mount/{name}" for name in QUICK] if options.quick else ["tests/mount"])
        MountTests(NAME, environment(), files).finish(tally, MOUNT_LIMIT_S)
    for line in tally.skipped:
        print("skipped:", line)
    print(f"{tally.passed} passed, {tally.failed} failed", flush=True)
    return 1 if tally.failed else 0


if __name__ == "__main__":
    sys.exit(main())
