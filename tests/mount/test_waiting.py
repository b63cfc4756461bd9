"""Programs that wait for records with poll, select and epoll, level- and edge-triggered, alone and side by side: none
sleeps while there is something for it, and none gets what another one has."""

import errno
import json
import os
import select
import selectors
import signal
import subprocess
import time

import pytest
from support import HERE, Background, Consumer, fails, name_of, number, produce, wait_for, write_file
from test_framings import parse

WAYS = ["poll", "select", "epoll", "edge"]
FILES = ["consume", "consume.jsonl", "consume.bin"]
# numbers of system calls, as /proc/PID/syscall has them: read; poll, ppoll, epoll_wait, epoll_pwait
WAITING = {"x86_64": {"read": ["0"], "poll": ["7", "271", "232", "281"]},
           "aarch64": {"read": ["63"], "poll": ["73", "22"]}}[os.uname().machine]


@pytest.fixture(scope="session")
def waiter(tmp_path_factory):
    program = tmp_path_factory.mktemp("waiter") / "waiter"
    subprocess.run(["gcc", "-Wall", "-Werror", "-O1", "-o", program, os.path.join(HERE, "waiter.c")], check=True)
    return program


class Waiter:
    def __init__(self, program, how, path, out, settle=False):
        self.out = out
        with open(out, "wb") as stdout, open(f"{out}.err", "wb") as stderr:
            self.process = subprocess.Popen([program, how, path] + ["settle"] * settle, stdin=subprocess.DEVNULL,
                                            stdout=stdout, stderr=stderr)
        wait_for(lambda: "ready" in self.errors(), "the reader")

    def errors(self):
        with open(f"{self.out}.err", encoding="utf-8") as file:
            return file.read()

    def records(self, name):
        """Payloads of what it has read so far."""
        assert self.process.poll() is None, self.errors()
        with open(self.out, "rb") as file:
            data = file.read()
        if name == "consume.bin":
            return [record["payload"] for record in parse(data[:whole(data)])]
        rows = data[:data.rfind(b"\n") + 1].splitlines()
        return rows if name == "consume" else [str(json.loads(row)["payload"]).encode() for row in rows]

    def kill(self):
        self.process.kill()
        self.process.wait(30)


def whole(data):
    """Where the last complete record of consume.bin ends."""
    pos = 0
    while pos + 4 <= len(data):
        size = int.from_bytes(data[pos:pos + 4], "big")
        if pos + 4 + size > len(data):
            break
        pos += 4 + size
    return pos


@pytest.mark.limit(120)
@pytest.mark.parametrize("where", ["partition", "topic"])
@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("how", WAYS)
def test_two_readers_wait(m, tmp_path, waiter, how, name, where):
    """After each burst everything is read before the next one comes: a lost wake-up leaves something unread."""
    m.make("t", partitions=2, max_in_flight=100000)
    folder = m.part("t") if where == "partition" else m.topic("t")
    parts = [m.part("t")] if where == "partition" else [m.part("t", n) for n in range(2)]
    readers = [Waiter(waiter, how, f"{folder}/{name}", str(tmp_path / f"out{n}"), name == "consume") for n in range(2)]
    sent = []

    def seen():
        return sorted(record for reader in readers for record in reader.records(name))

    for burst in (1, 1, 2, 1, 7, 1, 40, 1, 1, 3):
        for n in range(burst):
            sent.append(b"r%05d" % len(sent))
            produce(parts[len(sent) % len(parts)], sent[-1])
        wait_for(lambda: len(seen()) >= len(sent), f"{len(sent)} records")
        assert seen() == sent
    if name == "consume":
        wait_for(lambda: sum(number(part, "lag") for part in parts) == 0, "the last settling")
    for reader in readers:
        reader.kill()


