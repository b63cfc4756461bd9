"""What the second engine does when its servers hang, are killed, refuse it, or when several mounts meet: real servers, to
which the harm is done."""

import errno
import json
import os
import re
import shutil
import signal
import subprocess
import threading
import time
from types import SimpleNamespace

import pytest

from nats import Cluster, Listener, Relay, shut, why_not
from support import (ROOT, Background, Consumer, configure, fails, log, metric, number, open_fails, produce,
                     read_file, wait_for, write_all, write_file, xattr)
from test_jetstream import fnv1a, m, mount_on, name, own_servers, read_or_none, servers, stream_of  # noqa: F401 (fixtures)
from test_jetstream_leases import one_server  # noqa: F401 (a fixture)
from test_monitoring import promtool

pytestmark = [
    pytest.mark.skipif(bool(why_not()), reason=str(why_not())),
    pytest.mark.limit(200),
]

SOON_S = 5  # of a call that waits for nothing, on a busy machine


def server_of(mount, cluster):
    """The server that the daemon is connected to."""
    with open(f"/proc/{mount.process.pid}/net/tcp", encoding="ascii") as file:
        sockets = {fields[9]: int(fields[2].split(":")[1], 16) for fields in map(str.split, file) if fields[3] == "01"}
    folder = f"/proc/{mount.process.pid}/fd"
    for fd in os.listdir(folder):
        inode = re.fullmatch(r"socket:\[(\d+)\]", os.readlink(f"{folder}/{fd}"))
        for server in cluster.servers:
            if inode and sockets.get(inode.group(1)) == server.port:
                return server
    return None


def hang(*some):
    for server in some:
        server.hang()


def go_on(*some):
    for server in some:
        server.process.send_signal(signal.SIGCONT)


def took(call, *arguments):
    """The seconds that a call took, whatever came of it."""
    began = time.monotonic()
    try:
        call(*arguments)
    except OSError:
        pass
    return time.monotonic() - began


def sync_until(fd):
    """fsync, again while the servers do not answer; the seconds that it took."""
    began = time.monotonic()
    while True:
        try:
            os.fsync(fd)
            return time.monotonic() - began
        except OSError as error:
            assert error.errno == errno.EIO


def close_of_ended(fd):
    """Of a file whose daemon or topic is gone."""
    try:
        os.close(fd)
    except OSError as error:
        assert error.errno in (errno.ENOTCONN, errno.ECONNABORTED, errno.ENODEV, errno.EIO, errno.EIDRM)


# -- several who sync


def test_syncs_that_meet(m, name):
    """Who syncs while another one's sync is under way on the same descriptor: each gets its answer."""
    part = m.make(name)
    fd = os.open(part + "/produce", os.O_WRONLY)

    def write_and_sync(who):
        for i in range(100):
            os.write(fd, b"%d %d\n" % (who, i))
            os.fsync(fd)

    for writer in [Background(write_and_sync, who) for who in range(4)]:
        writer.join(60)
        assert not writer.error
    os.close(fd)
    got = [tuple(map(int, line.split())) for line in log(part).splitlines()]
    assert sorted(got) == [(who, i) for who in range(4) for i in range(100)]
    for who in range(4):
        assert [i for of, i in got if of == who] == list(range(100))


# -- servers that hang


def test_a_server_that_hangs_in_a_large_produce(own_servers, mount_on):  # noqa: F811
    """The one that has the mount's connection is stopped, not killed, while megabytes are on their way to it: who does not need
    the servers does not notice, and the fsync goes through another one."""
    m = mount_on(own_servers)
    part = m.make("large")
    m.make("other")
    record = b"x" * 9999 + b"\n"
    fd = os.open(part + "/produce", os.O_WRONLY)
    write_all(fd, record * 100)
    os.fsync(fd)
    server = wait_for(lambda: server_of(m, own_servers), "the connection")

    def write_much():
        for _ in range(40):
            write_all(fd, record * 100)
        return sync_until(fd)

    writer = Background(write_much)
    time.sleep(0.3)  # in the middle of it
    hang(server)
    slowest, until = {}, time.monotonic() + 12
    while time.monotonic() < until:
        for what, call, argument in (("status", read_file, m.mnt + "/status"), ("ls", os.listdir, m.mnt + "/topics"),
                                     ("config", read_file, m.topic("other") + "/config"),
                                     ("metrics", read_file, m.mnt + "/metrics")):
            slowest[what] = max(slowest.get(what, 0), took(call, argument))
        time.sleep(0.05)
    assert max(slowest.values()) < SOON_S, slowest
    assert writer.join(60) is not None
    go_on(server)
    os.close(fd)
    assert number(part, "hwm") == 4100 and log(part) == record * 4100


@pytest.mark.parametrize("how", ["stopped", "killed"])
@pytest.mark.parametrize("busy", ["idle", "busy"])
def test_the_daemon_ends_without_servers(own_servers, mount_on, how, busy):  # noqa: F811
    """With or without somebody who waits for them."""
    m = mount_on(own_servers)
    part = m.make("t")
    produce(part, "one")
    m.make("empty")
    fd = os.open(part + "/produce", os.O_WRONLY)
    for server in own_servers.servers:
        hang(server) if how == "stopped" else server.kill()
    waiting = []
    if busy == "busy":
        os.write(fd, b"not stored\n")
        waiting = [Background(os.fsync, fd), Background(os.rmdir, m.topic("empty")),
                   Background(read_file, part + "/log"), Background(read_file, part + "/drain")]
        time.sleep(1)
    began = time.monotonic()
    m.stop()
    seconds = time.monotonic() - began
    print(f"{how}, {busy}: ended within {seconds:.1f} s")
    close_of_ended(fd)
    for each in waiting:
        each.join(10)
        assert each.error is not None
    assert seconds < 20  # half a minute, if somebody's patience had to be waited for


def test_records_are_sent_while_the_daemon_ends(m, name):
    """What was written is not lost by a stop while there are servers: it is sent before the end."""
    part = m.make(name, linger_ms=60000)
    fd = os.open(part + "/produce", os.O_WRONLY)
    write_all(fd, b"kept %d\n" % 0 + b"x" * 1000 + b"\n")
    m.stop()
    close_of_ended(fd)
    m.start()
    assert log(part) == b"kept 0\n" + b"x" * 1000 + b"\n"


