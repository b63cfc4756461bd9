"""Fixtures: a mount of its own for each test, always taken down, and a limit on every test's time."""

import os
import signal
import sys
import threading

import pytest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from disk import MIB, Disk, start_on  # noqa: E402
from support import NARADFS, SANITIZED, Mount  # noqa: E402

DEFAULT_LIMIT_S = 60


def pytest_configure(config):
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # of a shell's background job; what tests start would inherit it
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.addinivalue_line("markers", "limit(seconds): how long this test may take")
    if not os.path.exists(NARADFS):
        raise pytest.UsageError(f"{NARADFS} is missing: build it, or set NARADFS to the daemon to test")


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
    if SANITIZED:
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


@pytest.fixture
def mounts(request, tmp_path, limit):
    """Makes mounts below the test's folder; takes them down at the end and reports how that went."""
    made = []

    def make(name="m", options="", start=True):
        mount = Mount(tmp_path / name, options)
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