@pytest.mark.parametrize("how", WAYS)
def test_what_comes_back_wakes(m, tmp_path, waiter, how):
    """A nack, a close, an expiry: each makes a record readable again without a commit."""
    part = m.make("t", visibility_timeout_ms=60000)
    produce(part, "one")
    holder = Consumer(part)
    assert holder.read() == b"one\n"
    reader = Waiter(waiter, how, part + "/consume.jsonl", str(tmp_path / "out"))
    assert reader.records("consume.jsonl") == []
    holder.write(b"nack\n")
    wait_for(lambda: reader.records("consume.jsonl") == [b"one"], "the nacked record")
    reader.kill()
    holder.close()
    produce(part, "two")
    holder = Consumer(part)
    assert holder.read() == b"two\n"
    reader = Waiter(waiter, how, part + "/consume.jsonl", str(tmp_path / "out2"))
    holder.close()
    wait_for(lambda: reader.records("consume.jsonl") == [b"two"], "the record of the closed file")
    reader.kill()
    short = m.make("short", visibility_timeout_ms=200)
    produce(short, "three")
    with Consumer(short) as holder:
        assert holder.read() == b"three\n"
        reader = Waiter(waiter, how, short + "/consume.jsonl", str(tmp_path / "out3"))
        wait_for(lambda: b"three" in reader.records("consume.jsonl"), "the record of the lapsed lease")
    reader.kill()


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("end", ["delete", "stop", "kill"])
def test_the_end_of_a_topic_and_of_the_daemon_wakes(m, tmp_path, waiter, how, end):
    part = m.make("t")
    reader = Waiter(waiter, how, part + "/consume", str(tmp_path / "out"))
    if end == "delete":
        ident = os.getxattr(m.topic("t"), "user.narad.incarnation").decode()
        write_file(m.topic("t") + "/ctl", f"delete {ident}\n".encode())
    elif end == "stop":
        m.stop()
    else:
        m.kill()
    assert reader.process.wait(30) == 1  # it was told, and its next call failed
    assert any(text in reader.errors() for text in ("Identifier removed", "No such device", "not connected",
                                                    "connection abort")), reader.errors()


# -- Python's own


@pytest.mark.parametrize("kind", ["SelectSelector", "PollSelector", "EpollSelector"])
def test_selectors_of_python(m, kind):
    """One loop over three topics' files and a pipe."""
    parts = [m.make(name) for name in ("a", "b", "c")]
    selector = getattr(selectors, kind)()
    files = {}
    for part, name in zip(parts, FILES):
        consumer = Consumer(part, name)
        files[consumer.fd] = consumer
        selector.register(consumer.fd, selectors.EVENT_READ, part)
    back, front = os.pipe()
    selector.register(back, selectors.EVENT_READ, "pipe")
    assert selector.select(0) == []
    for turn in range(5):
        for part in parts:
            produce(part, f"x{turn}")
        seen = set()
        while len(seen) < 3:
            for key, events in selector.select():
                assert events == selectors.EVENT_READ
                try:
                    assert b"x%d" % turn in files[key.fd].read()
                except BlockingIOError:
                    continue
                seen.add(key.data)
        assert selector.select(0) == []
    os.write(front, b"x")
    assert [key.data for key, _ in selector.select()] == ["pipe"]
    for consumer in files.values():
        consumer.close()
    selector.close()
    os.close(back)
    os.close(front)


def test_writers_are_always_ready(m):
    part = m.make("t")
    for path in (part + "/produce", m.topic("t") + "/produce", part + "/ack", m.topic("t") + "/ctl"):
        fd = os.open(path, os.O_WRONLY)
        poll = select.poll()
        poll.register(fd, select.POLLOUT)
        assert poll.poll(0) == [(fd, select.POLLOUT)], path
        os.close(fd)


def test_one_shot_and_rearmed(m):
    part = m.make("t")
    with Consumer(part) as consumer:
        epoll = select.epoll()
        epoll.register(consumer.fd, select.EPOLLIN | select.EPOLLONESHOT)
        for n in range(4):
            produce(part, n)
            assert epoll.poll(20) == [(consumer.fd, select.EPOLLIN)]
            assert epoll.poll(0) == []  # not armed
            assert consumer.read() == b"%d\n" % n
            epoll.modify(consumer.fd, select.EPOLLIN | select.EPOLLONESHOT)
        assert epoll.poll(0) == []
        epoll.close()