# -- what is said of it


def test_reads_that_wait_for_servers_hold_up_nobody(own_servers, mount_on):  # noqa: F811
    """Whoever drains asks the servers, which hang: forty of them, and `ls` is answered meanwhile."""
    m = mount_on(own_servers)
    m.make("t", partitions=40)
    waiting = f"/sys/fs/fuse/connections/{os.minor(os.stat(m.mnt).st_dev)}/waiting"
    if not os.path.exists(waiting):
        subprocess.run(["mount", "-t", "fusectl", "none", "/sys/fs/fuse/connections"], check=False, timeout=20,
                       stderr=subprocess.DEVNULL)
    if not os.path.exists(waiting):
        pytest.skip("the kernel does not tell how many requests wait (fusectl)")
    files = [os.open(m.part("t", i) + "/drain", os.O_RDONLY) for i in range(40)]
    hang(*own_servers.servers)
    reads = [Background(os.read, fd, 100) for fd in files]
    wait_for(lambda: int(read_file(waiting)) >= 40, "the readers")
    assert os.listdir(m.mnt + "/topics") == ["t"] and b"servers" in read_file(m.mnt + "/status")
    assert all(each.running() for each in reads)
    go_on(*own_servers.servers)
    for each in reads:
        each.join(60)
    for fd in files:
        os.close(fd)


def test_who_looks_at_many_files_does_not_wait_for_each(own_servers, mount_on):  # noqa: F811
    """`ls -l` of a topic whose servers hang: what is not answered once is not waited for forty times."""
    m = mount_on(own_servers)
    m.make("t", partitions=40)
    hang(*own_servers.servers)
    looks = Background(lambda: [number(m.part("t", i), "hwm") for i in range(40)])
    assert looks.join(60) == [0] * 40  # they are waited for for four seconds
    assert re.search(rb"poisoned: (the NATS servers give no answer|no NATS server can be reached)\n",
                     read_file(m.part("t", 39) + "/status"))
    go_on(*own_servers.servers)
    wait_for(lambda: xattr(m.part("t", 39), "poisoned") == "0", "the answers", 60)


@pytest.mark.parametrize("servers_left", [0, 1])
def test_what_passes_does_so_while_nobody_reads(own_servers, mount_on, servers_left):  # noqa: F811
    """The mount's own status and metrics are made from what is known: they come right without a look at the partitions. And who is
    to wait is not told to reopen."""
    m = mount_on(own_servers)
    part, topic = m.make("t", partitions=2), m.topic("t")
    down = own_servers.servers[servers_left:]
    for server in down:
        server.kill()
    wait_for(lambda: xattr(part, "poisoned") == "1", "the silence", 60)
    for page in (part + "/status", topic + "/status", m.mnt + "/status"):
        text = read_file(page).decode()
        assert "poisoned" in text and "passes by itself when its servers answer" in text and "reopen" not in text
    for server in down:
        server.start()
    own_servers.wait_ready()
    wait_for(lambda: metric(m, "narad_partitions_poisoned") == 0, "it to pass", 60)
    assert b"poisoned" not in read_file(m.mnt + "/status")


def test_a_status_asks_for_many_partitions_at_once(own_servers, mount_on):  # noqa: F811
    """Two of three servers hang, and with them most of the answers that it needs: they are waited for together."""
    m = mount_on(SimpleNamespace(url=f"nats://127.0.0.1:{own_servers.servers[0].port}"))
    m.make("t", partitions=40)
    listener, asked = Listener(own_servers.servers[0], "$JS.API.STREAM.INFO.>"), set()
    hang(*own_servers.servers[1:])
    page = Background(read_file, m.topic("t") + "/status")
    wait_for(lambda: asked.update(subject for subject, _ in listener.heard()) or len(asked) >= 16, "the questions")
    go_on(*own_servers.servers)
    assert page.join(60).count(b"\np000") == 40
    listener.close()


def test_status_says_that_the_servers_are_gone(own_servers, mount_on):  # noqa: F811
    m = mount_on(own_servers)
    produce(m.make("t"), "one")
    text = read_file(m.mnt + "/status").decode()
    assert "state        ok\n" in text and "servers      connected since " in text
    assert metric(m, "narad_servers_connected") == 1 and metric(m, "narad_servers_lost_total") == 0
    for server in own_servers.servers:
        server.kill()
    wait_for(lambda: metric(m, "narad_servers_connected") == 0, "the loss to be seen")
    text = read_file(m.mnt + "/status").decode()
    assert "state        no connection to the servers" in text and "servers      not connected since " in text
    assert "to do        look at the servers of url=" in text
    fd = os.open(m.part("t") + "/produce", os.O_WRONLY)
    os.write(fd, b"two\n")
    assert metric(m, "narad_outbox_bytes") > 4
    for server in own_servers.servers:
        server.start()
    sync_until(fd)
    os.close(fd)
    assert metric(m, "narad_servers_connected") == 1 and metric(m, "narad_outbox_bytes") == 0
    assert metric(m, "narad_servers_lost_total") >= 1 and metric(m, "narad_servers_reconnected_total") >= 1
    assert "state        ok\n" in read_file(m.mnt + "/status").decode()


