"""Leases and acks over NATS JetStream: what is promised of them when servers, mounts and consumers come and go."""

import errno
import json
import os
import select
import signal
import threading
import time
from types import SimpleNamespace

import pytest

from nats import Cluster, Listener, Relay
from support import (Background, Consumer, ack, configure, fails, freeze, metric, number, produce, read_file, take,
                     wait_for, write_file, xattr)
from test_jetstream import (m, mount_on, name, own_servers, pytestmark, read_or_none, servers,  # noqa: F401
                            stream_of)


@pytest.fixture
def one_server(tmp_path):
    """Quick to kill and to start again."""
    cluster = Cluster(tmp_path / "nats", 1).start()
    yield cluster
    cluster.end()


def connected(mount):
    return b"narad_servers_connected 1\n" in read_file(mount.mnt + "/metrics")


def shut_down(cluster):
    """In order: a single server that is killed forgets what was leased in its last moments."""
    process = cluster.servers[0].process
    process.terminate()
    process.wait(30)


def bring_back(cluster, *mounts):
    cluster.servers[0].start()
    cluster.wait_ready()
    for mount in mounts:
        wait_for(lambda each=mount: connected(each), "the connection", 40)


def sync_error(path):
    """What an fsync of a file fails with; 0."""
    fd = os.open(path, os.O_WRONLY if path.endswith("/ack") else os.O_RDWR)
    try:
        os.fsync(fd)
    except OSError as error:
        return error.errno
    finally:
        os.close(fd)
    return 0


def offsets(records):
    return [each["offset"] for each in records]


# -- acks are waited for, and their failure is told


@pytest.mark.parametrize("file", ["ack", "consume"])
def test_an_fsync_waits_for_acks(one_server, mount_on, file):
    """The server hangs while an ack is under way: the fsync does not return before it has confirmed it."""
    m = mount_on(one_server)
    part = m.make("t")
    produce(part, "a", "b")
    with Consumer(part) as reader:
        reader.read()
        receipt = None if file == "consume" else take(part)[0]["handle"]
        one_server.servers[0].hang()
        if file == "consume":
            reader.write(b"ack 0\n")
            sync = Background(reader.sync)
        else:
            ack(part, receipt)
            sync = Background(sync_error, part + "/ack")
        time.sleep(1)
        assert sync.running()
        one_server.servers[0].process.send_signal(signal.SIGCONT)
        assert not sync.join(40) and not sync.error
        assert number(part, "frontier") == (1 if file == "consume" else 0)
        assert number(part, "in_flight") == (0 if file == "consume" else 1)


@pytest.mark.parametrize("file", ["ack", "consume"])
def test_an_ack_that_is_given_up_is_told_once(one_server, mount_on, file):
    """The server is dead until the lease is over. Nobody waits meanwhile: the next fsync says so, and only that."""
    m = mount_on(one_server)
    part = m.make("t", visibility_timeout_ms=4000)
    produce(part, "a")
    receipt = take(part)[0]["handle"].encode() + b"\n"
    fd = os.open(part + "/ack", os.O_WRONLY)
    one_server.servers[0].kill()
    os.write(fd, receipt)
    assert fails(os.write, fd, receipt) == errno.ESTALE
    os.close(fd)
    wait_for(lambda: "could not be confirmed" in m.stderr(), "the end of the lease")
    bring_back(one_server, m)
    assert sync_error(part + "/" + file) == errno.EIO
    assert sync_error(part + "/" + file) == 0
    assert offsets(wait_for(lambda: take(part), "the record again")) == [0]


def test_with_a_lost_ack_an_fsync_settles_nothing(one_server, mount_on):
    """Whoever undoes his work when an fsync fails does not find it settled."""
    m = mount_on(one_server)
    part = m.make("t", visibility_timeout_ms=4000)
    produce(part, "a", "b")
    with Consumer(part) as reader:
        reader.read()
        one_server.servers[0].kill()
        reader.write(b"ack 0\n")
        wait_for(lambda: "could not be confirmed" in m.stderr(), "the end of the lease")
        bring_back(one_server, m)
        assert wait_for(lambda: read_or_none(reader), "a record") in (b"a\n", b"b\n")
        assert fails(reader.sync) == errno.EIO
        assert number(part, "lag") == 2
        reader.sync()
        assert number(part, "lag") == 1