def test_a_poll_after_a_poll_that_ran_out(m):
    """An expired poll leaves nothing behind that hinders the next."""
    part = m.make("t")
    with Consumer(part) as consumer:
        poll = select.poll()
        poll.register(consumer.fd, select.POLLIN)
        for n in range(20):
            assert poll.poll(1) == []
        waiting = Background(poll.poll, 20000)
        produce(part, "x")
        assert waiting.join() == [(consumer.fd, select.POLLIN)]


# -- O_NONBLOCK and the time limits


@pytest.mark.parametrize("where", ["partition", "topic"])
@pytest.mark.parametrize("name", FILES)
def test_nonblocking_reads(m, name, where):
    m.make("t")
    folder = m.part("t") if where == "partition" else m.topic("t")
    with Consumer(folder, name, os.O_RDONLY | os.O_NONBLOCK) as consumer:
        for size in (1, 100, 1 << 20):
            assert fails(os.read, consumer.fd, size) == errno.EAGAIN
        produce(m.part("t"), "x")
        assert b"x" in consumer.read()
        assert fails(os.read, consumer.fd, 100) == errno.EAGAIN
        os.set_blocking(consumer.fd, True)  # the flag counts at each read
        waiting = Background(os.read, consumer.fd, 1000)
        produce(m.part("t"), "y")
        assert b"y" in waiting.join()
        os.set_blocking(consumer.fd, False)
        assert fails(os.read, consumer.fd, 100) == errno.EAGAIN


def read_now(consumer):
    try:
        return consumer.read()
    except BlockingIOError:
        return b""


@pytest.mark.parametrize("where", ["partition", "topic"])
@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("wait_ms", [0, 50])
def test_bounded_waits(m, name, where, wait_ms):
    """The end of file when the time is over; a record that is there comes first; the next read waits again."""
    m.make("t", consume_wait_ms=wait_ms)
    folder = m.part("t") if where == "partition" else m.topic("t")
    with Consumer(folder, name, os.O_RDONLY) as consumer:
        for _ in range(5):
            start = time.monotonic()
            assert consumer.read() == b""
            assert time.monotonic() - start >= wait_ms / 1000  # never less than was asked for
        produce(m.part("t"), "x")
        assert b"x" in consumer.read()
        assert consumer.read() == b""
    with Consumer(folder, name, os.O_RDONLY | os.O_NONBLOCK) as consumer:
        if name == "consume":
            assert b"x" in wait_for(lambda: read_now(consumer), "what the close gives back, a moment after it")
        assert fails(os.read, consumer.fd, 100) == errno.EAGAIN


@pytest.mark.parametrize("name", FILES)
def test_an_endless_wait_ends_with_its_setting(m, name):
    """consume_wait_ms counts from when a read begins; the reads under way keep theirs and are woken by a record."""
    part = m.make("t", consume_wait_ms=-1)
    with Consumer(part, name, os.O_RDONLY) as consumer:
        waiting = Background(consumer.read)
        with Consumer(part, name) as other:
            assert other.none()
        assert waiting.running()
        produce(part, "x")
        assert b"x" in waiting.join()
    write_file(m.topic("t") + "/config", b"consume_wait_ms=0\n")
    with Consumer(part, name, os.O_RDONLY) as consumer:
        assert (consumer.read() == b"") == (name != "consume")  # which has given it back
        assert consumer.read() == b""


# -- readers that are interrupted


SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGKILL]


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("number_", SIGNALS)
def test_a_blocked_reader_ends_with_its_signal(m, name, number_):
    part = m.make("t")
    for folder in (part, m.topic("t")):
        process = subprocess.Popen(["cat", f"{folder}/{name}"], stdout=subprocess.PIPE)
        wait_for(lambda: blocked(process.pid), "the reader to block")
        process.send_signal(number_)
        assert process.wait(20) == -number_
        process.stdout.close()
    produce(part, "x")  # nothing of it is left that would take this
    with Consumer(part, name) as consumer:
        assert b"x" in consumer.read()


def blocked(pid):
    """Whether it sleeps in a read of the file system."""
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        state = file.read().rsplit(")", 1)[1].split()[0]
    with open(f"/proc/{pid}/syscall", encoding="utf-8") as file:
        return state == "S" and file.read().split()[0] in WAITING["read"]


# -- the daemon stops


def reader_of(folder, name):
    with Consumer(folder, name, os.O_RDONLY) as consumer:
        return consumer.read()


def poller_of(folder, name):
    with Consumer(folder, name) as consumer:
        poll = select.poll()
        poll.register(consumer.fd, select.POLLIN)
        (_, events), = poll.poll()
        return events, fails(os.read, consumer.fd, 100)


def epoller_of(folder, name):
    with Consumer(folder, name) as consumer:
        epoll = select.epoll()
        epoll.register(consumer.fd, select.EPOLLIN | select.EPOLLET)
        (_, events), = epoll.poll()
        return events, fails(os.read, consumer.fd, 100)


GONE = (errno.ENODEV, errno.ENOTCONN, errno.ECONNABORTED)


@pytest.mark.parametrize("number_", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_wakes_readers_of_every_kind(m, number_):
    part = m.make("t", partitions=2)
    folders = [part, m.topic("t")]
    blocked_ = [Background(reader_of, folder, name) for folder in folders for name in FILES]
    polled = [Background(call, folder, name) for folder in folders for name in FILES
              for call in (poller_of, epoller_of)]
    wait_for(lambda: in_kernel(*blocked_, *polled), "all of them to wait")
    start = time.monotonic()
    m.process.send_signal(number_)
    assert m.wait_exit(20) == 0
    took_s = time.monotonic() - start
    m.gone()
    for waiting in blocked_:
        waiting.join()
        assert waiting.error and waiting.error.errno in GONE, (waiting.arguments, waiting.error, waiting.value)
    for waiting in polled:
        events, error = waiting.join()
        assert events & (select.POLLERR | select.POLLHUP), (waiting.arguments, events)
        assert error in GONE, name_of(error)
    assert took_s < 10, took_s


@pytest.mark.skipif(os.getuid() != 0, reason="only root may force an unmount")
def test_a_forced_umount_ends_the_wait(m):
    part = m.make("t")
    produce(part, "x")
    holder = Consumer(part)
    assert holder.read() == b"x\n"
    reads = [Background(reader_of, part, name) for name in FILES]
    polls = [Background(poller_of, part, name) for name in FILES]
    wait_for(lambda: in_kernel(*reads, *polls), "all of them to wait")
    subprocess.run(["umount", "-f", m.mnt], check=False, stderr=subprocess.DEVNULL)  # busy, and cut off all the same
    assert m.wait_exit(20) == 0
    m.gone()
    for waiting in reads:
        waiting.join()
        assert waiting.error and waiting.error.errno in GONE, (waiting.error, waiting.value)
    for waiting in polls:
        events, error = waiting.join()
        assert events & (select.POLLERR | select.POLLHUP) and error in GONE, name_of(error)
    holder.close()
    subprocess.run(["umount", "-l", m.mnt], check=False, stderr=subprocess.DEVNULL)
    m.start()
    with Consumer(part) as consumer:
        assert consumer.read() == b"x\n"


def in_kernel(*calls):
    """Whether the threads of all these calls sleep in read, poll or epoll_wait."""
    for call in calls:
        try:
            with open(f"/proc/self/task/{call.thread.native_id}/syscall", encoding="utf-8") as file:
                if file.read().split()[0] not in WAITING["read"] + WAITING["poll"]:
                    return False
        except OSError:
            return False
    return True
