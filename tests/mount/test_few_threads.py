"""A user whom the system gives few threads (RLIMIT_NPROC; TasksMax= of a unit does the same): a start refuses with a
sentence, or serves and ends in time.

The limit counts all that the user runs, and root is exempt: so the daemon runs as a user whom nobody else is, in a
namespace of its own, where /dev/fuse is open to him and fusermount3 finds his name.
"""

import glob
import os
import shutil
import signal
import subprocess

import pytest

from support import JETSTREAM, SANITIZED, Mount, produce, read_file, take, wait_for

LEAST = 11  # docs/operations.md and the refusal say so
WELL = 30  # those, and a few for requests
STOP_S = 2  # the contract's, of an idle system

ENTER = """
set -e
data=$1
user=$2
limit=$3
shift 3
mount -t tmpfs -o mode=755 tmpfs /mnt
cd /mnt
mkdir data m
mount --bind "$data" data
chown "$user:$user" data m
echo user_allow_other > fuse.conf
cp /etc/passwd passwd
echo "few:x:$user:$user::/:/bin/sh" >> passwd
mknod -m 666 fuse c 10 229
mount --bind fuse.conf /etc/fuse.conf
mount --bind passwd /etc/passwd
mount --bind fuse /dev/fuse
exec setpriv --reuid "$user" --regid "$user" --clear-groups prlimit --nproc="$limit:$limit" "$@"
"""


def users():
    """Of all processes."""
    found = set()
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            found.add(os.stat("/proc/" + name).st_uid)
        except OSError:
            pass
    return found


class FewThreads(Mount):
    """Of a user with a limit. It is seen through the daemon's own root, since the mount is in its namespace."""

    def __init__(self, base, user, limit, options="allow_other"):
        super().__init__(base, options)
        self.user = user
        self.limit = limit

    def command(self, foreground=True):
        return ["unshare", "--mount", "--propagation", "private", "sh", "-c", ENTER, "sh", self.data,
                str(self.user), str(self.limit), self.binary, "/mnt/data", "/mnt/m", "-f", "-o", self.options]

    def serves(self):
        """True when it is mounted, False when it has refused."""
        self.spawn()
        self.mnt = f"/proc/{self.process.pid}/root/mnt/m"
        wait_for(lambda: self.process.poll() is not None or self.answers(), "the mount or a refusal")
        if self.process.poll() is None:
            return True
        self.gone()
        return False

    def end(self):
        """By a signal, in time."""
        self.process.send_signal(signal.SIGTERM)
        code = self.wait_exit(STOP_S)
        self.gone()
        assert code == 0, self.stderr()


def another_user():
    """Whom nobody else is."""
    if os.geteuid() != 0:
        pytest.skip("needs another user")
    if SANITIZED:
        pytest.skip("a sanitizer has threads of its own")
    done = subprocess.run(["unshare", "--mount", "--propagation", "private", "mount", "-t", "tmpfs", "tmpfs", "/mnt"],
                          check=False, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
    if done.returncode != 0:
        pytest.skip("needs a mount namespace: " + done.stderr.decode(errors="replace"))
    taken = users()
    return next(number for number in range(100000 + os.getpid() % 10000 * 10, 1 << 30) if number not in taken)


@pytest.fixture
def user():
    if JETSTREAM:
        pytest.skip("the local engine's threads")
    return another_user()


@pytest.fixture
def few(tmp_path, user):
    made = []

    def make(limit, options="allow_other"):
        made.append(FewThreads(tmp_path / f"{len(made)}", user, limit, options))
        return made[-1]

    yield make
    for mount in made:
        if mount.process and mount.process.poll() is None:
            mount.process.kill()
            mount.process.wait(30)
            mount.gone()


def test_each_number_of_threads(few):
    """A start refuses with a sentence that says what to do, or the records come and go and the end is in time."""
    least = None
    for limit in range(1, WELL + 1):
        m = few(limit)
        if not m.serves():
            assert least is None, f"with {limit} threads it refuses, with {least} it did not: {m.stderr()}"
            assert m.process.returncode == 1, m.stderr()
            assert "error: " in m.stderr() and "RLIMIT_NPROC" in m.stderr() and "TasksMax" in m.stderr(), m.stderr()
            assert f"takes {LEAST}," in m.stderr(), m.stderr()
            continue
        least = least or limit
        part = m.make("t")
        produce(part, b"one")
        assert [record["payload"] for record in take(part)] == ["one"]
        assert read_file(part + "/log.jsonl").count(b"\n") == 1
        m.end()
    assert least == LEAST


def holds(part, *records):
    return lambda: read_file(part + "/log") == b"".join(record + b"\n" for record in records)


def test_what_is_acknowledged_moves_on(few):
    """With no thread beyond those of the start, and without another record to come: from a topic to its partition, and to a
    child."""
    m = few(LEAST)
    assert m.serves()
    part, copies = m.make("t"), m.make("c")
    os.mkdir(m.topic("t") + "/children/c")
    produce(m.topic("t"), b"one")
    wait_for(holds(part, b"one"), "the dispatcher")
    wait_for(holds(copies, b"one"), "the fan-out")
    m.end()


def test_a_refused_start_moves_nothing(few):
    """The last thread that it takes is missing. What an earlier run has left waits for one that serves."""
    m = few(WELL)
    assert m.serves()
    m.make("t")
    m.end()
    mark = f"{m.data}/topics/t/p00000/hwm"
    if os.path.exists(mark):
        os.unlink(mark)
    os.mkdir(mark)  # it cannot be opened
    assert m.serves()
    produce(m.topic("t"), b"left over")
    m.process.kill()
    m.process.wait(30)
    m.gone()
    shutil.rmtree(mark)
    m.limit = LEAST - 1
    assert not m.serves() and f"takes {LEAST}," in m.stderr(), m.stderr()
    for path in glob.glob(f"{m.data}/topics/t/p00000/*.log"):
        with open(path, "rb") as segment:
            assert b"left over" not in segment.read(), path
    m.limit = WELL
    assert m.serves()
    wait_for(holds(m.part("t"), b"left over"), "the dispatcher")
    m.end()