# -- leases that are void


def test_a_seek_of_another_mount(m, name, mount_on, servers):
    """What was leased before settles nothing afterwards, whichever mount moves the consumer."""
    other = mount_on(servers)
    part, there = m.make(name), other.part(name)
    produce(part, "a", "b")
    old = take(part, 1)[0]["handle"]
    wait_for(lambda: os.path.exists(there), "the topic at the other mount")
    write_file(there + "/ctl", b"seek start\n")
    new = wait_for(lambda: take(there, 1), "the record at the other mount")[0]
    assert new["offset"] == 0
    fd = os.open(part + "/ack", os.O_WRONLY)
    try:
        os.write(fd, old.encode() + b"\n")
        os.fsync(fd)
        raise AssertionError("an ack of a lease that is void succeeded")
    except OSError as error:
        assert error.errno == errno.ESTALE
    finally:
        os.close(fd)
    ack(there, new["handle"], verb="nack")  # it is not settled: it comes again
    assert sorted(offsets(wait_for(lambda: take(there), "the record again"))) == [0, 1]
    assert fails(ack, part, old) == errno.ESTALE


def test_a_wait_outlives_a_seek_of_another_mount(m, name, mount_on, servers):
    other = mount_on(servers)
    part, there = m.make(name), other.part(name)
    produce(part, "a")
    read_file(part + "/drain")
    wait_for(lambda: os.path.exists(there), "the topic at the other mount")
    with Consumer(part, flags=os.O_RDWR) as one, Consumer(m.topic(name), flags=os.O_RDWR) as whole:
        waits = [Background(one.read), Background(whole.read)]
        time.sleep(1)
        assert all(each.running() for each in waits)
        write_file(there + "/ctl", b"seek start\n")
        produce(there, "b")
        assert {each.join(40) for each in waits} == {b"a\n", b"b\n"}


def test_poison_makes_leases_void(m, name, servers):
    """The stream is made anew: an ack from before would settle what has that offset now."""
    part = m.make(name)
    produce(part, "a", "b")
    receipt = take(part, 1)[0]["handle"]
    with Consumer(part, flags=os.O_RDWR) as reader:
        assert reader.read() == b"b\n"
        waits = Background(reader.read)
        stream = stream_of(m.topic(name))
        config = servers.stream_info(stream)["config"]
        servers.ask("$JS.API.STREAM.DELETE." + stream)
        servers.ask("$JS.API.STREAM.CREATE." + stream, json.dumps(config).encode())
        servers.leader_of(stream)
        wait_for(lambda: xattr(part, "poisoned") == "1" and "made anew" in xattr(part, "poison_reason"), "the poison")
        waits.join()
        assert waits.error.errno == errno.EIO
        assert fails(ack, part, receipt) == errno.ESTALE
        write_file(part + "/ctl", b"reopen\n")
        produce(part, "c", "d")
        assert fails(ack, part, receipt) == errno.ESTALE
        assert fails(reader.write, b"ack 1\n") == errno.ESTALE
    assert sorted(read_file(part + "/drain").splitlines()) == [b"c", b"d"]


def test_reopen_makes_leases_void(m, name):
    part = m.make(name, visibility_timeout_ms=2000)
    produce(part, "a")
    receipt = take(part, 1)[0]["handle"]
    write_file(part + "/ctl", b"reopen\n")
    assert fails(ack, part, receipt) == errno.ESTALE
    assert offsets(wait_for(lambda: take(part), "the record again")) == [0]


# -- nothing is kept to be sent later


def test_a_record_that_comes_after_its_reader_has_given_up(one_server, mount_on):  # noqa: F811
    """It is the next reader's, and not leased to nobody for ten minutes."""
    relay = Relay(one_server.servers[0])
    try:
        m = mount_on(relay)
        part = m.make("t", visibility_timeout_ms=600000)
        produce(part, "before")
        assert read_file(part + "/drain") == b"before\n"  # there is a consumer
        produce(part, "one")
        fd = os.open(part + "/drain", os.O_RDONLY)
        relay.held = {"back"}
        reader = Background(os.read, fd, 100)
        time.sleep(3.5)  # a second more than it waits, and less than the connection bears
        relay.held = set()
        reader.join(60)
        assert not reader.error or reader.error.errno == errno.EIO
        os.close(fd)  # what it has got after all is given back
        with Consumer(part) as consumer:
            assert wait_for(lambda: read_or_none(consumer), "the record") == b"one\n"
            consumer.sync()
    finally:
        relay.end()


