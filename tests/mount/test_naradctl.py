"""naradctl on mounts: how topics are found, shown, set and deleted; what is refused, and how it is called."""

import errno
import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import tempfile
import time

import pytest
from naradctl import NARADCTL, ctl, patch, refused, rows
from support import ROOT, ack, fails, number, produce, read_file, take, wait_for, write_file, xattr


def test_topics_has_a_row_for_each_topic(m):
    assert rows("topics", "--json", m.mnt) == []
    part = m.make("orders", partitions=2)
    produce(part, *range(10))
    produce(m.part("orders", 1), *range(5))
    m.make("empty")
    handles = [item["handle"] for item in take(part, 4)]
    ack(part, *handles[:3], sync=True)
    size = sum(number(m.part("orders", i), "size_bytes") for i in range(2))
    assert rows("topics", "--json", m.mnt) == [
        {"topic": "empty", "partitions": 1, "records": 0, "lag": 0, "in_flight": 0, "size_bytes": 0, "state": "ok"},
        {"topic": "orders", "partitions": 2, "records": 15, "lag": 12, "in_flight": number(part, "in_flight"),
         "size_bytes": size, "state": "ok"}]
    text = ctl("topics", m.mnt).decode().splitlines()
    assert text[0].split()[:3] == ["topic", "partitions", "records"]
    assert [line.split()[:4] for line in text[1:]] == [["empty", "1", "0", "0"], ["orders", "2", "15", "12"]]


def test_topics_tells_what_is_out_of_service(mounts):
    m = mounts()
    produce(m.make("good"), "a")
    produce(m.make("bad"), "a")
    m.stop()
    patch(f"{m.data}/meta/bad.topic", 30, b"\xff")
    m.start()
    states = {row["topic"]: row["state"] for row in rows("topics", "--json", m.mnt)}
    assert states["good"] == "ok"
    assert states["bad"].startswith("out of service: ")
    assert rows("describe", "--json", m.mnt, "bad")[0]["state"] == states["bad"]


def test_topics_counts_partitions_that_are_not_well(mounts):
    m = mounts()
    m.make("t", partitions=3)
    for n in range(3):
        produce(m.part("t", n), "a")
        produce(m.part("t", n), "b")
    m.stop()
    patch(f"{m.data_part('t', 1)}/{0:020d}.log", 40, b"\xff")
    os.rename(f"{m.data_part('t', 2)}/{0:020d}.log", m.base + "/aside")
    os.mkdir(f"{m.data_part('t', 2)}/{0:020d}.log")
    m.start()
    assert read_file(m.part("t", 1) + "/log") == b"b\n"
    assert fails(read_file, m.part("t", 2) + "/log") == errno.EIO
    (row,) = rows("topics", "--json", m.mnt)
    assert row["state"] == "1 of 3 partitions out of service, 1 of 3 partitions damaged"


def test_describe_tells_settings_and_partitions(m):
    part = m.make("t", partitions=2, segment_bytes=65536, consume_wait_ms=-1)
    produce(part, *range(7))
    ack(part, take(part, 1)[0]["handle"], sync=True)
    (row,) = rows("describe", "--json", m.mnt, "t")
    assert row["topic"] == "t" and row["state"] == "ok"
    assert row["incarnation"] == xattr(m.topic("t"), "incarnation")
    config = dict(line.split("=") for line in read_file(m.topic("t") + "/config").decode().splitlines())
    assert {key: str(value) for key, value in row["settings"].items()} == config
    assert row["settings"]["consume_wait_ms"] == -1
    for i, partition in enumerate(row["partitions"]):
        assert partition.pop("partition") == i and partition.pop("state") == "ok"
        assert partition == {name: number(m.part("t", i), name) for name in partition}
        assert {"oldest_offset", "hwm", "frontier", "lag", "in_flight", "segments", "size_bytes"} < set(partition)
    assert row["partitions"][0]["hwm"] == 7 and row["partitions"][0]["frontier"] == 1
    text = ctl("describe", m.mnt, "t").decode()
    assert "segment_bytes          65536" in text and "\np00001 " in text
    assert "there is no topic x" in refused("describe", m.mnt, "x")
    m.make("-odd")
    for words in (("--", m.mnt, "-odd"), (m.mnt, "--", "-odd")):
        assert rows("describe", "--json", *words)[0]["topic"] == "-odd"
    assert "no name of a topic" in refused("describe", m.mnt, "../t")
    assert "no naradfs is mounted" in refused("describe", m.base, "t")


