"""What an administrator gets wrong: each refusal says what was wrong, on the terminal or in the daemon's log, once."""

import errno
import os
import re
import subprocess

import pytest
from support import NARADFS, ROOT, configure, fails, open_fails, produce, read_file, wait_for, write_file, xattr

QUOTE_MAX = 80


class Said:
    """The lines that the daemon writes meanwhile."""

    def __init__(self, m):
        self.m = m
        self.before = len(m.stderr())

    def lines(self):
        return self.m.stderr()[self.before:].splitlines()


def told(m, error, call, *arguments, words=()):
    """The call fails with that error, and one line in the log has all the words."""
    said = Said(m)
    assert fails(call, *arguments) == error
    (line,) = wait_for(said.lines, "a line in the log")
    for word in words:
        assert word in line, (word, line)


# -- names and attributes


@pytest.mark.parametrize("name", [".hidden", "a b", "a:b", "x.stale-1", "\x1b[31m", "ä"])
def test_a_bad_name_of_a_topic(m, name):
    told(m, errno.EINVAL, os.mkdir, m.topic(name), words=["no topic can be named", "up to 200 of A-Z a-z 0-9 . _ -"])
    assert "\x1b" not in m.stderr()
    assert os.listdir(m.mnt + "/topics") == []


def test_names_that_cannot_be_made_or_changed(m):
    part = m.make("t")
    rule = ["mkdir and rmdir make and remove topics in topics/"]
    told(m, errno.EPERM, os.mkdir, m.mnt + "/more", words=['mkdir of "more" refused', *rule])
    told(m, errno.EPERM, os.mkdir, part + "/more", words=['mkdir of "more" refused', *rule])
    told(m, errno.EPERM, os.rmdir, part, words=['rmdir of "p00000" refused', "topic=t"])
    told(m, errno.EPERM, os.unlink, part + "/log", words=['unlink of "log" refused', "topic=t partition=00000"])
    told(m, errno.EPERM, os.rename, m.topic("t"), m.topic("u"), words=['rename of "t" refused', *rule])
    told(m, errno.EPERM, os.symlink, "x", m.topic("t") + "/x", words=['symlink of "x" refused', *rule])
    told(m, errno.EPERM, os.link, part + "/log", part + "/log2", words=['link of "log2" refused'])
    told(m, errno.EPERM, os.mkfifo, m.mnt + "/fifo", words=['mknod of "fifo" refused'])
    said = Said(m)
    assert open_fails(m.mnt + "/file", os.O_WRONLY | os.O_CREAT) == errno.EPERM
    assert 'of "file" refused' in wait_for(said.lines, "a line")[0]


def test_attributes_that_cannot_be_set(m):
    part = m.make("t")
    for path, name in ((m.topic("t"), "incarnation"), (part, "hwm"), (part + "/log", "poisoned")):
        told(m, errno.EPERM, os.setxattr, path, "user.narad." + name, b"1",
             words=[f'the attribute "user.narad.{name}" refused', "can only be read", "topic=t"])
    told(m, errno.EINVAL, os.setxattr, m.topic("t"), "user.narad.lingerms", b"1",
         words=['"user.narad.lingerms" refused', "there is no such setting; `config` lists them"])
    told(m, errno.EINVAL, os.setxattr, m.topic("t"), "user.narad.linger_ms", b"60001",
         words=['linger_ms cannot be "60001": a number from 0 to 60000 is allowed'])
    told(m, errno.EINVAL, os.setxattr, m.topic("t"), "user.narad.linger_ms", b"1\ncodec=zstd", words=["one line"])
    said = Said(m)  # what programs that copy attributes try is not worth a line
    assert fails(os.setxattr, m.topic("t"), "user.other", b"1") == errno.EPERM
    assert said.lines() == []


def test_a_topic_that_cannot_be_removed(m):
    part = m.make("t")
    produce(part, "a")
    told(m, errno.ENOTEMPTY, os.rmdir, m.topic("t"),
         words=["retains records", f"`delete {xattr(m.topic('t'), 'incarnation')}`"])
    m.make("u")
    fd = os.open(m.part("u") + "/log", os.O_RDONLY)
    told(m, errno.EBUSY, os.rmdir, m.topic("u"), words=["files of the topic are open", "topic=u"])
    os.close(fd)