def test_what_comes_late_is_leased_when_it_comes(m, name, mount_on, servers):
    """Every slot is another mount's, so a drain has no answer; it has given up for longer than a lease when one comes."""
    other = mount_on(servers)
    part, there = m.make(name, max_in_flight=1, visibility_timeout_ms=4000), other.part(name)
    read_file(part + "/drain")  # there is a consumer
    produce(part, "a", "b")
    wait_for(lambda: os.path.exists(there), "the topic at the other mount")
    receipt = wait_for(lambda: take(there, 1), "the record at the other mount")[0]["handle"]
    with Consumer(part, flags=os.O_RDWR) as reader:
        drain = Background(read_file, part + "/drain")
        while drain.running():
            ack(there, receipt, verb="extend")
            time.sleep(0.5)
        assert drain.join() == b""
        waits = Background(reader.read)
        for _ in range(4):
            ack(there, receipt, verb="extend")
            time.sleep(0.5)
        ack(there, receipt, sync=True)
        assert waits.join(3) == b"b\n"  # before what was not leased in time would come again
        reader.write(b"ack 1\n")
        reader.sync()
    assert number(part, "frontier") == 2


@pytest.mark.limit(200)
def test_a_nack_while_cut_off_is_not_sent_later(one_server, mount_on):
    """The server is away until the lease is over; when this mount has a connection again the record is another's."""
    m, other = mount_on(one_server), mount_on(one_server)
    part = m.make("t", visibility_timeout_ms=6000)
    produce(part, "a")
    wait_for(lambda: os.path.exists(other.part("t")), "the topic at the other mount")
    receipt = take(part)[0]["handle"].encode()
    fd = os.open(part + "/ack", os.O_WRONLY)
    shut_down(one_server)
    wait_for(lambda: not connected(m), "the loss of the connection")
    os.write(fd, b"nack " + receipt + b"\n")
    assert fails(os.write, fd, receipt + b"\n") == errno.ESTALE
    os.close(fd)  # whoever starts a server closes a copy of it, and would wait for the daemon that is stopped
    m.process.send_signal(signal.SIGSTOP)
    try:
        time.sleep(6)
        bring_back(one_server, other)
        assert offsets(wait_for(lambda: take(other.part("t")), "the record at the other mount", 40)) == [0]
    finally:
        m.process.send_signal(signal.SIGCONT)
    wait_for(lambda: connected(m), "the connection", 40)
    time.sleep(1)  # what was kept would be there by now, and make the record deliverable
    assert take(part) == []


def test_an_extension_while_cut_off_fails(one_server, mount_on):
    """It keeps its end, and its holder; what was confirmed before counts."""
    m = mount_on(one_server)
    part = m.make("t", visibility_timeout_ms=20000)
    produce(part, "a")
    with Consumer(part) as reader:
        reader.read()
        reader.write(b"extend 0\n")
        shut_down(one_server)
        wait_for(lambda: not connected(m), "the loss of the connection")
        assert fails(reader.write, b"extend 0\n") == errno.EIO
        assert "could not be extended" in m.stderr() and "it ends when it would have" in m.stderr()
        bring_back(one_server, m)
        reader.write(b"extend 0\n")
        reader.sync()
        assert number(part, "frontier") == 1


def test_an_extension_is_not_believed_before_it_is_confirmed(one_server, mount_on):
    """The server hangs: the connection is there, and nobody answers."""
    m = mount_on(one_server)
    part = m.make("t", visibility_timeout_ms=3000)
    produce(part, "a")
    receipt = take(part)[0]["handle"].encode() + b"\n"
    fd = os.open(part + "/ack", os.O_WRONLY)
    one_server.servers[0].hang()
    assert fails(os.write, fd, b"extend " + receipt) == errno.EIO
    time.sleep(1.5)
    assert fails(os.write, fd, receipt) == errno.ESTALE  # it has ended when it would have
    os.close(fd)
    one_server.servers[0].process.send_signal(signal.SIGCONT)