@pytest.fixture
def somebody():
    """naradctl run in a folder by a user who owns nothing."""
    folder = tempfile.mkdtemp(prefix="naradctl-")  # where that user can start it from
    os.chmod(folder, 0o755)
    shutil.copy(NARADCTL, folder)

    def run(*words, cwd="/"):
        return subprocess.run([folder + "/naradctl", *words], cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, check=False, user=65534, group=65534, extra_groups=[])

    yield run
    shutil.rmtree(folder)


@pytest.fixture
def as_somebody(mounts, somebody):
    """The same in a mount for others, and that mount."""
    m = mounts(options="allow_other")
    return m, lambda *words: somebody(*words, cwd=m.mnt)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user")
def test_another_user_is_told_what_to_do(m, somebody):
    m.make("t")
    for words in (("topics", m.mnt), ("describe", m.mnt, "t"), ("describe", m.topic("t")), ("delete", "--yes", m.mnt, "t")):
        done = somebody(*words)
        assert done.returncode == 1 and f"the mount {m.mnt} cannot be used".encode() in done.stderr, (words, done)
        assert b"without -o allow_other" in done.stderr and done.stderr.count(b"\n") == 1, done.stderr
    m.stop()
    for words in (("check", m.data), ("export", m.data, "t/p00000", "/dev/null")):
        done = somebody(*words)
        assert done.returncode != 0 and b"as the user that it belongs to" in done.stderr, done
        assert b"start naradfs" not in done.stderr and b"chown" not in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user")
def test_what_cannot_be_read_is_told_by_the_exit_status(as_somebody):
    m, run = as_somebody
    for name in ("mine", "open"):
        m.make(name, partitions=2)
    verbs = (["topics", "."], ["topics", "--json", "."], ["describe", ".", "mine"], ["describe", "--json", ".", "mine"],
             ["top", "-n", "1", "-d", "0.05", "."])
    for verb in verbs:
        assert (run(*verb).returncode, run(*verb).stderr) == (0, b""), verb
    closed = [(m.topic("mine"), verbs), (m.topic("mine") + "/status", verbs), (m.part("mine", 1), verbs),
              (m.topic("mine") + "/config", verbs[2:4]), (m.part("mine", 1) + "/status", verbs[2:4]),
              (m.topic("mine") + "/children", verbs[2:4])]
    for path, those in closed:
        mode = os.stat(path).st_mode & 0o777
        os.chmod(path, 0)
        for verb in those:
            done = run(*verb)
            assert done.returncode == 1 and b"mine could not be read in full: Permission denied" in done.stderr or \
                b"mine cannot be looked at" in done.stderr, (path, verb, done)
            assert done.stderr.count(b"\n") == 1
            assert b"open" in done.stdout or verb[0] == "describe"  # the rest is shown all the same
        os.chmod(path, mode)
    assert run("config", ".", "mine").returncode == 0
    os.chmod(m.topic("mine") + "/config", 0)
    assert run("config", ".", "mine").returncode == 1
    for verb in verbs:
        assert (run(*verb).returncode == 0) == (verb[0] != "describe"), verb


