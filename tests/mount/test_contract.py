"""The contract of the mounted tree at its edges: what is listed, to the last name; every number at both ends of its range
and one beyond; what a deleted topic does to every file that was open; what is said in the log."""

import bisect
import errno
import fcntl
import itertools
import mmap
import os
import re
import select
import signal
import stat
import subprocess
import time

import pytest
import seglog
from support import (DURABILITY, JETSTREAM, PYTHON, XATTRS, Background, Consumer, ack, configure, drain, fails,
                     in_order, lines, log, metric, number, open_fails, produce, read_file, shell, take, wait_for,
                     write_all, write_file, xattr)
from test_browse import keyed_frame, segment_replaced
from test_faults import Inject, active_segment, need_strace
from test_framings import binary, obj, parse
from test_waiting import blocked, in_kernel

MIB = 1 << 20
PRODUCE = ["produce", "produce.jsonl", "produce.bin"]
STREAMS = ["consume", "consume.jsonl", "consume.bin", "drain"]
FILES = STREAMS[:3]
PLACES = ["partition", "topic"]


def place(m, name, where):
    return m.part(name) if where == "partition" else m.topic(name)


def delete(m, name):
    write_file(m.topic(name) + "/ctl", f"delete {xattr(m.topic(name), 'incarnation')}\n".encode())


def told(m, *words):
    """Lines of the log that have all these words."""
    return [line for line in m.stderr().splitlines() if all(word in line for word in words)]


# -- the tree


def family(m):
    """A parent p of two partitions with one record, and its child c."""
    m.make("p", partitions=2)
    m.make("c")
    os.mkdir(m.topic("p") + "/children/c")
    produce(m.part("p"), "x")
    wait_for(lambda: number(m.part("c"), "hwm") == 1, "the copy")


@pytest.mark.local("fan-out")
def test_every_name_of_the_tree(m):
    family(m)
    common = {"ctl", "status", "ack", *PRODUCE, *STREAMS}
    expected = {
        "": {"HELP", "status", "metrics", "topics"},
        "topics": {"p", "c"},
        "topics/p": common | {"config", "children", "p00000", "p00001"},
        "topics/p/children": {"c"},
        "topics/p/children/c": {"status"},
        "topics/p/p00000": common | {"log", "log.jsonl", "from", "records", "by-time", "segments"},
        "topics/p/p00000/from": {"start", "end"},
        "topics/p/p00000/records": {"0"},
        "topics/p/p00000/by-time": set(),
        "topics/p/p00000/segments": {"0" * 20 + ".log"},
    }
    for path, names in expected.items():
        assert set(os.listdir(f"{m.mnt}/{path}")) == names, path
    for folder in (m.topic("p"), m.part("p")):
        for name in os.listdir(folder):
            mode = os.lstat(f"{folder}/{name}").st_mode
            assert stat.S_ISLNK(mode) == (name in STREAMS), name
            if stat.S_ISLNK(mode):
                assert os.readlink(f"{folder}/{name}") == ".streams/" + name
        assert {name for name in STREAMS if os.path.isfile(f"{folder}/.streams/{name}")} == set(STREAMS)
        assert os.listdir(folder + "/.streams") == []


def test_partitions_have_five_digits(m):
    count = 64 if JETSTREAM else 1024
    m.make("t", partitions=count)
    folders = sorted(name for name in os.listdir(m.topic("t")) if re.fullmatch("p[0-9]+", name))
    assert folders == [f"p{n:05d}" for n in range(count)]
    assert fails(os.stat, m.part("t", count)) == errno.ENOENT
    produce(m.part("t", count - 1), "last")
    assert log(m.part("t", count - 1)) == b"last\n"


def walk(m, top):
    for folder, _, names in os.walk(top):
        for name in names:
            if not os.path.islink(f"{folder}/{name}"):
                yield f"{folder}/{name}"
        for name in STREAMS:
            if os.path.exists(f"{folder}/.streams/{name}"):
                yield f"{folder}/.streams/{name}"


@pytest.mark.local("fan-out")
def test_what_can_be_written_to_and_nothing_else(m):
    """Every file that there is, by walking; the mode says it, and so does the log."""
    family(m)
    writable = {"config", "ctl", "ack", "consume", *PRODUCE}
    seen = set()
    for path in walk(m, m.mnt):
        name = os.path.basename(path)
        seen.add(name)
        assert bool(os.stat(path).st_mode & 0o222) == (name in writable), path
        for flags in (os.O_WRONLY, os.O_RDWR, os.O_WRONLY | os.O_APPEND, os.O_RDONLY | os.O_TRUNC):
            if name in writable:
                os.close(os.open(path, flags | os.O_NONBLOCK))
            else:
                before = len(told(m, "can only be read"))
                assert open_fails(path, flags) == errno.EPERM, (path, flags)
                assert len(told(m, "can only be read")) == before + 1, (path, flags)
    assert seen >= writable | {"HELP", "status", "metrics", "log", "log.jsonl", "drain", "consume.jsonl", "start", "0"}
    assert log(m.part("p")) == b"x\n"


def test_reading_what_is_for_writing(m):
    part = m.make("t")
    produce(part, "x")
    verbs = {part: {"reopen", "roll", "trim", "seek"}, m.topic("t"): {"delete", "partitions"}}
    for folder, names in verbs.items():
        for name in [*PRODUCE, *(f"{name}@w" for name in PRODUCE), "ack"]:
            assert read_file(f"{folder}/{name}") == b"", name
            assert os.stat(f"{folder}/{name}").st_size == 0
        assert {line.split()[0] for line in read_file(folder + "/ctl").decode().splitlines()} == names
        assert os.stat(folder + "/ctl").st_size == len(read_file(folder + "/ctl"))


@pytest.mark.parametrize("where", PLACES)
def test_truncation_of_every_file_that_takes_writes(m, where):
    m.make("t")
    folder = place(m, "t", where)
    produce(m.part("t"), "x")
    before = read_file(m.topic("t") + "/config")
    for name in [*PRODUCE, *(f"{name}@w" for name in PRODUCE), "ack", "ctl"]:
        for size in (0, 1, 1 << 40):
            os.truncate(f"{folder}/{name}", size)
        os.close(os.open(f"{folder}/{name}", os.O_WRONLY | os.O_TRUNC))
    for name in ("drain", "consume.jsonl", "consume.bin", "status"):
        assert fails(os.truncate, f"{folder}/{name}", 0) == errno.EPERM, name
    assert read_file(m.topic("t") + "/config") == before
    assert log(m.part("t")) == b"x\n" and number(m.part("t"), "in_flight") == 0


# -- deleting


@pytest.mark.parametrize("path", ["config", "ctl", "status", "produce", "produce.bin@w", ".streams/consume", "ack",
                                  "p00000/ctl", "p00000/status", "p00000/produce", "p00000/.streams/drain", "p00000/ack",
                                  "p00000/log", "p00000/log.jsonl", "p00000/from/end",
                                  pytest.param("children/c/status", marks=pytest.mark.local("fan-out"))])
def test_rmdir_under_every_kind_of_handle(m, path):
    m.make("t")
    m.make("c")
    if not JETSTREAM:
        os.mkdir(m.topic("t") + "/children/c")
    fd = os.open(f"{m.topic('t')}/{path}", os.O_RDONLY | os.O_NONBLOCK)
    assert fails(os.rmdir, m.topic("t")) == errno.EBUSY
    assert len(told(m, "topic=t", "open")) == 1  # the reason
    os.close(fd)
    os.rmdir(m.topic("t"))
    assert os.listdir(m.mnt + "/topics") == ["c"]