# -- acks that come too late


def late_acks(mount):
    return metric(mount, "narad_late_acks_total")


def apart(mount_on, cluster, stream, info):
    """A server that leads neither the stream nor its consumer, its mount, and the one of another server."""
    leaders = [each["cluster"]["leader"] for each in (cluster.stream_info(stream), info())]
    near, far = sorted(cluster.servers, key=lambda server: server.name in leaders)[::2]
    return near, *(mount_on(SimpleNamespace(url=f"nats://127.0.0.1:{server.port}")) for server in (near, far))


def test_a_late_ack_is_counted(own_servers, mount_on):  # noqa: F811
    """It lies at a server that hangs until its record is another mount's, and settles that one's lease: nobody can keep it from
    that, but the mount that has sent it says so, although nothing there waits for the answer any more."""
    maker = mount_on(own_servers)
    topic, part = maker.topic("t"), maker.make("t", visibility_timeout_ms=1500)
    produce(part, "a")
    ack(part, take(part, 1)[0]["handle"], sync=True)
    stream = stream_of(topic)
    consumer = own_servers.ask("$JS.API.CONSUMER.NAMES." + stream)["consumers"][0]

    def info():
        return own_servers.ask(f"$JS.API.CONSUMER.INFO.{stream}.{consumer}")

    server, one, two = apart(mount_on, own_servers, stream, info)
    produce(part, "b")
    fd = os.open(one.part("t") + "/ack", os.O_WRONLY)
    with Consumer(two.part("t"), "consume.jsonl", os.O_RDONLY) as reader:
        receipt = take(one.part("t"), 1)[0]["handle"].encode() + b"\n"
        waits = Background(reader.read)
        wait_for(lambda: info()["num_waiting"] > 0, "the reader")
        server.hang()
        try:
            os.write(fd, receipt)
            other = json.loads(waits.join())
            wait_for(lambda: metric(one, "narad_servers_unanswered_total") > 0, "the end of its patience")
        finally:
            server.process.send_signal(signal.SIGCONT)
    wait_for(lambda: late_acks(one) > 0, "the servers' word")
    wait_for(lambda: "after the end of the lease" in one.stderr() and stream in one.stderr(), "the line in the log")
    assert late_acks(two) == 0
    os.close(fd)
    assert other["offset"] == 1 and number(part, "lag") == 0


def test_a_record_that_came_while_the_mount_was_stopped(m, name, mount_on, servers):
    """It is sent to a mount that is stopped until its time is over: another one has it, and the first gives it to nobody."""
    other = mount_on(servers)
    part, there = m.make(name, visibility_timeout_ms=2000), other.part(name)
    produce(part, "a")
    ack(part, take(part)[0]["handle"], sync=True)
    wait_for(lambda: os.path.exists(there), "the topic at the other mount")
    with Consumer(part, flags=os.O_RDWR) as reader:
        waits = Background(reader.read)
        parked = f"$JS.API.CONSUMER.INFO.{stream_of(m.topic(name))}."
        consumer = servers.ask("$JS.API.CONSUMER.NAMES." + stream_of(m.topic(name)))["consumers"][0]
        wait_for(lambda: servers.ask(parked + consumer)["num_waiting"] > 0, "the reader")
        freeze(m.process)
        try:
            produce(there, "b")
            receipt = wait_for(lambda: take(there, 1), "the record at the other mount")[0]["handle"]
        finally:
            m.process.send_signal(signal.SIGCONT)
        ack(there, receipt, sync=True)
        produce(there, "c")
        assert waits.join() == b"c\n"
        reader.sync()
    assert number(there, "frontier") == 3 and late_acks(m) == 0