def test_a_password_that_changes_and_changes_back(tmp_path, mount_on):  # noqa: F811
    """Refused twice, the client library gives up for good. The mount does not, and says meanwhile who is to do what."""
    one = Cluster(tmp_path / "one", 1)
    server = one.servers[0]
    plain = read_file(server.config)

    def let_in(password):
        with open(server.config, "wb") as file:
            file.write(plain + f"authorization {{ user: me, password: {password} }}\n".encode())

    let_in("right")
    one.wait_ready = lambda user: None  # who asks without a password is told nothing
    one.url = f"nats://me:right@127.0.0.1:{server.port}"
    one.start()
    wait_for(lambda: os.path.exists(server.log) and b"Server is ready" in read_file(server.log), "the server", 30)
    try:
        m = mount_on(one)
        part = m.make("t")
        produce(part, "before")
        for n in (1, 2):  # what the connections before have to say is about themselves
            let_in("another")
            server.kill()
            server.start()
            wait_for(lambda: "uthentication" in read_file(m.mnt + "/status").decode(), "the refusal", 40)
            assert "to do        look at the user, password" in read_file(m.mnt + "/status").decode()
            wait_for(lambda n=n: m.stderr().count("take this mount no more") == n, "the library to give up", 40)
            let_in("right")
            server.kill()
            server.start()
            wait_for(lambda: metric(m, "narad_servers_connected") == 1, "the connection", 40)
        assert metric(m, "narad_servers_lost_total") == 2 and metric(m, "narad_servers_reconnected_total") == 2
        fd = os.open(part + "/produce", os.O_WRONLY)
        os.write(fd, b"after\n")
        sync_until(fd)
        os.close(fd)
        assert log(part) == b"before\nafter\n"
        with Consumer(part) as reader:
            assert (reader.read(), reader.read()) == (b"before\n", b"after\n")
            reader.sync()
        assert "right" not in m.stderr() and "state        ok" in read_file(m.mnt + "/status").decode()
        m.stop()
    finally:
        one.end()


def test_rules_of_jetstream(m):
    """What they speak of is there, and they fire when they should."""
    rules = ROOT + "/monitoring/naradfs-jetstream.rules"
    text = read_file(rules + ".yml").decode()
    there = set(re.findall(r"^(narad_\w+) ", read_file(m.mnt + "/metrics").decode(), re.M))
    named = set(re.findall(r"narad_\w+", " ".join(re.findall(r"expr: (.*)", text))))
    assert len(named) == 6 and named <= there
    code, output = promtool("check", "rules", rules + ".yml")
    assert code == 0, output
    code, output = promtool("test", "rules", rules + ".test.yml")
    assert code == 0, output


def test_promtool_reads_the_metrics_of_jetstream(m):
    code, output = promtool("check", "metrics", data=read_file(m.mnt + "/metrics"))
    assert code == 0, output


# -- what does not fit


def test_a_key_that_is_too_long(m, name):
    """By the write, not by every fsync that follows."""
    part = m.make(name)
    fd = os.open(part + "/produce.bin", os.O_WRONLY)
    assert fails(write_all, fd, (48001).to_bytes(4, "big") + (1).to_bytes(4, "big") + b"k" * 48001 + b"z") == errno.EMSGSIZE
    assert "its key is longer than what the servers have room for" in m.stderr()
    write_all(fd, (48000).to_bytes(4, "big") + (1).to_bytes(4, "big") + b"k" * 48000 + b"z")
    os.fsync(fd)
    os.close(fd)
    fd = os.open(part + "/produce.jsonl", os.O_WRONLY)
    assert fails(os.write, fd, b'{"key":"%s","payload":"z"}\n' % (b"k" * 48001)) == errno.EMSGSIZE
    os.write(fd, b'{"key":"%s","payload":"z"}\n' % (b"k" * 48000))
    os.fsync(fd)
    os.close(fd)
    assert number(part, "hwm") == 2


def limit_payload(server, size):
    """The server is started again, and takes no longer messages."""
    server.kill()
    with open(server.config, encoding="ascii") as file:
        text = file.read()
    with open(server.config, "w", encoding="ascii") as file:
        file.write(re.sub(r"max_payload: \d+", f"max_payload: {size}", text))
    server.start()


@pytest.mark.parametrize("how", ["fsync", "close"])
def test_a_record_that_has_become_too_long(tmp_path, mount_on, how):  # noqa: F811
    """Dropped in the background, since the servers' limit was lowered: its writer is told, once, and nobody else is."""
    cluster = Cluster(tmp_path / "nats", 1, "max_payload: 4000000\n").start()
    try:
        m = mount_on(cluster)
        part = m.make("t", linger_ms=60000)
        fd = os.open(part + "/produce", os.O_WRONLY)
        write_all(fd, b"x" * 300000 + b"\n")
        limit_payload(cluster.servers[0], 200000)
        write_all(fd, b"y\n" * 1000)  # as many are sent at once
        wait_for(lambda: "a record of 300000 bytes is dropped" in m.stderr(), "the drop")
        other = os.open(part + "/produce", os.O_WRONLY)
        os.write(other, b"z\n")
        sync_until(other)
        os.close(other)
        assert sorted(log(part).split()) == [b"y"] * 1000 + [b"z"]
        os.write(fd, b"y\n")  # a write is not refused for what one before it said
        assert fails(os.fsync if how == "fsync" else os.close, fd) == errno.EMSGSIZE
        if how == "fsync":
            os.fsync(fd)
            os.close(fd)
        assert sorted(log(part).split()) == [b"y"] * 1001 + [b"z"]
    finally:
        cluster.end()


def test_empty_records_are_bounded_by_their_memory(own_servers, mount_on):  # noqa: F811
    """While no server answers a writer of empty lines is held up, as one of long lines is."""
    m = mount_on(own_servers)
    part = m.make("t")
    produce(part, "before")
    for server in own_servers.servers:
        server.kill()
    fd = os.open(part + "/produce", os.O_WRONLY)
    n = 0

    def write_lines():
        nonlocal n
        while n < 3_000_000:
            n += os.write(fd, b"\n" * 20000)

    assert fails(write_lines) == errno.EIO
    assert n < 1_000_000 and metric(m, "narad_outbox_bytes") < 64 << 20
    for server in own_servers.servers:
        server.start()
    sync_until(fd)
    os.close(fd)
    assert number(part, "hwm") == n + 1


def test_one_write_of_many_empty_records(tmp_path, mount_on):  # noqa: F811
    """Takes a few times its bytes while no server answers, and not a hundred and thirty times."""
    cluster = Cluster(tmp_path / "nats", 1).start()
    try:
        m = mount_on(cluster)
        part = m.make("t")
        produce(part, "before")
        cluster.servers[0].kill()
        fd = os.open(part + "/produce", os.O_WRONLY)
        n = os.write(fd, b"\n" * 120_000)
        assert n >= 100_000 and metric(m, "narad_outbox_bytes") < 16 * n
        cluster.servers[0].start()
        sync_until(fd)
        os.close(fd)
        assert number(part, "hwm") == n + 1
    finally:
        cluster.end()


