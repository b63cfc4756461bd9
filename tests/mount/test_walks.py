"""Programs that walk over everything: a tree in which a lot is going on is read without hanging, without a record being
leased or settled, and without a complaint but about what is really damaged."""

import errno
import os
import pty
import re
import select
import shutil
import signal
import time

import pytest
import seglog
from support import (XATTRS, Consumer, Failed, configure, fails, log, number, produce, read_file, shell, take, wait_for,
                     write_file, xattr)
from test_faults import Inject, active_segment, need_strace

LOST = {3, 4}  # offsets of t/p00000


def hurt(m):
    """Changes a byte of the frame that holds LOST, with the daemon stopped."""
    path = f"{m.data_part('t')}/{0:020d}.log"
    data = bytearray(read_file(path))
    (frame,) = [frame for frame in seglog.frames(bytes(data)) if frame.base == min(LOST)]
    data[frame.pos + 40] ^= 1
    write_file(path, bytes(data))


class Busy:
    """A mount with fan-out, a delayed child, leases of each kind, a poisoned partition and a damaged frame."""

    def __init__(self, m):
        self.m = m
        m.make("t", partitions=2, linger_ms=60000, visibility_timeout_ms=43200000)
        m.make("copies")
        m.make("later", fanout_delay_ms=3600000)
        m.make("poisoned", linger_ms=60000)
        for child in ("copies", "later"):
            os.mkdir(f"{m.topic('t')}/children/{child}")
        for first in (0, 3, 5):
            produce(m.part("t"), *[f"record {n}" for n in range(first, {0: 3, 3: 5, 5: 40}[first])])
        produce(m.part("t", 1), *range(20))
        wait_for(lambda: number(m.part("copies"), "hwm") == 60, "the copies")
        m.stop()
        hurt(m)
        m.start()
        produce(m.part("poisoned"), "fine")
        fault = Inject(m, active_segment(m, "poisoned"), "fdatasync,fsync", "error=EIO")
        try:
            assert fails(produce, m.part("poisoned"), "refused") == errno.EIO
        finally:
            fault.stop()
        self.holders = [Consumer(m.part("t", 1)), Consumer(m.topic("copies"))]
        assert all(holder.read() for holder in self.holders)
        assert len(take(m.part("copies"), 5)) == 5
        self.parts = [m.part("t"), m.part("t", 1), m.part("copies"), m.part("later"), m.part("poisoned")]

    def numbers(self):
        """All that a walk could change."""
        found = {(part, name): xattr(part, name) for part in self.parts for name in XATTRS}
        for topic in ("t", "copies", "later", "poisoned"):
            found[topic] = read_file(self.m.topic(topic) + "/config")
        return found

    def close(self):
        for holder in self.holders:
            holder.close()


@pytest.fixture
def busy(m):
    need_strace()
    tree = Busy(m)
    yield tree
    tree.close()


def complaints(command, cwd, codes=(0,)):
    """Lines on standard error."""
    done = shell(command, cwd=cwd, check=False, limit_s=150)
    if done.returncode not in codes:
        raise Failed(f"{command}: {done.returncode} {done.stderr.decode()[-2000:]}")
    return [line for line in done.stderr.decode(errors="replace").splitlines() if line.strip()]


WALKS = {
    "ls": "ls -lRa {mnt} > /dev/null",
    "find": "find {mnt} -ls > /dev/null",
    "du": "du -a --apparent-size {mnt} > /dev/null; du -s {mnt}",
    "df": "df {mnt} {mnt}/topics/t/p00000/log",
    "grep": "grep -rI 'record 17' {mnt}/topics > /dev/null",
    "tar": "tar -C {mnt} -cf {out}/all.tar .",
    "cp": "cp -a {mnt}/topics {out}/",
    "rsync": "rsync -a {mnt}/ {out}/",
    "getfattr": "getfattr --absolute-names -R -d {mnt} > /dev/null",
    "borg": "borg init -e none {out}/repo && borg create --exclude-caches {out}/repo::one {mnt}/topics",
    "restic": "restic -q init -r {out}/repo && restic -q backup -r {out}/repo {mnt}/topics",
}


