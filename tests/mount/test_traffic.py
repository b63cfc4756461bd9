"""Everything at once: what only shows when requests meet in the middle."""

import errno
import json
import os
import random
import resource
import select
import subprocess
import threading
import time

import pytest
from support import JETSTREAM, Background, fails, log, number, produce, write_file

# What a client may be told while topics come and go under it.
EXPECTED = {errno.ENOENT, errno.EIDRM, errno.ESTALE, errno.EAGAIN, errno.EBUSY, errno.EEXIST, errno.EINVAL,
            errno.ENODEV, errno.ENODATA, errno.ENOTEMPTY}
SEGMENTS = b"" if JETSTREAM else b"segment_bytes=65536\n"
VERBS = [b"seek start\n", b"seek end\n", b"reopen\n"] + ([] if JETSTREAM else [b"roll\n", b"trim 10\n"])


def client(seconds, seed, action):
    """Repeats the action in a process of its own; its exit status tells whether it met an unexpected error."""
    pid = os.fork()
    if pid:
        return pid
    status = 0
    try:
        random.seed(seed)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                action()
            except OSError as error:
                if error.errno not in EXPECTED:
                    os.write(2, f"{action.__name__}: {error}\n".encode())
                    status = 1
                time.sleep(0.01)
    except BaseException as error:  # pylint: disable=broad-except
        os.write(2, f"{action.__name__}: {error!r}\n".encode())
        status = 2
    os._exit(status)


class Opened:
    def __init__(self, path, flags):
        self.fd = os.open(path, flags)

    def __enter__(self):
        return self.fd

    def __exit__(self, *exception):
        os.close(self.fd)


def actions(topics):
    def topic():
        return f"{topics}/t{random.randrange(2)}"

    def make():
        for i in range(2):
            if not os.path.isdir(f"{topics}/t{i}"):
                os.mkdir(f"{topics}/t{i}")
                write_file(f"{topics}/t{i}/config",
                           b"visibility_timeout_ms=300\nconsume_wait_ms=200\npartitions=2\n" + SEGMENTS)
        time.sleep(0.05)

    def delete():
        time.sleep(random.random() * 0.5)
        path = topic()
        id_ = os.getxattr(path, "user.narad.incarnation")
        write_file(path + "/ctl", b"delete " + id_ + b"\n")

    def write():
        with Opened(topic() + "/p00000/produce", os.O_RDWR | os.O_APPEND) as fd:
            for _ in range(20):
                os.write(fd, b"hello %d\n" % random.randrange(10**6) * random.choice([1, 5, 1200]))
                if random.random() < 0.7:
                    os.fsync(fd)
                os.read(fd, 4096)

    def consume():
        with Opened(topic() + "/p00000/consume", os.O_RDWR) as fd:
            for _ in range(30):
                poll = select.poll()
                poll.register(fd, select.POLLIN)
                poll.poll(100)
                os.read(fd, random.choice([3, 100, 4096]))
                chance = random.random()
                if chance < 0.3:
                    os.fsync(fd)
                elif chance < 0.5:
                    os.write(fd, b"nack\n" if chance < 0.4 else b"extend\n")

    def consume_jsonl():
        path = topic() + "/p00000/"
        with Opened(path + "consume.jsonl", os.O_RDONLY) as fd, Opened(path + "ack", os.O_WRONLY) as ack:
            for _ in range(30):
                line = os.read(fd, 65536)
                if line.endswith(b"\n"):
                    os.write(ack, json.loads(line)["handle"].encode() + b"\n")
            os.fsync(ack)

    def read_along():
        path = topic()
        with Opened(path + "/p00000/drain", os.O_RDONLY) as fd:
            for _ in range(5):
                os.read(fd, 8192)
        with Opened(path + "/p00000/log", os.O_RDONLY) as fd:
            os.lseek(fd, max(0, os.fstat(fd).st_size - 100), os.SEEK_SET)
            os.read(fd, 10000)

    def administer():
        path = topic()
        os.listdir(path)
        os.getxattr(path + "/p00000", "user.narad.hwm")
        write_file(path + "/p00000/ctl", random.choice(VERBS))
        os.chmod(path + "/p00000/produce", random.choice([0o644, 0o666]))
        os.setxattr(path, "user.narad.linger_ms", str(random.randrange(5, 50)).encode())

    return [make, delete, write, write, write, consume, consume, consume_jsonl, consume_jsonl, read_along, administer]