# -- a handshake that does not end


class Two:
    """Two ways to one server."""

    def __init__(self, server):
        self.relays = [Relay(server), Relay(server)]
        self.url = ",".join([self.relays[0].url, self.relays[1].url.removeprefix("nats://")])

    def end(self):
        for each in self.relays:
            each.end()


def test_a_handshake_that_does_not_end(tmp_path, mount_on):  # noqa: F811
    """The connection is lost, and the next server takes a new one and goes on with nothing: another one is found, and a daemon
    that finds none can be told to end."""
    cluster = Cluster(tmp_path / "nats", 1).start()
    two = Two(cluster.servers[0])
    try:
        m = mount_on(two, "replicas=1")
        part = m.make("t")
        produce(part, "before")
        used = next(each for each in two.relays if len(each.ends) > 1)
        silent = next(each for each in two.relays if each is not used)
        silent.lost = {"there"}
        used.cut()
        wait_for(lambda: "goes on with nothing: it is left for the next one" in m.stderr(), "its end", 40)
        wait_for(lambda: metric(m, "narad_servers_connected") == 1, "another one", 90)
        produce(part, "after")
        assert log(part) == b"before\nafter\n"
        with Consumer(part) as reader:
            assert (reader.read(), reader.read()) == (b"before\n", b"after\n")
            reader.sync()
        used.lost = {"there"}
        used.cut()
        wait_for(lambda: metric(m, "narad_servers_connected") == 0, "the loss")
        m.stop()
    finally:
        two.end()
        cluster.end()


# -- a long time without an answer


def set_stream(cluster, stream, **changes):
    config = {**cluster.stream_info(stream)["config"], **changes}
    assert "error" not in cluster.ask("$JS.API.STREAM.UPDATE." + stream, json.dumps(config).encode())


WINDOW_S = 3  # for which the server knows ids


@pytest.mark.parametrize("end", ["stored", "lost", "purged"])
def test_a_record_whose_id_is_forgotten(tmp_path, mount_on, end):  # noqa: F811
    """Sent, not acknowledged, and tried again when the server knows its id no longer: it is there once, whether it had been stored
    or not. When nobody can say that any more it is not sent."""
    cluster = Cluster(tmp_path / "nats", 1).start()
    relay = Relay(cluster.servers[0])
    try:
        m = mount_on(relay)
        part = m.make("t")
        produce(part, "before")
        stream = stream_of(m.topic("t"))
        set_stream(cluster, stream, duplicate_window=WINDOW_S * 10**9)
        write_file(part + "/ctl", b"reopen\n")  # it looks
        fd = os.open(part + "/produce", os.O_WRONLY)
        os.write(fd, b"once\n")
        relay.lost = {"there" if end == "lost" else "back"}
        assert fails(os.fsync, fd) == errno.EIO
        relay.lost = set()
        relay.cut()
        assert cluster.stream_info(stream)["state"]["last_seq"] == (1 if end == "lost" else 2)
        time.sleep(WINDOW_S + 1)
        if end == "purged":
            assert cluster.ask("$JS.API.STREAM.PURGE." + stream)["success"]
            wait_for(lambda: metric(m, "narad_servers_connected") == 1, "the connection", 20)
        os.write(fd, b"behind\n")
        if end == "purged":
            assert fails(os.fsync, fd) == errno.EIO
            assert "cannot be found out: some of what has come since is not there any more" in m.stderr()
            close_of_ended(fd)
            assert log(part) == b"" and number(part, "hwm") == 2
        else:
            sync_until(fd)
            os.close(fd)
            assert log(part) == b"before\nonce\nbehind\n"
    finally:
        relay.end()
        cluster.end()


# -- servers that have lost records


def test_a_publisher_notices_lost_records(tmp_path, mount_on):  # noqa: F811
    """Nobody looks: the next record of who publishes tells, though by then the stream may be as long as it was."""
    cluster = Cluster(tmp_path / "nats", 1).start()
    server = cluster.servers[0]

    def restart(*renames):
        server.kill()
        for old, new in renames:
            os.rename(old, new)
        server.start()
        cluster.wait_ready()

    def write(text):
        os.write(fd, text)
        sync_until(fd)

    try:
        m = mount_on(cluster)
        part = m.make("t")
        fd = os.open(part + "/produce", os.O_WRONLY)
        write(b"a\n")
        server.kill()
        shutil.copytree(server.store, server.store + ".before")
        restart()
        write(b"b\nc\n")
        restart((server.store, server.store + ".lost"), (server.store + ".before", server.store))
        write(b"d\ne\nf\n")
        wait_for(lambda: "has stored a new record at offset 1, and ended at 3 before" in m.stderr(), "the poison")
        assert fails(os.write, fd, b"g\n") == errno.EIO
        os.close(fd)
        assert xattr(part, "poisoned") == "1"
        write_file(part + "/ctl", b"reopen\n")
        produce(part, "g")
        assert log(part) == b"a\nd\ne\nf\ng\n"
    finally:
        cluster.end()


# -- a topic one of whose partitions is poisoned


def make_anew(cluster, stream):
    config = cluster.stream_info(stream)["config"]
    assert cluster.ask("$JS.API.STREAM.DELETE." + stream)["success"]
    assert "error" not in cluster.ask("$JS.API.STREAM.CREATE." + stream, json.dumps(config).encode())


