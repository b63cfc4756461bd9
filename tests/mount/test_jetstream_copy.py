"""naradctl copy from a local engine to a cluster, and back. Between local engines: test_copy.py, which has what does not
depend on what stands behind the mounts."""

import os
import shutil
import signal

import pytest
from copying import copy, ended, frontier, produce_bin, records, refused, same, start_copy  # noqa: F401
from support import Consumer, drain, log, number, produce, read_file, take, wait_for, write_file
from test_copy import ODD, big
from test_jetstream import LEADERLESS_S, m, mount_on, name, own_servers, pytestmark, servers, stream_of  # noqa: F401


@pytest.fixture
def local(mounts):
    return mounts("local")


def test_up_and_back(local, m, name):  # noqa: F811
    local.make(name, partitions=3, visibility_timeout_ms=12345, codec="zstd")
    for i in range(3):
        produce_bin(local.part(name, i), [(key, payload) for key, payload in ODD if len(key) < 48000] * 40)
    drain(local.part(name, 1))
    take(local.part(name, 2), 1)
    out, err = copy(local.topic(name), m.topic(name))
    n = 40 * (len(ODD) - 1)
    assert out.count(f"{n} records verified, {n} new") == 3 and "codec stays none there" in err
    assert b"visibility_timeout_ms=12345\n" in read_file(m.topic(name) + "/config")
    assert [frontier(m.part(name, i)) for i in range(3)] == [0, n, 0]
    for i in range(3):
        assert same(local.part(name, i), m.part(name, i)) == n
    copy(m.topic(name), local.topic("back"))
    for i in range(3):
        assert same(m.part(name, i), local.part("back", i)) == n
    assert frontier(local.part("back", 1)) == n
    assert "0 new" in copy(local.topic(name), m.topic(name))[0]


def settle_one(part):
    with Consumer(part) as consumer:
        assert consumer.read() == b"a\n"
        consumer.sync()


def test_a_backup_with_copy(local, m, name):  # noqa: F811
    """As docs/scale-out.md has it: to a local engine, again when there is more, and from there when the topic is gone."""
    m.make(name, partitions=2)
    backup, topic = local.topic(name), m.topic(name)
    for i in range(2):
        produce(m.part(name, i), "a", "b")
    settle_one(m.part(name))
    assert copy(topic, backup)[0].count("2 records verified, 2 new") == 2
    produce(m.part(name), "c")
    drain(m.part(name, 1))
    assert "3 records verified, 1 new" in copy(topic, backup)[0]
    write_file(topic + "/ctl", b"delete %s\n" % os.getxattr(topic, "user.narad.incarnation"))
    assert name not in os.listdir(m.mnt + "/topics")
    copy(backup, topic)
    assert log(m.part(name)) == b"a\nb\nc\n" and log(m.part(name, 1)) == b"a\nb\n"
    assert [frontier(m.part(name, i)) for i in range(2)] == [frontier(local.part(name, i)) for i in range(2)] == [1, 2]
    assert drain(m.part(name)) == b"b\nc\n"


@pytest.mark.limit(200)
def test_a_backup_of_the_servers_folders(own_servers, mount_on):  # noqa: F811
    """Of all of them, while none runs; put back in the same way, and mounted afterwards, all is as it was."""
    def end():
        for server in own_servers.servers:
            server.process.terminate()
        for server in own_servers.servers:
            server.process.wait(60)

    m = mount_on(own_servers)  # noqa: F811
    part = m.make("t")
    produce(part, "a", "b")
    settle_one(part)
    m.stop()
    end()
    for server in own_servers.servers:
        shutil.copytree(server.store, server.store + ".backup")
    own_servers.start()
    m.start()
    produce(part, "c")
    m.make("u")
    m.stop()
    end()
    for server in own_servers.servers:
        shutil.rmtree(server.store)
        os.rename(server.store + ".backup", server.store)
    own_servers.start()
    m.start()
    assert os.listdir(m.mnt + "/topics") == ["t"]
    assert log(part) == b"a\nb\n" and drain(part) == b"b\n"
    produce(part, "d")
    assert log(part) == b"a\nb\nd\n" and "state        ok" in read_file(m.mnt + "/status").decode()


def test_log_bin(m, name):  # noqa: F811
    part = m.make(name)
    few = [(key, payload) for key, payload in ODD if len(key) < 48000]
    produce_bin(part, few)
    assert records(part) == [(i, *record) for i, record in enumerate(few)]


@pytest.mark.limit(200)
@pytest.mark.parametrize("victim", ["naradctl", "source", "target"])
def test_killed_and_run_again(local, m, name, victim):  # noqa: F811
    local.make(name, partitions=2)
    for i in range(2):
        big(local.part(name, i))
    there = [m.part(name, i) for i in range(2)]
    n_kills = 0
    for wanted in (1, 2000, 4000):
        process = start_copy(local.topic(name), m.topic(name), "--batch", "50")
        wait_for(lambda n=wanted: process.poll() is not None
                 or (os.path.exists(there[1]) and number(there[0], "hwm") >= n), "progress", 60)
        n_kills += process.poll() is None
        {"naradctl": process, "source": local, "target": m}[victim].kill()
        _, err = process.communicate(timeout=60)
        if victim != "naradctl":
            assert process.returncode in (0, 1) and (process.returncode == 0 or err), err
            (local if victim == "source" else m).start()
    assert n_kills >= 2
    copy(local.topic(name), m.topic(name))
    for i in range(2):
        assert same(local.part(name, i), there[i]) == 6000


def test_records_that_the_servers_do_not_take(local, m, name):  # noqa: F811
    """Of the servers' limit, which no setting shows."""
    part = local.make(name, max_record_bytes=2 << 20)
    produce(part, "a", "b" * (1 << 20), "c")
    error = refused(local.topic(name), m.topic(name), "--quiet")
    assert "the record at offset 1 (1048576 bytes, its key 0) is longer" in error
    assert log(m.part(name)) == b"a\n"


def test_a_key_that_the_servers_do_not_take(local, m, name):  # noqa: F811
    """Nothing behind it is stored, whatever becomes of the handle."""
    produce_bin(local.make(name), [(b"", b"a"), (b"k" * 65536, b"b"), (b"", b"c")])
    copy(local.topic(name), m.topic(name), "--quiet", code=1)
    copy(local.topic(name), m.topic(name), "--quiet", code=1)
    assert [each[2] for each in records(m.part(name))] == [b"a"]


@pytest.mark.limit(300)
def test_a_leader_is_killed_meanwhile(own_servers, mount_on, local):  # noqa: F811
    """With a record in each fsync nothing can be reordered. Records come in the source all the while."""
    cluster = mount_on(own_servers)
    part = local.make("t")
    big(part, 1500)
    process = start_copy(local.topic("t"), cluster.topic("t"), "--follow", "--batch", "1")
    wait_for(lambda: os.path.exists(cluster.part("t")) and number(cluster.part("t"), "hwm") > 300, "progress", LEADERLESS_S)
    leader = own_servers.leader_of(stream_of(cluster.topic("t")))
    leader.kill()
    produce(part, *range(300))
    n = number(cluster.part("t"), "hwm")
    wait_for(lambda: number(cluster.part("t"), "hwm") > n + 100, "progress without the old leader", LEADERLESS_S)
    leader.start()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert same(part, cluster.part("t")) == 1800
