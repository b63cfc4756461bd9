"""Settings that servers do not take: nothing of them may come into force, and least of all on records."""

import errno
import json
import os
import re
import struct
import subprocess
import time

import pytest

from copying import NARADCTL
from nats import Cluster, Relay, why_not
from support import (NARADFS, ROOT, Background, Mount, configure, fails, log, produce, read_file, wait_for, write_all,
                     write_file, xattr)
from test_jetstream import mount_on, servers, stream_of  # noqa: F401 (fixtures)
from test_jetstream_leases import one_server  # noqa: F401 (a fixture)

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
        assert config["duplicate_window"] == 120 * 10**9
    for seconds in (7, 200):  # servers take no window of ids that is longer than they keep messages
        configure(topic, retention_ms=seconds * 1000)
        config = servers.stream_info(stream_of(topic))["config"]
        assert (config["max_age"], config["duplicate_window"]) == (seconds * 10**9, min(seconds, 120) * 10**9)
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


# -- the tables of docs/scale-out.md


def table(first):
    """Names in the first column -> what is said of them."""
    text = read_file(ROOT + "/docs/scale-out.md").decode().split(f"| {first} | here |\n")[1].split("\n\n")[0]
    rows = [row.split(" | ", 1) for row in text.splitlines()[1:]]
    return {name: said for names, said in rows for name in re.findall(r"`(\w+)`", names)}


OPTIONS = {"uid": 0, "gid": 0, "umask": 22, "partial_bytes": 1000000, "max_threads": 20, "log_level": "info", "retention_ms": 5000,
           "partitions": 2, "idle_close_ms": 1000, "retention_check_ms": 1000, "cold_retention_walk_ms": 0,
           "cache_bytes": 1000000, "codec": "zstd", "allow_other": None, "ro": None, "nonempty": None}
TAKEN = "as elsewhere"


def test_every_option_of_the_local_engine(servers, mount_on):
    """It is taken, or refused with a sentence, as the table says, which has all of them."""
    usage = subprocess.run([NARADFS, "-h"], check=True, stdout=subprocess.PIPE, timeout=30).stdout.decode()
    local = usage.split("-o OPTION[,OPTION]")[1].split("and those of libfuse")[0]
    there = table("option of the mount")
    found = set(re.findall(r"^ {23}(\w+)", local, re.M)) | set(re.findall(r"[ ,](\w+)=", local)) | {"allow_other"}
    assert set(there) == found == set(OPTIONS)
    taken = []
    for option, value in OPTIONS.items():
        text = option if value is None else f"{option}={value}"
        if there[option].startswith(TAKEN):
            taken += [text] if option != "ro" else []
            continue
        m = mount_on(servers, text, start=False)
        assert not m.try_start() and f"{option} means nothing" in m.stderr(), option
    m = mount_on(servers, ",".join(taken))
    os.mkdir(m.topic("of-options"))
    assert xattr(m.topic("of-options"), "retention_ms") == "5000" and xattr(m.topic("of-options"), "partitions") == "2"
    mount_on(servers, "ro")


SETTINGS = {"partitions": 2, "retention_ms": 5000, "linger_ms": 7, "visibility_timeout_ms": 5000, "max_in_flight": 50,
            "consume_wait_ms": 0, "retention_bytes": 64 << 20, "max_record_bytes": 2 << 20, "segment_bytes": 65536, "codec": "zstd",
            "zstd_level": 4, "max_acked_ahead": 50, "fanout_delay_ms": 50}


@pytest.fixture
def generous(tmp_path):
    """A server that takes long messages."""
    one = Cluster(tmp_path / "generous", 1, settings="max_payload: 8M\n").start()
    yield one
    for mount in list(Mount.live):
        mount.destroy()
    one.end()


def test_every_setting(generous, mount_on):
    m = mount_on(generous)
    m.make("of-settings")
    topic = m.topic("of-settings")
    there = table("setting of a topic")
    default = dict(line.split("=") for line in read_file(topic + "/config").decode().splitlines())
    assert set(there) == set(default) == set(SETTINGS)
    for key, value in SETTINGS.items():
        if "EOPNOTSUPP" in there[key]:
            assert fails(lambda key=key, value=value: configure(topic, **{key: value})) == errno.EOPNOTSUPP, key
            configure(topic, **{key: default[key]})
            assert f"config refused: {key}" in read_file(topic + "/status").decode()
        else:
            configure(topic, **{key: value})
        assert xattr(topic, key) == (default[key] if "EOPNOTSUPP" in there[key] else str(value)), key
    assert fails(lambda: configure(topic, retention_bytes=1 << 20)) == errno.EINVAL