@pytest.mark.local("segments")
def test_rmdir_of_a_topic_that_retains_nothing(m):
    """Records that were consumed are retained; those that were trimmed are not."""
    part = m.make("t")
    produce(part, *range(10))
    assert drain(part) == lines(*range(10))
    for expected in (1, 2):
        assert fails(os.rmdir, m.topic("t")) == errno.ENOTEMPTY
        assert len(told(m, "topic=t", f"delete {xattr(part, 'incarnation')}")) == expected  # what to do instead
    write_file(part + "/ctl", b"roll\ntrim 9\n")
    assert fails(os.rmdir, m.topic("t")) == errno.ENOTEMPTY
    write_file(part + "/ctl", b"trim 10\n")
    assert number(part, "oldest_offset") == number(part, "hwm") == 10
    os.rmdir(m.topic("t"))
    assert os.listdir(m.mnt + "/topics") == []


def test_every_file_of_a_deleted_topic(m):
    """Whatever was open: read, write and fsync say that it is gone, poll too, and a new topic of the name is another."""
    part = m.make("t", partitions=2, linger_ms=60000)
    m.make("c")
    if not JETSTREAM:
        os.mkdir(m.topic("t") + "/children/c")
    produce(part, *range(4))
    paths = [path for path in walk(m, m.topic("t")) if "/children/" not in path]
    paths += [f"{folder}/{name}@w" for folder in (part, m.topic("t")) for name in PRODUCE]
    paths += [f"{part}/from/2", f"{part}/records/3"]
    fds = {}
    for path in paths:
        writable = os.stat(path).st_mode & 0o222
        fds[path] = os.open(path, (os.O_RDWR if writable else os.O_RDONLY) | os.O_NONBLOCK)
    delete(m, "t")
    new = m.make("t", linger_ms=0)
    produce(new, "new")
    for path, fd in fds.items():
        name = path[len(m.mnt):]
        assert fails(os.read, fd, 100) == errno.EIDRM, name
        assert fails(os.fsync, fd) == errno.EIDRM, name
        assert fails(os.fdatasync, fd) == errno.EIDRM, name
        if fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_RDWR:
            assert fails(os.write, fd, b"old\n") == errno.EIDRM, name
        poll = select.poll()
        poll.register(fd, select.POLLIN | select.POLLOUT)
        ((_, events),) = poll.poll(0)
        assert events & select.POLLERR and events & select.POLLHUP, name
        try:
            os.close(fd)
        except OSError as error:
            assert error.errno == errno.EIDRM, name
    assert log(new) == drain(new) == b"new\n"
    assert "linger_ms=0\n" in read_file(m.topic("t") + "/config").decode()


# -- ctl


def test_verbs_are_taken_one_a_line(m):
    part = m.make("t")
    produce(part, *range(10))
    assert write_file(part + "/ctl", b"seek 3\nseek 4\n") == 14
    assert number(part, "frontier") == 4
    assert write_file(part + "/ctl", b"seek 5\nseek 11\nseek 6\n") == 7  # up to the one that failed
    assert number(part, "frontier") == 5
    assert fails(write_file, part + "/ctl", b"seek 7\nfrob\n") == errno.EINVAL  # malformed: nothing is done
    assert number(part, "frontier") == 5
    assert write_file(part + "/ctl", b"seek 8") == 6  # without its newline
    assert number(part, "frontier") == 8


@pytest.mark.local("segments")
def test_trim_at_its_edges(m):
    part = m.make("t")
    for start in (0, 5):
        produce(part, *range(start, start + 5))
        write_file(part + "/ctl", b"roll\n")
    produce(part, 10)
    for offset, oldest in ((0, 0), (4, 0), (5, 5), (9, 5), (10, 10), (11, 10)):
        write_file(part + "/ctl", b"trim %d\n" % offset)
        assert (number(part, "oldest_offset"), number(part, "hwm")) == (oldest, 11), offset
    assert fails(write_file, part + "/ctl", b"trim 12\n") == errno.EINVAL
    assert log(part) == b"10\n"


@pytest.mark.local("segments")
def test_seek_at_its_edges(m):
    part = m.make("t")
    produce(part, *range(5))
    write_file(part + "/ctl", b"roll\n")
    produce(part, *range(5, 10))
    for offset in (0, 9, 10):
        write_file(part + "/ctl", b"seek %d\n" % offset)
        assert number(part, "frontier") == offset
        assert drain(part) == lines(*range(offset, 10))
    for bad in (b"11", b"9223372036854775807", b"9223372036854775808", b"18446744073709551615"):
        assert fails(write_file, part + "/ctl", b"seek " + bad + b"\n") == errno.EINVAL, bad
    write_file(part + "/ctl", b"trim 5\nseek start\n")
    assert drain(part) == lines(*range(5, 10))
    write_file(part + "/ctl", b"seek 2\n")  # deleted: the oldest that is there is next
    assert drain(part) == lines(*range(5, 10))
    assert number(part, "lag") == 0


REFUSED = [("t/p00000/ctl", verb) for verb in ("frob", "reopen now", "roll 1", "trim", "trim x", "seek", "seek x", "seek 2",
                                               "")]
REFUSED += [pytest.param("t/p00000/ctl", "trim 2", marks=pytest.mark.local("segments"))]
REFUSED += [("t/ctl", verb) for verb in ("frob", "delete", "delete 0123456789abcdef", "partitions", "partitions 0",
                                         "partitions 1", "partitions 1025", "seek start", "")]
REFUSED += [("t/config", text) for text in ("frob=1", "linger_ms", "linger_ms=60001", "partitions=1025")]


@pytest.mark.parametrize("path,text", REFUSED)
def test_refused_lines_say_why(m, path, text):
    part = m.make("t")
    produce(part, "a")
    assert fails(write_file, f"{m.mnt}/topics/{path}", text.encode() + b"\n") == errno.EINVAL
    said = told(m, "refused", "topic=t")
    assert len(said) == 1, m.stderr()
    assert ("partition=00000" in said[0]) == ("p00000" in path)
    assert re.search(r"refused: .{10}", said[0]), said


# -- config

YEAR_MS = 365 * 86400000
RANGES = {
    "partitions": ([1, 1024], [0, -1, 1025]),
    "retention_ms": ([0, 1000, 9223372036854775807], [1, 999, -1]),
    "retention_bytes": ([0, 64 * MIB, 9223372036854775807], [1, 64 * MIB - 1, -1]),
    "segment_bytes": ([65536, 1 << 30], [0, 65535, (1 << 30) + 1]),
    "codec": (["none", "zstd"], ["", "gzip", "ZSTD", "0", "1"]),
    "zstd_level": ([1, 19], [0, 20, -1]),
    "linger_ms": ([0, 60000], [-1, 60001]),
    "visibility_timeout_ms": ([100, 43200000], [99, 0, 43200001]),
    "max_in_flight": ([1, 1000000], [0, 1000001]),
    "max_acked_ahead": ([1, 4096], [0, 4097]),
    "consume_wait_ms": ([-1, 0, 86400000], [-2, 86400001]),
    "max_record_bytes": ([MIB, 64 * MIB], [0, MIB - 1, 64 * MIB + 1]),
    "fanout_delay_ms": ([0, YEAR_MS], [-1, YEAR_MS + 1]),
}


def test_there_are_no_other_settings(m):
    m.make("t")
    shown = [line.split("=")[0] for line in read_file(m.topic("t") + "/config").decode().splitlines()]
    assert sorted(shown) == sorted(RANGES)
    assert sorted(os.listxattr(m.topic("t"))) == sorted("user.narad." + name for name in [*RANGES, "incarnation"])


LOCAL = {
    "partitions": pytest.mark.local("many partitions"),
    "max_record_bytes": pytest.mark.local("the longest records"),
    "segment_bytes": pytest.mark.local("segments"),
    "codec": pytest.mark.local("segments"),
    "zstd_level": pytest.mark.local("segments"),
    "max_acked_ahead": pytest.mark.local("max_acked_ahead"),
    "fanout_delay_ms": pytest.mark.local("fan-out"),
}


