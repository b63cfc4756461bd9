"""The procedures of docs/operations.md, followed as they are written there."""

import os
import re
import shutil
import subprocess
import tempfile
import threading

import pytest
from support import (NARADFS, ROOT, Consumer, Failed, ack, drain, fails, log, mountinfo, number, produce, read_file, shell,
                     wait_for, write_all, xattr)
from test_daemon import lock_is_free
from test_faults import Inject, active_segment, need_strace
from test_monitoring import promtool

PAGE = ROOT + "/docs/operations.md"


def steps():
    return dict(re.findall(r"^```sh\n# test: (.+)\n((?:.*\n)*?)```$", read_file(PAGE).decode(), re.M))


def fenced(language):
    return re.search(rf"^```{language}\n((?:.*\n)*?)```$", read_file(PAGE).decode(), re.M).group(1)


def follow(m, *names, check=True, **more):
    """Runs steps one after another, as somebody would who types them."""
    env = {**m.env(), "DATA": m.data, "MNT": m.mnt, "BACKUP": m.base + "/backup",
           "PATH": f"{os.path.dirname(NARADFS)}:{os.path.dirname(NARADFS)}/../ctl:{os.environ['PATH']}", **more}
    return shell("set -eu\n" + "".join(steps()[name] for name in names), env=env, cwd="/", check=check)


@pytest.fixture
def by_hand(m):
    """A mount that steps stop and start."""
    yield m
    if mountinfo(m.mnt):
        follow(m, "stop")


def test_every_example_is_run():
    text = read_file(PAGE).decode()
    assert len(steps()) == text.count("```sh\n") == len(re.findall("^# test: ", text, re.M))
    here = read_file(__file__).decode()
    assert [name for name in steps() if f'"{name}"' not in here] == []


def everything(m):
    """What a mount says about its records and consumers."""
    found = {}
    for topic in sorted(os.listdir(m.mnt + "/topics")):
        found[topic] = read_file(m.topic(topic) + "/config")
        for part in sorted(name for name in os.listdir(m.topic(topic)) if re.fullmatch(r"p\d{5}", name)):
            path = f"{m.topic(topic)}/{part}"
            found[topic, part] = (read_file(path + "/log.jsonl"), xattr(path, "hwm"), xattr(path, "frontier"),
                                  xattr(path, "lag"), xattr(path, "incarnation"))
    return found


def fill(m):
    part = m.make("orders", partitions=2, segment_bytes=65536, retention_ms=0)
    os.mkdir(m.topic("audit"))
    os.mkdir(m.topic("orders") + "/children/audit")
    for n in range(20):
        produce(part, *[f"{n} {i} " + "x" * 300 for i in range(50)])
    produce(part, '{"key":"k","payload":{"a": 1.50}}', name="produce.jsonl")
    produce(m.part("orders", 1), "other")
    with Consumer(part, "consume.jsonl") as consumer:
        ack(part, *[re.search(rb'"handle":"([^"]+)"', consumer.read(4 << 20)).group(1).decode() for _ in range(30)],
            sync=True)
    wait_for(lambda: number(m.part("audit"), "hwm") == 1002, "the copies")
    assert number(part, "frontier") == 30 and number(part, "segments") > 3
    return part


# -- stopping, and starting after a crash


def test_stop(m):
    produce(m.make("orders"), "x")
    follow(m, "stop")
    assert lock_is_free(m.data) and m.wait_exit(5) == 0
    m.gone()


def test_stop_while_files_are_open(m):
    fd = os.open(m.make("orders") + "/produce", os.O_WRONLY)
    assert follow(m, "stop", check=False).returncode != 0  # busy
    m.stop()  # SIGTERM
    try:
        os.close(fd)
    except OSError:  # there is nobody to tell any more
        pass


def test_a_refusal(m):
    produce(m.make("orders"), "x")
    done = follow(m, "a refusal")
    assert b"without blanks" in done.stdout and b"above the high watermark" in done.stdout + (done.stderr or b"")


# -- backups


def test_backup_of_a_stopped_one(by_hand):
    m = by_hand
    fill(m)
    before = everything(m)
    refused = follow(m, "backup, stopped", check=False)
    assert refused.returncode != 0 and not os.path.exists(m.base + "/backup")
    follow(m, "stop", "backup, stopped")
    m.start()
    produce(m.part("orders"), "later")
    drain(m.part("orders"))
    m.stop()
    follow(m, "restore")
    assert everything(m) == before
    produce(m.part("orders"), "on")
    assert number(m.part("orders"), "hwm") == 1002


def test_backup_of_a_running_one_in_which_nothing_moves(by_hand):
    m = by_hand
    fill(m)
    before = everything(m)
    wait_for(lambda: os.path.exists(m.data_part("orders") + "/consumer.ahead"), "the frontier to be written")
    follow(m, "backup, running", "stop", "restore")
    after = everything(m)
    assert after == before
    produce(m.part("orders"), "on")
    assert number(m.part("orders"), "hwm") == 1002
    wait_for(lambda: number(m.part("audit"), "hwm") >= 1003, "the copy of it")
    assert log(m.part("audit")).endswith(b"on\n")