def test_nothing_is_sent_for_a_lease_after_its_end(one_server, mount_on):
    """The mount is stopped over the end of its leases, with acks, nacks and extensions in its hands."""
    m = mount_on(one_server)
    part = m.make("t", visibility_timeout_ms=2000)
    produce(part, *["r"] * 60)
    receipts = [each["handle"].encode() for each in take(part, 60)]
    end = time.monotonic() + 2
    fd = os.open(part + "/ack", os.O_WRONLY)
    listener = Listener(one_server.servers[0], "$JS.ACK.>")
    os.write(fd, receipts.pop() + b"\n")
    os.fsync(fd)
    assert [payload for _, payload in listener.heard()] == [b"+ACK"]
    freeze(m.process)
    try:
        writes = [Background(os.write, fd, verb + b" " + receipt + b"\n")
                  for receipt, verb in zip(receipts, [b"ack", b"nack", b"extend"] * 20)]
        time.sleep(max(0.0, end - time.monotonic()))
    finally:
        m.process.send_signal(signal.SIGCONT)
    for each in writes:
        each.join()
        assert each.error.errno == errno.ESTALE
    os.fsync(fd)
    os.close(fd)
    assert listener.heard() == [] and late_acks(m) == 0
    listener.close()


# -- time


def test_a_longer_timeout_counts_when_the_servers_have_it(m, name):
    """An extension under new settings is one for the servers too."""
    part = m.make(name, visibility_timeout_ms=2000)
    produce(part, "a")
    receipt = take(part)[0]["handle"]
    configure(m.topic(name), visibility_timeout_ms=60000)
    ack(part, receipt, verb="extend")
    time.sleep(3)
    assert take(part) == []
    ack(part, receipt, sync=True)
    assert number(part, "frontier") == 1


def test_a_longer_timeout_revives_no_lease(m, name, mount_on, servers):
    """One that has ended may be another mount's by then, also where nobody has noticed the end."""
    other = mount_on(servers)
    part, there = m.make(name, visibility_timeout_ms=1500), other.part(name)
    produce(part, "a")
    wait_for(lambda: os.path.exists(there), "the topic at the other mount")
    fd = os.open(part + "/ack", os.O_WRONLY)
    with Consumer(part) as reader:
        old = take(part)[0]["handle"].encode() + b"\n"  # who looks at a path of the partition after this counts its leases
        assert offsets(wait_for(lambda: take(there), "the record at the other mount")) == [0]
        configure(m.topic(name), visibility_timeout_ms=60000)
        assert reader.none()  # who uses the consumer sets it
        assert fails(os.write, fd, old) == errno.ESTALE
        os.close(fd)


def test_a_shorter_timeout_is_seen_by_a_drain(m, name):
    """With every slot taken here it asks for nothing: until the leases have ended by the new one, not by the old one."""
    part = m.make(name, max_in_flight=1, visibility_timeout_ms=300000)
    produce(part, "a")
    take(part)
    configure(m.topic(name), visibility_timeout_ms=1000)
    assert wait_for(lambda: read_file(part + "/drain"), "the record again", 40) == b"a\n"


def test_a_shorter_timeout_ends_leases(m, name):
    """The servers count what is leased by what they have now, and so does the mount."""
    part = m.make(name, visibility_timeout_ms=60000)
    produce(part, "a", "b")
    receipts = [each["handle"] for each in take(part)]
    configure(m.topic(name), visibility_timeout_ms=1000)
    time.sleep(1)
    assert fails(ack, part, receipts[0]) == errno.ESTALE
    assert sorted(offsets(wait_for(lambda: take(part), "the records again"))) == [0, 1]


def test_a_shorter_timeout_of_another_mount(m, name, mount_on, servers):  # noqa: F811
    """It is not in force before each mount counts its leases by it: nobody settles what may be another's by then."""
    part = m.make(name, visibility_timeout_ms=60000)
    produce(part, "a")
    other = mount_on(servers)
    there = other.part(name)
    wait_for(lambda: os.path.exists(there), "the topic at the other mount")
    receipt = take(there)[0]["handle"]
    time.sleep(1.5)  # longer than the new one
    stream = stream_of(m.topic(name))
    (consumer,) = servers.ask("$JS.API.CONSUMER.NAMES." + stream)["consumers"]

    over = threading.Event()

    def use():
        while not over.is_set():
            take(part)  # who uses the consumer sets it

    def is_in_force():
        return servers.ask(f"$JS.API.CONSUMER.INFO.{stream}.{consumer}")["config"]["ack_wait"] == 10**9

    user = Background(use)
    fd = os.open(there + "/ack", os.O_WRONLY)  # who opens it now does not look at what has become of the consumer
    try:
        configure(m.topic(name), visibility_timeout_ms=1000)
        wait_for(is_in_force, "the new timeout")
        assert fails(os.write, fd, receipt.encode() + b"\n") == errno.ESTALE
    finally:
        os.close(fd)
        over.set()
        user.join(60)
    assert not user.error