@pytest.mark.parametrize("key", [pytest.param(key, marks=LOCAL.get(key, ())) for key in RANGES])
def test_ranges_of_settings(m, key):
    """Both ends and one beyond, as a line and as an attribute; what is in force is shown by both, also after a restart."""
    m.make("t")
    topic = m.topic("t")
    good, bad = RANGES[key]

    def in_force():
        shown = dict(line.split("=", 1) for line in read_file(topic + "/config").decode().splitlines())
        assert shown[key] == xattr(topic, key)
        return shown[key]

    def by_line(value):
        write_file(topic + "/config", f"{key}={value}\n".encode())

    def by_attribute(value):
        os.setxattr(topic, "user.narad." + key, str(value).encode())

    for value in good:
        for change in (by_line, by_attribute):
            change(value)
            assert in_force() == str(value)
        for wrong in bad:
            for change in (by_line, by_attribute):
                assert fails(change, wrong) == errno.EINVAL, (change.__name__, wrong)
        assert in_force() == str(value)
    m.restart()
    assert in_force() == str(good[-1])


@pytest.mark.local("segments")
def test_retention_and_size_of_segments_go_together(m):
    m.make("t")
    configure(m.topic("t"), retention_bytes=64 * MIB)
    assert fails(write_file, m.topic("t") + "/config", b"segment_bytes=%d\n" % (64 * MIB + 1)) == errno.EINVAL
    configure(m.topic("t"), segment_bytes=65536, retention_bytes=65536)  # in one write, whatever their order
    assert fails(write_file, m.topic("t") + "/config", b"retention_bytes=65535\n") == errno.EINVAL
    assert (xattr(m.topic("t"), "segment_bytes"), xattr(m.topic("t"), "retention_bytes")) == ("65536", "65536")


@pytest.mark.local("the longest records")
def test_the_longest_record_there_can_be(m):
    """64 MiB, in by each framing and out by each; one byte more is refused whole."""
    part = m.make("t", max_record_bytes=64 * MIB, linger_ms=60000)
    payload = os.urandom(MIB).translate(bytes(range(10)) + b"x" + bytes(range(11, 256))) * 64
    end = {"produce": b"\n", "produce.bin": b""}
    for n, name in enumerate(end):
        fd = os.open(f"{part}/{name}", os.O_WRONLY)
        write_all(fd, (b"" if name == "produce" else binary(payload)[:8]) + payload + end[name])
        os.fsync(fd)
        os.close(fd)
        assert read_file(f"{part}/records/{n}") == payload
    for name in end:
        fd = os.open(f"{part}/{name}", os.O_WRONLY)
        long = (b"" if name == "produce" else binary(payload + b"x")[:8]) + payload + b"x" + end[name]
        assert fails(write_all, fd, long) == errno.EMSGSIZE
        os.close(fd)
    assert number(part, "hwm") == 2
    with Consumer(part) as consumer:
        data = b""
        while len(data) < len(payload) + 1:
            data += consumer.read(4 * MIB)
        assert data == payload + b"\n"
        consumer.sync()
    (record,) = parse(b"".join(pieces(part, "consume.bin", len(payload) + 36)))
    assert record["payload"] == payload


def pieces(part, name, total):
    with Consumer(part, name) as consumer:
        while total > 0:
            yield (piece := consumer.read(4 * MIB))
            total -= len(piece)


def take_all(part):
    """Records of consume.bin that are deliverable now; their leases stay."""
    records = []
    with Consumer(part, "consume.bin") as consumer:
        while True:
            try:
                records += parse(consumer.read())
            except BlockingIOError:
                return records


@pytest.mark.local("max_acked_ahead")
@pytest.mark.limit(120)
@pytest.mark.parametrize("cap,step", [(1, 2), (4096, 2), (4096, 7)])
def test_the_largest_set_of_what_is_acked_ahead(m, cap, step):
    """As many offsets as there may be: all remembered over a kill, one more refused."""
    count = cap * step + 2
    part = m.make("t", max_acked_ahead=cap, max_in_flight=1000000, visibility_timeout_ms=43200000)
    produce(part, *([b""] * count))
    receipts = [record["handle"] for record in take_all(part)]
    assert len(receipts) == count
    ahead = range(step, count, step)
    for start in range(0, cap, 1000):
        ack(part, *[receipts[offset] for offset in ahead[start:start + 1000]])
    assert (number(part, "acked_ahead"), number(part, "frontier")) == (cap, 0)
    assert fails(ack, part, receipts[count - 1]) == errno.EAGAIN
    fd = os.open(part + "/ack", os.O_WRONLY)
    os.fsync(fd)
    os.close(fd)
    m.crash()
    assert (number(part, "acked_ahead"), number(part, "frontier"), number(part, "lag")) == (cap, 0, count - cap)
    for offset in range(step):  # of a full set only the record that holds it back is served
        (blocking,) = take_all(part)
        assert blocking["offset"] == offset
        ack(part, blocking["handle"])
    assert (number(part, "acked_ahead"), number(part, "frontier")) == (cap - 1, step + 1)
    assert [record["offset"] for record in take_all(part)] == [n for n in range(step + 1, count) if n % step != 0]


@pytest.mark.local("max_acked_ahead")
def test_a_set_of_what_is_acked_ahead_that_is_spread_far(m):
    """It has to fit 4 KiB on the disk: full before its number is reached, and nothing of what was taken is forgotten."""
    step, cap = 200, 2600
    part = m.make("t", max_acked_ahead=4096, max_in_flight=1000000, visibility_timeout_ms=43200000)
    produce(part, *([b""] * (cap * step + 1)))
    receipts = [record["handle"] for record in take_all(part)]
    taken = 0
    with open(part + "/ack", "wb", buffering=0) as file:
        try:
            for taken in range(cap):
                os.write(file.fileno(), receipts[(taken + 1) * step].encode() + b"\n")
        except BlockingIOError:
            pass
        os.fsync(file.fileno())
    assert 2000 < taken < cap
    assert number(part, "acked_ahead") == taken
    m.crash()
    assert (number(part, "acked_ahead"), number(part, "frontier")) == (taken, 0)
    assert number(part, "lag") == cap * step + 1 - taken
    served = [record["offset"] for record in take_all(part)]
    assert served[0] == 0 and not set(served) & set(range(step, (taken + 1) * step, step))


# -- producing


@pytest.mark.parametrize("where", PLACES)
@pytest.mark.parametrize("name,make", [("produce", lambda payload: payload + b"\n"), ("produce.bin", binary),
                                       ("produce.jsonl", lambda payload: obj(payload.decode()))])