@pytest.mark.parametrize("how", ["made anew", "rewound"])
def test_a_topic_goes_around_a_poisoned_partition(tmp_path, mount_on, how):  # noqa: F811
    """Nothing of it is taken, no consumer made, and nothing goes there, whichever file of the topic is used; the others go on."""
    cluster = Cluster(tmp_path / "nats", 1).start()
    server = cluster.servers[0]
    try:
        m = mount_on(cluster)
        m.make("t", partitions=2)
        topic, sick, well = m.topic("t"), m.part("t"), m.part("t", 1)
        stream = stream_of(topic)
        subject = cluster.stream_info(stream)["config"]["subjects"][0]
        produce(sick, "a")
        assert read_file(topic + "/drain") == b"a\n"
        writer = os.open(topic + "/produce", os.O_WRONLY)
        if how == "made anew":
            make_anew(cluster, stream)
        else:
            server.process.terminate()  # in order: it would forget the consumer
            server.process.wait(30)
            shutil.copytree(server.store, server.store + ".before")
            server.start()
            cluster.wait_ready()
            wait_for(lambda: metric(m, "narad_servers_connected") == 1, "the connection", 20)
            produce(sick, "b", "c")
            server.kill()
            os.rename(server.store, server.store + ".lost")
            os.rename(server.store + ".before", server.store)
            server.start()
            cluster.wait_ready()
        wait_for(lambda: how in xattr(sick, "poison_reason") or "have lost" in xattr(sick, "poison_reason"), "the poison", 40)
        for _ in range(5):
            last = cluster.ask(subject, b"foreign")["seq"]
        consumers = cluster.ask("$JS.API.CONSUMER.NAMES." + stream)["consumers"]
        with Consumer(topic) as reader:
            assert reader.none()
            produce(well, "1", "2", "3")
            assert wait_for(lambda: read_or_none(reader), "what the other one has") == b"1\n"
            assert read_file(topic + "/drain") == b"2\n3\n"
            assert reader.none()
            reader.sync()
        with Consumer(topic, flags=os.O_RDWR) as reader:
            waits = Background(reader.read)
            time.sleep(1)
            assert waits.running()
            write_all(writer, b"".join(b"w%d\n" % i for i in range(20)))
            os.fsync(writer)
            assert waits.join(40) == b"w0\n"
            reader.sync()
        os.close(writer)
        assert metric(m, "narad_rerouted_records_total") == 10
        produce(topic, *['{"key": "%d", "payload": "k%d"}' % (i, i) for i in range(20)], name="produce.jsonl")
        assert len(read_file(topic + "/drain").splitlines()) == 39
        assert number(well, "hwm") == 43 and cluster.stream_info(stream)["state"]["last_seq"] == last
        assert cluster.ask("$JS.API.CONSUMER.NAMES." + stream)["consumers"] == consumers
        make_anew(cluster, stream_of(topic, 1))
        wait_for(lambda: "made anew" in xattr(well, "poison_reason"), "the poison", 40)
        assert open_fails(topic + "/consume", os.O_RDONLY) == errno.EIO
        assert fails(produce, topic, "nowhere") == errno.EIO
        write_file(sick + "/ctl", b"reopen\n")
        produce(topic, "here")
        assert read_file(topic + "/drain").splitlines()[-1] == b"here"
    finally:
        cluster.end()


@pytest.mark.parametrize("anew", [True, False])
def test_a_record_in_doubt_holds_up_no_other(tmp_path, mount_on, anew):  # noqa: F811
    """It was sent, and its partition is poisoned before the answer comes, or its stream is gone: each fsync of its writer says EIO, as
    it is not known to be stored, and what the writer writes besides is stored. Who else writes to the topic is told once. A reopen
    decides it."""
    cluster = Cluster(tmp_path / "nats", 1).start()
    relay = Relay(cluster.servers[0])
    try:
        m = mount_on(relay)
        m.make("t", partitions=2)
        topic, sick, well = m.topic("t"), m.part("t"), m.part("t", 1)
        keys = {fnv1a(str(n).encode()) % 2: str(n) for n in range(10)}

        def written(fd, number, text):
            os.write(fd, json.dumps({"key": keys[number], "payload": text}).encode() + b"\n")
            return fd

        produce(sick, "before")
        fd = os.open(topic + "/produce.jsonl", os.O_RDWR)
        other = os.open(topic + "/produce.jsonl", os.O_WRONLY)
        relay.lost = {"back"}
        assert fails(os.fsync, written(fd, 0, "doubtful")) == errno.EIO
        relay.lost = set()
        relay.cut()
        if anew:
            make_anew(cluster, stream_of(topic))
        else:
            assert cluster.ask("$JS.API.STREAM.DELETE." + stream_of(topic))["success"]
        why = "made anew" if anew else "is gone"
        wait_for(lambda: why in xattr(sick, "poison_reason"), "the poison", 40)
        assert fails(os.fsync, written(fd, 1, "one")) == errno.EIO
        assert log(well) == b"one\n"
        assert "p00000: 1 record that was sent to this partition" in read_file(topic + "/status").decode()
        said = m.stderr().count("the first of them number 1 of what its writer has written")
        for text in ("two", "three"):
            os.fsync(written(other, 1, text))
        written(fd, 1, "four")
        wait_for(lambda: log(well) == b"one\ntwo\nthree\nfour\n", "the linger")
        assert fails(os.fsync, written(fd, 1, "five")) == errno.EIO
        assert m.stderr().count("number 1 of what its writer has written") == said == 1
        runs = [line.split() for line in os.read(fd, 1000).decode().splitlines()]
        assert {run[0] for run in runs} == {"p00001"}
        assert [n for run in runs for n in range(int(run[1]), int(run[2]) + 1)] == [0, 3, 4]
        write_file(sick + "/ctl", b"reopen\n")
        sync_until(fd)
        assert log(sick) == b"doubtful\n" and log(well) == b"one\ntwo\nthree\nfour\nfive\n"
        os.close(fd)
        os.close(other)
    finally:
        relay.end()
        cluster.end()


def test_what_is_in_doubt_in_one_partition_is_not_told_again_for_another(one_server, mount_on):  # noqa: F811
    """Each is told when it comes to that."""
    relay = Relay(one_server.servers[0])
    try:
        m = mount_on(relay)
        m.make("t", partitions=3)
        topic = m.topic("t")
        keys = {fnv1a(str(n).encode()) % 3: str(n) for n in range(20)}
        fd = os.open(topic + "/produce.jsonl", os.O_WRONLY)

        def written(number):
            os.write(fd, json.dumps({"key": keys[number], "payload": "x"}).encode() + b"\n")
            return fd

        def told():
            return [re.search(r"partition=(\d+)", line)[1] for line in m.stderr().splitlines()
                    if "which decides it, or the writer closes" in line]

        for number in range(2):
            assert xattr(m.part("t", number), "poisoned") == "0"
            relay.lost = {"back"}
            assert fails(os.fsync, written(number)) == errno.EIO
            relay.lost = set()
            relay.cut()
            make_anew(one_server, stream_of(topic, number))
            wait_for(lambda each=m.part("t", number): "made anew" in xattr(each, "poison_reason"), "the poison", 40)
            assert fails(os.fsync, written(2)) == errno.EIO
        assert told() == ["00000", "00001"]
        assert fails(os.close, fd) == errno.EIO
    finally:
        relay.end()