# -- lines


@pytest.mark.parametrize("line,words", [
    ("lingerms=1", ['there is no setting "lingerms"']),
    ("linger_ms=-1", ['linger_ms cannot be "-1"', "0 to 60000"]),
    ("partitions=0", ['partitions cannot be "0"', "1 to 1024"]),
    ("linger_ms", ['"linger_ms" is not key=value']),
    ("codec=" + "x" * 5000, ['codec cannot be "' + "x" * QUOTE_MAX + '..."', "none or zstd"]),
    ("codec=\x1b[31m\"\x7f\xff", ['codec cannot be "?[31m????": none or zstd']),
])
def test_settings(m, line, words):
    m.make("t")
    before = read_file(m.topic("t") + "/config")
    told(m, errno.EINVAL, write_file, m.topic("t") + "/config", b"max_in_flight=7\n" + line.encode() + b"\n",
         words=["config refused", "nothing was changed", "topic=t", *words])
    assert read_file(m.topic("t") + "/config") == before
    assert max(map(len, m.stderr().splitlines())) < 400


@pytest.mark.parametrize("line,words", [
    ("delete", ['"delete" refused: delete takes the topic\'s incarnation id, 16 hexadecimal digits']),
    ("delete 0123456789abcdef", ["that is not this topic's incarnation id; read the xattr user.narad.incarnation"]),
    ("remove", ["no such verb; a topic's ctl knows delete and partitions"]),
    ("partitions 1", ["only grows"]),
    ("x" * 5000, ['"' + "x" * QUOTE_MAX + '..." refused']),
    ("\x1b]0;title\x07", ['"?]0;title?" refused']),
])
def test_ctl_of_a_topic(m, line, words):
    m.make("t")
    told(m, errno.EINVAL, write_file, m.topic("t") + "/ctl", line.encode() + b"\n", words=["ctl: ", "topic=t", *words])


@pytest.mark.parametrize("line,words", [
    ("seek 9", ['"seek 9" refused: the offset is above the high watermark']),
    ("trim", ['"trim" refused: trim takes an offset']),
    ("reset", ["a partition's ctl knows reopen, roll, trim and seek"]),
])
def test_ctl_of_a_partition(m, line, words):
    part = m.make("t")
    told(m, errno.EINVAL, write_file, part + "/ctl", line.encode() + b"\n", words=["topic=t partition=00000", *words])


def test_receipts(m):
    part = m.make("t")
    ack = part + "/ack"
    told(m, errno.EINVAL, write_file, ack, b"nack \x1b[2J\n", words=['the line "nack ?[2J" was refused', "malformed"])
    told(m, errno.ESTALE, write_file, ack, b"0:7:1\n", words=['the line "0:7:1" was refused', "its lease has lapsed"])
    told(m, errno.ESTALE, write_file, ack, b"extend 0:8:2\n0:7:1\n", words=['the line "extend 0:8:2" was refused'])
    told(m, errno.EINVAL, write_file, ack, b"y" * 3000 + b"\n", words=['"' + "y" * QUOTE_MAX + '..."'])
    said = Said(m)
    fd = os.open(part + "/consume", os.O_RDWR | os.O_NONBLOCK)
    assert fails(os.write, fd, b"settle 1\n") == errno.EINVAL
    os.close(fd)
    assert 'the line "settle 1" was refused' in wait_for(said.lines, "a line")[0]


# -- starting


def start(*arguments, user=None):
    """naradfs in the foreground, which is refused: what it says."""
    command = [NARADFS, *map(str, arguments), "-f"]
    if user:
        command = ["setpriv", "--reuid", user, "--regid", user, "--clear-groups", *command]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False,
                          timeout=30)
    assert done.returncode == 1, done
    return done.stderr.decode()


