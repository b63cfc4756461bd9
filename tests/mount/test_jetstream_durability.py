"""What an acknowledged record is worth is the stream's own affair: the mount tells what each one has, whoever made it."""

import errno
import json
import os
import re

import pytest

from nats import why_not
from support import configure, fails, log, open_fails, produce, read_file, wait_for, xattr
from test_jetstream import mount_on, name, servers, stream_of  # noqa: F401

pytestmark = [
    pytest.mark.skipif(why_not() is not None, reason=str(why_not())),
    pytest.mark.limit(120),
]


def told(path):
    """The line about durability."""
    return re.search(r"^durability +(.*)$", read_file(path + "/status").decode(), re.M).group(1)


def test_each_stream_has_its_own(servers, mount_on, name):  # noqa: F811
    three, one = mount_on(servers), mount_on(servers, "replicas=1")
    parts = [three.make(name), one.make(name + "-1")]
    for m in (three, one):
        wait_for(lambda m=m: all(os.path.exists(m.part(each)) for each in (name, name + "-1")), "both topics")
        assert xattr(m.part(name), "durability") == "quorum"
        assert xattr(m.part(name + "-1"), "durability") == "server"
        assert told(m.part(name)).startswith("quorum: an acknowledged record is with most of its servers, perhaps")
        assert told(m.part(name + "-1")).startswith("server: an acknowledged record is with its one server, perhaps")
    assert re.match(r"quorum: .*; otherwise in [1-9]\d* partition", told(three.mnt))
    assert re.match(r"server: .*; otherwise in [1-9]\d* partition", told(one.mnt))
    assert "p00000  server: an acknowledged record" in read_file(three.topic(name + "-1") + "/status").decode()
    assert "p00000  quorum" not in read_file(three.topic(name) + "/status").decode()
    synced = mount_on(servers, "fsync=asserted")
    assert [xattr(synced.part(each), "durability") for each in (name, name + "-1")] == ["quorum+fsync", "server+fsync"]
    for part in parts:
        produce(part, "a")


def test_a_stream_in_memory(servers, mount_on, name):  # noqa: F811
    """Somebody has made it so. It is told, keeps its kind, and is not for who wants records synced."""
    m = mount_on(servers)
    m.make(name)
    stream = stream_of(m.topic(name))
    config = {**servers.stream_info(stream)["config"], "storage": "memory"}
    m.stop()
    servers.ask("$JS.API.STREAM.DELETE." + stream)
    servers.ask("$JS.API.STREAM.CREATE." + stream, json.dumps(config).encode())
    servers.leader_of(stream)
    m.start()
    part = m.part(name)
    assert xattr(part, "durability") == "quorum+memory"
    assert "most of its servers, in memory, and on no disk" in told(part)
    produce(part, "a")
    configure(m.topic(name), retention_ms=86400000)
    assert servers.stream_info(stream)["config"]["storage"] == "memory"
    strict = mount_on(servers, "fsync=asserted,require_fsync")
    for path in (strict.part(name), strict.topic(name)):
        assert open_fails(path + "/produce", os.O_WRONLY) == errno.EIO
    assert "require_fsync, and the stream " + stream in read_file(strict.topic(name) + "/status").decode()
    assert log(strict.part(name)) == b"a\n"
    assert fails(produce, strict.part(name), "b") == errno.EIO
    produce(strict.make(name + "-2"), "c")