def test_the_longest_record_that_is_in_force_is_shown(full_server, mount_on):
    """A megabyte by default, which servers that take a megabyte do not take with what goes with it."""
    m = mount_on(full_server)
    m.make("t")
    topic = m.topic("t")
    limit = (1 << 20) - 63 * 1024
    assert "longest      %d bytes of a record: the servers take no more, though max_record_bytes is 1048576" % limit \
        in read_file(topic + "/status").decode()
    produce(m.part("t"), b"z" * limit)
    assert fails(lambda: produce(m.part("t"), b"z" * (limit + 1))) == errno.EMSGSIZE
    assert fails(lambda: configure(topic, max_record_bytes=(1 << 20) + 1)) == errno.EINVAL
    shown = read_file(topic + "/config")
    write_file(topic + "/config", shown)
    assert read_file(topic + "/config") == shown


# -- why not


def refused(*words):
    """What naradctl says of what it could not do."""
    done = subprocess.run([NARADCTL, *words], check=False, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, timeout=100)
    assert done.returncode == 1, done
    return done.stderr.decode()


def test_naradctl_says_why_the_servers_have_not_taken_it(tmp_path, mount_on):
    """The bucket is gone, then the server: what could not be done, and why, is said by whoever asked for it."""
    one = Cluster(tmp_path / "one", 1).start()
    try:
        m = mount_on(one)
        m.make("t")
        topic = m.topic("t")
        change, grow = ("config", topic, "linger_ms=7"), ("ctl", topic, "partitions", "3")
        delete = ("delete", "--yes", topic)
        assert one.ask("$JS.API.STREAM.DELETE.KV_narad")["success"]
        assert fails(os.mkdir, m.topic("u")) == errno.EIO
        for words in (change, grow):
            said = refused(*words)
            assert "could not be written: the bucket of topics (KV_narad) is gone from the servers: restore it" in said
            assert "nothing was changed" in said
        assert "was not deleted: the bucket of topics (KV_narad) is gone" in refused(*delete)
        assert "was not deleted: the bucket" in read_file(topic + "/status").decode()
        m.restart()
        for name in "tuv":  # each shows what was refused last
            m.make(name)
        one.servers[0].kill()
        said = [Background(refused, *words) for words in (
            change, ("delete", "--yes", m.topic("u")), ("ctl", m.part("v"), "seek", "0"))]
        assert all("no NATS server c" in each.join(100) for each in said), [each.value for each in said]
        assert "nothing was changed" in said[0].value and '"delete ' in said[1].value
    finally:
        one.end()


def test_naradctl_says_what_became_of_a_change(one_server, mount_on):  # noqa: F811
    """Servers that refuse it have not made it, nor that which never came to them; of what they do not answer it is not known."""
    relay = Relay(one_server.servers[0])
    try:
        m = mount_on(relay)
        m.make("t")
        topic = m.topic("t")
        config = one_server.stream_info("KV_narad")["config"]
        most = config["max_msg_size"]
        one_server.ask("$JS.API.STREAM.UPDATE.KV_narad", json.dumps({**config, "max_msg_size": 8}).encode())
        said = refused("config", topic, "linger_ms=7")
        assert "the NATS servers answered: " in said and "size" in said and "nothing was changed" in said
        assert "once the servers answer" not in said
        assert "was not deleted: the NATS servers answered" in refused("delete", "--yes", topic)
        one_server.ask("$JS.API.STREAM.UPDATE.KV_narad", json.dumps({**config, "max_msg_size": most}).encode())
        assert xattr(topic, "linger_ms") == "100"
        relay.last = b"Nats-Expected-Last-Sequence"  # a change, and not a question
        said = refused("config", topic, "linger_ms=8")
        assert "gave no answer" in said or "no NATS server could be reached" in said
        assert "once the servers answer, its config shows whether it was" in said
        relay.last, relay.lost = None, set()
        wait_for(lambda: xattr(topic, "linger_ms") == "8", "the change, which has come to the servers", 60)
    finally:
        relay.end()


def refusals_of_long_records(m, limit):
    """What the log says of records that are a byte longer than that, in each framing."""
    part = m.make("t")
    long = b"z" * (limit + 1)
    said = []
    for name, text in (("produce", long + b"\n"), ("produce.jsonl", b'{"payload":"' + long + b'"}\n'),
                       ("produce.bin", struct.pack(">II", 0, len(long)) + long)):
        before = len(m.stderr())
        with open(f"{part}/{name}", "wb", buffering=0) as file:
            assert fails(lambda file=file, text=text: write_all(file.fileno(), text)) == errno.EMSGSIZE, name
        said.append(m.stderr()[before:])
    return said


@pytest.mark.parametrize("settings, limit, words", [
    ("", (1 << 20) - 63 * 1024, "the servers take no more than 984064 bytes, though max_record_bytes is 1048576"),
    ("max_payload: 8388608\n", 1 << 20, "max_record_bytes is 1048576"),
])
def test_the_limit_that_a_record_is_longer_than_is_named(tmp_path, mount_on, settings, limit, words):
    one = Cluster(tmp_path / "one", 1, settings).start()
    try:
        for said in refusals_of_long_records(mount_on(one), limit):
            assert f"longer than a record may be: {words}: Message too long" in said, said
            assert said.count("a record was refused") == 1, said
    finally:
        one.end()