def test_what_poll_has_taken_is_leased_in_full(m, name):
    """It waits for its reader for less than its time, of which a part is over then: it begins anew."""
    part = m.make(name, visibility_timeout_ms=4000)
    produce(part, "a")
    with Consumer(part) as reader:
        poll = select.poll()
        poll.register(reader.fd, select.POLLIN)
        assert poll.poll(10000)
        time.sleep(1.5)
        assert reader.read() == b"a\n"
        time.sleep(3)
        reader.write(b"ack 0\n")
        reader.sync()
    assert number(part, "frontier") == 1


def test_a_drain_asks_for_nothing_when_all_slots_are_taken_here(m, name, servers):
    """The servers would not answer, and keep the question."""
    part = m.make(name, max_in_flight=1)
    produce(part, "a", "b")
    receipt = take(part, 1)[0]["handle"]
    stream = stream_of(m.topic(name))
    consumer = servers.ask("$JS.API.CONSUMER.NAMES." + stream)["consumers"][0]
    assert read_file(part + "/drain") == b""
    assert servers.ask(f"$JS.API.CONSUMER.INFO.{stream}.{consumer}")["num_waiting"] == 0
    ack(part, receipt, sync=True)
    assert read_file(part + "/drain") == b"b\n"


# -- a consumer that is deleted


def test_a_consumer_that_is_deleted_is_made_again(m, name, servers):
    """By those who wait, of a partition and of a topic; it begins where everything before was settled."""
    part = m.make(name)
    produce(part, "a", "b", "c")
    with Consumer(part) as reader:
        assert (reader.read(), reader.read()) == (b"a\n", b"b\n")
        reader.sync()
        assert number(part, "frontier") == 2
    with Consumer(part) as reader:
        assert wait_for(lambda: read_or_none(reader), "the third") == b"c\n"
        stream = stream_of(m.topic(name))
        with Consumer(m.topic(name), flags=os.O_RDWR) as whole:
            waits = Background(whole.read)
            time.sleep(1)
            assert waits.running()
            for consumer in servers.ask("$JS.API.CONSUMER.NAMES." + stream)["consumers"]:
                assert servers.ask(f"$JS.API.CONSUMER.DELETE.{stream}.{consumer}")["success"]
            assert waits.join(40) == b"c\n"
            assert "its consumer on the servers was deleted" in m.stderr()
            whole.sync()
        assert fails(reader.write, b"ack 2\n") == errno.ESTALE
    assert number(part, "frontier") == 3


def test_what_was_leased_of_a_deleted_consumer_settles_nothing(m, name, mount_on, servers):
    """Also when it was the first one of its stream, and is made again by a mount that never saw it."""
    part = m.make(name)
    produce(part, "a")
    old = take(part)[0]["handle"]
    stream = stream_of(m.topic(name))
    consumer, = servers.ask("$JS.API.CONSUMER.NAMES." + stream)["consumers"]
    assert servers.ask(f"$JS.API.CONSUMER.DELETE.{stream}.{consumer}")["success"]
    other = mount_on(servers)
    new = take(other.part(name))[0]
    assert servers.ask("$JS.API.CONSUMER.NAMES." + stream)["consumers"] != [consumer]
    assert fails(lambda: ack(part, old, sync=True)) == errno.ESTALE
    ack(other.part(name), new["handle"], verb="nack")
    assert offsets(wait_for(lambda: take(other.part(name)), "the record again")) == [0]