def test_looking_at_a_backup(mounts):
    """Read-only, beside the mount that goes on; nothing of it is changed."""
    m = mounts()
    fill(m)
    before = everything(m)
    follow(m, "backup, running")
    record = m.base + "/backup/meta/orders.topic"
    saved = {path: read_file(path) for path in [record, *backup_files(m)]}
    look = mounts("look", options="ro", start=False)
    look.data = m.base + "/backup"
    look.start()
    assert everything(look) == before
    look.stop()
    assert {path: read_file(path) for path in saved} == saved
    assert everything(m) == before


def backup_files(m):
    return [os.path.join(folder, name) for folder, _, names in os.walk(m.base + "/backup/topics") for name in names]


class Traffic:
    """A producer and a consumer, until they are told to stop."""

    def __init__(self, m):
        self.part, self.over, self.acked, self.error = m.part("orders"), False, 0, None
        self.threads = [threading.Thread(target=self.guard, args=(call,)) for call in (self.produce, self.consume)]
        for thread in self.threads:
            thread.start()

    def guard(self, call):
        try:
            call()
        except Exception as error:  # told at the end
            self.error = error

    def produce(self):
        fd = os.open(self.part + "/produce", os.O_WRONLY)
        while not self.over:
            write_all(fd, b"%09d %s\n" % (self.acked, b"y" * 2000))
            os.fsync(fd)
            self.acked += 1
        os.close(fd)

    def consume(self):
        with Consumer(self.part) as consumer:
            while not self.over:
                if not consumer.none():
                    consumer.sync()

    def stop(self):
        self.over = True
        for thread in self.threads:
            thread.join(30)
        if self.error:
            raise self.error


@pytest.mark.limit(120)
def test_backup_beside_traffic(by_hand):
    m = by_hand
    m.make("orders", segment_bytes=65536, retention_ms=0)
    os.mkdir(m.topic("audit"))
    os.mkdir(m.topic("orders") + "/children/audit")
    traffic = Traffic(m)
    try:
        wait_for(lambda: traffic.acked > 100, "some records")
        first = traffic.acked
        follow(m, "backup, running")
        last = traffic.acked + 1
        wait_for(lambda: traffic.acked > last + 50, "some more")
    finally:
        traffic.stop()
    follow(m, "stop", "restore")
    hwm = number(m.part("orders"), "hwm")
    assert first <= hwm <= last
    assert log(m.part("orders")) == b"".join(b"%09d %s\n" % (n, b"y" * 2000) for n in range(hwm))
    assert 0 < number(m.part("orders"), "frontier") <= hwm
    rest = drain(m.part("orders"))
    assert rest.endswith(b"%09d %s\n" % (hwm - 1, b"y" * 2000))  # nothing unsettled is left out
    produce(m.part("orders"), "on")
    wait_for(lambda: log(m.part("audit")).endswith(b"on\n"), "the copies")
    copies = log(m.part("audit")).splitlines()
    assert {int(line[:9]) for line in copies[:-1]} >= set(range(hwm))


def test_restoring_a_topic(m):
    fill(m)
    witness = m.make("witness")
    produce(witness, "a")
    before = everything(m)
    follow(m, "backup, running")
    produce(m.part("orders"), "later")
    produce(witness, "b")
    m.stop()
    follow(m, "restore a topic")
    m.start()
    after = everything(m)
    assert {key: value for key, value in after.items() if "orders" in key} == \
        {key: value for key, value in before.items() if "orders" in key}
    assert log(witness) == b"a\nb\n"


def test_replay(m):
    part = fill(m)
    follow(m, "replay")
    wait_for(lambda: number(m.part("again"), "hwm") == 1001, "the records")
    assert log(m.part("again")) == log(part)
    assert xattr(m.part("again") + "/records/1000", "key") == "k"
    assert read_file(m.part("again") + "/records/1000") == b'{"a": 1.50}'


# -- trouble


def test_making_room(m):
    part = fill(m)
    before, unsettled = number(part, "size_bytes"), log(part).splitlines()[1000:]
    drain(part)
    produce(part, "last")
    follow(m, "make room")
    wait_for(lambda: number(part, "size_bytes") < before / 10, "less")
    assert log(part).splitlines()[-1] == b"last" and unsettled
    assert drain(part) == b"last\n"


def test_reopening(m):
    need_strace()
    part = m.make("orders", linger_ms=60000)
    produce(part, "a")
    fault = Inject(m, active_segment(m, "orders"), "fdatasync,fsync", "error=EIO")
    try:
        fails(produce, part, "b")
    finally:
        fault.stop()
    assert number(part, "poisoned") == 1 and log(part) == b"a\n"
    follow(m, "reopen")
    produce(part, "c")
    assert number(part, "poisoned") == 0 and log(part) == b"a\nc\n"