def test_a_partition_is_named_in_the_same_ways_everywhere(m, tmp_path):
    produce(m.make("big", partitions=12), *range(5))
    produce(m.part("big", 11), *range(7))
    for name, first in (("big/p00000", 1), ("big/p0", 2), ("big/0", 3), (m.topic("big") + "/p0", 4)):
        ctl("ctl", *([] if name.startswith("/") else [m.mnt]), name, "seek", str(first))
        assert number(m.part("big"), "frontier") == first, name
        assert rows("describe", "--json", *([] if name.startswith("/") else [m.mnt]), name)[0]["topic"] == "big"
        assert "is a partition of big" in refused("delete", "--yes", *([] if name.startswith("/") else [m.mnt]), name)
    ctl("ctl", m.mnt, "big/p11", "seek", "end")
    assert number(m.part("big", 11), "frontier") == 7
    assert "no name of a topic" in refused("ctl", m.mnt, "big/q0", "seek", "1")
    for words in (("ctl", m.mnt, "big/p12", "roll"), ("describe", m.mnt, "big/12"), ("describe", m.topic("big") + "/p12")):
        assert "big has 12 partitions, the last one is p00011" in refused(*words), words
    m.stop()
    tars = []
    for name in ("big/p00011", "big/p11", "big/11", "big/00011"):
        ctl("export", "-q", m.data, name, tmp_path / "one.tar")
        tars.append((tmp_path / "one.tar").read_bytes())
        os.unlink(tmp_path / "one.tar")
    assert len({len(tar) for tar in tars}) == 1
    for name in ("big/p", "big/p-1", "big/pp1", "big/p100000", "big/"):
        assert "names no partition" in refused("export", m.data, name, tmp_path / "one.tar"), name


def settings(m, topic):
    return dict(line.split("=") for line in read_file(m.topic(topic) + "/config").decode().splitlines())


def test_config_shows_and_changes_settings(m):
    m.make("t", partitions=2)
    (row,) = rows("config", "--json", m.mnt, "t")
    assert row["topic"] == "t" and {key: str(value) for key, value in row["settings"].items()} == settings(m, "t")
    header, *table = ctl("config", m.mnt, "t").decode().splitlines()
    assert header.split() == ["setting", "value", "default", "allowed"]
    assert [line.split()[0] for line in table] == list(settings(m, "t"))
    assert "partitions             2              1              a number from 1 to 1024" in table
    assert "codec                  none           none           none or zstd" in table
    assert ctl("config", m.mnt, "t", "linger_ms=7", "codec=zstd", "partitions=3") == b""
    assert {"linger_ms": "7", "codec": "zstd", "partitions": "3"}.items() <= settings(m, "t").items()
    assert rows("config", "-j", m.mnt, "t", "linger_ms=8")[0]["settings"]["linger_ms"] == 8
    m.make("-odd")
    assert ctl("config", "--", m.mnt, "-odd", "linger_ms=9") == b"" and settings(m, "-odd")["linger_ms"] == "9"


@pytest.mark.parametrize("words,sentence", [
    (["linger_ms=70000"], "linger_ms cannot be \"70000\": a number from 0 to 60000 is allowed"),
    (["codec=gzip"], "codec cannot be \"gzip\": none or zstd is allowed"),
    (["retention_ms=5"], "retention_ms cannot be \"5\": 0 or a number from 1000 up is allowed"),
    (["zstd_level="], "zstd_level cannot be \"\": a number from 1 to 19 is allowed"),
    (["lingerms=7"], "there is no setting \"lingerms\"; `config` lists them"),
    (["partitions=1"], "partitions can only grow, from 2 up"),
    (["retention_bytes=65536"], "retention_bytes (65536) cannot be less than segment_bytes (67108864)"),
    (["fanout_delay_ms=7"], "fanout_delay_ms stays as it is while the topic is a child of another one; detach it first"),
])
def test_config_says_what_is_refused_and_changes_nothing(m, words, sentence):
    m.make("t", partitions=2)
    m.make("parent")
    os.mkdir(m.topic("parent") + "/children/t")
    before = read_file(m.topic("t") + "/config")
    for order in (["linger_ms=9", "max_in_flight=9", *words], [*words, "linger_ms=9"]):
        if words[0].startswith("linger_ms"):
            order = [word for word in order if word != "linger_ms=9"]
        said = refused("config", m.mnt, "t", *order)
        assert sentence in said and said.endswith("; nothing was changed\n"), said
    assert read_file(m.topic("t") + "/config") == before