@pytest.mark.parametrize("later", [1, -1])
def test_of_two_first_consumers_the_one_that_was_there_first_stays(m, name, mount_on, servers, later):
    """Two mounts that use a partition first find none, and both make one; the clock of one may be behind. What was settled
    meanwhile does not come again, and leases stay."""
    part = m.make(name)
    produce(part, "a", "b")
    receipts = [each["handle"] for each in take(part, 2)]
    ack(part, receipts[0], sync=True)
    stream = stream_of(m.topic(name))
    known, = servers.ask("$JS.API.CONSUMER.NAMES." + stream)["consumers"]
    config = servers.ask(f"$JS.API.CONSUMER.INFO.{stream}.{known}")["config"]
    base, generation = known.rsplit("_", 1)
    durable = f"{base}_{int(generation) + later}"
    assert "error" not in servers.ask(f"$JS.API.CONSUMER.DURABLE.CREATE.{stream}.{durable}", json.dumps(
        {"stream_name": stream, "config": {**config, "name": durable, "durable_name": durable}}).encode())
    other = mount_on(servers)
    assert take(other.part(name)) == []
    assert servers.ask("$JS.API.CONSUMER.NAMES." + stream)["consumers"] == [known]
    ack(part, receipts[1], sync=True)
    assert number(part, "frontier") == 2
    write_file(other.part(name) + "/ctl", b"seek 1\n")
    assert offsets(take(part)) == [1]


def test_a_seek_keeps_what_the_new_consumer_has_given(m, name, servers):
    """A reader that waits has its record before those that were there before are deleted, here many: its lease stays."""
    part = m.make(name)
    produce(part, "a")
    read_file(part + "/drain")
    stream = stream_of(m.topic(name))
    known = servers.ask("$JS.API.CONSUMER.NAMES." + stream)["consumers"][0]
    config = servers.ask(f"$JS.API.CONSUMER.INFO.{stream}.{known}")["config"]
    base, generation = known.rsplit("_", 1)
    for i in range(1, 40):
        durable = f"{base}_{int(generation) - i}"
        made = servers.ask(f"$JS.API.CONSUMER.DURABLE.CREATE.{stream}.{durable}", json.dumps(
            {"stream_name": stream, "config": {**config, "name": durable, "durable_name": durable}}).encode())
        assert "error" not in made
    with Consumer(part, flags=os.O_RDWR) as reader:
        waits = Background(reader.read)
        time.sleep(1)
        assert waits.running()
        write_file(part + "/ctl", b"seek start\n")
        assert waits.join() == b"a\n"
        reader.sync()
    assert take(part) == []
    assert number(part, "frontier") == 1
    assert len(servers.ask("$JS.API.CONSUMER.NAMES." + stream)["consumers"]) == 1


# -- poll


def watched(m, name, servers, whole):
    """A file that is polled, without an end, when there is a pull for it at the servers."""
    part = m.make(name)
    reader = Consumer(m.topic(name) if whole else part)
    poll = select.poll()
    poll.register(reader.fd, select.POLLIN)
    waits = Background(poll.poll, 50000)
    stream = stream_of(m.topic(name))

    def parked():
        consumers = servers.ask("$JS.API.CONSUMER.NAMES." + stream)["consumers"] or []
        return sum(servers.ask(f"$JS.API.CONSUMER.INFO.{stream}.{each}")["num_waiting"] for each in consumers)

    wait_for(parked, "the pull")
    return reader, poll, waits, stream


@pytest.mark.limit(120)
@pytest.mark.parametrize("whole", [False, True])
def test_a_poll_outlives_a_failure(m, name, servers, whole):
    """There is no stream for a while, hence no consumer: who polls finds what comes afterwards."""
    reader, _, waits, stream = watched(m, name, servers, whole)
    part = m.part(name)
    with reader:
        assert servers.ask("$JS.API.STREAM.DELETE." + stream)["success"]
        wait_for(lambda: "its consumer could not be made" in m.stderr(), "the failure", 40)
        write_file(part + "/ctl", b"reopen\n")
        produce(part, "a")
        assert waits.join(40) == [(reader.fd, select.POLLIN)]
        assert reader.read() == b"a\n"


@pytest.mark.limit(120)
@pytest.mark.parametrize("whole", [False, True])
def test_a_poll_is_told_of_poison(m, name, servers, whole):
    """Of all that it is about: a read fails then; and after a reopen who polls finds what comes."""
    reader, poll, waits, stream = watched(m, name, servers, whole)
    part = m.part(name)
    assert xattr(part, "poisoned") == "0"  # the stream is known by now
    with reader:
        config = servers.stream_info(stream)["config"]
        servers.ask("$JS.API.STREAM.DELETE." + stream)
        servers.ask("$JS.API.STREAM.CREATE." + stream, json.dumps(config).encode())
        servers.leader_of(stream)
        wait_for(lambda: xattr(part, "poisoned") == "1" and "made anew" in xattr(part, "poison_reason"), "the poison")
        assert waits.join(40) == [(reader.fd, select.POLLIN)]
        assert fails(reader.read) == errno.EIO
        write_file(part + "/ctl", b"reopen\n")
        assert poll.poll(300) == []
        produce(part, "a")
        assert poll.poll(40000) == [(reader.fd, select.POLLIN)]
        assert reader.read() == b"a\n"


