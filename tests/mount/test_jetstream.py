"""The same tree over NATS JetStream: servers of this test's own on loopback. Left out, with a note, where the server or the
engine is missing. What the daemon says of options needs no server, and is in test_refusals.py."""

import errno
import json
import os
import select
import signal
import struct
import subprocess
import threading
import time

import pytest

from nats import Cluster, JetStreamMount, why_not
from support import (Consumer, Mount, ack, configure, fails, lines, log, number, open_fails, produce, read_file,
                     take, wait_for, write_all, write_file, xattr)

LEADERLESS_S = 60  # a leader is elected in 4 to 16 s; a fsync gives up after 25


pytestmark = [
    pytest.mark.skipif(why_not() is not None, reason=str(why_not())),
    pytest.mark.limit(120),
]


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    """One cluster for all tests that leave it whole; topics have names of their own."""
    cluster = Cluster(tmp_path_factory.mktemp("nats")).start()
    yield cluster
    cluster.end()


@pytest.fixture
def own_servers(tmp_path):
    """A cluster to do harm to."""
    cluster = Cluster(tmp_path / "nats").start()
    yield cluster
    cluster.end()


@pytest.fixture
def mount_on(tmp_path, limit):
    made = []

    def make(cluster, options="", name="m", start=True):
        mount = JetStreamMount(tmp_path / f"{name}{len(made)}", cluster.url, options)
        made.append(mount)
        return mount.start() if start else mount

    yield make
    wrong = [error for error in [mount.destroy() for mount in reversed(made)] if error]
    if wrong:
        raise wrong[0]


@pytest.fixture
def m(mount_on, servers):
    return mount_on(servers)


@pytest.fixture
def name(request):
    return "t." + request.node.name.replace("[", "-").replace("]", "")[:100]


def stream_of(topic, partition=0):
    """The name of the stream behind a partition's folder."""
    return f"narad_{os.path.basename(topic).replace('.', '=')}_{xattr(topic, 'incarnation')}_p{partition:05d}"


# -- the tree


def test_produce_and_read(m, name):
    part = m.make(name)
    produce(part, "one", "two", "", "four")
    assert log(part) == b"one\ntwo\n\nfour\n"
    assert read_file(part + "/from/2") == b"\nfour\n"
    assert read_file(part + "/records/3") == b"four"
    assert os.listdir(part + "/records") == ["0", "1", "2", "3"]
    assert open_fails(part + "/records/4", os.O_RDONLY) == errno.ENOENT
    assert open_fails(part + "/from/5", os.O_RDONLY) == errno.ENOENT
    assert number(part, "hwm") == 4 and number(part, "oldest_offset") == 0 and number(part, "lag") == 4
    assert xattr(part, "durability") == "quorum"
    assert os.readlink(part + "/by-time/0") == "../from/0"
    assert os.readlink(part + "/by-time/4102444800000") == "../from/4"
    assert os.stat(part + "/log").st_size == 0


