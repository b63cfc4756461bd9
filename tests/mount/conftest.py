"""Fixtures: a mount of its own for each test, always taken down, and a limit on every test's time.

With NARADFS_ENGINE=jetstream the mounts are of the other engine, over one cluster of servers for the whole run, each in an
account of its own. Of the files in BOTH, what is marked local is skipped then: docs/scale-out.md has each of the reasons. The
rest is about the local engine, or about no engine at all, and is left out."""

import os
import signal
import sys
import threading

import pytest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from disk import MIB, Disk, start_on  # noqa: E402
from nats import Accounts, TwinMount, why_not  # noqa: E402
from support import JETSTREAM, NARADFS, SANITIZED, Mount  # noqa: E402

DEFAULT_LIMIT_S = 60
# Files of tests about what both engines do.
BOTH = [f"test_{name}.py" for name in (
    "produce framings consume settle topic_produce topic_consume waiting browse tree contract permissions bad_input log_jsonl "
    "walks clients refusals status traffic calls loop main_job").split()]
DISKS = "a disk that fails"  # why a test that makes one of its own, or makes one fail, is for the local engine


def pytest_configure(config):
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # of a shell's background job; what tests start would inherit it
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.addinivalue_line("markers", "limit(seconds): how long this test may take")
    config.addinivalue_line("markers", "local(reason): about what only the local engine has; a row of docs/scale-out.md")
    if not os.path.exists(NARADFS):
        raise pytest.UsageError(f"{NARADFS} is missing: build it, or set NARADFS to the daemon to test")
    if JETSTREAM and why_not():
        raise pytest.UsageError(f"NARADFS_ENGINE=jetstream: {why_not()}")


def why_local(item):
    marker = item.get_closest_marker("local")
    return marker.args[0] if marker else DISKS if {"disks", "busy"} & set(item.fixturenames) else None


def pytest_collection_modifyitems(config, items):
    if not JETSTREAM:
        return
    kept = [item for item in items if item.path.name in BOTH and "mounts" in item.fixturenames]
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = kept
    for item in kept:
        if why_local(item):
            item.add_marker(pytest.mark.skip(reason="local: " + why_local(item)))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    if call.when == "call":
        item.test_passed = outcome.get_result().passed


@pytest.fixture(autouse=True)
def limit(request):
    """Ends a test that hangs: SIGALRM for the test, and, should it be stuck in a system call on a hanging mount,
    SIGKILL for its daemons, which makes such a call return."""
    marker = request.node.get_closest_marker("limit")
    seconds = marker.args[0] if marker else DEFAULT_LIMIT_S
    if SANITIZED or JETSTREAM:
        seconds *= 2

    def on_alarm(signum, frame):
        raise TimeoutError(f"the test took more than {seconds} s")

    def on_stuck():
        for mount in list(Mount.live):
            mount.process.kill()

    signal.signal(signal.SIGALRM, on_alarm)
    signal.alarm(seconds)
    watchdog = threading.Timer(seconds + 20, on_stuck)
    watchdog.daemon = True
    watchdog.start()
    yield
    signal.alarm(0)
    watchdog.cancel()


@pytest.fixture(scope="session")
def accounts(tmp_path_factory):
    """Of the servers for all mounts of the run."""
    made = Accounts(tmp_path_factory.mktemp("nats")) if JETSTREAM else None
    yield made
    if made:
        made.end()


@pytest.fixture
def places(accounts):
    """Makes mounts; those at one place have the same records."""
    taken = {}

    def make(base, options):
        if not accounts:
            return Mount(base, options)
        if base not in taken:
            taken[base] = accounts.take()
        return TwinMount(base, accounts, taken[base], options)

    yield make
    for account in taken.values():
        accounts.give_back(account)


@pytest.fixture
def mounts(request, tmp_path, limit, places):
    """Makes mounts below the test's folder; takes them down at the end and reports how that went."""
    made = []

    def make(name="m", options="", start=True):
        mount = places(tmp_path / name, options)
        made.append(mount)
        return mount.start() if start else mount

    yield make
    wrong = [error for error in [mount.destroy() for mount in reversed(made)] if error]
    if getattr(request.node, "test_passed", False) and not wrong:
        for mount in made:
            mount.discard()
    if wrong:
        raise wrong[0]


@pytest.fixture
def m(mounts):
    """One running mount with default options."""
    return mounts()


@pytest.fixture
def disks(tmp_path):
    """Makes small disks below the test's folder and takes them away at the end, after the mounts on them."""
    made = []

    def make(size, kind="ext4"):
        made.append(Disk(tmp_path, size, kind))
        return made[-1]

    yield make
    for disk in made:
        disk.destroy()


@pytest.fixture
def small_disk(disks):
    return disks(24 * MIB)


@pytest.fixture
def on_small_disk(small_disk, mounts):
    return start_on(small_disk, mounts)