@pytest.mark.limit(60)
def test_topics_come_and_go_under_traffic(m):
    pids = [client(6, n, action) for n, action in enumerate(actions(m.mnt + "/topics"))]
    ended = {pid: os.waitpid(pid, 0)[1] for pid in pids[:2]}  # who makes topics and deletes them
    for topic in os.listdir(m.mnt + "/topics"):  # who has begun to read before the topic was set to end that waits for ever
        write_file(f"{m.topic(topic)}/ctl", b"delete " + os.getxattr(m.topic(topic), "user.narad.incarnation") + b"\n")
    ended |= {pid: os.waitpid(pid, 0)[1] for pid in pids[2:]}
    assert [os.waitstatus_to_exitcode(status) for status in ended.values()] == [0] * len(pids)
    assert m.process.poll() is None, m.stderr()
    part = m.make("after")
    produce(part, "still here")
    assert log(part) == b"still here\n"
    m.stop()


@pytest.mark.limit(60)
def test_fsync_beside_a_close_of_the_same_node(m):
    part = m.make("t")

    def once():
        first = os.open(part + "/produce", os.O_WRONLY | os.O_APPEND)
        second = os.open(f"/proc/self/fd/{first}", os.O_WRONLY | os.O_APPEND)
        os.write(second, b"x\n")
        thread = threading.Thread(target=os.fsync, args=(second,))
        thread.start()
        os.close(first)
        thread.join()
        os.close(second)

    pids = [client(4, n, once) for n in range(3)]
    assert [os.waitpid(pid, 0)[1] for pid in pids] == [0, 0, 0]
    assert m.process.poll() is None, m.stderr()
    assert set(log(part).split(b"\n")) == {b"x", b""}


@pytest.mark.local("segments")
def test_verbs_beside_a_delete_return(m):
    for n in range(5):
        part = m.make(f"t{n}")
        produce(part, "x")

        def roll(path=part):
            try:
                while True:
                    write_file(path + "/ctl", b"roll\n")
            except OSError as error:
                return error.errno

        rolls = [Background(roll) for _ in range(4)]
        time.sleep(0.02)
        id_ = os.getxattr(m.topic(f"t{n}"), "user.narad.incarnation")
        write_file(m.topic(f"t{n}") + "/ctl", b"delete " + id_ + b"\n")
        assert {one.join(20) for one in rolls} <= {errno.EIDRM, errno.ENOENT, errno.ESTALE}


@pytest.mark.local("a disk that fails")
def test_a_file_size_limit_is_an_error_of_the_write(m):
    part = m.make("t", linger_ms=60000)
    produce(part, "a")
    fd = os.open(part + "/produce", os.O_WRONLY)
    os.write(fd, b"b\n")
    _, hard = resource.prlimit(m.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(m.process.pid, resource.RLIMIT_FSIZE, (number(part, "size_bytes"), hard))
    try:
        assert fails(os.fsync, fd) == errno.EFBIG
        # whoever syncs the file answers for all that is held on it
        assert subprocess.run(["sync", part + "/produce"], stderr=subprocess.DEVNULL, check=False).returncode != 0
        assert number(part, "poisoned") == 0
        assert log(part) == b"a\n"
    finally:
        resource.prlimit(m.process.pid, resource.RLIMIT_FSIZE, (hard, hard))
    os.fsync(fd)
    os.close(fd)
    assert log(part) == b"a\nb\n"
