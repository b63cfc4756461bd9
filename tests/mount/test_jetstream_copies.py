"""Copies of a stream that have come to differ, and records that were acknowledged and are others by now: the mount sees it,
says so, and gives nobody a record in the place of another one."""

import collections
import errno
import json
import os
import shutil
import signal

import pytest

from nats import Listener, why_not
from support import Consumer, fails, freeze, log, metric, number, produce, read_file, wait_for, write_file, xattr
from test_jetstream import m, mount_on, name, own_servers, read_or_none, servers, stream_of  # noqa: F401 (fixtures)
from test_jetstream_servers import sync_until

pytestmark = [
    pytest.mark.skipif(bool(why_not()), reason=str(why_not())),
    pytest.mark.limit(200),
]


def end_all(cluster):
    """As an operator does: what they have is on disk then."""
    for server in cluster.servers:
        server.process.send_signal(signal.SIGTERM)
    for server in cluster.servers:
        server.process.wait(30)


def start_all(cluster):
    for server in cluster.servers:
        server.start()
    cluster.wait_ready()


def keep(server, as_what):
    shutil.rmtree(server.store + as_what, ignore_errors=True)
    shutil.copytree(server.store, server.store + as_what)


def put_back(server, what):
    shutil.rmtree(server.store)
    shutil.copytree(server.store + what, server.store)


def subject_of(part):
    topic, partition = os.path.split(part)
    return f"narad.{os.path.basename(topic)}.{xattr(topic, 'incarnation')}.{partition}"


def publish(cluster, subject, text):
    """As another client does; its sequence."""
    return wait_for(lambda: try_publish(cluster, subject, text), "the acknowledgement", 60, 0.2)


def try_publish(cluster, subject, text):
    try:
        return cluster.ask(subject, text).get("seq")
    except OSError:
        return None


def produce_soon(part, *records):
    """The servers have just started."""
    fd = os.open(part + "/produce", os.O_WRONLY)
    os.write(fd, b"".join(record.encode() + b"\n" for record in records))
    sync_until(fd)
    os.close(fd)


def acknowledged(m, cluster, topic, **config):  # noqa: F811
    """Ten records were acknowledged to the mount; its servers have kept aside what they had at five."""
    part = m.make(topic, **config)
    produce(part, *(f"first {i}" for i in range(5)))
    end_all(cluster)
    for server in cluster.servers:
        keep(server, ".before")
    start_all(cluster)
    produce_soon(part, *(f"acknowledged {i}" for i in range(5)))
    return part


def give_others(cluster, subject, last):
    """All servers, which are stopped, begin with what they had at five, and get others from somebody else up to there."""
    for server in cluster.servers:
        put_back(server, ".before")
    start_all(cluster)
    while publish(cluster, subject, b"another") < last:
        pass


def gone_and_replaced(m, cluster, topic, n_others):  # noqa: F811
    """Five records were acknowledged to the mount; its servers forget them, and get others from somebody else."""
    part = acknowledged(m, cluster, topic)
    subject = subject_of(part)
    freeze(m.process)
    end_all(cluster)
    give_others(cluster, subject, 5 + n_others)
    m.process.send_signal(signal.SIGCONT)
    return part


@pytest.mark.parametrize("n_others", [5, 9])
def test_records_that_were_replaced(own_servers, mount_on, n_others):  # noqa: F811
    """Nobody produces or reads here meanwhile, and the stream ends where it did, or later: only what is in it tells."""
    m = mount_on(own_servers)  # noqa: F811
    part = gone_and_replaced(m, own_servers, "t", n_others)
    wait_for(lambda: xattr(part, "poisoned") == "1" and "acknowledged" in xattr(part, "poison_reason"), "the poison", 90)
    assert "other records than its servers have acknowledged, or none, at 5 of 10 offsets, the first of them 5" in \
        xattr(part, "poison_reason")
    assert b"poisoned" in read_file(m.mnt + "/status")
    assert metric(m, "narad_acknowledged_missing_total") == 5
    assert fails(read_file, part + "/records/7") == errno.EIO and fails(log, part) == errno.EIO
    write_file(part + "/ctl", b"reopen\n")
    assert log(part).splitlines() == [b"first %d" % i for i in range(5)] + [b"another"] * n_others
    produce(part, "goes on")
    assert number(part, "hwm") == 6 + n_others


def test_a_reader_is_given_no_other_record(own_servers, mount_on):  # noqa: F811
    """He comes before anybody has compared."""
    m = mount_on(own_servers)  # noqa: F811
    part = gone_and_replaced(m, own_servers, "t", 5)

    assert fails(read_file, part + "/records/7") == errno.EIO
    assert "the servers give a record, and have acknowledged another record at this offset" in m.stderr()
    wait_for(lambda: xattr(part, "poisoned") == "1", "the poison", 90)