@pytest.mark.limit(300)
@pytest.mark.parametrize("tool", WALKS)
def test_walk(busy, tool, tmp_path, monkeypatch):
    if not shutil.which(tool):
        pytest.skip(f"{tool} is not installed")
    for name, value in (("BORG_BASE_DIR", str(tmp_path)), ("RESTIC_PASSWORD", "x"), ("XDG_CACHE_HOME", str(tmp_path))):
        monkeypatch.setenv(name, value)
    log(busy.m.part("t"))  # the damage is known from here on
    before = busy.numbers()
    out = tmp_path / "out"
    out.mkdir()
    assert complaints(WALKS[tool].format(mnt=busy.m.mnt, out=out), cwd=tmp_path) == []
    assert busy.numbers() == before
    if tool in ("cp", "rsync"):
        copy = f"{out}/topics/t/p00000"
        assert set(map(int, os.listdir(copy + "/records"))) == set(range(40)) - LOST
        assert read_file(copy + "/log") == log(busy.m.part("t"))
        assert os.readlink(copy + "/consume") == ".streams/consume"
        # rsync leaves the time of a folder that it has made within the same second
        assert abs(os.stat(copy).st_mtime - os.stat(busy.m.part("t")).st_mtime) < 1


@pytest.mark.local("the data directory")
@pytest.mark.limit(120)
def test_damage_that_nobody_has_met_is_reported_by_its_names(m, tmp_path):
    """By the first walk, and no more by the next one."""
    m.make("t", linger_ms=60000)
    for first in (0, 3, 5):
        produce(m.part("t"), *[f"record {n}" for n in range(first, {0: 3, 3: 5, 5: 40}[first])])
    m.stop()
    hurt(m)
    m.start()
    names = {f"records/{offset}" for offset in LOST}
    first = complaints(f"cp -a {m.part('t')} {tmp_path}/first", cwd=tmp_path, codes=(0, 1))
    for line in first:
        assert any(re.search(name + r"\b", line) for name in names), line
        assert os.strerror(errno.EBADMSG) in line
    assert complaints(f"cp -a {m.part('t')} {tmp_path}/second", cwd=tmp_path) == []
    assert set(map(int, os.listdir(f"{tmp_path}/second/records"))) == set(range(40)) - LOST


def test_times_are_those_of_the_last_commit(m):
    """What backup programs go by. The kernel remembers a folder's for a second; reading and consuming move nothing."""
    part = m.make("t")
    produce(part, "a")
    for name in ("b", "c"):
        time.sleep(0.01)  # a later millisecond
        produce(part, name)
        newest = number(part + f"/records/{number(part, 'hwm') - 1}", "timestamp")
        for path in (part + "/log", part + "/log.jsonl", part + "/from/start"):
            assert os.stat(path).st_mtime_ns // 1000000 == newest, path
        wait_for(lambda at=newest: os.stat(part).st_mtime_ns // 1000000 == at, "the folder's time")
    before = os.stat(part).st_mtime_ns
    log(part)
    assert len(take(part, 2)) == 2
    configure(m.topic("t"), linger_ms=7)
    assert os.stat(part).st_mtime_ns == before
    m.restart()
    assert os.stat(part).st_mtime_ns == before


# -- a file manager


class Screen:
    """The other end of a terminal."""

    def __init__(self, terminal):
        self.terminal = terminal
        self.shown = b""

    def more(self, limit_s):
        """Whether something came; None: the terminal has been closed."""
        if not select.select([self.terminal], [], [], limit_s)[0]:
            return False
        try:
            self.shown += os.read(self.terminal, 65536)
        except OSError:  # EIO: nobody has it open any more
            return None
        return True

    def see(self, word):
        while word not in self.shown:
            if not self.more(60):
                raise Failed(f"there is no {word}: {self.shown[-2000:]}")
        self.shown = b""

    def type(self, keys):
        os.write(self.terminal, keys)

    def ended(self):
        """Reads on, so that nobody waits for us."""
        return self.more(0.05) is None


@pytest.mark.limit(120)
@pytest.mark.skipif(not shutil.which("mc"), reason="mc is not installed")
def test_a_file_manager(busy, tmp_path):
    """Through a partition's folders and into its log, with the keys that a person presses."""
    log(busy.m.part("t"))
    before = busy.numbers()
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ.update(HOME=str(tmp_path), TERM="xterm")
        os.execlp("mc", "mc", "-u", "-d", busy.m.part("t"), busy.m.part("t") + "/records")
    screen = Screen(terminal)
    try:
        screen.see(b"log.jsonl")
        screen.type(b"\x13log.jsonl")  # ^S: looks the name up
        screen.type(b"\x1b3")          # F3: shows the file
        screen.see(b'"offset":0')
        screen.type(b"\x1b0")          # F10: back
        screen.see(b"log.jsonl")
        screen.type(b"\x1b0")          # F10: ends
        wait_for(lambda: screen.ended() and os.waitpid(pid, os.WNOHANG)[0], "mc to end", 60)
        pid = 0
    finally:
        if pid:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        os.close(terminal)
    assert busy.numbers() == before