def test_moving_a_partition(m, mounts):
    fill(m)
    before = log(m.part("orders"))
    assert before
    other = mounts("other")
    other.make("orders")
    m.stop()
    other.stop()
    follow(m, "move a partition", OTHER=other.data)
    other.start()
    assert log(other.part("orders")) == before


def test_a_topic_record_from_a_backup(m):
    fill(m)
    before = everything(m)
    follow(m, "backup, running")
    m.stop()
    with open(m.data + "/meta/orders.topic", "r+b") as file:
        file.seek(40)
        file.write(b"#")
    m.start()
    fails(log, m.part("orders"))
    assert "put meta/orders.topic in the data directory right" in read_file(m.mnt + "/status").decode()
    m.stop()
    follow(m, "topic record")
    m.start()
    assert everything(m) == before


# -- containers


IN_A_CONTAINER = """set -e
mkdir -p {base}/run/orders {base}/inside
mount --bind {base}/run {base}/run
mount --make-shared {base}/run
{naradfs} {data} {base}/run/orders
mkdir {base}/run/orders/topics/t
# the container: a name space with the folder above the mount point bound as a slave
mkfifo {base}/go {base}/gone
unshare -m --propagation unchanged sh -c '
    mount --rbind {base}/run {base}/inside && mount --make-rslave {base}/inside
    echo first > {base}/inside/orders/topics/t/p00000/produce
    echo > {base}/gone; cat {base}/go
    cat {base}/inside/orders/topics/t/p00000/log' &
cat {base}/gone
umount {base}/run/orders
flock {data}/lock true
{naradfs} {data} {base}/run/orders
echo > {base}/go
wait $!
umount {base}/run/orders
flock {data}/lock true
"""


@pytest.mark.skipif(os.getuid() != 0, reason="mounting is root's")
def test_a_container_sees_the_mount_that_a_restart_made(mounts):
    m = mounts(start=False)
    script = IN_A_CONTAINER.format(base=m.base, data=m.data, naradfs=NARADFS)
    done = subprocess.run(["unshare", "-m", "bash", "-c", script], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, env=m.env(), timeout=50, check=False)
    assert (done.returncode, done.stdout.split()) == (0, [b"first"]), done.stdout


def test_a_user_name_space(mounts):
    m = mounts(start=False)
    if subprocess.run(["unshare", "-Urm", "true"], stderr=subprocess.DEVNULL, check=False).returncode != 0:
        pytest.skip("no user name spaces on this machine")
    shell(f"""unshare -Urm bash -ec '
        {NARADFS} {m.data} {m.mnt}
        mkdir {m.mnt}/topics/t
        echo x > {m.mnt}/topics/t/p00000/produce
        test "$(cat {m.mnt}/topics/t/p00000/log)" = x
        umount {m.mnt}
        flock {m.data}/lock true'""", env=m.env())
    m.start()
    assert log(m.part("t")) == b"x\n"


# -- monitoring


NGINX = """
daemon off;
{user}
pid {folder}/nginx.pid;
events {{}}
http {{
    client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi; access_log off;
    server {{ listen unix:{folder}/http.sock; {location} }}
}}
"""


def test_metrics_through_a_web_server(m):
    nginx = shutil.which("nginx", path=os.environ["PATH"] + ":/usr/sbin")
    if not nginx:
        raise Failed("nginx is not installed: run scripts/deps test")
    folder = tempfile.mkdtemp(prefix="naradfs-")  # a socket's path is short
    with open(folder + "/conf", "w", encoding="utf-8") as file:
        file.write(NGINX.format(folder=folder, user="user root;" if os.getuid() == 0 else "",
                                location=fenced("nginx").replace("/run/naradfs/orders", m.mnt)))
    server = subprocess.Popen([nginx, "-p", folder, "-c", folder + "/conf", "-e", folder + "/error"],
                              stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(lambda: os.path.exists(folder + "/http.sock"), "nginx")

        def get():
            return subprocess.run(["curl", "--silent", "--show-error", "-i", "--unix-socket", folder + "/http.sock",
                                   "http://x/orders/metrics"], check=True, stdout=subprocess.PIPE, timeout=30).stdout

        head, _, body = get().partition(b"\r\n\r\n")
        assert b" 200 " in head and b"Content-Type: text/plain; version=0.0.4" in head
        produce(m.make("t"), "x")
        again = get()
        assert b"\nnarad_topics 0\n" in body and b"\nnarad_topics 1\n" in again
        assert body.endswith(b"\n") and again.endswith(b"\n")
    finally:
        server.terminate()
        server.wait(20)
        shutil.rmtree(folder)


def test_the_scrape_configuration(tmp_path):
    shutil.copy(ROOT + "/monitoring/naradfs.rules.yml", tmp_path)
    (tmp_path / "prometheus.yml").write_text(fenced("yaml"), encoding="utf-8")
    code, output = promtool("check", "config", str(tmp_path / "prometheus.yml"))
    assert code == 0 and "SUCCESS" in output, output