def test_config_and_what_is_no_setting(m):
    m.make("t", linger_ms=7)
    m.make("child", fanout_delay_ms=7200000)
    os.mkdir(m.topic("t") + "/children/child")
    assert "an hour more than the delay of each child" in refused("config", m.mnt, "t", "retention_ms=3600000")
    assert '"linger_ms" is not KEY=VALUE' in refused("config", m.mnt, "t", "codec=zstd", "linger_ms", code=2)
    assert "is not KEY=VALUE" in refused("config", m.mnt, "t", "linger_ms=1\ncodec=zstd", code=2)
    assert "a setting is written KEY=VALUE" in refused("config", m.mnt, "t", "linger_ms", code=2)
    assert "no topic is named" in refused("config", "linger_ms=7", code=2)
    assert "there is no topic x" in refused("config", m.mnt, "x", "linger_ms=8")
    assert settings(m, "t")["linger_ms"] == "7" and settings(m, "t")["codec"] == "none"
    m.stop()
    m.options = "ro"
    m.start()
    assert "Read-only file system; nothing was changed" in refused("config", m.mnt, "t", "linger_ms=8")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a mount namespace of its own")
def test_the_mount_is_found_when_it_is_the_only_one(mounts):
    m, other = mounts("only"), mounts("other")
    m.make("t")

    def alone(keep):
        """Runs naradctl topics where only those mounts are to be seen, whatever comes and goes elsewhere."""
        script = """awk '$3 == "fuse.naradfs" { print $2 }' /proc/self/mounts | while read -r point; do
            case " $* " in *" $point "*) ;; *) umount -l "$(printf %b "$point")" ;; esac
        done; exec "$0" topics --json"""
        return subprocess.run(["unshare", "-m", "sh", "-c", script, NARADCTL, *keep], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, check=False)

    done = alone([m.mnt])
    assert (done.returncode, json.loads(done.stdout)["topic"]) == (0, "t"), done.stderr
    done = alone([m.mnt, other.mnt])
    assert done.returncode == 1 and b"several naradfs are mounted" in done.stderr
    done = alone([])
    assert done.returncode == 1 and b"no naradfs is mounted; mount one" in done.stderr
    assert os.path.isdir(m.topic("t"))  # nothing was unmounted outside


def test_a_path_names_the_mount_and_the_topic(mounts):
    """Several are mounted: a path, or the working folder, says which is meant, for every verb alike."""
    m, other = mounts("one"), mounts("other")
    produce(m.make("t"), "x")
    other.make("u")

    def at(cwd, *arguments, code=0):
        done = subprocess.run([NARADCTL, *arguments], cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              stdin=subprocess.DEVNULL, check=False)
        assert done.returncode == code, (arguments, done.stderr)
        return (done.stderr if code else done.stdout).decode()

    topic = m.topic("t")
    part = m.part("t")
    for path in (topic, topic + "/", part, part + "/log", os.path.relpath(topic, "/")):
        assert json.loads(at("/", "describe", "--json", path))["topic"] == "t"
        assert json.loads(at("/", "config", "--json", path))["topic"] == "t"
    assert at("/", "config", topic, "linger_ms=7") == "" and settings(m, "t")["linger_ms"] == "7"
    for cwd in (m.mnt, m.mnt + "/topics", topic, part + "/records"):
        assert json.loads(at(cwd, "topics", "--json"))["topic"] == "t"
        assert "t  " in at(cwd, "top", "-n", "1")
        assert json.loads(at(cwd, "describe", "--json", "t"))["topic"] == "t"
        assert "there is no topic u at " + m.mnt in at(cwd, "describe", "u", code=1)
    assert json.loads(at(topic, "describe", "--json", "."))["topic"] == "t"
    assert json.loads(at(part, "describe", "--json", ".."))["topic"] == "t"
    assert json.loads(at(m.mnt, "describe", "--json", "topics/t"))["topic"] == "t"
    assert json.loads(at(m.mnt, "topics", "--json", other.mnt))["topic"] == "u"
    assert json.loads(at("/", "topics", "--json", other.topic("u")))["topic"] == "u"
    assert "no naradfs is mounted at /etc" in at("/", "topics", "/etc", code=1)
    assert "is no name of a topic" in at(m.mnt, "describe", m.base, code=1)
    assert "is a partition of t" in at("/", "delete", "--yes", part, code=1) and os.path.isdir(topic)
    assert at("/", "delete", "--yes", topic) == "" and not os.path.exists(topic)