@pytest.mark.parametrize("count,size", [(1000, 1), (16, MIB // 16)])
def test_the_batch_that_is_committed_at_once(m, where, name, make, count, size):
    """At 1,000 records or 1 MiB, and not at one record less."""
    part = m.make("t", linger_ms=60000)
    fd = os.open(f"{place(m, 't', where)}/{name}", os.O_WRONLY)
    for _ in range(count - 1):
        write_all(fd, make(b"x" * size))
    time.sleep(0.5)
    assert number(part, "hwm") == 0
    write_all(fd, make(b"x" * size))
    wait_for(lambda: number(part, "hwm") == count, "the commit")
    os.close(fd)


@pytest.mark.parametrize("where", PLACES)
@pytest.mark.parametrize("sync", [os.fsync, os.fdatasync])
def test_what_was_synced_survives_a_kill(m, where, sync):
    part = m.make("t", linger_ms=60000)
    fd = os.open(place(m, "t", where) + "/produce", os.O_WRONLY)
    os.write(fd, b"one\ntwo\npart")
    sync(fd)
    if where == "partition":
        assert log(part) == b"one\ntwo\npart\n"  # visible when it returns
    m.kill()
    try:
        os.close(fd)
    except OSError:
        pass
    m.start()
    wait_for(lambda: number(part, "hwm") == 3, "the records")
    assert log(part) == b"one\ntwo\npart\n"


@pytest.mark.parametrize("where", PLACES)
@pytest.mark.parametrize("name", PRODUCE)
def test_a_file_under_names_of_its_own_is_one_file(m, where, name):
    """An fsync of either commits the complete records that handles of the other hold, and ends nothing of theirs."""
    part = m.make("t", linger_ms=60000)
    folder = place(m, "t", where)
    whole = {"produce": lambda n: b"%d\n" % n, "produce.jsonl": obj, "produce.bin": lambda n: binary(b"%d" % n)}[name]
    plain, named = (os.open(f"{folder}/{path}", os.O_WRONLY) for path in (name, name + "@a"))
    os.write(plain, whole(1) + whole(3)[:1])
    os.fsync(named)
    wait_for(lambda: number(part, "hwm") == 1, "the record")
    os.write(named, whole(2) + whole(4)[:1])
    shell(f"sync {folder}/{name}")
    wait_for(lambda: number(part, "hwm") == 2, "the record")
    os.write(plain, whole(3)[1:])
    os.write(named, whole(4)[1:])
    os.fsync(plain)
    os.close(named)
    os.close(plain)
    wait_for(lambda: number(part, "hwm") == 4, "the records")
    assert log(part).replace(b"\n", b"") in (b"1234", b"1243")


SYNCER = """
import os, sys
fd = os.open(sys.argv[1], os.O_WRONLY)
sys.stdin.readline()
for n in range(5):
    os.write(fd, b"x\\n")
    os.fsync(fd)
"""


@pytest.mark.local("a disk that fails")
@pytest.mark.parametrize("name", ["produce", "produce@w%d"])
def test_producers_share_syncs(m, name):
    """Processes that open one file: the kernel would let one fsync of an inode at a time through."""
    need_strace()
    part = m.make("t")
    produce(part, "first")
    writers = [subprocess.Popen([PYTHON, "-c", SYNCER, f"{part}/{name % n if '%' in name else name}"], stdin=subprocess.PIPE)
               for n in range(8)]
    slow = Inject(m, active_segment(m, "t"), "fdatasync", "delay_enter=200000")
    try:
        for writer in writers:
            writer.stdin.write(b"go\n")
            writer.stdin.close()
        for writer in writers:
            assert writer.wait(50) == 0
    finally:
        slow.stop()
    assert number(part, "hwm") == 41
    m.stop()
    folder = m.data_part("t")
    data = b"".join(read_file(f"{folder}/{name}") for name in seglog.segment_names(folder))
    assert len(list(seglog.frames(data))) <= 1 + 20  # of forty syncs


@pytest.mark.local("the ingress log")
def test_one_sync_of_the_ingress_log_for_many_partitions(m):
    m.make("t", partitions=16)
    produce(m.topic("t"), "first")
    before = metric(m, "narad_ingress_syncs_total")
    produce(m.topic("t"), *range(160))
    assert metric(m, "narad_ingress_syncs_total") == before + 1
    wait_for(lambda: sum(number(m.part("t", n), "hwm") for n in range(16)) == 161, "the records")
    assert min(number(m.part("t", n), "hwm") for n in range(16)) >= 10


@pytest.mark.parametrize("where", PLACES)
@pytest.mark.parametrize("name,make", [("produce", lambda text: text + b"\n"), ("produce.bin", binary),
                                       ("produce.jsonl", lambda text: obj(text.decode()))])
def test_a_write_that_begins_in_the_refused_record(m, where, name, make):
    """The count of the complete records before it; the next write fails, and holds its end; then all is well."""
    part = m.make("t", linger_ms=60000)
    fd = os.open(f"{place(m, 't', where)}/{name}", os.O_WRONLY)
    good = make(b"1") + make(b"2")
    long = make(b"x" * (MIB + 1))
    half = MIB * 5 // 8  # so that no write is cut by the kernel
    taken = os.write(fd, good + long[:half])
    if name == "produce.bin":  # its header says it
        assert taken == len(good)
        assert fails(os.write, fd, long[:half]) == errno.EMSGSIZE
        write_all(fd, long[half:])
    else:
        assert taken == len(good) + half
        assert fails(os.write, fd, long[half:]) == errno.EMSGSIZE
    assert os.write(fd, make(b"3")) == len(make(b"3"))
    os.fsync(fd)
    os.close(fd)
    wait_for(lambda: number(part, "hwm") == 3, "the records")
    assert log(part) == b"1\n2\n3\n"


REFUSED_IN_PIECES = [("produce", lambda text: text + b"\n", [b"x" * (MIB // 2)] * 3, b"x\n"),
                     ("produce.jsonl", lambda text: obj(text.decode()), [b'{"payload":"' + b"x" * 1000000] * 8, b'x"}\n'),
                     ("produce.bin", binary, [binary(b"x" * (MIB + 1))[:MIB // 2]], b"x" * (MIB // 2 + 9))]


@pytest.mark.parametrize("where", PLACES)
@pytest.mark.parametrize("name,make,pieces_,end", REFUSED_IN_PIECES, ids=["lines", "jsonl", "bin"])
def test_a_sync_in_the_middle_of_a_refused_record(m, name, make, pieces_, end, where):
    """It ends nothing: input is skipped up to the end of the record, which is where its framing says."""
    part = m.make("t", linger_ms=60000)
    fd = os.open(f"{place(m, 't', where)}/{name}", os.O_WRONLY)
    os.write(fd, make(b"1"))
    refused = 0
    for piece in pieces_:
        try:
            os.write(fd, piece)
        except OSError as error:
            assert error.errno == errno.EMSGSIZE
            refused += 1
            break
    assert refused == 1
    for _ in range(2):
        os.fsync(fd)
        os.close(os.dup(fd))
    wait_for(lambda: number(part, "hwm") == 1, "what came before")
    assert os.write(fd, end + make(b"2")) == len(end) + len(make(b"2"))
    os.fsync(fd)
    os.close(fd)
    wait_for(lambda: number(part, "hwm") == 2, "what comes behind")
    assert log(part) == b"1\n2\n"
    assert len(told(m, "refused")) == 1


@pytest.mark.parametrize("name,good,bad", [("produce.jsonl", obj(1) + obj(2), b"rubbish\n"),
                                            ("produce.bin", binary(b"1") + binary(b"2"), b"\xff" * 8)])
def test_a_synchronous_write_that_is_short(m, name, good, bad):
    """What its count says is durable."""
    part = m.make("t", linger_ms=60000)
    fd = os.open(f"{part}/{name}", os.O_WRONLY | os.O_DSYNC)
    assert os.write(fd, good + bad) == len(good)
    assert number(part, "hwm") == 2
    assert fails(os.write, fd, bad) in (errno.EINVAL, errno.EMSGSIZE)
    m.kill()
    try:
        os.close(fd)
    except OSError:
        pass
    m.start()
    assert log(part) == b"1\n2\n"


@pytest.mark.parametrize("where", PLACES)
@pytest.mark.parametrize("name,whole", [("produce.jsonl", obj(1)), ("produce.bin", binary(b"1"))])
def test_an_unfinished_record_wherever_it_is_written(m, name, whole, where):
    part = m.make("t", linger_ms=60000)
    fd = os.open(f"{place(m, 't', where)}/{name}", os.O_WRONLY)
    os.write(fd, whole + whole[:5])
    for _ in range(2):
        assert fails(os.fsync, fd) == errno.EINVAL
    wait_for(lambda: number(part, "hwm") == 1, "what is complete")
    os.write(fd, whole[5:] + whole[:-2])
    os.close(os.dup(fd))  # not the last: no error, and no end
    wait_for(lambda: number(part, "hwm") == 2, "what is complete")
    os.close(fd)
    wait_for(lambda: told(m, "dropped", "topic=t"), "the line of the log")
    time.sleep(0.3)
    assert log(part) == b"1\n1\n"


@pytest.mark.local("a disk that fails")
@pytest.mark.parametrize("name,data", [("produce", b"b\n"), ("produce.jsonl", obj("b")), ("produce.bin", binary(b"b"))])
@pytest.mark.parametrize("flag", ["O_SYNC", "O_DSYNC"])
def test_a_synchronous_write_that_fails(m, name, data, flag):
    """The program tries again until it succeeds: one copy."""
    need_strace()
    part = m.make("t", linger_ms=60000)
    produce(part, "a")
    fd = os.open(f"{part}/{name}", os.O_RDWR | getattr(os, flag))
    fault = Inject(m, active_segment(m, "t"), "pwrite64,pwritev,pwritev2,write,writev", "error=ENOSPC")
    try:
        for _ in range(3):
            assert fails(os.write, fd, data) == errno.ENOSPC
        assert log(part) == b"a\n"
    finally:
        fault.stop()
    assert os.write(fd, data) == len(data)
    assert log(part) == b"a\nb\n"
    assert os.read(fd, 100) == b"p00000 1 1\n"
    assert os.write(fd, data) == len(data)  # and the same again is another record
    os.close(fd)
    assert log(part) == b"a\nb\nb\n"


def poison(m, name, number_=0):
    fault = Inject(m, active_segment(m, name), "fdatasync,fsync", "error=EIO")
    try:
        assert fails(produce, m.part(name, number_), "poison") == errno.EIO
    finally:
        fault.stop()
    assert number(m.part(name, number_), "poisoned") == 1


@pytest.mark.local("a disk that fails")
def test_producing_to_a_topic_around_a_poisoned_partition(m):
    """Its records go to the others at once; reading and consuming go on in all; reopened, it takes its share again."""
    need_strace()
    m.make("t", partitions=2)
    produce(m.part("t", 0), "before")
    poison(m, "t")
    produce(m.topic("t"), *range(20))
    wait_for(lambda: number(m.part("t", 1), "hwm") == 20, "the records")
    assert sorted(log(m.part("t", 1)).split(), key=int) == [b"%d" % n for n in range(20)]
    assert log(m.part("t", 0)) == b"before\n"
    assert sorted(drain(m.topic("t")).split()) == sorted([b"before", *(b"%d" % n for n in range(20))])
    write_file(m.part("t", 0) + "/ctl", b"reopen\n")
    produce(m.topic("t"), *range(20, 40))
    wait_for(lambda: number(m.part("t", 0), "hwm") + number(m.part("t", 1), "hwm") == 41, "the records")
    assert number(m.part("t", 0), "hwm") > 5


@pytest.mark.local("a disk that fails")
@pytest.mark.parametrize("how", ["reopen", "kill", "restart"])
def test_producing_to_a_topic_that_is_all_poisoned(m, how):
    """The fsync is worth what it says: each record is there once when the disk has been looked at again."""
    need_strace()
    part = m.make("t")
    produce(part, "before")
    poison(m, "t")
    produce(m.topic("t"), *range(20))
    assert log(part) == b"before\n"
    if how == "reopen":
        write_file(part + "/ctl", b"reopen\n")
    elif how == "kill":
        m.crash()
    else:
        m.restart()
    wait_for(lambda: number(part, "hwm") >= 21, "the records", 40)
    seen = log(part).split()
    assert [record for record in seen if record != b"poison"] == [b"before", *(b"%d" % n for n in range(20))]
    assert seen.count(b"poison") <= 1  # never acknowledged: it may be there, once


# -- consuming


def test_the_object_to_the_last_byte(m):
    m.make("t", partitions=2)
    part = m.part("t", 1)
    rows = [(b"", b"text \"x\"", b'"text \\"x\\""'), (b"k", b'{"a": [1,2]}', b'{"a": [1,2]}'), (b"\xff", b"\0\xff", b'"AP8="'),
            (b"k2", b"", b'""'), (b"", b"1.50", b"1.50")]
    write_file(part + "/produce.bin", b"".join(binary(payload, key) for key, payload, _ in rows))
    keys = [b"null", b'"k"', b'"/w=="', b'"k2"', b"null"]
    head = rb'\{"handle":"1:(\d+):(\d+)","partition":1,"offset":(\d+),"timestamp":(\d+),"key":'
    nonces = set()
    with Consumer(part, "consume.jsonl") as consumer:
        for offset, ((_, _, shown), key) in enumerate(zip(rows, keys)):
            text = consumer.read()
            found = re.match(head, text)
            assert int(found[1]) == int(found[3]) == offset
            assert found[4].decode() == xattr(f"{part}/records/{offset}", "timestamp")
            assert 0 <= int(found[2]) < 1 << 63
            nonces.add(found[2])
            key_encoding = b',"key_encoding":"base64"' if offset == 2 else b""
            encoding = b',"payload_encoding":"base64"' if offset == 2 else b""
            assert text[found.end():] == key + key_encoding + b',"payload":' + shown + encoding + b"}\n"
    assert len(nonces) == len(rows)


@pytest.mark.parametrize("how", ["receipt", "fsync", "line"])
@pytest.mark.parametrize("where", PLACES)
@pytest.mark.parametrize("name", FILES)
def test_a_freed_slot_wakes(m, name, where, how):
    """max_in_flight: a record is there, and may not be leased; one that is settled makes room."""
    part = m.make("t", max_in_flight=1)
    folder = place(m, "t", where)
    produce(part, "a", "b")
    holder = Consumer(part)
    if how == "receipt":
        (held,) = take(part)
    else:
        assert holder.read() == b"a\n"
    with Consumer(folder, name, os.O_RDONLY) as consumer, Consumer(folder, name) as polled:
        read = Background(consumer.read)
        wait_for(lambda: in_kernel(read), "the reader to wait")
        poll = select.poll()
        poll.register(polled.fd, select.POLLIN)
        assert poll.poll(200) == []  # the truth: a read would not get it
        assert polled.none()
        if how == "receipt":
            ack(part, held["handle"])
        elif how == "fsync":
            holder.sync()
        else:
            holder.write(b"ack 0\n")
        assert b"b" in read.join()
        assert number(part, "in_flight") == 1
    holder.close()


@pytest.mark.local("max_acked_ahead")
@pytest.mark.parametrize("where", PLACES)
@pytest.mark.parametrize("name", FILES)
def test_what_a_full_set_holds_back_wakes(m, name, where):
    """max_acked_ahead: nothing is served until the record that holds the frontier back is settled."""
    part = m.make("t", max_acked_ahead=1)
    produce(part, *"abc")
    first, second = take(part, 2)
    ack(part, second["handle"])
    with Consumer(place(m, "t", where), name, os.O_RDONLY) as consumer, Consumer(place(m, "t", where), name) as polled:
        read = Background(consumer.read)
        wait_for(lambda: in_kernel(read), "the reader to wait")
        poll = select.poll()
        poll.register(polled.fd, select.POLLIN)
        assert poll.poll(200) == []
        assert polled.none()
        ack(part, first["handle"])
        assert b"c" in read.join()


@pytest.mark.local("max_acked_ahead")
@pytest.mark.parametrize("where", PLACES)
@pytest.mark.parametrize("key", ["max_in_flight", "max_acked_ahead"])
def test_a_cap_that_is_raised_wakes(m, where, key):
    part = m.make("t", **{key: 1})
    folder = place(m, "t", where)
    produce(part, *"abc")
    receipts = [item["handle"] for item in take(part, 1 if key == "max_in_flight" else 2)]
    if key == "max_acked_ahead":
        ack(part, receipts[1])
    with Consumer(folder, flags=os.O_RDONLY) as consumer, Consumer(folder) as polled:
        read = Background(consumer.read)
        poll = select.poll()
        poll.register(polled.fd, select.POLLIN)
        wait_for(lambda: in_kernel(read), "the reader to wait")
        assert poll.poll(0) == []
        configure(m.topic("t"), **{key: 2})
        assert read.join() == (b"b\n" if key == "max_in_flight" else b"c\n")


@pytest.mark.local("a disk that fails")
def test_poison_under_everything_that_is_open(m):
    """Readers, leases and what waits go on; what could not be committed is, once, when the partition is reopened."""
    need_strace()
    part = m.make("t", linger_ms=60000)
    produce(part, *range(5))
    holder = Consumer(part)
    assert [holder.read(), holder.read()] == [b"0\n", b"1\n"]
    receipt, late = take(part, 2)
    drained = Consumer(part, "drain")
    assert drained.read() == b"4\n"
    parked = [Consumer(folder, flags=os.O_RDWR) for folder in (part, m.topic("t"))]
    reads = [Background(reader.read) for reader in parked]
    cursors = [os.open(f"{part}/{name}", os.O_RDONLY) for name in ("log", "from/end")]
    wait_for(lambda: in_kernel(*reads), "the readers to wait")
    fault = Inject(m, active_segment(m, "t"), "fdatasync,fsync", "error=EIO")
    writer = os.open(part + "/produce", os.O_RDWR)
    try:
        os.write(writer, b"kept\npart")
        assert fails(os.fsync, writer) == errno.EIO
    finally:
        fault.stop()
    assert number(part, "poisoned") == 1 and xattr(part, "poison_reason") != ""
    assert (number(part, "in_flight"), number(part, "hwm")) == (5, 5)
    assert ack(part, receipt["handle"], sync=True) > 0
    holder.sync()
    assert drained.read() == b""
    assert log(part) == lines(*range(5))
    assert all(read.running() for read in reads)
    assert (number(part, "frontier"), number(part, "acked_ahead"), number(part, "in_flight")) == (3, 1, 1)
    write_file(part + "/ctl", b"reopen\n")
    assert number(part, "poisoned") == 0
    assert ack(part, late["handle"]) > 0  # a reopen drops no lease
    os.write(writer, b"ial\n")  # the failed fsync has ended the line
    os.fsync(writer)
    assert sorted(read.join() for read in reads) == [b"kept\n", b"part\n"]
    assert os.read(writer, 100) == b"p00000 5 7\n"
    assert [os.read(fd, 100) for fd in cursors] == [lines(*range(5), "kept", "part", "ial"), lines("kept", "part", "ial")]
    for reader in parked:
        reader.sync()
    assert number(part, "frontier") == 7
    for fd in [writer, *cursors]:
        os.close(fd)
    for consumer in [holder, drained, *parked]:
        consumer.close()
    m.restart()
    assert log(part) == lines(*range(5), "kept", "part", "ial") and drain(part) == b"ial\n"


@pytest.mark.limit(120)
@pytest.mark.parametrize("where", PLACES)
def test_extend_by_receipt_starts_the_time_again(m, where):
    """Held for three times the timeout; the test begins anew when this process itself was late."""
    part = m.make("t", visibility_timeout_ms=2000)
    folder = place(m, "t", where)
    produce(part, "a")
    for _ in range(10):
        (held,) = take(folder)
        begin = last = time.monotonic()
        late = False
        while time.monotonic() - begin < 6 and not late:
            time.sleep(0.3)
            before, last = last, time.monotonic()
            late = last - before > 1
            try:
                ack(folder, held["handle"], verb="extend")
            except OSError as error:
                assert error.errno == errno.ESTALE and time.monotonic() - before > 1.9, "the lease lapsed early"
                late = True
        if not late:
            break
        wait_for(lambda: number(part, "in_flight") == 0, "the lease to lapse")
    assert not late
    with Consumer(part) as other:
        assert other.none()
    assert ack(folder, held["handle"]) > 0
    assert number(part, "frontier") == 1


def test_verbs_without_an_offset_leave_a_partial_record_alone(m):
    part = m.make("t")
    produce(part, "a", "b", "cdef")
    for verb, after in ((b"extend\n", (0, 3)), (b"nack\n", (0, 1)), (b"ack\n", (2, 1))):
        with Consumer(part) as consumer:
            assert [consumer.read(), consumer.read(), consumer.read(2)] == [b"a\n", b"b\n", b"cd"]
            consumer.write(verb)
            assert (number(part, "frontier"), number(part, "in_flight")) == after, verb
            if verb != b"nack\n":
                assert consumer.read() == b"ef\n"
        wait_for(lambda: number(part, "in_flight") == 0, "the leases to return")
    assert drain(part) == b"cdef\n"


@pytest.mark.parametrize("cut", [b"ack", b"ack 1", b"nack 1", b"extend", b"a"])
@pytest.mark.parametrize("where", PLACES)
def test_a_line_that_was_cut_by_death(m, cut, where):
    """What stood in a buffer of the program's: `ack` may be the beginning of `ack 12`, and `ack` alone settles all."""
    part = m.make("t")
    produce(part, *range(13))
    script = f"import os, time; fd = os.open({place(m, 't', where) + '/consume'!r}, os.O_RDWR); " \
             f"[os.read(fd, 100) for _ in range(13)]; os.write(fd, b'ack 5\\n{cut.decode()}'); " \
             "print('written', flush=True); time.sleep(600)"
    child = subprocess.Popen([PYTHON, "-c", script], stdout=subprocess.PIPE)
    assert child.stdout.readline() == b"written\n"
    assert (number(part, "acked_ahead"), number(part, "in_flight")) == (1, 12)
    child.kill()
    child.wait(20)
    child.stdout.close()
    wait_for(lambda: number(part, "in_flight") == 0, "the leases to return")
    assert (number(part, "frontier"), number(part, "acked_ahead"), number(part, "lag")) == (0, 1, 12)
    assert len(told(m, "never ended", "topic=t")) == 1
    assert drain(part) == lines(*range(5), *range(6, 13))


@pytest.mark.parametrize("where", PLACES)
def test_a_receipt_without_its_newline(m, where):
    """A whole one takes effect at once; one that was cut is nobody's, and the rest of its line comes with the next write."""
    part = m.make("t")
    folder = place(m, "t", where)
    produce(part, *range(9))
    receipts = [item["handle"] for item in take(part)]
    fd = os.open(folder + "/ack", os.O_WRONLY)
    text = f"{receipts[0]}\n{receipts[1][:-3]}".encode()
    assert os.write(fd, text) == len(text)
    os.close(os.dup(fd))  # not the last
    assert number(part, "frontier") == 1
    os.write(fd, f"{receipts[1][-3:]}\n{receipts[2]}".encode())
    assert number(part, "frontier") == 3
    os.write(fd, f"\n{receipts[3]}\r\nack {receipts[4]}".encode())
    assert number(part, "frontier") == 5
    os.write(fd, f"\r\n{receipts[5]}\n".encode())
    assert number(part, "frontier") == 6
    os.write(fd, "\n".join(receipts[6:8]).encode())
    assert number(part, "frontier") == 8
    os.close(fd)
    assert told(m, "refused") == []
    write_file(folder + "/ack", f"extend {receipts[8]}\n{receipts[8][:-2]}".encode())
    wait_for(lambda: told(m, "refused", "offset=8"), "the line at the close")
    assert (number(part, "frontier"), number(part, "in_flight")) == (8, 1)


@pytest.mark.parametrize("bad", [None, "before", "at", "behind"])
def test_receipts_of_several_requests_in_one_write(m, bad):
    """The kernel cuts the write up in the middle of lines; the count says up to which line it went."""
    part = m.make("t", max_in_flight=100000, max_acked_ahead=4096, visibility_timeout_ms=43200000)
    produce(part, *([b""] * 50000))
    rows = [f"{record['handle']}\n".encode() for record in take_all(part)]
    ends = list(itertools.accumulate(map(len, rows)))
    at = None if bad is None else bisect.bisect(ends, MIB + {"before": -50, "at": 0, "behind": 50}[bad])
    good = ends[at - 1] if bad else ends[-1]
    if bad:
        rows.insert(at, b"0:%d:%d\n" % (at, (1 << 63) - 1))  # as long as any, so the one `at` the cut is cut
    data = b"".join(rows)
    fd = os.open(part + "/ack", os.O_WRONLY)
    with mmap.mmap(-1, len(data)) as memory:  # aligned: the first request is 1 MiB
        memory[:] = data
        view = memoryview(memory)
        done = 0
        try:
            while done < len(data):
                done += os.write(fd, view[done:])
        except OSError as error:
            assert error.errno == errno.ESTALE and done == good
            assert number(part, "frontier") == at
            done += len(rows[at])
            while done < len(data):
                done += os.write(fd, view[done:])
        view.release()
    os.close(fd)
    assert (number(part, "frontier"), number(part, "in_flight")) == (50000, 0)


@pytest.mark.local("max_acked_ahead")
def test_all_that_was_delivered_does_not_fit(m):
    """An fsync of more than may be settled ahead says so; what has no room stays held, until what is below is settled."""
    part = m.make("t", max_acked_ahead=1)
    produce(part, *range(4))
    with Consumer(part) as low, Consumer(part) as high:
        assert low.read() == b"0\n"
        assert [high.read() for _ in range(3)] == [b"1\n", b"2\n", b"3\n"]
        assert fails(high.sync) == errno.EAGAIN
        assert number(part, "frontier") == 0 and number(part, "acked_ahead") + number(part, "in_flight") == 4
        low.sync()
        high.sync()
        assert (number(part, "frontier"), number(part, "in_flight")) == (4, 0)


@pytest.mark.parametrize("where", PLACES)
@pytest.mark.parametrize("name", FILES)
def test_a_descriptor_that_several_processes_wait_on(m, name, where):
    """Each of them can be killed while it waits, and each commit wakes one."""
    part = m.make("t")
    fd = os.open(f"{place(m, 't', where)}/{name}", os.O_RDONLY)
    script = f"import os; data = os.read({fd}, 500); os.write(1, data.hex().encode() + b'\\n'); os.read(0, 1)"
    readers = [subprocess.Popen([PYTHON, "-c", script], pass_fds=[fd], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
               for _ in range(4)]
    wait_for(lambda: all(blocked(reader.pid) for reader in readers), "the readers to block")
    victim = readers.pop(1)
    victim.kill()
    assert victim.wait(20) == -signal.SIGKILL
    for n in range(3):
        produce(part, f"record {n}")
        ready, _, _ = select.select([reader.stdout for reader in readers], [], [], 20)
        (out,) = ready
        assert b"record %d" % n in bytes.fromhex(out.readline().decode())
        readers.remove(next(reader for reader in readers if reader.stdout is out))
    assert number(part, "in_flight") == 3
    os.close(fd)


def test_the_end_of_file_settles_a_drain(m):
    part = m.make("t")
    produce(part, "a", "b")
    with Consumer(part, "drain", os.O_RDONLY) as consumer:
        assert consumer.read() == b"a\nb\n"
        assert number(part, "frontier") == 0
        assert consumer.read() == b""
        assert number(part, "frontier") == 2
        produce(part, "c")
        assert consumer.read() == b"c\n"  # it was no end for good
    wait_for(lambda: number(part, "in_flight") == 0, "what was not read on from")
    assert drain(part) == b"c\n"


@pytest.mark.parametrize("where", PLACES)
def test_a_reader_that_dies_gives_all_back_at_once(m, where):
    """consume and drain: long before the leases lapse, and in order."""
    part = m.make("t", visibility_timeout_ms=43200000)
    produce(part, *range(6))
    for name, mode in (("consume", "os.O_RDWR"), ("consume", "os.O_RDONLY"), ("drain", "os.O_RDONLY")):
        script = f"import os, time; fd = os.open({place(m, 't', where) + '/' + name!r}, {mode}); " \
                 "os.read(fd, 4); os.read(fd, 1); print('holds', flush=True); time.sleep(600)"
        child = subprocess.Popen([PYTHON, "-c", script], stdout=subprocess.PIPE)
        assert child.stdout.readline() == b"holds\n"
        assert number(part, "in_flight") >= 1
        child.send_signal(signal.SIGKILL)
        child.wait(20)
        child.stdout.close()
        wait_for(lambda: number(part, "in_flight") == 0, "the leases to return")
    # the second read of drain settled what the first had delivered
    assert in_order(drain(part).split()) == [b"2", b"3", b"4", b"5"]


# -- reading


def test_attributes_of_everything_in_a_partition(m):
    part = m.make("t", partitions=2)
    produce(part, "a", "b")
    take(part, 1)
    expected = {name: xattr(part, name) for name in XATTRS}
    assert (expected["hwm"], expected["in_flight"], expected["lag"], expected["durability"]) == ("2", "1", "2", DURABILITY)
    for value in expected.values():
        assert re.fullmatch(f"[0-9]+|[0-9a-f]{{16}}|{DURABILITY}|", value), value
    folders = [f"{part}/{name}" for name in ("from", "records", "by-time", "segments", ".streams")]
    for path in [part, *folders, *walk(m, part), f"{part}/from/1", f"{part}/produce@w"]:
        assert {name: xattr(path, name) for name in XATTRS} == expected, path
        assert fails(os.getxattr, path, "user.narad.nothing") == errno.ENODATA
        for name in XATTRS:
            assert fails(os.setxattr, path, "user.narad." + name, b"1") == errno.EPERM, path
            assert fails(os.removexattr, path, "user.narad." + name) == errno.EPERM, path


@pytest.mark.local("the data directory")
def test_a_damaged_frame_is_passed_over_counted_and_told_once(m):
    part = m.make("t", segment_bytes=65536)
    for n in range(30):
        produce(part, b"%02d " % n + b"x" * 6000)
    text = log(part)
    m.stop()
    folder = m.data_part("t")
    path = f"{folder}/{seglog.segment_names(folder)[0]}"
    data = bytearray(read_file(path))
    data[list(seglog.frames(bytes(data)))[3].pos + 100] ^= 1
    write_file(path, bytes(data))
    m.start()
    name = "narad_corrupt_frames_total"
    before = metric(m, name)
    for _ in range(3):
        assert log(part) == b"".join(line + b"\n" for line in text.splitlines() if not line.startswith(b"03 "))
    assert metric(m, name) > before
    assert len(told(m, "topic=t", "partition=00000", "offset=3")) == 1, m.stderr()


@pytest.mark.local("the data directory")
def test_a_clock_that_was_ahead_is_told_once(m):
    """Records get the time of the newest one until it has come; the log says so, once for each time that it is opened."""
    part = m.make("t")
    produce(part, "x")
    ahead_ms = int(time.time() * 1000) + 2 * 3600000
    with segment_replaced(m, "t") as data:
        data.append(keyed_frame(0, (ahead_ms, b"", b"from the future")))
    for n in range(3):
        produce(part, n)
        assert xattr(f"{part}/records/{n + 1}", "timestamp") == str(ahead_ms)
    said = told(m, "behind the newest record")
    assert len(said) == 1 and "topic=t partition=00000 offset=1" in said[0], m.stderr()
    assert 7100 <= int(re.search(r"the clock is (\d+) s behind", said[0]).group(1)) <= 7200
    m.restart()
    assert told(m, "behind the newest record") == []
    produce(part, "after the restart")
    produce(part, "and another")
    said = told(m, "behind the newest record")
    assert len(said) == 1 and "offset=4" in said[0]


# -- errors


@pytest.mark.local("a disk that fails")
@pytest.mark.parametrize("error", ["EDQUOT", "ENOSPC", "EIO"])
def test_errors_of_the_disk_pass_through(m, error):
    need_strace()
    part = m.make("t", linger_ms=60000)
    produce(part, "a")
    fault = Inject(m, active_segment(m, "t"), "pwrite64,pwritev,pwritev2,write,writev", f"error={error}")
    fd = os.open(part + "/produce", os.O_WRONLY)
    try:
        os.write(fd, b"b\n")
        assert fails(os.fsync, fd) == getattr(errno, error)
    finally:
        fault.stop()
    assert len(told(m, os.strerror(getattr(errno, error)), "topic=t", "partition=00000", "offset=1")) == 1, m.stderr()
    os.fsync(fd)
    os.close(fd)
    assert log(part) == b"a\nb\n"


def test_every_error_is_told_once(m):
    """With topic, partition and offset as far as there are any."""
    part = m.make("t", partitions=2, max_acked_ahead=1)
    m.make("empty")
    produce(part, *range(9))
    receipts = [item["handle"] for item in take(part, 3)]
    ack(part, receipts[1])
    consumer = Consumer(part)
    held = os.open(m.part("empty") + "/log", os.O_RDONLY)
    jsonl = os.open(part + "/produce.jsonl", os.O_WRONLY)
    here = ("topic=t", "partition=00000")

    def unfinished():
        os.write(jsonl, b'{"payload":')
        os.fsync(jsonl)

    cases = [
        (errno.EMSGSIZE, (*here, "offset=9"), lambda: write_file(part + "/produce.bin", binary(b"")[:4] + b"\xff" * 4)),
        (errno.EINVAL, (*here, "offset=9"), lambda: write_file(part + "/produce.jsonl", b"rubbish\n")),
        (errno.EINVAL, here, unfinished),
        (errno.EINVAL, here, lambda: ack(part, "rubbish")),
        (errno.EINVAL, here, lambda: ack(part, "1:0:5")),
        (errno.EINVAL, here, lambda: consumer.write(b"rubbish\n")),
        (errno.ESTALE, (*here, "offset=1"), lambda: ack(part, receipts[1])),
        (errno.ESTALE, (*here, "offset=7"), lambda: consumer.write(b"ack 7\n")),
        *([] if JETSTREAM else [(errno.EAGAIN, (*here, "offset=2"), lambda: ack(part, receipts[2]))]),  # there is no cap
        (errno.EINVAL, here, lambda: write_file(part + "/ctl", b"rubbish\n")),
        (errno.EINVAL, ("topic=t",), lambda: write_file(m.topic("t") + "/ctl", b"rubbish\n")),
        (errno.EINVAL, ("topic=t",), lambda: write_file(m.topic("t") + "/config", b"rubbish=1\n")),
        (errno.EINVAL, ("topic=t",), lambda: os.setxattr(m.topic("t"), "user.narad.linger_ms", b"x")),
        (errno.EINVAL, ("topic=t",), lambda: os.setxattr(m.topic("t"), "user.narad.rubbish", b"x")),
        (errno.EINVAL, (), lambda: os.mkdir(m.topic(".rubbish"))),
        (errno.ENOTEMPTY, ("topic=t",), lambda: os.rmdir(m.topic("t"))),
        (errno.EBUSY, ("topic=empty",), lambda: os.rmdir(m.topic("empty"))),
        (errno.EPERM, here, lambda: os.open(part + "/log", os.O_WRONLY)),
        (errno.EPERM, here, lambda: os.truncate(part + "/log", 0)),
        (errno.EPERM, here, lambda: os.open(part + "/rubbish", os.O_WRONLY | os.O_CREAT)),
        (errno.EPERM, here, lambda: os.mkdir(part + "/rubbish")),
        (errno.EPERM, ("topic=t",), lambda: os.rmdir(part)),
        (errno.EPERM, here, lambda: os.mkfifo(part + "/rubbish")),
        (errno.EPERM, here, lambda: os.symlink("x", part + "/rubbish")),
        (errno.EPERM, here, lambda: os.link(part + "/log", part + "/rubbish")),
        (errno.EPERM, here, lambda: os.unlink(part + "/log")),
        (errno.EPERM, here, lambda: os.rename(part + "/log", part + "/rubbish")),
        (errno.EPERM, (), lambda: os.rename(m.topic("t"), m.topic("rubbish"))),
        (errno.EPERM, (), lambda: os.chmod(m.mnt + "/HELP", 0o600)),
        (errno.EPERM, (), lambda: os.chown(m.mnt + "/topics", 1, 1)),
        (errno.EPERM, here, lambda: os.setxattr(part, "user.narad.hwm", b"1")),
        (errno.EPERM, here, lambda: os.removexattr(part, "user.narad.hwm")),
        (errno.ENOENT, ("topic=t",), lambda: os.mkdir(m.topic("t") + "/children/none")),
        (errno.EOPNOTSUPP if JETSTREAM else errno.EINVAL, ("topic=t",), lambda: os.mkdir(m.topic("t") + "/children/t")),
    ]
    for n, (error, words, call) in enumerate(cases):
        before = m.stderr()
        assert fails(call) == error, n
        said = m.stderr()[len(before):].splitlines()
        assert len(said) == 1 and all(word in said[0] for word in words), (n, os.strerror(error), said)
    for fd in (held, jsonl):
        os.close(fd)
    consumer.close()


def test_an_fsync_that_cannot_settle_is_told(m):
    part = m.make("t", max_acked_ahead=1)
    produce(part, *range(3))
    with Consumer(part) as first, Consumer(part) as second:
        assert first.read() == b"0\n"
        assert [second.read() for _ in range(2)] == [b"1\n", b"2\n"]
        cases = [] if JETSTREAM else [(errno.EAGAIN, "too many records are acked ahead of an open one")]  # there is no cap
        for error, words in [*cases, (errno.ESTALE, "its lease has lapsed, was settled, or never was")]:
            if error == errno.ESTALE:
                write_file(part + "/ctl", b"seek start\n")
            before = m.stderr()
            assert fails(second.sync) == error
            (said,) = m.stderr()[len(before):].splitlines()
            assert f"fsync left a record unsettled: {words}" in said and "topic=t partition=00000" in said, said


# -- waiting


@pytest.mark.parametrize("name", FILES)
def test_a_lazy_umount_leaves_who_waits_waiting(m, name):
    """Nobody finds the files any more, but those who have them open go on; the daemon ends with the last of them."""
    part = m.make("t")
    writer = os.open(part + "/produce", os.O_WRONLY)
    consumer = Consumer(part, name, os.O_RDONLY)
    read = Background(consumer.read)
    wait_for(lambda: in_kernel(read), "the reader to wait")
    subprocess.run(["umount", "-l", m.mnt], check=True, timeout=30)
    assert read.running() and m.process.poll() is None
    os.write(writer, b"still\n")
    os.fsync(writer)
    assert b"still" in read.join()
    os.close(writer)
    consumer.close()
    assert m.wait_exit(20) == 0
    m.gone()
    m.start()
    assert log(part) == b"still\n"