# -- what somebody has deleted on the servers


@pytest.mark.parametrize("there", [False, True])
def test_a_stream_that_was_deleted(m, name, servers, there):  # noqa: F811
    """Who waits for it is told, before he has tried for long; what is there by the time of a reopen is accepted, and if that is
    nothing an empty one is made."""
    part = m.make(name)
    produce(part, "a", "b")
    with Consumer(part) as reader:
        assert reader.read() == b"a\n"
        reader.sync()
    stream = stream_of(m.topic(name))
    config = servers.stream_info(stream)["config"]
    fd = os.open(part + "/produce", os.O_WRONLY)
    tries = metric(m, "narad_publish_retries_total")
    assert servers.ask("$JS.API.STREAM.DELETE." + stream)["success"]
    os.write(fd, b"c\n")
    assert fails(os.fsync, fd) == errno.EIO
    assert metric(m, "narad_publish_retries_total") - tries < 40  # of a hundred
    assert xattr(part, "poisoned") == "1" and "its stream is gone" in read_file(part + "/status").decode()
    assert fails(os.fsync, fd) == errno.EIO
    if there:
        assert "error" not in servers.ask("$JS.API.STREAM.CREATE." + stream, json.dumps(config).encode())
    write_file(part + "/ctl", b"reopen\n")
    assert ("an empty one is in its place" in m.stderr()) == (not there)
    made = servers.stream_info(stream)["config"]
    assert all(made[key] == config[key] for key in ("subjects", "num_replicas", "max_age", "storage", "duplicate_window"))
    sync_until(fd)
    os.close(fd)
    produce(part, "d")
    assert log(part) == b"c\nd\n" and read_file(part + "/drain") == b"c\nd\n"
    assert xattr(part, "poisoned") == "0" and number(part, "hwm") == 2
    configure(m.topic(name), linger_ms=7)  # the record's revision is another one by now


def test_a_bucket_of_topics_that_was_deleted(own_servers, mount_on):  # noqa: F811
    """Told in status and log; topics go on, and nobody waits who wants to make or change one."""
    m = mount_on(own_servers)
    part = m.make("t")
    produce(part, "a")
    assert own_servers.ask("$JS.API.STREAM.DELETE.KV_narad")["success"]
    assert fails(os.mkdir, m.topic("u")) == errno.EIO
    assert "could not be created: the bucket of topics (KV_narad) is gone from the servers: restore it there" in m.stderr()
    assert fails(write_file, m.topic("t") + "/config", b"linger_ms=7\n") == errno.EIO
    produce(part, "b")
    assert log(part) == b"a\nb\n"
    status = read_file(m.mnt + "/status").decode()
    assert "state        topics cannot be made, changed or removed" in status and "(KV_narad) is gone" in status
    assert "no answer" not in m.stderr()
    other = mount_on(own_servers)  # it makes another one
    wait_for(lambda: "(KV_narad) was made anew: start this mount again" in read_file(m.mnt + "/status").decode(), "the look")
    assert fails(os.mkdir, m.topic("u")) == errno.EIO and os.listdir(m.mnt + "/topics") == ["t"]
    os.mkdir(other.topic("u"))
    m.restart()
    assert os.listdir(m.mnt + "/topics") == ["u"]
    assert "state        ok" in read_file(m.mnt + "/status").decode()


def test_a_bucket_of_topics_that_has_gone_back(tmp_path, mount_on):  # noqa: F811
    """From a backup, under the time at which it was made: what this mount follows would never come."""
    cluster = Cluster(tmp_path / "nats", 1).start()
    server = cluster.servers[0]
    try:
        m = mount_on(cluster)
        m.make("t")
        server.kill()
        shutil.copytree(server.store, server.store + ".before")
        server.start()
        cluster.wait_ready()
        wait_for(lambda: metric(m, "narad_servers_connected") == 1, "the connection", 20)
        m.make("u")
        configure(m.topic("u"), linger_ms=7)
        server.kill()
        os.rename(server.store, server.store + ".lost")
        os.rename(server.store + ".before", server.store)
        server.start()
        cluster.wait_ready()
        wait_for(lambda: "(KV_narad) ends before what was in it" in read_file(m.mnt + "/status").decode(), "the look", 40)
        assert fails(os.mkdir, m.topic("v")) == errno.EIO
        assert "start this mount again" in m.stderr()
        for _ in range(20):  # of no topic: it is as long as before, and something else was lost
            assert cluster.ask("$KV.narad.a=stale-b", b"{}")["seq"]
        assert fails(os.mkdir, m.topic("v")) == errno.EIO
        assert "(KV_narad) ends before what was in it" in read_file(m.mnt + "/status").decode()
        m.restart()
        os.mkdir(m.topic("v"))
        assert sorted(os.listdir(m.mnt + "/topics")) == ["t", "v"]
        assert "state        ok" in read_file(m.mnt + "/status").decode()
    finally:
        cluster.end()


def test_a_server_that_leads_the_bucket_again(own_servers, mount_on):  # noqa: F811
    """It goes on counting where it ended, and loses, in silence, as many messages as have come meanwhile; a topic is made and changed
    all the same."""
    def refuse():
        for _ in range(20):
            assert "error" in own_servers.ask("$KV.narad.none", headers={"Nats-Expected-Last-Sequence": 1 << 40})

    m = mount_on(own_servers)
    first = own_servers.leader_of("KV_narad")
    m.make("t")
    for n in range(30):
        configure(m.topic("t"), linger_ms=n)
    refuse()
    own_servers.step_down("KV_narad", lambda leader: leader is not first)
    refuse()
    own_servers.step_down("KV_narad", lambda leader: leader is first)
    os.mkdir(m.topic("u"))
    configure(m.topic("u"), linger_ms=7)
    os.rmdir(m.topic("u"))