def apart(m, cluster, topic, **config):  # noqa: F811
    """Five records were acknowledged to the mount, and the copy of one server has others in their place: all copies of a time
    before are given other records, and one of those takes its place among the three as they were."""
    part = acknowledged(m, cluster, topic, **config)
    subject, stream = subject_of(part), stream_of(os.path.dirname(part))
    leader = cluster.leader_of(stream)
    other = next(server for server in cluster.servers if server is not leader)
    freeze(m.process)
    end_all(cluster)
    for server in cluster.servers:
        keep(server, ".after")
    give_others(cluster, subject, 10)
    end_all(cluster)
    for server in cluster.servers:
        if server is not other:
            put_back(server, ".after")
    start_all(cluster)
    lead(cluster, stream, lambda server: server is not other)
    m.process.send_signal(signal.SIGCONT)
    return part, stream, other


def told_apart(m, cluster, topic):  # noqa: F811
    """The same, and the mount has told it."""
    part, stream, other = apart(m, cluster, topic)
    wait_for(lambda: b"state        differing" in read_file(part + "/status"), "the differing copy to be told", 60)
    return part, stream, other


def step_down(cluster, what):
    try:
        cluster.ask("$JS.API." + what)
    except OSError:
        pass  # it has no leader now


def lead(cluster, stream, is_right):
    """Another server leads, until that one is right."""
    def right():
        if is_right(cluster.leader_of(stream)):
            return True
        step_down(cluster, "STREAM.LEADER.STEPDOWN." + stream)
        return False

    wait_for(right, "the leader", 90, 0.5)


RIGHT = [b"first %d" % i for i in range(5)] + [b"acknowledged %d" % i for i in range(5)]


def test_a_copy_that_differs(own_servers, mount_on):  # noqa: F811
    """It is told before it leads, nothing is read from it, and consumers are given nothing else from it; when it leads it is as
    if the records were lost."""
    m = mount_on(own_servers)  # noqa: F811
    part, stream, other = told_apart(m, own_servers, "t")
    assert b"one has another record at offset " in read_file(m.mnt + "/status")
    assert "copies of the stream" in m.stderr() and metric(m, "narad_partitions_differing") == 1
    for _ in range(20):
        assert log(part).splitlines() == RIGHT
    lead(own_servers, stream, lambda server: server is other)
    wait_for(lambda: xattr(part, "poisoned") == "1", "the poison", 60)
    assert f"and {other.name} leads with this one" in xattr(part, "poison_reason")
    assert fails(log, part) == errno.EIO


def set_copies(cluster, stream, n):
    """As `nats stream edit --replicas` does."""
    config = cluster.stream_info(stream)["config"]
    config["num_replicas"] = n
    assert "error" not in cluster.ask("$JS.API.STREAM.UPDATE." + stream, json.dumps(config).encode())

    def made():
        try:
            copies = cluster.stream_info(stream)["cluster"].get("replicas", [])
        except (OSError, KeyError):
            return False
        return len(copies) == n - 1 and all(copy.get("current") for copy in copies)

    wait_for(made, f"{n} copies", 60, 0.2)


def make_anew(m, part, cluster, stream):
    """As docs/scale-out.md says. Servers of 2.9 may keep another copy than the leader's, which is told then."""
    leader = cluster.leader_of(stream)
    set_copies(cluster, stream, 1)
    if cluster.leader_of(stream) is not leader:
        wait_for(lambda: b"state        poisoned" in read_file(part + "/status"), "the wrong copy to be told", 120, 0.5)
        pytest.skip("the servers have kept another copy than the leader's, which was told")
    set_copies(cluster, stream, 3)
    wait_for(lambda: metric(m, "narad_partitions_differing") == 0, "no copy to differ any more", 120, 0.5)


def test_a_copy_that_differs_is_made_anew(own_servers, mount_on):  # noqa: F811
    """Then it may lead."""
    m = mount_on(own_servers)  # noqa: F811
    part, stream, other = told_apart(m, own_servers, "t")
    make_anew(m, part, own_servers, stream)
    assert b"state        ok" in read_file(part + "/status")
    lead(own_servers, stream, lambda server: server is other)
    wait_for(lambda: own_servers.leader_of(stream) is other and log_or_none(part), "the log", 60)
    assert log(part).splitlines() == RIGHT and xattr(part, "poisoned") == "0"


class Rounds:
    """The direct gets of a stream, as its servers hear them: how often an offset has been asked for."""

    def __init__(self, cluster, stream):
        self.listener = Listener(cluster.servers[0], "$JS.API.DIRECT.GET." + stream)
        self.asked = collections.Counter()

    def of(self, offset):
        for _, payload in self.listener.heard():
            self.asked[json.loads(payload)["seq"] - 1] += 1
        return self.asked[offset]

    def close(self):
        self.listener.close()