def test_ctl_says_why_not(m):
    """The reasons that a shell's echo does not learn; the topic's status shows the last one."""
    part = m.make("t")
    produce(part, *range(3))
    ctl("ctl", m.mnt, "t/p00000", "roll")
    ctl("ctl", part, "seek", "2")
    assert number(part, "segments") == 2 and number(part, "frontier") == 2
    ctl("ctl", m.topic("t"), "partitions", "2")
    m.make("roll")
    ctl("ctl", m.mnt, "roll", "partitions", "2")  # a topic that is called like a verb
    assert os.path.isdir(m.topic("roll") + "/p00001")
    for arguments, sentence in [
            ((part, "trim", "99"), "p00000: ctl: \"trim 99\" refused: the offset is above the high watermark"),
            ((part, "trim", "x"), "trim takes an offset"),
            ((part, "seek", "nowhere"), "seek takes an offset, start or end"),
            ((part, "roll", "now"), "no such verb; a partition's ctl knows"),
            ((m.topic("t"), "partitions", "1"), "the number of partitions only grows"),
            ((m.topic("t"), "partitions", "2000"), "partitions cannot be"),
            ((m.topic("t"), "delete", "0" * 16), "that is not this topic's incarnation id"),
            ((m.topic("t"), "roll"), "roll is a verb of a partition: t/p00000"),
            ((part, "delete", "0" * 16), "delete is a verb of a topic: t, not its p00000"),
            ((m.topic("t") + "x", "roll"), "there is no topic tx"),
    ]:
        assert sentence in refused("ctl", *arguments), arguments
    time.sleep(1.1)  # an old refusal is no answer to what fails otherwise
    assert "t has 2 partitions, the last one is p00001" in refused("ctl", m.mnt, "t/p00009", "roll")
    for arguments in [(), ("t",), ("t", "explode"), (m.mnt, "t", "seek", "1", "2")]:
        refused("ctl", *arguments, code=2)
    for what, sentence in [(b"linger_ms = 5\n", "without blanks"), (b"linger_ms=5\r\n", "carriage return"),
                           (b" linger_ms=5\n", "without blanks"), (b"nonsense=5\n", "there is no setting")]:
        assert fails(write_file, m.topic("t") + "/config", what) == errno.EINVAL
        line = re.search(r"^refused      \d{4}-\S+Z: (config refused: .*)$", read_file(m.topic("t") + "/status").decode(), re.M)
        assert sentence in line.group(1) and "nothing was changed" in line.group(1)
    assert fails(write_file, part + "/ctl", b"roll\r\n") == errno.EINVAL
    assert "p00000: ctl: \"roll?\" refused: it ends with a carriage return" in read_file(m.topic("t") + "/status").decode()
    assert fails(os.rmdir, m.topic("t")) == errno.ENOTEMPTY
    assert "rmdir refused: the topic retains records" in read_file(m.topic("t") + "/status").decode()


def test_help_and_usage():
    assert b"usage: naradctl VERB" in ctl("--help")
    assert ctl("--version").startswith(b"naradctl 0.")
    assert b"there is no verb" in subprocess.run([NARADCTL, "nonsense"], stderr=subprocess.PIPE, check=False).stderr
    verbs = [line.split()[0].decode() for line in ctl("--help").splitlines() if line.startswith(b"  ")]
    assert {"check", "dump", "topics", "describe"} <= set(verbs)
    for verb in verbs:
        assert b"naradctl " + verb.encode() in ctl(verb, "--help")


# -- delete, top


def on_terminal(arguments, typed, until=None, limit_s=20):
    """Runs naradctl on a terminal of its own; types when `until` has been shown. (status, what was shown)"""
    pid, fd = pty.fork()
    if pid == 0:
        os.execv(NARADCTL, [NARADCTL, *map(str, arguments)])
    shown = b""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        if select.select([fd], [], [], 0.1)[0]:
            try:
                piece = os.read(fd, 65536)
            except OSError:  # the terminal is gone with the last process on it
                break
            if not piece:
                break
            shown += piece
        if typed and (until is None or until in shown):
            os.write(fd, typed)
            typed = b""
    os.close(fd)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status), shown.replace(b"\r\n", b"\n")