@pytest.mark.parametrize("option,words", [
    ("umask=99", "umask=99: an octal number (digits 0 to 7) up to 777 is expected"),
    ("umask=1000", "umask=1000: an octal number"),
    ("uid=me", "uid=me: a decimal number up to 4294967295 is expected"),
    ("nosuch", "`-o nosuch'"),
    ("engine=jetstream,url=nats://host", "engine=jetstream has no data directory: naradfs MNT -o"),
    ("engine=kafka", "option engine=kafka: local (records in DATA) or jetstream (in NATS) is expected"),
    ("url=nats://host:4222", "replicas= and fsync= belong to engine=jetstream"),
    ("replicas=3", "belong to engine=jetstream"),
    ("tls_ca=/etc/ssl/ca.pem", "belong to engine=jetstream"),
    ("log_level=loud", "error, warning, notice, info or debug is expected"),
    ("partitions=0", 'partitions cannot be "0": a number from 1 to 1024 is allowed'),
    ("codec=gzip", 'codec cannot be "gzip": none or zstd is allowed'),
    ("remount,ro", "cannot be remounted, not even read-only: umount it, then mount it"),
    ("cache_bytes=none", "cache_bytes=none: a decimal number from 1 to"),
    ("allow_other,bogus=1", "`-o bogus=1'"),
    ("max_threads=many", "max_threads=many: a decimal number from 1 to"),
    ("max_threads=0", "max_threads=0: a decimal number from 1 to"),
    ("max_threads=-1", "max_threads=-1: a decimal number from 1 to"),
    ("max_threads=4294967296", "max_threads=4294967296: a decimal number from 1 to"),
    ("max_read=4096", "option max_read=4096 is not supported"),
    ("codec=zstd,retention_ms=5", 'retention_ms cannot be "5"'),
])
def test_options(tmp_path, option, words):
    """Refused before anything is made: neither DATA nor, in an empty folder, what a start puts there."""
    (tmp_path / "mnt").mkdir()
    (tmp_path / "empty").mkdir()
    for data in ("data", "empty"):
        assert words in start(tmp_path / data, tmp_path / "mnt", "-o", option)
    assert sorted(os.listdir(tmp_path)) == ["empty", "mnt"]
    assert os.listdir(tmp_path / "mnt") == os.listdir(tmp_path / "empty") == []


@pytest.mark.parametrize("option,words", [
    ("", "url=nats://HOST:4222[,HOST:4222...] or url_file=FILE is missing"),
    (",url=", "is missing, which says where the NATS servers are"),
    (",url=http://127.0.0.1:1", "the list of servers, its number 1: it begins with something other than nats:// and tls://"),
    (",url=nats://127.0.0.1:1,fsync=yes", "only fsync=asserted means something"),
    (",url=nats://127.0.0.1:1,replicas=6", "replicas=6: a decimal number from 1 to 5 is expected"),
    (",url=nats://127.0.0.1:1,127.0.0.1:2,require_fsync", "fsync=asserted|built without it"),
    (",url=nats://me:secret@127.0.0.1:1,127.0.0.1:2", "the NATS servers nats://127.0.0.1:1,127.0.0.1:2 could be|built without it"),
])
def test_options_of_jetstream(tmp_path, option, words):
    (tmp_path / "mnt").mkdir()
    said = start(tmp_path / "mnt", "-o", "engine=jetstream" + option)
    assert any(word in said for word in words.split("|")) and "secret" not in said
    assert os.listdir(tmp_path / "mnt") == []


@pytest.mark.local("the data directory")
def test_mount_points(m, tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("")
    data = tmp_path / "data"
    assert "is not a folder" in start(data, tmp_path / "file")
    assert "make the folder first" in start(data, tmp_path / "missing")
    assert "a data directory and a mount point are expected" in start(data)
    assert "not also" in start(data, tmp_path / "full", tmp_path / "full")
    assert "nonempty" in start(data, tmp_path / "full")
    assert "is mounted at" in start(data, m.mnt) and "unmount it first" in start(data, m.mnt)
    assert "is an empty name" in start(data, "") and "unknown option" in start(data, tmp_path / "full", "-z")
    assert "must not lie in each other" in start(tmp_path / "full" / "data", tmp_path / "full")
    assert not data.exists() and os.listdir(tmp_path / "full") == ["x"]
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "inner").mkdir()
    assert "must not lie in each other" in start(tmp_path / "empty", tmp_path / "empty" / "inner")
    assert os.listdir(tmp_path / "empty") == ["inner"]
    (tmp_path / "other").mkdir()
    assert f"in use by the process with pid {m.process.pid}" in start(m.data, tmp_path / "other")


