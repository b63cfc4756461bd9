"""A mount over NATS JetStream that ends: what it was given, and nobody has settled, is another mount's at once, and not when
a lease that nobody holds is over."""

import errno
import os
import signal
import time

from nats import Cluster, Relay
from support import Background, Consumer, produce, read_file, wait_for
from test_jetstream import m, mount_on, name, pytestmark, servers, stream_of  # noqa: F401
from test_jetstream_leases import one_server  # noqa: F401

LONG_MS = 600000  # a lease that no test waits for
GONE = (errno.ENODEV, errno.ENOTCONN, errno.ECONNABORTED)


def reader_of(part):
    with Consumer(part, flags=os.O_RDONLY) as consumer:
        return consumer.read()


def n_parked(servers, stream):  # noqa: F811
    """Questions of readers that wait at the servers."""
    listed = servers.ask("$JS.API.CONSUMER.LIST." + stream)["consumers"]
    return sum(consumer["num_waiting"] for consumer in listed)


def waiting_readers(part, servers, n):  # noqa: F811
    stream = stream_of(os.path.dirname(part))
    before = n_parked(servers, stream)
    readers = [Background(reader_of, part) for _ in range(n)]
    wait_for(lambda: n_parked(servers, stream) >= before + n, "all readers to wait at the servers")
    return readers


def ended(mount, readers):
    """It ends well, and has told so everybody who waited."""
    assert mount.wait_exit() == 0, mount.stderr()
    mount.gone()
    for reader in readers:
        reader.join()
        assert reader.error and reader.error.errno in GONE, (reader.error, reader.value)


def drained(part, n):
    """What is there now, once that are n records."""
    came = []

    def all_there():
        came.extend(read_file(part + "/drain").splitlines())
        return len(came) >= n

    wait_for(all_there, f"{n} records, of which there are {came}", 20, 0.1)
    return sorted(came)


def test_what_a_mount_gives_back_goes_to_none_of_its_readers(m, name, mount_on, servers):  # noqa: F811
    """They have been told to go, so their questions at the servers are nobody's."""
    part = m.make(name, visibility_timeout_ms=LONG_MS)
    there = mount_on(servers).part(name)
    records = [b"%02d" % i for i in range(3)]
    produce(part, *records)
    holder = Consumer(part)
    assert [holder.read() for _ in records] == [record + b"\n" for record in records]
    readers = waiting_readers(part, servers, 40)
    m.process.send_signal(signal.SIGTERM)
    ended(m, readers)
    holder.close()
    wait_for(lambda: os.path.exists(there), "the topic at the other mount")
    assert drained(there, len(records)) == records


def test_what_is_under_way_to_a_mount_that_ends_is_given_back(one_server, mount_on):  # noqa: F811
    """The servers have sent it, and it is not here yet when its readers are told to go."""
    relay = Relay(one_server.servers[0])
    try:
        m, other = mount_on(relay), mount_on(one_server)  # noqa: F811
        part, there = m.make("t", visibility_timeout_ms=LONG_MS), other.part("t")
        wait_for(lambda: os.path.exists(there), "the topic at the other mount")
        readers = waiting_readers(part, one_server, 4)
        relay.held = {"back"}
        produce(there, "one", "two")
        wait_for(lambda: n_parked(one_server, stream_of(os.path.dirname(there))) <= 2, "both to be on their way")
        m.process.send_signal(signal.SIGTERM)
        time.sleep(0.3)  # it waits for longer
        relay.held = set()
        ended(m, readers)
        assert drained(there, 2) == [b"one", b"two"]
    finally:
        relay.end()


def test_a_mount_ends_without_an_answer_to_its_readers(one_server, mount_on):  # noqa: F811
    """A server that hangs tells it nothing of what was under way."""
    m = mount_on(one_server)  # noqa: F811
    part = m.make("t")
    readers = waiting_readers(part, one_server, 4)
    one_server.servers[0].hang()
    m.process.send_signal(signal.SIGTERM)
    ended(m, readers)


def test_what_is_given_back_when_only_readers_of_a_killed_mount_wait(m, name, mount_on, servers):  # noqa: F811
    """Their questions outlive them at the servers, for some seconds; a record that comes back is not taken for them."""
    killed = mount_on(servers)
    part = m.make(name, visibility_timeout_ms=LONG_MS)
    wait_for(lambda: os.path.exists(killed.part(name)), "the topic at the other mount")
    produce(part, "one", "two", "three")
    holder = Consumer(part)
    assert [holder.read() for _ in range(3)] == [b"one\n", b"two\n", b"three\n"]
    readers = waiting_readers(killed.part(name), servers, 8)
    killed.kill()
    for reader in readers:
        reader.join()
    time.sleep(0.5)  # for the servers to see its end
    holder.write(b"nack 0\nnack 1\n")
    assert drained(part, 2) == [b"one", b"two"]
    holder.close()
    assert drained(part, 1) == [b"three"]
