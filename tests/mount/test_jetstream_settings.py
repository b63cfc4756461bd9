"""Settings that servers do not take: nothing of them may come into force, and least of all on records."""

import errno
import json
import os
import re
import time

import pytest

from nats import Cluster, why_not
from support import Mount, configure, fails, log, produce, read_file, write_file, xattr
from test_jetstream import mount_on, servers, stream_of  # noqa: F401 (fixtures)

pytestmark = [
    pytest.mark.skipif(bool(why_not()), reason=str(why_not())),
    pytest.mark.limit(120),
]


@pytest.fixture
def full_server(tmp_path):
    """One with room for four megabytes."""
    one = Cluster(tmp_path / "small", 1, room="4M").start()
    yield one
    for mount in list(Mount.live):
        mount.destroy()
    one.end()


def fill(part):
    """Until there is no room; how many records are there."""
    n = 0
    while True:
        try:
            produce(part, b"x" * 300_000)
        except OSError as error:
            assert error.errno == errno.ENOSPC
            break
        n += 1
    size = 50_000
    while size > 10:  # to the last byte, near enough
        try:
            produce(part, b"y" * size)
            n += 1
        except OSError:
            size //= 2
    return n


def test_a_refused_retention_takes_no_record(full_server, mount_on):
    m = mount_on(full_server)
    topic, part = m.topic("t"), m.make("t")
    n = fill(part)
    for page in (part, topic, m.mnt):
        assert b"give the servers room" in read_file(page + "/status")
    before = read_file(topic + "/config")
    assert fails(lambda: configure(topic, retention_ms=1000)) == errno.ENOSPC
    assert read_file(topic + "/config") == before
    config = full_server.stream_info(stream_of(topic))["config"]
    assert config["max_age"] > 1_000_000_000
    time.sleep(2)
    assert log(part).count(b"\n") == n
    assert b"could not be written" in read_file(topic + "/status")


def test_retention_reaches_the_streams(servers, mount_on):
    m = mount_on(servers)
    name = "retained"
    topic = m.topic(name)
    m.make(name, partitions=3)
    configure(topic, retention_ms=7_200_000, retention_bytes=64 << 20)
    for number in range(3):
        config = servers.stream_info(stream_of(topic, number))["config"]
        assert (config["max_age"], config["max_bytes"]) == (7_200_000 * 1_000_000, 64 << 20)
    # what somebody else has done to a stream the next write that names a retention sets right
    configure(topic, retention_ms=7_200_000)
    write_file(topic + "/ctl", b"delete %s\n" % os.getxattr(topic, "user.narad.incarnation"))


def test_a_retention_that_cannot_be_put_back(servers, mount_on):
    """One of two streams is gone: neither the new retention nor the old one reaches it, and both are told."""
    m = mount_on(servers)
    topic = m.topic("half")
    m.make("half", partitions=2)
    gone = stream_of(topic, 1)
    assert servers.ask("$JS.API.STREAM.DELETE." + gone)["success"]
    assert fails(lambda: configure(topic, retention_ms=7_200_000)) == errno.EIO
    said = re.search(r"have not taken the retention in every partition: (.*); the settings from before could not be put "
                     r"back: (.*); write the retention again", read_file(topic + "/status").decode())
    assert all(gone in why and "not found" in why for why in said.groups())


@pytest.mark.parametrize("copies", [3, 1])
def test_partitions_that_were_left_over(servers, mount_on, copies):
    """Of a growth that failed half way there are streams, and the topic has got another retention since; or they were made by a
    mount that makes fewer copies."""
    m = mount_on(servers)
    topic = m.topic("grown")
    m.make("grown", retention_ms=3_600_000)
    config = servers.stream_info(stream_of(topic))["config"]
    left = json.dumps({**config, "name": stream_of(topic, 1), "subjects": [config["subjects"][0][:-1] + "1"],
                       "num_replicas": copies})
    assert "error" not in servers.ask("$JS.API.STREAM.CREATE." + stream_of(topic, 1), left.encode())
    configure(topic, retention_ms=7_200_000)
    configure(topic, partitions=3)
    for number in range(3):
        assert servers.stream_info(stream_of(topic, number))["config"]["max_age"] == 7_200_000 * 1_000_000
    assert servers.stream_info(stream_of(topic, 1))["config"]["num_replicas"] == copies
    produce(m.part("grown", 1), "a")
    assert log(m.part("grown", 1)) == b"a\n"
    write_file(topic + "/ctl", b"delete %s\n" % os.getxattr(topic, "user.narad.incarnation"))


def test_records_that_servers_would_not_take(full_server, mount_on):
    m = mount_on(full_server)
    topic = m.topic("t")
    part = m.make("t")
    assert fails(lambda: configure(topic, max_record_bytes=8_000_000)) == errno.EINVAL
    assert b"the servers' max_payload is 1048576" in read_file(topic + "/status")
    produce(part, b"z" * 900_000)
    assert xattr(part, "hwm") == "1"


def test_more_copies_than_servers(full_server, mount_on):
    mount_on(full_server).stop()  # the bucket is there
    m = mount_on(full_server, "replicas=3", "n")
    assert "replicas=3, and 1 server is known" in m.stderr()