@pytest.mark.limit(400)
def test_a_copy_that_differs_stays_told(own_servers, mount_on):  # noqa: F811
    """More has been acknowledged since than the mount remembers: what was found is looked at all the same, until it is right."""
    m = mount_on(own_servers)  # noqa: F811
    part, stream, _ = told_apart(m, own_servers, "t")
    for _ in range(9):
        produce_soon(part, *["more"] * 4000)
    rounds = Rounds(own_servers, stream)
    wait_for(lambda: max(rounds.of(offset) for offset in range(5, 10)) >= 8 * 8 or
             b"state        ok" in read_file(part + "/status"), "eight rounds", 200, 1)
    assert b"state        differing" in read_file(part + "/status")
    assert metric(m, "narad_partitions_differing") == 1
    rounds.close()
    make_anew(m, part, own_servers, stream)
    assert b"state        ok" in read_file(part + "/status") and log(part).splitlines()[:10] == RIGHT


def test_a_copy_that_differed_in_what_is_gone(own_servers, mount_on):  # noqa: F811
    """Somebody purges on the servers what was found to differ, as retention may: then nothing differs any more."""
    m = mount_on(own_servers)  # noqa: F811
    part, stream, _ = told_apart(m, own_servers, "t")
    assert own_servers.ask("$JS.API.STREAM.PURGE." + stream, b'{"seq":11}')["purged"] == 10
    wait_for(lambda: metric(m, "narad_partitions_differing") == 0, "no copy to differ any more", 120, 0.5)
    assert xattr(part, "poisoned") == "0" and number(part, "oldest_offset") == 10


def log_or_none(part):
    try:
        return log(part)
    except OSError:
        return None


def lead_consumer(cluster, stream, consumer, is_right):
    def right():
        try:
            leader = cluster.ask(f"$JS.API.CONSUMER.INFO.{stream}.{consumer}").get("cluster", {}).get("leader")
        except OSError:
            return False
        if leader and is_right(leader):
            return True
        step_down(cluster, f"CONSUMER.LEADER.STEPDOWN.{stream}.{consumer}")
        return False

    wait_for(right, "the consumer's leader", 90, 0.5)


def test_consumers_are_given_no_other_record(own_servers, mount_on):  # noqa: F811
    """The server that leads the consumers has the copy that differs: what it sends is held back, and comes when another one leads
    them."""
    m = mount_on(own_servers)  # noqa: F811
    part, stream, other = apart(m, own_servers, "t", visibility_timeout_ms=2000)
    with Consumer(part) as reader:
        came = {reader.read()}
        consumer, = own_servers.ask("$JS.API.CONSUMER.NAMES." + stream)["consumers"]
        lead_consumer(own_servers, stream, consumer, lambda leader: leader == other.name)
        wait_for(lambda: came.add(read_or_none(reader)) or {each + b"\n" for each in RIGHT[:5]} <= came, "what is right", 60)
        wait_for(lambda: came.add(read_or_none(reader)) or metric(m, "narad_partitions_differing") == 1, "the word", 60)
        for _ in range(30):
            came.add(read_or_none(reader))
        assert b"another\n" not in came
        lead_consumer(own_servers, stream, consumer, lambda leader: leader != other.name)
        wait_for(lambda: came.add(read_or_none(reader)) or {each + b"\n" for each in RIGHT} <= came, "the others", 60)
        assert b"another\n" not in came


def test_who_does_not_wait_is_given_no_other_record(own_servers, mount_on):  # noqa: F811
    """The same, of `drain`, and of consumers that take what is there now."""
    m = mount_on(own_servers)  # noqa: F811
    part, stream, other = apart(m, own_servers, "t", visibility_timeout_ms=1000)

    def taken():
        """Until its end, or until something is held back."""
        text = b""
        with Consumer(part, "drain") as drain:
            try:
                while more := drain.read():
                    text += more
            except OSError as error:
                assert error.errno == errno.EIO
        return set(text.splitlines())

    with Consumer(part) as reader:  # there is a consumer, and a record that goes back to it
        reader.read()
    consumer, = own_servers.ask("$JS.API.CONSUMER.NAMES." + stream)["consumers"]
    lead_consumer(own_servers, stream, consumer, lambda leader: leader == other.name)
    came = set()
    wait_for(lambda: came.update(taken()) or set(RIGHT[:5]) <= came, "what is right", 60)
    wait_for(lambda: came.update(taken()) or metric(m, "narad_partitions_differing") == 1, "the word", 60)
    for topic in (False, True):
        with Consumer(m.topic("t") if topic else part) as reader:
            came.add(read_or_none(reader))
    assert b"another" not in came and b"another\n" not in came
    lead_consumer(own_servers, stream, consumer, lambda leader: leader != other.name)
    wait_for(lambda: came.update(taken()) or set(RIGHT) <= came, "the others", 60)
    assert b"another" not in came