def test_delete_asks_and_says_what_will_be_lost(m):
    produce(m.make("jobs", partitions=2), *range(12))
    ack(m.part("jobs"), *[item["handle"] for item in take(m.part("jobs"), 2)], sync=True)
    for answer in (b"yes\n", b"\n", b"job\n", b"\x04"):
        status, shown = on_terminal(["delete", m.mnt, "jobs"], answer, until=b"to delete it: ")
        assert status == 1 and b"jobs was not deleted" in shown, shown
        assert b"2 partitions with 12 records" in shown and b"not settled 10." in shown
    assert "--yes" in refused("delete", m.mnt, "jobs")
    assert number(m.part("jobs"), "hwm") == 12
    status, shown = on_terminal(["delete", m.mnt, "jobs"], b"jobs\n", until=b"to delete it: ")
    assert status == 0, shown
    assert os.listdir(m.mnt + "/topics") == []
    produce(m.make("jobs"), "of another topic of that name")
    assert ctl("delete", "--yes", m.mnt, "jobs") == b""
    assert os.listdir(m.mnt + "/topics") == []
    assert "there is no topic jobs" in refused("delete", "-y", m.mnt, "jobs")


def test_top_shows_rates_in_a_pipe(m):
    part = m.make("t")
    m.make("idle")
    process = subprocess.Popen([NARADCTL, "top", "-n", "3", "-d", "0.5", m.mnt], stdout=subprocess.PIPE)
    n = 0
    while process.poll() is None:
        produce(part, *range(100))
        n += 100
    out = process.stdout.read().decode()
    process.stdout.close()
    assert process.returncode == 0 and "\033" not in out
    pages = [line.split() for line in out.splitlines() if line.startswith("t ")]
    assert len(pages) == 3 and any(int(row[1]) > 0 for row in pages), out
    assert int(pages[0][3]) <= int(pages[1][3]) <= int(pages[2][3]) <= n
    assert [line.split()[1] for line in out.splitlines() if line.startswith("idle ")] == ["0", "0", "0"]
    one = ctl("top", "-d", "0.05", m.mnt).decode().splitlines()  # not a terminal: one page
    assert len(one) == 4 and one[0].startswith("2 topics; ")
    refused("top", "-d", "0", m.mnt, code=2)


def test_top_takes_a_number_from_1(m):
    m.make("t")
    assert ctl("top", "--number", "1", "--delay", "0.05", m.mnt).decode().startswith("1 topic; ")
    for n_pages in (0, -1):
        assert "--number a number from 1 up" in refused("top", f"--number={n_pages}", m.mnt, code=2)


def test_top_on_a_terminal_ends_with_q(m):
    produce(m.make("orders"), *range(42))
    status, shown = on_terminal(["top", "-d", "0.1", m.mnt], b"q", until=b"orders ")
    assert status == 0
    assert b"q quits" in shown
    assert shown.startswith(b"\033[?1049h") and shown.endswith(b"\033[?1049l")  # the screen is given back


# -- bench


def test_bench_measures_and_leaves_nothing(m, tmp_path):
    produce(m.make("mine"), "kept")
    (tmp_path / "beside").mkdir()
    found = rows("bench", "--json", "--seconds", "0.2", "--beside", tmp_path / "beside", m.mnt)
    assert [row["measure"] for row in found] == ["fsync_1", "fsync_8", "bulk", "log", "drain"]
    assert all(row["naradfs"] > 0 and row["plain"] > 0 for row in found)
    assert all(abs(row["ratio"] / (row["naradfs"] / row["plain"]) - 1) < 0.001 for row in found)
    assert os.listdir(m.mnt + "/topics") == ["mine"] and os.listdir(tmp_path / "beside") == []
    text = ctl("bench", "--seconds", "0.1", m.mnt).decode()
    assert text.count("\n") == 5 and "ratio" not in text
    refused("bench", "--beside", tmp_path / "nothing", m.mnt)
    refused("bench", "--seconds", "0", m.mnt, code=2)
    assert os.listdir(m.mnt + "/topics") == ["mine"]