def test_a_server_that_leads_a_partition_again(own_servers, mount_on):  # noqa: F811
    """The same of records: one alone is stored within the time of an fsync."""
    m = mount_on(own_servers)
    part = m.make("t")
    stream = stream_of(m.topic("t"))
    subject = own_servers.stream_info(stream)["config"]["subjects"][0]

    def refuse():
        for _ in range(20):
            assert "error" in own_servers.ask(subject, headers={"Nats-Expected-Last-Sequence": 1 << 40})

    first = own_servers.leader_of(stream)
    produce(part, *range(30))
    refuse()
    own_servers.step_down(stream, lambda leader: leader is not first)
    refuse()
    own_servers.step_down(stream, lambda leader: leader is first)
    produce(part, "behind")
    assert log(part) == b"".join(b"%d\n" % n for n in range(30)) + b"behind\n"


class Forgetful(Relay):
    """Before a server that loses so many messages on one subject, which it says nothing to."""

    def __init__(self, server, subject, n):
        self.publish = re.compile(rb"HPUB " + subject + rb" (?:(\S+) )?\d+ \d+\r\n")
        self.n_left = n
        self.unheard = set()
        super().__init__(server)

    def carry(self, source, target, way):
        try:
            file = source.makefile("rb")
            while line := file.readline():
                target.sendall(self.seen(line, way, file))
        except OSError:
            pass  # its end
        shut(source, target)

    def seen(self, line, way, file):
        """The line, with what belongs to it, unless it is an answer that nobody gets."""
        words = line.split()
        if words[0] in (b"PUB", b"HPUB", b"MSG", b"HMSG"):
            line += file.read(int(words[-1]) + 2)
        found = self.publish.match(line)
        if found and self.n_left > 0:
            self.n_left -= 1
            self.unheard.add(found[1])
        return b"" if way == "back" and words[0] in (b"MSG", b"HMSG") and words[1] in self.unheard else line


def test_a_removal_helps_a_leader_on_that_loses_messages(one_server, mount_on):  # noqa: F811
    """By more and more of them, as it may be behind by many."""
    relay = Forgetful(one_server.servers[0], rb"narad\.t\.\S+\.closed\.\S+", 300)
    try:
        m = mount_on(relay)
        m.make("t")
        os.rmdir(m.topic("t"))
        assert relay.n_left == 0
    finally:
        relay.end()


# -- many partitions, several mounts


def n_streams(cluster):
    try:
        return cluster.ask("$JS.API.STREAM.NAMES").get("total", 0)
    except OSError:
        return 0


def test_many_partitions(own_servers, mount_on):  # noqa: F811
    m = mount_on(own_servers)
    os.mkdir(m.topic("t"))
    began = time.monotonic()
    configure(m.topic("t"), partitions=100)
    made = time.monotonic()
    assert len([each for each in os.listdir(m.topic("t")) if each.startswith("p0")]) == 100
    os.rmdir(m.topic("t"))
    print(f"100 partitions: made within {made - began:.1f} s, removed within {time.monotonic() - made:.1f} s")
    wait_for(lambda: n_streams(own_servers) == 1, "what the server that lists them knows")  # that of the records of topics


def test_two_mounts_change_one_topic_at_once(servers, mount_on):  # noqa: F811
    """Neither change is lost, though both are under way to the servers at the same time."""
    mounts = [mount_on(servers) for _ in range(2)]
    mounts[0].make("changed")
    topics = [each.topic("changed") for each in mounts]
    wait_for(lambda: os.path.exists(topics[1]), "the topic at the other mount")
    together = threading.Barrier(2)

    def change(topic, key, value):
        together.wait(60)
        os.setxattr(topic, "user.narad." + key, value)

    for i in range(25):
        value = b"%d" % (1000 + i)
        for each in [Background(change, topics[0], "linger_ms", value),
                     Background(change, topics[1], "consume_wait_ms", value)]:
            each.join(60)
            assert not each.error
        for topic in topics:
            wait_for(lambda path=topic: [os.getxattr(path, "user.narad." + key) for key in
                                         ("linger_ms", "consume_wait_ms")] == [value] * 2, "both changes")


def test_a_record_that_comes_with_a_removal(own_servers, mount_on):  # noqa: F811
    """Another mount produces in the very moment of an rmdir: either the record is there and the topic too, or its writer is told
    that it is not stored."""
    m, other = mount_on(own_servers), mount_on(own_servers)
    ends = {"removed": 0, "kept": 0}

    def write_and_sync(fd):
        os.write(fd, b"x\n")
        os.fsync(fd)

    for i in range(40):
        part = m.make(f"t{i}")
        there = other.part(f"t{i}")
        wait_for(lambda path=there: os.path.exists(path), "the topic at the other mount")
        fd = os.open(there + "/produce", os.O_WRONLY)
        remover = Background(os.rmdir, m.topic(f"t{i}"))
        time.sleep(i % 20 * 0.01)
        writer = Background(write_and_sync, fd)
        writer.join(60)
        remover.join(60)
        ends["kept" if remover.error else "removed"] += 1
        if remover.error:
            assert remover.error.errno == errno.ENOTEMPTY
            assert writer.error is None and log(part) == b"x\n" and number(part, "hwm") >= 1, i
            produce(part, "y")  # it takes records again
            assert log(part) == b"x\ny\n"
        else:
            assert writer.error and writer.error.errno == errno.EIDRM, i
        close_of_ended(fd)
    print(ends)
    assert min(ends.values()) > 0


def write_sync_close(fd):
    try:
        os.write(fd, b"x\n")
        os.fsync(fd)
    finally:
        close_of_ended(fd)