# -- those who wait for one topic do not hold up others


class Opened:
    def __init__(self, path):
        self.path = path

    def __enter__(self):
        self.fd = os.open(self.path, os.O_RDONLY)
        return self.fd

    def __exit__(self, *exception):
        try:
            os.close(self.fd)
        except OSError:
            pass


@pytest.mark.limit(200)
def test_waits_for_a_silent_stream_hold_up_no_fsync(tmp_path, mount_on):
    """The only copy of one topic hangs: forty readers look for its consumer, and fsyncs of another topic return."""
    cluster = Cluster(tmp_path / "nats", 3).start()
    readers = []
    try:
        m = mount_on(cluster, "replicas=1")
        topics = [f"t{i}" for i in range(9)]
        for each in topics:
            m.make(each)
        leaders = {each: cluster.leader_of(stream_of(m.topic(each))) for each in topics}
        records = cluster.leader_of("KV_narad")
        silent = next(each for each in topics if leaders[each] != records)
        well = next(each for each in topics if leaders[each] != leaders[silent])
        other = mount_on(SimpleNamespace(url=f"nats://127.0.0.1:{leaders[well].port}"), "replicas=1")
        produce(other.part(well), "a")
        leaders[silent].hang()
        readers = [Consumer(other.part(silent), flags=os.O_RDWR) for _ in range(40)]
        waits = [Background(each.read) for each in readers]
        time.sleep(2)
        assert all(each.running() for each in waits)
        begun = time.monotonic()
        produce(other.part(well), "b")
        assert time.monotonic() - begun < 10
        assert all(each.running() for each in waits)
        leaders[silent].process.send_signal(signal.SIGCONT)
        produce(other.part(silent), *["c"] * 40)
        for each in waits:
            each.join(60)
    finally:
        cluster.end()
        for each in readers:
            each.close()


@pytest.mark.limit(200)
@pytest.mark.parametrize("used", [False, True])
def test_a_drain_does_not_end_while_a_partition_is_silent(tmp_path, mount_on, used):
    """The only copy of some of a topic's partitions hangs: the others are drained, then it is an error and not the end, whether the
    mount has taken from the silent ones before or not."""
    cluster = Cluster(tmp_path / "nats", 3).start()
    try:
        m = mount_on(cluster, "replicas=1")
        m.make("t", partitions=6)
        topic = m.topic("t")
        leaders = [cluster.leader_of(stream_of(topic, number)) for number in range(6)]
        records = cluster.leader_of("KV_narad")
        hung = next(each for each in leaders if each != records)
        well = next(each for each in leaders if each != hung)
        other = mount_on(SimpleNamespace(url=f"nats://127.0.0.1:{well.port}"), "replicas=1")
        topic = other.topic("t")
        if used:
            for number in range(6):
                produce(other.part("t", number), "before")
            assert read_file(topic + "/drain") == b"before\n" * 6
        for number in range(6):
            produce(other.part("t", number), str(number))
        hung.hang()
        rest = {b"%d\n" % number for number in range(6) if leaders[number] == hung}
        got, error = b"", None
        with Opened(topic + "/drain") as fd:
            while not error:
                try:
                    read = os.read(fd, 4096)
                except OSError as failure:
                    error = failure
                    continue
                assert read, got  # not the end
                got += read
        assert error.errno == errno.EIO and not rest & set(got.splitlines(True)), (got, rest)
        hung.process.send_signal(signal.SIGCONT)

        def drained():
            nonlocal got
            try:
                got += read_file(topic + "/drain")
            except OSError:
                return False
            return rest <= set(got.splitlines(True))

        wait_for(drained, "the others", 60)
        assert {b"%d\n" % number for number in range(6)} == set(got.splitlines(True))
    finally:
        cluster.end()