def test_a_long_log_forwards_and_back(m, name):
    part = m.make(name)
    records = [f"{i:06d} " + "x" * (i % 900) for i in range(3000)]
    produce(part, *records)
    text = lines(*records)
    assert log(part) == text
    fd = os.open(part + "/log", os.O_RDONLY)
    for pos in (len(text) - 10, 0, len(text) // 2, len(text) // 3, 700000, 13):
        assert os.pread(fd, 5000, pos) == text[pos:pos + 5000]
    assert os.pread(fd, 5000, len(text)) == b""
    produce(part, "more")
    assert os.pread(fd, 5000, len(text)) == b"more\n"
    os.close(fd)


def test_a_log_is_followed(m, name, tmp_path):
    part = m.make(name)
    produce(part, "one", "two")
    with open(tmp_path / "said", "wb") as said:
        process = subprocess.Popen(["tail", "-s", "0.1", "-f", part + "/log"], stdout=said, stderr=subprocess.STDOUT)
    try:
        wait_for(lambda: (tmp_path / "said").read_bytes() == b"one\ntwo\n", "what is there")
        for word in ("three", "four"):
            produce(part, word)
            wait_for(lambda w=word: (tmp_path / "said").read_bytes().endswith(w.encode() + b"\n"), "what comes")
    finally:
        process.terminate()
        process.wait(10)
    assert (tmp_path / "said").read_bytes() == b"one\ntwo\nthree\nfour\n"


def test_keys_and_other_framings(m, name):
    part = m.make(name)
    write_and_sync(part + "/produce.jsonl", b'{"key":"k\\u00e9","payload":{"a":1}}\n{"payload":"plain"}\n')
    key, payload = b"\x00\xff\r\n", b"\x00\n\x01"
    write_and_sync(part + "/produce.bin", struct.pack(">II", len(key), len(payload)) + key + payload)
    assert read_file(part + "/records/2") == payload
    assert os.getxattr(part + "/records/2", "user.narad.key") == key
    objects = [json.loads(line) for line in read_file(part + "/log.jsonl").splitlines()]
    assert [(each["key"], each["payload"]) for each in objects[:2]] == [("ké", {"a": 1}), (None, "plain")]
    assert [each["offset"] for each in objects] == [0, 1, 2]


def write_and_sync(path, data, flags=os.O_WRONLY):
    fd = os.open(path, flags)
    try:
        write_all(fd, data)
        os.fsync(fd)
    finally:
        os.close(fd)


def test_offsets_are_read_back(m, name):
    part = m.make(name)
    fd = os.open(part + "/produce", os.O_RDWR)
    for first, n in ((0, 1), (1, 600), (601, 3)):
        write_all(fd, b"r\n" * n)
        os.fsync(fd)
    text = b""
    while not text.endswith(b" 603\n"):
        text += os.read(fd, 4096)
    os.close(fd)
    runs = [tuple(map(int, line.split()[1:])) for line in text.decode().splitlines()]
    assert [offset for first, last in runs for offset in range(first, last + 1)] == list(range(604))


def test_lingers_and_closes(m, name):
    part = m.make(name, linger_ms=50)
    fd = os.open(part + "/produce", os.O_WRONLY)
    os.write(fd, b"lingers\n")
    wait_for(lambda: log(part) == b"lingers\n", "the background commit")
    os.write(fd, b"closed\nunfinished")
    os.close(fd)
    wait_for(lambda: log(part) == b"lingers\nclosed\nunfinished\n", "the last close")


def test_an_fsync_is_about_the_whole_file(m, name):
    part = m.make(name, linger_ms=60000)
    first = os.open(part + "/produce", os.O_WRONLY)
    os.write(first, b"of the first\n")
    produce(part, "of the second")
    assert sorted(log(part).splitlines()) == [b"of the first", b"of the second"]
    os.close(first)


def test_a_record_that_is_too_long(m, name):
    """The servers take a megabyte with its headers."""
    part = m.make(name)
    fd = os.open(part + "/produce", os.O_WRONLY)
    assert fails(write_all, fd, b"x" * (1 << 20) + b"\n") == errno.EMSGSIZE
    longest = (1 << 20) - 512 - 64000  # a key that fits into a header has room beside it
    assert fails(write_all, fd, b"y" * (longest + 9) + b"\n") == errno.EMSGSIZE
    write_all(fd, b"y" * longest + b"\n")
    os.fsync(fd)
    os.close(fd)
    assert log(part) == b"y" * longest + b"\n"
    fd = os.open(part + "/produce.bin", os.O_WRONLY)
    write_all(fd, (48000).to_bytes(4, "big") + longest.to_bytes(4, "big") + b"k" * 48000 + b"z" * longest)
    os.fsync(fd)
    os.close(fd)
    assert number(part, "hwm") == 2


def test_records_of_a_topic(m, name):
    m.make(name, partitions=3)
    topic = m.topic(name)
    fd = os.open(topic + "/produce.jsonl", os.O_WRONLY)
    write_all(fd, b"".join(b'{"key":"%s","payload":"%d"}\n' % (key, i) for i in range(20) for key in (b"a", b"b", b"c")))
    os.fsync(fd)
    os.close(fd)
    for key in "abc":
        home = [p for p in range(3) if f'"key":"{key}"'.encode() in read_file(f"{m.part(name, p)}/log.jsonl")]
        assert home == [fnv1a(key.encode()) % 3]
        found = [json.loads(line) for line in read_file(f"{m.part(name, home[0])}/log.jsonl").splitlines()]
        assert [each["payload"] for each in found if each["key"] == key] == list(range(20))


def fnv1a(data):
    value = 2166136261
    for byte in data:
        value = (value ^ byte) * 16777619 & 0xFFFFFFFF
    return value


def test_topics(m, name):
    assert fails(os.mkdir, m.topic("a" * 201)) == errno.ENAMETOOLONG
    assert fails(os.mkdir, m.topic(".a")) == errno.EINVAL
    part = m.make(name)
    assert fails(os.mkdir, m.topic(name)) == errno.EEXIST
    assert name in os.listdir(m.mnt + "/topics")
    fd = os.open(part + "/produce", os.O_WRONLY)
    assert fails(os.rmdir, m.topic(name)) == errno.EBUSY
    os.write(fd, b"x\n")
    os.close(fd)
    wait_for(lambda: number(part, "hwm") == 1, "the record")
    assert fails(os.rmdir, m.topic(name)) == errno.ENOTEMPTY
    os.chmod(m.topic(name), 0o711)
    os.chown(part + "/consume", 12, 34)
    with Consumer(part) as reader:
        reader.read()
        assert fails(write_file, m.topic(name) + "/ctl", b"delete 0000000000000000\n") == errno.EINVAL
        write_file(m.topic(name) + "/ctl", b"delete " + xattr(m.topic(name), "incarnation").encode() + b"\n")
        assert fails(reader.read) == errno.EIDRM
    assert name not in os.listdir(m.mnt + "/topics")
    part = m.make(name)  # another one: nothing of the one before
    assert log(part) == b"" and number(part, "hwm") == 0
    os.rmdir(m.topic(name))
    assert not os.path.exists(part)


def test_owner_and_mode_persist(m, name):
    part = m.make(name)
    os.chmod(part + "/produce", 0o620)
    os.chown(m.topic(name), 12, 34)
    m.restart()
    assert os.stat(part + "/produce").st_mode & 0o7777 == 0o620
    assert (os.stat(m.topic(name)).st_uid, os.stat(m.topic(name)).st_gid) == (12, 34)


def test_what_has_no_meaning(m, name):
    part = m.make(name)
    assert os.listdir(part + "/segments") == []
    for verb in (b"roll\n", b"trim 0\n"):
        assert fails(write_file, part + "/ctl", verb) == errno.EOPNOTSUPP
    for setting in (b"segment_bytes=65536\n", b"codec=zstd\n", b"retention_ms=5000\nmax_acked_ahead=1\n"):
        assert fails(write_file, m.topic(name) + "/config", setting) == errno.EOPNOTSUPP
    assert b"retention_ms=604800000\n" in read_file(m.topic(name) + "/config")
    assert fails(write_file, m.topic(name) + "/config", b"partitions=0\n") == errno.EINVAL
    assert fails(os.mkdir, m.topic(name) + "/children/" + name) == errno.EOPNOTSUPP
    assert b"fan-out is not built" in read_file(m.topic(name) + "/status")


def test_retention(m, name):
    part = m.make(name, retention_ms=1000)
    produce(part, "soon gone")
    wait_for(lambda: number(part, "oldest_offset") == 1, "the servers to delete it")
    assert log(part) == b"" and open_fails(part + "/records/0", os.O_RDONLY) == errno.ENOENT
    os.rmdir(m.topic(name))


# -- consuming


def test_consume(m, name):
    part = m.make(name)
    produce(part, "a", "b", "c")
    with Consumer(part) as one, Consumer(part) as other:
        assert (one.read(), other.read(), one.read()) == (b"a\n", b"b\n", b"c\n")
        assert one.none() and number(part, "in_flight") == 3
        other.write(b"nack\n")
        assert one.read() == b"b\n"
        one.sync()
    wait_for(lambda: number(part, "frontier") == 3, "the frontier")
    assert number(part, "lag") == 0


def test_a_close_gives_back(m, name):
    part = m.make(name)
    produce(part, "a", "b")
    with Consumer(part) as reader:
        reader.read()
        reader.read()
        reader.write(b"ack 0\n")
    with Consumer(part) as reader:
        assert wait_for(lambda: read_or_none(reader), "the record that was not acked") == b"b\n"
        assert reader.none()


def read_or_none(reader):
    try:
        return reader.read()
    except BlockingIOError:
        return None


def test_receipts(m, name):
    part = m.make(name, visibility_timeout_ms=2000)
    produce(part, "a", "b", "c")
    a, b, c = take(part)
    assert [each["offset"] for each in (a, b, c)] == [0, 1, 2]
    assert ack(part, a["handle"], sync=True) == len(a["handle"]) + 1
    assert fails(ack, part, a["handle"]) == errno.ESTALE
    assert fails(ack, part, "0:1:4711") == errno.ESTALE
    assert fails(ack, part, "1:1:4711") == errno.EINVAL
    ack(part, b["handle"], verb="nack")
    again = wait_for(lambda: take(part, 1), "the record that was given back")[0]
    assert again["offset"] == 1 and again["handle"] != b["handle"]
    assert fails(ack, part, b["handle"]) == errno.ESTALE
    for _ in range(4):
        time.sleep(0.7)
        ack(part, c["handle"], verb="extend")
    ack(part, c["handle"])  # it lived for longer than its timeout
    wait_for(lambda: take(part, 1), "the lapse of the other")
    assert fails(ack, part, again["handle"]) == errno.ESTALE


def test_bin_and_drain(m, name):
    part = m.make(name)
    produce(part, *[f"r{i}" for i in range(500)])
    with Consumer(part, "consume.bin") as reader:
        data = reader.read(10000)
    receipts, pos = [], 0
    while pos < len(data):
        length, partition, offset, nonce, _, key_size = struct.unpack_from(">IIQQQI", data, pos)
        assert data[pos + 36 + key_size:pos + 4 + length] == f"r{offset}".encode()
        receipts.append(f"{partition}:{offset}:{nonce}")
        pos += 4 + length
    assert len(receipts) > 100
    ack(part, *receipts, sync=True)
    drained = read_file(part + "/drain", 4096).splitlines()
    assert sorted(drained) == sorted(f"r{i}".encode() for i in range(len(receipts), 500))
    wait_for(lambda: number(part, "lag") == 0, "everything settled")


def test_seek(m, name):
    part = m.make(name)
    produce(part, *"abcdef")
    receipt = take(part, 1)[0]["handle"]
    read_file(part + "/drain")
    write_file(part + "/ctl", b"seek 3\n")
    assert fails(ack, part, receipt) == errno.ESTALE
    assert number(part, "frontier") == 3 and number(part, "lag") == 3
    assert read_file(part + "/drain") == b"d\ne\nf\n"
    write_file(part + "/ctl", b"seek start\n")
    configure(m.topic(name), visibility_timeout_ms=5000)  # the consumer keeps its start
    assert read_file(part + "/drain") == b"a\nb\nc\nd\ne\nf\n"
    write_file(part + "/ctl", b"seek 2\nseek end\n")
    assert read_file(part + "/drain") == b""
    produce(part, "g")
    assert read_file(part + "/drain") == b"g\n"
    assert fails(write_file, part + "/ctl", b"seek 9\n") == errno.EINVAL


def test_a_parked_read(m, name):
    part = m.make(name)
    got = []
    with Consumer(part, flags=os.O_RDWR) as reader:
        thread = threading.Thread(target=lambda: got.append(reader.read()))
        thread.start()
        time.sleep(7)  # longer than a pull is kept by the servers
        produce(part, "late")
        thread.join(10)
        assert got == [b"late\n"]
        reader.sync()


def test_an_interrupted_read(m, name):
    part = m.make(name)
    process = subprocess.Popen(["cat", part + "/consume"], stdout=subprocess.PIPE)
    time.sleep(1)
    process.send_signal(signal.SIGTERM)
    assert process.wait(10) == -signal.SIGTERM and process.stdout.read() == b""
    produce(part, "for the next one")
    with Consumer(part, flags=os.O_RDONLY) as reader:
        assert reader.read() == b"for the next one\n"


def test_waits_end(m, name):
    part = m.make(name, consume_wait_ms=300)
    assert read_file(part + "/consume") == b""
    configure(m.topic(name), consume_wait_ms=-1)
    reader = Consumer(part, flags=os.O_RDONLY)
    errors = []
    thread = threading.Thread(target=lambda: errors.append(fails(reader.read)))
    thread.start()
    time.sleep(0.5)
    m.stop()
    thread.join(10)
    assert errors == [errno.ENODEV]
    reader.close()


def test_poll(m, name):
    part = m.make(name)
    with Consumer(part) as reader:
        poll = select.poll()
        poll.register(reader.fd, select.POLLIN)
        assert poll.poll(300) == []
        threading.Timer(0.3, produce, [part, "x"]).start()
        assert poll.poll(10000) == [(reader.fd, select.POLLIN)]
        assert reader.read() == b"x\n"
        reader.sync()
        assert poll.poll(300) == []


def test_consuming_a_topic(m, name):
    m.make(name, partitions=3)
    for i in range(3):
        produce(m.part(name, i), *[f"p{i}-{k}" for k in range(4)])
    topic = m.topic(name)
    with Consumer(topic) as reader:
        got = [reader.read() for _ in range(12)]
        assert sorted(got) == sorted(f"p{i}-{k}\n".encode() for i in range(3) for k in range(4))
        assert len({each[:2] for each in got[:3]}) == 3  # in turn
        assert reader.none()
        reader.sync()
    threading.Timer(0.5, produce, [m.part(name, 2), "late"]).start()
    with Consumer(topic, flags=os.O_RDWR) as reader:
        assert reader.read() == b"late\n"
        reader.sync()
    produce(topic, *[str(i) for i in range(100)])
    assert len(read_file(topic + "/drain").splitlines()) == 100


# -- several mounts


def test_two_mounts(m, name, mount_on, servers):
    other = mount_on(servers)
    part = m.make(name)
    there = other.part(name)
    wait_for(lambda: os.path.exists(there), "the topic at the other mount")
    produce(part, "from one")
    produce(there, "from the other")
    assert log(part) == log(there) == b"from one\nfrom the other\n"
    with Consumer(part) as one, Consumer(there) as two:
        assert {one.read(), wait_for(lambda: read_or_none(two), "its record")} == {b"from one\n", b"from the other\n"}
        assert one.none() and two.none()
        one.sync()
        two.sync()
    configure(other.topic(name), partitions=2, visibility_timeout_ms=5000)
    wait_for(lambda: os.path.exists(m.part(name, 1)), "the new partition")
    configure(m.topic(name), consume_wait_ms=0)
    wait_for(lambda: b"consume_wait_ms=0\n" in read_file(other.topic(name) + "/config"), "the setting")
    assert b"visibility_timeout_ms=5000\n" in read_file(other.topic(name) + "/config")
    handle = os.open(there + "/log", os.O_RDONLY)
    write_file(m.topic(name) + "/ctl", b"delete " + xattr(m.topic(name), "incarnation").encode() + b"\n")
    wait_for(lambda: not os.path.exists(other.topic(name)), "the deletion at the other mount")
    assert fails(os.read, handle, 10) == errno.EIDRM
    os.close(handle)


def test_restarts(m, name):
    part = m.make(name, visibility_timeout_ms=1500)
    produce(part, "a", "b")
    receipt = take(part, 1)[0]["handle"]
    m.restart()
    assert fails(ack, part, receipt) == errno.ESTALE  # it was of the daemon that is gone
    assert log(part) == b"a\nb\n"
    got = [wait_for(lambda: take(part, 1), "a record")[0]["payload"] for _ in range(2)]
    assert sorted(got) == ["a", "b"]
    m.crash()
    produce(part, "c")
    assert log(part) == b"a\nb\nc\n"


def test_read_only(m, name, mount_on, servers):
    part = m.make(name)
    produce(part, "a")
    other = mount_on(servers, "ro")
    assert log(other.part(name)) == b"a\n"
    assert fails(os.mkdir, other.topic(name + "x")) == errno.EROFS
    assert open_fails(other.part(name) + "/produce", os.O_WRONLY) == errno.EROFS


# -- what is promised, and what is said of it


def test_durability(servers, mount_on, tmp_path):
    m = mount_on(servers, "fsync=asserted,require_fsync")
    m.make("durable")
    assert xattr(m.part("durable"), "durability") == "quorum+fsync"
    assert "durability   quorum+fsync: " in read_file(m.mnt + "/status").decode()
    refused = JetStreamMount(tmp_path / "refused", servers.url, "require_fsync")
    assert not refused.try_start()
    assert "only in memory" in refused.stderr() and "fsync=asserted" in refused.stderr()


def test_nobody_there(tmp_path):
    refused = JetStreamMount(tmp_path / "m", "nats://me:secret@127.0.0.1:1")
    assert not refused.try_start()
    assert "none of the NATS servers nats://127.0.0.1:1 could be used" in refused.stderr()
    assert "secret" not in refused.stderr()
    assert "could be used: No server available for connection; name one" in refused.stderr()


@pytest.mark.parametrize("source", ["servers", "none"])
def test_in_the_place_of_a_data_directory(servers, mount_on, tmp_path, source):
    """As mount(8) and a unit start it."""
    mount = JetStreamMount(tmp_path / "m", servers.url)
    options = "engine=jetstream" if source == "servers" else mount.options
    mount.spawn([mount.binary, servers.url if source == "servers" else "none", mount.mnt, "-f", "-o", options])
    try:
        mount.wait_mounted()
        assert servers.url in read_file(mount.mnt + "/status").decode()
    finally:
        wrong = mount.destroy()
    assert not wrong


def test_one_server(tmp_path, mount_on):
    one = Cluster(tmp_path / "one", 1).start()
    try:
        m = mount_on(one)
        part = m.make("t")
        produce(part, "a")
        assert log(part) == b"a\n" and xattr(part, "durability") == "server"
    finally:
        for mount in list(Mount.live):
            mount.destroy()
        one.end()


def write_until(stop, part, acknowledged, errors):
    """Numbered records, each with an fsync of its own, which is repeated until it succeeds."""
    fd = os.open(part + "/produce", os.O_WRONLY)
    n = 0
    while not stop.is_set():
        os.write(fd, b"%d\n" % n)
        while True:
            try:
                os.fsync(fd)
                break
            except OSError as error:
                errors.append(error.errno)
        acknowledged.append(n)
        n += 1
    os.close(fd)


@pytest.mark.limit(300)
def test_a_leader_is_killed(own_servers, mount_on):
    """kill -9 of the leader, twice, while records are written: each acknowledged one is there, once, in order."""
    m = mount_on(own_servers)
    part = m.make("t")
    stream = stream_of(m.topic("t"))
    stop, acknowledged, errors = threading.Event(), [], []
    writer = threading.Thread(target=write_until, args=(stop, part, acknowledged, errors))
    writer.start()
    for _ in range(2):
        n = len(acknowledged)
        wait_for(lambda: len(acknowledged) > n + 200, "progress", LEADERLESS_S)
        leader = own_servers.leader_of(stream)
        leader.kill()
        n = len(acknowledged)
        wait_for(lambda: len(acknowledged) > n + 200, "progress without the old leader", LEADERLESS_S)
        leader.start()
        own_servers.wait_copies(stream)
    stop.set()
    writer.join(LEADERLESS_S)
    assert not writer.is_alive() and set(errors) <= {errno.EIO}
    assert [int(line) for line in log(part).splitlines()] == acknowledged
    assert len(read_file(part + "/drain").splitlines()) == len(acknowledged)


@pytest.mark.limit(400)
def test_every_server_is_killed_in_turn(own_servers, mount_on):
    """One of them has the mount's connection, one leads the stream, one the consumer: a parked read gets its record all the
    same, and its ack holds."""
    m = mount_on(own_servers)
    part = m.make("t")
    stream = stream_of(m.topic("t"))
    for i, server in enumerate(own_servers.servers):
        got = []
        with Consumer(part, flags=os.O_RDWR) as reader:
            thread = threading.Thread(target=lambda: got.append(reader.read()))
            thread.start()
            time.sleep(1)
            server.kill()
            write_and_sync_until(part, b"%d\n" % i)
            thread.join(LEADERLESS_S)
            assert got == [b"%d\n" % i]
            reader.sync()
        server.start()
        own_servers.wait_copies(stream)
    assert log(part) == b"0\n1\n2\n" and read_file(part + "/drain") == b""


def write_and_sync_until(part, data):
    fd = os.open(part + "/produce", os.O_WRONLY)
    os.write(fd, data)
    while True:
        try:
            os.fsync(fd)
            break
        except OSError as error:
            assert error.errno == errno.EIO
    os.close(fd)


@pytest.mark.limit(300)
def test_no_quorum(own_servers, mount_on):
    """With two of three down an fsync fails, the batch stays, and lands once when they are back."""
    m = mount_on(own_servers)
    part = m.make("t")
    produce(part, "before")
    stream = stream_of(m.topic("t"))
    leader = own_servers.leader_of(stream)
    down = [server for server in own_servers.servers if server is not leader]
    for server in down:
        server.kill()
    fd = os.open(part + "/produce", os.O_RDWR)
    os.write(fd, b"kept\nalso\n")
    assert fails(os.fsync, fd) == errno.EIO
    assert fails(read_file, part + "/drain") == errno.EIO  # not the end of the records
    assert "poisoned" in read_file(part + "/status").decode()
    for server in down:
        server.start()
    own_servers.wait_ready()
    own_servers.wait_copies(stream)
    os.fsync(fd)
    os.close(fd)
    assert log(part) == b"before\nkept\nalso\n"
    wait_for(lambda: "state        ok" in read_file(part + "/status").decode(), "the status to be well")


@pytest.mark.limit(120)
def test_a_stream_that_was_made_anew(m, name, servers):
    """Somebody deletes the stream and makes one of that name: nothing is taken or served until a person accepts it."""
    part = m.make(name)
    produce(part, "a", "b")
    stream = stream_of(m.topic(name))
    config = servers.stream_info(stream)["config"]
    servers.ask("$JS.API.STREAM.DELETE." + stream)
    servers.ask("$JS.API.STREAM.CREATE." + stream, json.dumps(config).encode())
    servers.leader_of(stream)
    wait_for(lambda: xattr(part, "poisoned") == "1" and "made anew" in xattr(part, "poison_reason"), "the poison")
    assert open_fails(part + "/produce", os.O_WRONLY) == errno.EIO
    assert open_fails(part + "/log", os.O_RDONLY) == errno.EIO
    write_file(part + "/ctl", b"reopen\n")
    assert xattr(part, "poisoned") == "0"
    produce(part, "c")
    assert log(part) == b"c\n"


def test_the_daemon_ends_at_once(m, name):
    m.make(name)
    began = time.monotonic()
    m.stop()
    assert time.monotonic() - began < 10  # a sane bound: it does not run into a time-out