def meet_removals(mounts, part, writer_of, delay_s):
    """Whether a topic was kept that some mounts remove while a record comes: it is there if its writer was told so."""
    topic = os.path.basename(os.path.dirname(part))
    fd = os.open(writer_of.part(topic) + "/produce", os.O_WRONLY)
    removers = [Background(os.rmdir, m.topic(topic)) for m in mounts]
    time.sleep(delay_s)
    writer = Background(write_sync_close, fd)
    for each in [writer, *removers]:
        each.join(100)
    assert not writer.error or writer.error.errno in (errno.EIDRM, errno.ENOENT, errno.EIO), writer.error
    assert all(each.error is None or each.error.errno in (errno.ENOTEMPTY, errno.EBUSY, errno.ENOENT)
               for each in removers), [each.error for each in removers]
    if not writer.error:
        assert log(part) == b"x\n"
    return not writer.error


def test_a_record_of_this_mount_that_comes_with_a_removal(m, name):
    """Its file is closed before the removal stops waiting for that."""
    kept = 0
    for i in range(16):
        kept += meet_removals([m], m.make(f"{name}{i}"), m, i % 8 * 0.02)
    assert kept > 0


def test_two_removals_and_a_record(servers, mount_on):  # noqa: F811
    """One undoes its removal while the other one goes on with its own."""
    mounts = [mount_on(servers) for _ in range(3)]
    kept = 0
    for i in range(12):
        part = mounts[0].make(f"two{i}")
        for other in mounts[1:]:
            wait_for(lambda path=other.part(f"two{i}"): os.path.exists(path), "the topic at another mount")
        kept += meet_removals(mounts[:2], part, mounts[2], i * 0.01)
    print("kept:", kept)


def test_a_removal_stores_nothing(servers, mount_on):  # noqa: F811
    """What it publishes to learn where the stream ends is for a sequence that no stream has. Who waits for a record at another
    mount is told."""
    m, other = mount_on(servers), mount_on(servers)
    m.make("gone")
    wait_for(lambda: os.path.exists(other.part("gone")), "the topic at the other mount")
    fd = os.open(other.part("gone") + "/consume", os.O_RDWR)
    reader = Background(os.read, fd, 100)
    wait_for(lambda: servers.ask("$JS.API.CONSUMER.NAMES." + stream_of(m.topic("gone"))).get("total"), "the reader")
    listener = Listener(servers.servers[0], "narad.gone.>")
    os.rmdir(m.topic("gone"))
    reader.join(60)
    assert reader.error and reader.error.errno == errno.EIDRM
    close_of_ended(fd)
    (subject, message), = listener.heard()
    assert ".closed." in subject and b"Nats-Expected-Last-Sequence: 4611686018427387904\r\n" in message
    listener.close()


def test_a_removal_that_meets_another(servers, mount_on):  # noqa: F811
    """What another mount has closed for its own removal stays closed: this one is told, and touches nothing."""
    m = mount_on(servers)
    part = m.make("met")
    stream = stream_of(m.topic("met"))
    config = servers.stream_info(stream)["config"]
    opened, closed = config["subjects"], [config["subjects"][0] + ".closed.another"]
    config["subjects"] = closed
    assert "error" not in servers.ask("$JS.API.STREAM.UPDATE." + stream, json.dumps(config).encode())
    assert fails(os.rmdir, m.topic("met")) == errno.EBUSY
    assert servers.stream_info(stream)["config"]["subjects"] == closed
    assert "another mount is removing the topic" in m.stderr()
    config["subjects"] = opened
    assert "error" not in servers.ask("$JS.API.STREAM.UPDATE." + stream, json.dumps(config).encode())
    produce(part, "one")
    assert fails(os.rmdir, m.topic("met")) == errno.ENOTEMPTY
    produce(part, "two")
    assert log(part) == b"one\ntwo\n" and number(part, "hwm") == 2


def test_a_deletion_that_is_not_answered(own_servers, mount_on):  # noqa: F811
    """Is made sure of when the servers are there again, and so are its streams."""
    m = mount_on(own_servers)
    produce(m.make("t"), "one")
    deletion = b"delete %s\n" % os.getxattr(m.topic("t"), "user.narad.incarnation")
    hang(*own_servers.servers)
    assert fails(write_file, m.topic("t") + "/ctl", deletion) == errno.EIO
    go_on(*own_servers.servers)
    wait_for(lambda: not os.path.exists(m.topic("t")), "the deletion", 60, 0.2)
    wait_for(lambda: n_streams(own_servers) == 1, "that of its streams", 60, 0.2)  # of the records of topics
    os.mkdir(m.topic("t"))
    assert log(m.part("t")) == b""


def test_streams_of_a_topic_that_was_not_made_are_deleted(own_servers, mount_on):  # noqa: F811
    """The servers go away in the middle of a mkdir; when they are back nothing of it is left."""
    m = mount_on(own_servers, "partitions=60")
    maker = Background(os.mkdir, m.topic("t"))
    wait_for(lambda: n_streams(own_servers) > 4, "the first streams")
    for server in own_servers.servers:
        server.kill()
    maker.join(60)
    assert maker.error and maker.error.errno == errno.EIO
    for server in own_servers.servers:
        server.start()
    own_servers.wait_ready()
    wait_for(lambda: n_streams(own_servers) == 1, "their deletion", 60, 0.2)  # of the records of topics
    os.mkdir(m.topic("t"))
    produce(m.part("t", 59), "one")
    assert n_streams(own_servers) == 61


@pytest.mark.limit(300)
def test_streams_that_a_dead_removal_has_closed(own_servers, mount_on):  # noqa: F811
    """A mount that dies between closing a topic's streams and removing it: who writes there is told, and opens them in the end."""
    m = mount_on(own_servers)
    part = m.make("t")
    stream = stream_of(m.topic("t"))
    config = own_servers.stream_info(stream)["config"]
    config["subjects"] = [config["subjects"][0] + ".closed.dead"]
    assert "error" not in own_servers.ask("$JS.API.STREAM.UPDATE." + stream, json.dumps(config).encode())
    fd = os.open(part + "/produce", os.O_WRONLY)
    os.write(fd, b"kept\n")
    assert sync_until(fd) > 60  # nobody opens what may be in the middle of a removal
    os.close(fd)
    assert log(part) == b"kept\n" and "takes records again" in m.stderr()
    assert ".closed" not in own_servers.stream_info(stream)["config"]["subjects"][0]