@pytest.mark.local("the data directory")
def test_data_of_a_newer_version(m, tmp_path):
    m.make("t")
    m.stop()
    with open(m.data + "/format", "w", encoding="ascii") as file:
        file.write("99\n")
    said = start(m.data, m.mnt)
    assert "says version 99, this program knows up to 1: use a newer naradfs" in said


def something_else(path, kind):
    """Puts what is no regular file in the place of a file."""
    if os.path.isdir(path):
        os.rename(path, path + ".away")
    elif os.path.exists(path):
        os.unlink(path)
    if kind == "folder":
        os.mkdir(path)
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "link":
        os.symlink("/etc/passwd", path)
    else:
        write_file(path, b"", os.O_CREAT)


@pytest.mark.local("the data directory")
@pytest.mark.parametrize("name, kind, remedy", [
    ("lock", "folder", "/lock is not a regular file; remove it (rm -r "),
    ("lock", "fifo", "/lock is not a regular file; remove it"),
    ("lock", "link", "/lock is not a regular file; remove it"),
    ("format", "folder", "; put the file from a backup in its place"),
    ("format", "fifo", "; put the file from a backup in its place"),
    ("format", "link", "; put the file from a backup in its place"),
    ("meta", "file", "/meta cannot be used: it is not a folder; name a folder, or move away what has its name"),
    ("topics", "file", "; name a folder, or move away what has its name"),
    ("ingress", "file", "; name a folder, or move away what has its name"),
])
def test_what_stands_in_the_place_of_a_file(m, name, kind, remedy):
    """Each start that is refused says what to do."""
    produce(m.make("t"), "x")
    m.stop()
    something_else(f"{m.data}/{name}", kind)
    said = start(m.data, m.mnt)
    assert remedy in said and m.data in said, said
    assert os.path.exists(m.data + "/topics" if name != "topics" else m.data + "/topics.away")


def test_data_that_is_none(tmp_path):
    (tmp_path / "mnt").mkdir()
    assert "make the folder that it is to lie in first" in start(tmp_path / "a" / "data", tmp_path / "mnt")
    (tmp_path / "file").write_text("")
    assert "name a folder, or move away" in start(tmp_path / "file", tmp_path / "mnt")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("")
    assert "name an empty folder, or put `format` back" in start(tmp_path / "full", tmp_path / "mnt")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user")
def test_a_user_without_rights(tmp_path):
    os.chmod(tmp_path, 0o755)
    for name, mode in (("mnt", 0o777), ("data", 0o700)):
        (tmp_path / name).mkdir()
        os.chmod(tmp_path / name, mode)
    said = start(tmp_path / "data", tmp_path / "mnt", user="65534")
    assert "ermission denied" in said and (str(tmp_path / "data") in said or "/dev/fuse" in said), said


def test_a_setting_that_was_refused_can_be_set_right(m):
    m.make("t")
    told(m, errno.EINVAL, write_file, m.topic("t") + "/config", b"linger_ms=60001\n", words=["60000"])
    configure(m.topic("t"), linger_ms=60000)


# -- words


def test_no_message_says_1_records():
    """A count in a message is followed by a word that goes with every number (nrd_plural)."""
    nouns = "record|byte|segment|frame|partition|topic|file|place|slot|part|time|offset"
    count = rf'(?:%u|%zu|%d|%" (?:PRI[ud](?:32|64)|G_GU?INT64_FORMAT|G_GSIZE_FORMAT|N) ") (?:{nouns})s\b'
    found = []
    for folder in ("engine", "fs", "ctl", "mount"):
        for where, _, names in os.walk(os.path.join(ROOT, folder)):
            for name in (name for name in names if name.endswith(".c")):
                with open(os.path.join(where, name), encoding="utf-8") as file:
                    found += [f"{name}: {line.strip()}" for line in file if re.search(count, line)]
    always_many = ("are missing", "segments cannot be read", "bytes stored as", "are there and not served")
    assert [line for line in found if not any(words in line for words in always_many)] == []
