"""What docs/scale-out.md says is not there, or is otherwise, over NATS JetStream."""

import errno
import os

import pytest

from nats import why_not
from support import (Consumer, configure, drain, fails, lines, log, number, produce, read_file, shell, take, wait_for,
                     write_file)
from test_jetstream import m, mount_on, servers  # noqa: F401 (fixtures)

pytestmark = [
    pytest.mark.skipif(why_not() is not None, reason=str(why_not())),
    pytest.mark.limit(120),
]


def refused(m, topic, call, *words):
    """It says EOPNOTSUPP, and why not, once in the log and in the topic's status."""
    before = len(m.stderr())
    assert fails(call) == errno.EOPNOTSUPP
    said = m.stderr()[before:].splitlines()
    assert len(said) == 1 and all(word in said[0] for word in (f"topic={topic}", *words)), said
    assert all(word in read_file(m.topic(topic) + "/status").decode() for word in words)


INSTEAD = ("fan-out is not built", "a program that consumes one topic, produces to the other")


def test_fan_out(m):
    m.make("parent")
    m.make("child")
    before = read_file(m.topic("child") + "/config")
    children = m.topic("parent") + "/children"
    refused(m, "parent", lambda: os.mkdir(children + "/child"), *INSTEAD)
    refused(m, "parent", lambda: os.mkdir(children + "/parent"), *INSTEAD)
    assert fails(os.mkdir, children + "/nobody") == errno.ENOENT
    refused(m, "child", lambda: write_file(m.topic("child") + "/config", b"fanout_delay_ms=50\n"), *INSTEAD)
    refused(m, "child", lambda: os.setxattr(m.topic("child"), "user.narad.fanout_delay_ms", b"50"), *INSTEAD)
    configure(m.topic("child"), fanout_delay_ms=0)  # which it has
    assert read_file(m.topic("child") + "/config") == before
    assert os.listdir(children) == []
    assert fails(os.rmdir, children + "/child") == errno.ENOENT
    os.rmdir(m.topic("parent"))
    os.rmdir(m.topic("child"))


def test_what_stands_in_for_fan_out(m):
    """As the refusal says: a copy, and the parent's records are settled behind it."""
    parent, child = m.make("from"), m.make("to")
    produce(parent, *range(50))
    with Consumer(parent) as consumer:
        fd = os.open(child + "/produce", os.O_WRONLY)
        for _ in range(50):
            os.write(fd, consumer.read())
        os.fsync(fd)
        os.close(fd)
        consumer.sync()
    assert log(child) == log(parent) == lines(*range(50))
    assert number(parent, "lag") == 0


def test_segments(m):
    part = m.make("segments")
    produce(part, "a")
    assert os.listdir(part + "/segments") == []
    assert fails(os.stat, f"{part}/segments/{0:020d}.log") == errno.ENOENT
    for verb in ("roll", "trim 1"):
        refused(m, "segments", lambda verb=verb: write_file(part + "/ctl", verb.encode() + b"\n"), verb.split()[0],
                "retention_ms and retention_bytes")
    for line in ("segment_bytes=65536", "codec=zstd", "zstd_level=5", "max_acked_ahead=5"):
        refused(m, "segments", lambda line=line: write_file(m.topic("segments") + "/config", line.encode() + b"\n"),
                line.split("=")[0], "means nothing in JetStream")
    shell(f"ls -lR {m.mnt} > {m.base}/list; find {m.mnt} -ls > {m.base}/list; du -a {m.mnt} > {m.base}/list")


def test_an_option_that_means_nothing(mount_on, servers):
    m = mount_on(servers, "codec=zstd", start=False)
    assert not m.try_start()
    assert "codec means nothing in JetStream" in m.stderr()


@pytest.mark.parametrize("tool", [
    "cat LOG > OUT", "cp LOG OUT", "cp -a LOG OUT", "dd if=LOG of=OUT bs=4k status=none", "grep '' LOG > OUT",
    "tail -n +1 LOG > OUT", "head -n 3000 LOG > OUT", "sort -n LOG > OUT", "tee OUT < LOG > /dev/null", "awk '{ print }' LOG > OUT",
    "sed '' LOG > OUT"])
def test_programs_that_read_a_log_whole(m, tool):
    """Its size is 0 before anybody has read it; who reads up to the end of the file has all of it."""
    part = m.make("tool")
    rows = [f"{n} " + "x" * (n % 300) for n in range(2000)]
    produce(part, *rows)
    assert os.stat(part + "/log").st_size == 0
    for path in ("log", "from/0"):
        shell(tool.replace("LOG", f"{part}/{path}").replace("OUT", f"{m.base}/out"))
        assert read_file(m.base + "/out") == lines(*rows), path
        os.unlink(m.base + "/out")
    write_file(m.topic("tool") + "/ctl", b"delete " + os.getxattr(part, "user.narad.incarnation") + b"\n")


def test_programs_that_believe_the_size(m):
    """... read nothing, and come to their end."""
    part = m.make("believed")
    produce(part, *range(2000))
    assert int(shell(f"wc -l < {part}/log").stdout) == 2000
    assert shell(f"tail -n 1 {part}/log").stdout == b"1999\n"
    shell(f"cp -a {m.topic('believed')} {m.base}/copy")
    assert read_file(m.base + "/copy/p00000/log") == read_file(m.base + "/copy/p00000/from/start") == lines(*range(2000))
    shell(f"tar -C {m.mnt} -cf {m.base}/tar topics/believed; tar -xf {m.base}/tar -C {m.base}")
    assert os.stat(m.base + "/topics/believed/p00000/log").st_size == 0
    with open(part + "/log", "rb") as source, open(m.base + "/sent", "wb") as sink:
        assert os.sendfile(sink.fileno(), source.fileno(), 0, 100) == 0
    assert number(part, "in_flight") == 0 and number(part, "lag") == 2000


def test_a_stop_gives_leases_back(m):
    """Nobody could settle them any more; their records do not wait for their time to be over."""
    part = m.make("stopped", visibility_timeout_ms=43200000)
    produce(part, "a", "b", "c")
    assert len(take(part, 2)) == 2
    m.restart()
    got = b""

    def all_of_it():
        nonlocal got
        got += drain(part)
        return len(got) == 6

    wait_for(all_of_it, "the records")
    assert sorted(got.split()) == [b"a", b"b", b"c"]


def test_in_flight_is_what_somebody_holds(m):
    part = m.make("held", visibility_timeout_ms=1000)
    produce(part, "a", "b", "c")
    with Consumer(part) as one, Consumer(part) as other:
        assert (one.read(), other.read()) == (b"a\n", b"b\n")
        assert number(part, "in_flight") == 2
        one.write(b"nack\n")
        wait_for(lambda: number(part, "in_flight") <= 1, "what was given back")
        wait_for(lambda: number(part, "in_flight") == 0, "the lease to lapse")
        assert number(part, "lag") == 3
        got = sorted(wait_for(lambda: read_or_none(one), "a record") for _ in range(3))
        assert got == [b"a\n", b"b\n", b"c\n"]
        assert fails(other.write, b"ack 1\n") == errno.ESTALE


def read_or_none(reader):
    try:
        return reader.read()
    except BlockingIOError:
        return None


def test_the_longest_retention(m):
    part = m.make("long", retention_ms=(1 << 63) - 1)
    produce(part, "a")
    assert log(part) == b"a\n"