def test_bench_cleans_up_when_it_is_interrupted(m, tmp_path):
    process = subprocess.Popen([NARADCTL, "bench", "--seconds", "30", "--beside", tmp_path, m.mnt],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    wait_for(lambda: os.listdir(m.mnt + "/topics"), "its topic")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode == 1
    assert os.listdir(m.mnt + "/topics") == []
    assert not [name for name in os.listdir(tmp_path) if name.startswith("naradctl-bench")]


# -- manual, completion


def options_of(verb):
    """The long options that a verb's --help lists."""
    return set(re.findall(r"--[a-z]+", ctl(verb, "--help").decode())) - {"--help"}


def verbs():
    return [line.split()[0].decode() for line in ctl("--help").splitlines() if line.startswith(b"  ")]


@pytest.mark.skipif(not shutil.which("mandoc"), reason="mandoc is not installed")
def test_the_manual_is_well_formed_and_whole():
    page = f"{ROOT}/ctl/naradctl.1"
    done = subprocess.run(["mandoc", "-Tlint", page], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    assert [line for line in done.stdout.decode().splitlines() if "mandoc.db" not in line] == []
    text = subprocess.run(["mandoc", "-Tascii", page], stdout=subprocess.PIPE, check=True).stdout.decode()
    text = re.sub(".\b", "", text)
    for verb in verbs():
        synopsis = re.search(rf"^ +naradctl {verb}( .*\n(?:      .*\n)*)", text, re.M)
        assert synopsis, verb
        assert options_of(verb) == set(re.findall(r"--[a-z]+", synopsis.group(1))), verb


def complete(*words):
    """What bash offers for the last word."""
    script = ('source "$1"; shift; COMP_WORDS=(naradctl "$@"); COMP_CWORD=$#; _naradctl; '
              'printf "%s\\n" "${COMPREPLY[@]}"')
    done = subprocess.run(["bash", "-c", script, "bash", f"{ROOT}/ctl/completion/naradctl.bash", *map(str, words)],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=True)
    assert done.stderr == b""
    return {word.decode() for word in done.stdout.splitlines() if word}


def test_bash_completes_verbs_options_topics_and_partitions(m):
    m.make("orders", partitions=2)
    m.make("other")
    m.make("jobs")
    assert complete("") == {*verbs(), "--help", "--version"}
    for verb in verbs():
        assert complete(verb, "--") == options_of(verb) | {"--help"}, verb
    assert complete("describe", m.mnt, "o") == {"orders", "other"}
    assert complete("delete", "--yes", m.mnt, "j") == {"jobs"}
    assert m.mnt in complete("topics", m.base)
    assert m.data in complete("check", m.data[:-1])
    assert complete("export", m.data, "ord") == {"orders/p00000", "orders/p00001"}
    assert complete("bench", "--seconds", "") == set()
    keys = {key + "=" for key in settings(m, "orders")}
    assert complete("config", m.mnt, "o") == {"orders", "other"}
    assert complete("config", m.mnt, "orders", "") == keys
    assert complete("config", "--json", m.mnt, "orders", "codec=zstd", "re") == {"retention_ms=", "retention_bytes="}


@pytest.mark.skipif(not shutil.which("zsh"), reason="zsh is not installed")
def test_zsh_can_read_its_completion():
    path = f"{ROOT}/ctl/completion/_naradctl"
    subprocess.run(["zsh", "-n", path], check=True)
    with open(path, encoding="utf-8") as file:
        text = file.read()
    for verb in verbs():
        assert f"'{verb}:" in text
        assert all(option in text for option in options_of(verb)), verb


def test_delete_says_why_a_topic_stays(m):
    m.make("t")
    os.rename(m.data + "/meta", m.base + "/meta")
    said = refused("delete", "--yes", m.mnt, "t")
    assert "meta/ is missing in the data directory: put it back" in said
    assert os.path.exists(m.topic("t"))
    os.rename(m.base + "/meta", m.data + "/meta")
    m.stop()
    os.rename(m.data + "/meta/t.topic", m.data + "/meta/other.topic")
    m.start()
    said = refused("delete", "--yes", m.mnt, "other")
    assert ("other cannot be deleted: other is out of service: meta/other.topic: it is the record of the topic t, under "
            "another name: give it its own back") in said
