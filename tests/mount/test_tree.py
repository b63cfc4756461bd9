"""The tree as files: scans, names, what is refused, settings, control verbs, deletion, permissions."""

import ctypes
import errno
import fcntl
import os
import select
import socket
import stat
import subprocess
import time

import pytest
from support import (CONFIG_KEYS, DURABILITY, JETSTREAM, SEGMENTS, XATTRS, Background, Consumer, configure, drain,
                     fails, lines, log, number, open_fails, produce, read_file, shell, take, write_file, xattr,
                     wait_for)

TOPIC_FILES = {"config", "ctl", "status", "p00000"}
PART_FILES = {"ctl", "status", "produce", "produce.jsonl", "produce.bin", "consume", "consume.jsonl", "consume.bin",
              "drain", "ack", "log", "log.jsonl"}
LINKS = ("consume", "consume.jsonl", "consume.bin", "drain")
LIBC = ctypes.CDLL(None, use_errno=True)


def state(part):
    return {name: xattr(part, name) for name in XATTRS}


# -- shape and scans


def test_shape(m):
    part = m.make("orders", partitions=2)
    assert set(os.listdir(m.mnt)) >= {"HELP", "topics"}
    assert os.listdir(m.mnt + "/topics") == ["orders"]
    assert set(os.listdir(m.topic("orders"))) >= TOPIC_FILES | {"p00001"}
    names = set(os.listdir(part))
    assert names >= PART_FILES
    assert ".streams" not in names
    assert stat.S_ISDIR(os.lstat(part + "/.streams").st_mode)
    for name in LINKS:
        assert os.readlink(f"{part}/{name}") == ".streams/" + name
        assert stat.S_ISREG(os.stat(f"{part}/{name}").st_mode)
    for name in ("produce", "ack", "ctl", "log", "status"):
        assert stat.S_ISREG(os.lstat(f"{part}/{name}").st_mode), name
    for missing in ("p00002", "p0", "p000000", "P00000", "p00000x", "nothing"):
        assert not os.path.lexists(f"{m.topic('orders')}/{missing}"), missing


def test_help_and_status_are_readable(m):
    part = m.make("t")
    text = read_file(m.mnt + "/HELP").decode()
    for word in ("produce", "consume", "drain", "log", "mkdir"):
        assert word in text, word
    for path in (m.topic("t") + "/status", part + "/status"):
        assert read_file(path).strip(), path
    assert b"reopen" in read_file(part + "/ctl")
    assert b"delete" in read_file(m.topic("t") + "/ctl")
    assert read_file(part + "/ack") == b""


def test_same_inode_on_every_lookup(m):
    part = m.make("t")
    for name in ("produce", ".streams/consume", ".streams/drain", "ack", "log"):
        assert len({os.stat(f"{part}/{name}").st_ino for _ in range(5)}) == 1, name


def test_a_folder_of_a_deleted_topic_is_gone(m):
    """Who is in it, a shell for instance, is not told that what it does is forbidden; nor reaches a later topic of that name."""
    part = m.make("t")
    folders = [os.open(path, os.O_RDONLY | os.O_DIRECTORY) for path in (m.topic("t"), part)]
    write_file(m.topic("t") + "/ctl", f"delete {xattr(m.topic('t'), 'incarnation')}\n".encode())
    for again in (False, True):
        for folder in folders:
            for flags in (os.O_RDONLY, os.O_WRONLY, os.O_WRONLY | os.O_CREAT | os.O_TRUNC):
                assert fails(lambda: os.open("produce", flags, dir_fd=folder)) == errno.ENOENT, (again, flags)
            assert fails(lambda: os.mkdir("more", dir_fd=folder)) == errno.ENOENT
        if not again:
            m.make("t")
    for folder in folders:
        os.close(folder)
    assert number(part, "hwm") == 0


def filled(m):
    m.make("a", partitions=2)
    m.make("b")
    produce(m.part("a", 0), *[f"needle {i}" for i in range(50)])
    produce(m.part("a", 1), "x", "y")
    parts = [m.part("a", 0), m.part("a", 1), m.part("b")]
    return parts, [state(part) for part in parts]


@pytest.mark.parametrize("scan", [
    "ls -lR MNT > /dev/null",
    "ls -laR --full-time MNT > /dev/null",
    "find MNT -ls > /dev/null",
    "find MNT -type f -size +0 -exec cat {} + > /dev/null",
    "test $(grep -r needle MNT/topics | wc -l) -ge 50",
    "cp -a MNT/topics OUT/copy && test $(wc -l < OUT/copy/a/p00000/log) = 50",
    "tar -C MNT -cf OUT/all.tar . && tar -tf OUT/all.tar > OUT/names && grep -q topics/a/p00001/log OUT/names",
    pytest.param("tar -C MNT -cf - topics | tar -C OUT -xf - && test $(wc -l < OUT/topics/a/p00000/log) = 50",
                 marks=pytest.mark.local("sizes of logs")),
    pytest.param("rsync -a MNT/topics OUT/ && test $(wc -l < OUT/topics/a/p00000/log) = 50",
                 marks=pytest.mark.local("sizes of logs")),
    "du -a MNT > /dev/null && du -sh MNT > /dev/null",
    "file MNT/topics/a/p00000/* > /dev/null || command -v file > /dev/null || true",
    "wc -c MNT/topics/*/*/log > /dev/null",
])
def test_scans_are_safe(m, tmp_path, scan):
    parts, before = filled(m)
    out = tmp_path / "out"
    out.mkdir()
    shell("set -o pipefail; " + scan.replace("MNT", m.mnt).replace("OUT", str(out)), limit_s=30)
    assert [state(part) for part in parts] == before


def test_readdir_of_many_topics(m):
    names = [f"topic-{i:03d}" for i in range(40 if JETSTREAM else 150)]
    for name in names:
        os.mkdir(m.topic(name))
    assert sorted(os.listdir(m.mnt + "/topics")) == names
    assert sorted(entry.name for entry in os.scandir(m.mnt + "/topics") if entry.is_dir()) == names
    for name in names[::2]:
        os.rmdir(m.topic(name))
    assert sorted(os.listdir(m.mnt + "/topics")) == names[1::2]


@pytest.mark.local("sizes of logs")
def test_tail_follow_sees_a_stat_that_grows(m):
    part = m.make("t")
    fd = os.open(part + "/log", os.O_RDONLY)
    for n in range(1, 5):
        produce(part, "12345")
        assert os.fstat(fd).st_size == os.stat(part + "/log").st_size == 6 * n
    os.close(fd)


# -- names


@pytest.mark.parametrize("name", ["a", "A-b_c.9", "x" * 200, "-", "_", "a.", "a..b", "hwm", "p00000", "stale-x",
                                  "incarnation", "0123456789"])
def test_good_names(m, name):
    part = m.make(name)
    produce(part, "x")
    m.restart()
    assert log(part) == b"x\n"


@pytest.mark.parametrize("name,error", [
    ("x" * 201, errno.ENAMETOOLONG), ("x" * 255, errno.ENAMETOOLONG), ("x" * 256, errno.ENAMETOOLONG),
    (".hidden", errno.EINVAL), ("a.stale-b", errno.EINVAL), ("orders.stale-0123456789abcdef", errno.EINVAL),
    ("a b", errno.EINVAL), ("a\nb", errno.EINVAL), ("a\x01", errno.EINVAL), ("a@b", errno.EINVAL),
    ("\u00e9", errno.EINVAL), ("a:b", errno.EINVAL), ("a\\b", errno.EINVAL), ("a*", errno.EINVAL)])
def test_bad_names(m, name, error):
    assert fails(os.mkdir, m.topic(name)) == error
    assert fails(os.stat, m.topic(name)) == (errno.ENAMETOOLONG if error == errno.ENAMETOOLONG else errno.ENOENT)
    assert os.listdir(m.mnt + "/topics") == []
    assert m.kept_topics() == []


def test_mkdir_twice(m):
    m.make("t")
    assert fails(os.mkdir, m.topic("t")) == errno.EEXIST


# -- refused


def test_nothing_else_can_be_created(m):
    part = m.make("t")
    for folder in (m.mnt, m.mnt + "/topics", m.topic("t"), part, part + "/.streams"):
        assert open_fails(folder + "/new", os.O_WRONLY | os.O_CREAT) == errno.EPERM, folder
        assert fails(os.symlink, "x", folder + "/new") == errno.EPERM, folder
        assert fails(os.mkfifo, folder + "/new") == errno.EPERM, folder
        assert fails(os.mknod, folder + "/new", stat.S_IFREG | 0o600) == errno.EPERM, folder
    for folder in (m.mnt, m.topic("t"), part, part + "/.streams"):
        assert fails(os.mkdir, folder + "/new") == errno.EPERM, folder
    bound = socket.socket(socket.AF_UNIX)
    try:
        os.chdir(part)
        assert fails(bound.bind, "s") == errno.EPERM
    finally:
        os.chdir("/")
        bound.close()


def test_nothing_can_be_renamed_linked_or_unlinked(m):
    part = m.make("t")
    for path in (part + "/produce", part + "/log", part + "/consume", m.topic("t") + "/config", m.mnt + "/HELP"):
        assert fails(os.unlink, path) == errno.EPERM, path
        assert fails(os.rename, path, path + ".new") == errno.EPERM, path
    assert fails(os.link, part + "/log", part + "/log2") == errno.EPERM
    assert fails(os.rename, m.topic("t"), m.topic("u")) == errno.EPERM
    assert fails(os.rename, part + "/log", part + "/produce") == errno.EPERM
    for folder in (part, m.mnt + "/topics", part + "/.streams"):
        assert fails(os.rmdir, folder) in (errno.EPERM, errno.ENOTEMPTY, errno.EBUSY), folder


def test_editing_in_place(m):
    part = m.make("t")
    config = m.topic("t") + "/config"
    assert shell(f"sed -i s/100/200/ {config}", check=False).returncode != 0
    assert xattr(m.topic("t"), "linger_ms") == "100"
    shell(f"echo linger_ms=200 > {config}; echo max_in_flight=5 >> {config}; printf 'consume_wait_ms=7\\n' | tee {config}")
    values = [xattr(m.topic("t"), key) for key in ("linger_ms", "max_in_flight", "consume_wait_ms")]
    assert values == ["200", "5", "7"]
    assert set(os.listdir(part)) >= PART_FILES


def test_read_only_files_are_not_opened_for_writing(m):
    part = m.make("t")
    for path in (part + "/log", part + "/status", m.topic("t") + "/status", m.mnt + "/HELP"):
        for flags in (os.O_WRONLY, os.O_RDWR, os.O_WRONLY | os.O_TRUNC, os.O_WRONLY | os.O_APPEND):
            assert open_fails(path, flags) == errno.EPERM, path
        assert fails(os.truncate, path, 0) == errno.EPERM, path


def test_truncation_is_ignored(m):
    part = m.make("t")
    produce(part, "x")
    before = read_file(m.topic("t") + "/config")
    for path in (part + "/produce", part + "/ack", part + "/ctl", m.topic("t") + "/ctl", m.topic("t") + "/config"):
        os.truncate(path, 0)
        os.truncate(path, 1000)
        os.close(os.open(path, os.O_WRONLY | os.O_TRUNC))
    assert read_file(m.topic("t") + "/config") == before
    assert log(part) == b"x\n"


def test_locks_are_refused(m):
    part = m.make("t")
    for name in ("produce", "produce.jsonl", "produce.bin", "consume", "consume.jsonl", "consume.bin", "drain", "ack"):
        fd = os.open(f"{part}/{name}", os.O_RDWR if name.startswith("produce") or name == "consume" else
                     os.O_WRONLY if name == "ack" else os.O_RDONLY)
        assert fails(fcntl.flock, fd, fcntl.LOCK_EX | fcntl.LOCK_NB) == errno.EOPNOTSUPP, name
        kind = fcntl.LOCK_SH if name.startswith(("drain", "consume.")) else fcntl.LOCK_EX
        assert fails(fcntl.lockf, fd, kind | fcntl.LOCK_NB) == errno.EOPNOTSUPP, name
        os.close(fd)


# -- extended attributes


def test_attributes_of_a_partition(m):
    part = m.make("t")
    produce(part, "a", "b", "c")
    (first,) = take(part, 1)
    expected = {"hwm": "3", "oldest_offset": "0", "next_offset": "3", "frontier": "0", "lag": "3", "in_flight": "1",
                "acked_ahead": "0", "poisoned": "0", "poison_reason": "", **SEGMENTS, "durability": DURABILITY}
    for path in [part] + [f"{part}/{name}" for name in sorted(PART_FILES)]:
        assert set(os.listxattr(path)) >= {"user.narad." + name for name in XATTRS}, path
        assert {name: xattr(path, name) for name in expected} == expected, path
        assert len(xattr(path, "incarnation")) == 16
        assert number(path, "size_bytes") > 0
        assert fails(os.getxattr, path, "user.narad.nothing") == errno.ENODATA
        assert fails(os.getxattr, path, "user.other") == errno.ENODATA
        assert fails(os.getxattr, path, "security.capability") in (errno.ENODATA, errno.EOPNOTSUPP)
        assert fails(os.setxattr, path, "user.narad.hwm", b"9") == errno.EPERM
        assert fails(os.removexattr, path, "user.narad.hwm") == errno.EPERM
    shell(f"getfattr -d {part} | grep -q '^user.narad.hwm=\"3\"$'")
    assert first["offset"] == 0


def test_sizes_of_attributes_are_probed(m):
    part = m.make("t").encode()
    name = b"user.narad.incarnation"
    buf = ctypes.create_string_buffer(100)
    assert LIBC.getxattr(part, name, None, 0) == 16
    assert LIBC.getxattr(part, name, buf, 16) == 16
    assert LIBC.getxattr(part, name, buf, 15) == -1 and ctypes.get_errno() == errno.ERANGE
    size = LIBC.listxattr(part, None, 0)
    assert size > 100
    assert LIBC.listxattr(part, buf, 50) == -1 and ctypes.get_errno() == errno.ERANGE


def test_attributes_of_a_topic_are_its_settings(m):
    m.make("t")
    topic = m.topic("t")
    assert set(os.listxattr(topic)) >= {"user.narad." + key for key in CONFIG_KEYS + ["incarnation"]}
    os.setxattr(topic, "user.narad.linger_ms", b"7")
    assert xattr(topic, "linger_ms") == "7"
    assert b"linger_ms=7\n" in read_file(topic + "/config")
    shell(f"setfattr -n user.narad.consume_wait_ms -v 5 {topic}")
    assert xattr(topic, "consume_wait_ms") == "5"
    assert fails(os.setxattr, topic, "user.narad.linger_ms", b"60001") == errno.EINVAL
    assert fails(os.setxattr, topic, "user.narad.linger_ms", b"8", os.XATTR_CREATE) == errno.EEXIST
    assert fails(os.setxattr, topic, "user.narad.incarnation", b"0123456789abcdef") == errno.EPERM
    assert fails(os.setxattr, topic, "user.narad.linger", b"8") in (errno.EINVAL, errno.EPERM)
    assert fails(os.removexattr, topic, "user.narad.linger_ms") == errno.EPERM
    assert fails(os.getxattr, topic, "user.narad.nothing") == errno.ENODATA
    assert xattr(topic, "linger_ms") == "7"


# -- settings


def test_every_setting_is_shown_with_its_default(m):
    m.make("t")
    shown = dict(line.split("=", 1) for line in read_file(m.topic("t") + "/config").decode().splitlines())
    assert list(shown) and set(shown) >= set(CONFIG_KEYS)
    defaults = {"partitions": "1", "retention_ms": str(7 * 86400000), "retention_bytes": "0",
                "segment_bytes": str(64 << 20), "codec": "none", "zstd_level": "3", "linger_ms": "100",
                "visibility_timeout_ms": "30000", "max_in_flight": "1024", "max_acked_ahead": "1024",
                "consume_wait_ms": "-1", "max_record_bytes": str(1 << 20), "fanout_delay_ms": "0"}
    assert {key: shown[key] for key in defaults} == defaults


def test_settings_survive(m):
    m.make("t", retention_ms=86400000, linger_ms=5, consume_wait_ms=77, partitions=3)
    m.restart()
    assert xattr(m.topic("t"), "retention_ms") == "86400000"
    assert xattr(m.topic("t"), "consume_wait_ms") == "77"
    m.crash()
    assert xattr(m.topic("t"), "linger_ms") == "5"
    assert set(os.listdir(m.topic("t"))) >= {"p00000", "p00001", "p00002"}


@pytest.mark.parametrize("text", [
    "linger_ms=60001", "linger_ms=-1", "linger_ms=", "linger_ms", "linger_ms=1x", "linger_ms=0x10", "nothing=1", "=1",
    "codec=gzip", "zstd_level=0", "zstd_level=20", "retention_ms=999", "segment_bytes=65535", "segment_bytes=1073741825",
    "retention_bytes=65536", "visibility_timeout_ms=99", "max_in_flight=0", "max_acked_ahead=4097",
    "consume_wait_ms=-2", "max_record_bytes=67108865", "partitions=0", "partitions=1025", "linger_ms=99999999999999999999",
    "linger_ms=5\nnothing=1", "partitions=4\npartitions=1"])
def test_bad_settings_change_nothing(m, text):
    m.make("t", partitions=2)
    before = read_file(m.topic("t") + "/config")
    assert fails(write_file, m.topic("t") + "/config", text.encode() + b"\n") == errno.EINVAL
    assert read_file(m.topic("t") + "/config") == before


def test_settings_are_all_or_nothing(m):
    m.make("t")
    write_file(m.topic("t") + "/config", b"linger_ms=1\nmax_in_flight=7\nretention_bytes=134217728\n")
    assert [xattr(m.topic("t"), key) for key in ("linger_ms", "max_in_flight")] == ["1", "7"]
    assert fails(write_file, m.topic("t") + "/config", b"linger_ms=2\nmax_in_flight=0\n") == errno.EINVAL
    assert [xattr(m.topic("t"), key) for key in ("linger_ms", "max_in_flight")] == ["1", "7"]


def test_partitions_grow_only(m):
    part = m.make("t")
    produce(part, "x")
    configure(m.topic("t"), partitions=3)
    produce(m.part("t", 2), "y")
    assert fails(write_file, m.topic("t") + "/config", b"partitions=2\n") == errno.EINVAL
    write_file(m.topic("t") + "/ctl", b"partitions 4\n")
    assert xattr(m.topic("t"), "partitions") == "4"
    assert fails(write_file, m.topic("t") + "/ctl", b"partitions 3\n") == errno.EINVAL
    m.restart()
    assert log(part) == b"x\n" and log(m.part("t", 2)) == b"y\n" and log(m.part("t", 3)) == b""


# -- control verbs


@pytest.mark.parametrize("verb", ["", "frob", "reopen now", "roll 1", "trim", "trim x", "trim -1",
                                  pytest.param("trim 99", marks=pytest.mark.local("segments")), "seek",
                                  "seek x", "seek 99", "seek -1", "seek start end", "delete", "trim 1 2", "SEEK start",
                                  "trim 0x1", "trim 01", "seek 18446744073709551616"])
def test_bad_verbs_of_a_partition(m, verb):
    part = m.make("t")
    produce(part, "a", "b")
    before = state(part)
    assert fails(write_file, part + "/ctl", verb.encode() + b"\n") == errno.EINVAL
    assert state(part) == before


@pytest.mark.parametrize("verb", ["frob", "delete", "delete x", "delete 0123456789abcdef", "partitions", "partitions x",
                                  "partitions 0", "partitions 1025", "reopen", "roll"])
def test_bad_verbs_of_a_topic(m, verb):
    part = m.make("t")
    produce(part, "a")
    assert fails(write_file, m.topic("t") + "/ctl", verb.encode() + b"\n") == errno.EINVAL
    assert log(part) == b"a\n"


@pytest.mark.local("segments")
def test_roll_and_trim(m):
    part = m.make("t")
    produce(part, *range(5))
    reader = os.open(part + "/log", os.O_RDONLY)
    write_file(part + "/ctl", b"roll\n")
    produce(part, *range(5, 10))
    write_file(part + "/ctl", b"roll\n")
    produce(part, *range(10, 12))
    assert number(part, "segments") == 3
    write_file(part + "/ctl", b"trim 9\n")  # the second segment holds 5-9: it stays
    assert (number(part, "oldest_offset"), number(part, "segments"), number(part, "hwm")) == (5, 2, 12)
    assert log(part) == lines(*range(5, 12))
    assert os.pread(reader, 4, 10) == b"5\n6\n"  # positions of an open handle stay
    os.close(reader)
    write_file(part + "/ctl", b"trim 12\n")
    assert number(part, "oldest_offset") == 10
    assert drain(part) == lines(10, 11)
    produce(part, 12)
    m.restart()
    assert log(part) == lines(10, 11, 12)
    assert number(part, "next_offset") == 13


@pytest.mark.local("segments")
def test_trimmed_files_go_when_their_readers_have_gone(mounts):
    """Also when the sweeps have seen that nothing expires for days; a crash brings nothing back."""
    m = mounts(options="retention_check_ms=50")
    part, files = m.make("t"), f"{m.data}/topics/t/p00000"
    produce(part, *range(5))
    write_file(part + "/ctl", b"roll\n")
    produce(part, *range(5, 10))
    time.sleep(0.5)  # ten sweeps
    reader = os.open(part + "/log", os.O_RDONLY)
    assert os.pread(reader, 2, 0) == b"0\n"
    write_file(part + "/ctl", b"trim 5\n")
    os.close(reader)
    wait_for(lambda: sum(name.endswith(".log") for name in os.listdir(files)) == 1, "the file to go")
    m.kill()
    m.start()
    assert log(part) == lines(*range(5, 10))


def test_seek(m):
    part = m.make("t")
    produce(part, *range(10))
    (held,) = take(part, 1)
    write_file(part + "/ctl", b"seek 4\n")
    assert (number(part, "frontier"), number(part, "in_flight"), number(part, "lag")) == (4, 0, 6)
    ack_fd = os.open(part + "/ack", os.O_WRONLY)
    assert fails(os.write, ack_fd, held["handle"].encode() + b"\n") == errno.ESTALE
    os.close(ack_fd)
    assert drain(part) == lines(*range(4, 10))
    write_file(part + "/ctl", b"seek start\n")
    assert drain(part) == lines(*range(10))
    write_file(part + "/ctl", b"seek start\n")
    write_file(part + "/ctl", b"seek end\n")
    assert number(part, "lag") == 0
    m.restart()
    assert drain(part) == b""


def test_seek_wakes_a_reader(m):
    part = m.make("t")
    produce(part, "a")
    assert drain(part) == b"a\n"
    consumer = Consumer(part, flags=os.O_RDONLY)
    read = Background(consumer.read)
    time.sleep(0.2)
    assert read.running()
    write_file(part + "/ctl", b"seek start\n")
    assert read.join() == b"a\n"
    consumer.close()


def test_reopen_of_a_healthy_partition(m):
    part = m.make("t")
    produce(part, "a", "b")
    (held,) = take(part, 1)
    write_file(part + "/ctl", b"reopen\n")
    assert log(part) == b"a\nb\n"
    produce(part, "c")
    assert log(part) == b"a\nb\nc\n"
    assert held["offset"] == 0


# -- deleting


def test_rmdir(m):
    part = m.make("t")
    produce(part, "x")
    assert fails(os.rmdir, m.topic("t")) == errno.ENOTEMPTY
    m.make("empty")
    fd = os.open(m.part("empty") + "/produce", os.O_WRONLY)
    assert fails(os.rmdir, m.topic("empty")) == errno.EBUSY
    os.close(fd)
    os.rmdir(m.topic("empty"))
    assert os.listdir(m.mnt + "/topics") == ["t"]
    wait_for(lambda: m.kept_topics() == ["t"], "the folder to go")
    assert fails(os.rmdir, m.topic("none")) == errno.ENOENT


def test_delete_takes_the_right_id(m):
    part = m.make("t")
    produce(part, "x")
    other = xattr(m.part("t"), "incarnation")
    wrong = ("0" if other[0] != "0" else "1") + other[1:]
    assert fails(write_file, m.topic("t") + "/ctl", f"delete {wrong}\n".encode()) == errno.EINVAL
    assert log(part) == b"x\n"
    write_file(m.topic("t") + "/ctl", f"delete {other}\n".encode())
    assert os.listdir(m.mnt + "/topics") == []
    wait_for(lambda: m.kept_topics() == [], "the folder to go")
    assert not os.path.exists(part)


def test_deletion_under_open_handles(m):
    part = m.make("t", linger_ms=60000)
    produce(part, "old 1", "old 2")
    topic_id = xattr(part, "incarnation")
    reader = os.open(part + "/log", os.O_RDONLY)
    writer = os.open(part + "/produce", os.O_WRONLY)
    os.write(writer, b"unfinished")
    acks = os.open(part + "/ack", os.O_WRONLY)
    consumer = Consumer(part)
    assert consumer.read() == b"old 1\n"
    parked_part = m.part("t")
    assert drain(part) == b"old 2\n"
    parked = Consumer(parked_part, flags=os.O_RDONLY)
    parked_read = Background(parked.read)
    time.sleep(0.2)
    poll = select.poll()
    poll.register(parked.fd, select.POLLIN)
    waiting = Background(poll.poll, 15000)
    time.sleep(0.2)
    write_file(m.topic("t") + "/ctl", f"delete {topic_id}\n".encode())
    assert parked_read.join() is None and parked_read.error.errno == errno.EIDRM
    (event,) = waiting.join()
    assert event[1] & select.POLLERR and event[1] & select.POLLHUP
    assert not os.path.exists(m.topic("t"))

    new = m.make("t")
    produce(new, "new")
    assert fails(os.pread, reader, 100, 0) == errno.EIDRM
    assert fails(os.write, writer, b"x\n") == errno.EIDRM
    assert fails(os.fsync, writer) == errno.EIDRM
    assert fails(consumer.read) == errno.EIDRM
    assert fails(consumer.write, b"ack\n") == errno.EIDRM
    assert fails(consumer.sync) == errno.EIDRM
    assert fails(os.write, acks, b"0:0:1\n") == errno.EIDRM
    for fd in (reader, writer, acks, consumer.fd, parked.fd):
        try:
            os.close(fd)
        except OSError as error:
            assert error.errno == errno.EIDRM
    consumer.fd = parked.fd = -1
    assert log(new) == b"new\n"
    assert xattr(new, "incarnation") != topic_id


@pytest.mark.parametrize("how", ["none", "clean", "kill"])
def test_a_recreated_topic_has_none_of_the_old_records(m, how):
    part = m.make("t")
    produce(part, *range(100))
    assert drain(part) == lines(*range(100))
    write_file(m.topic("t") + "/ctl", f"delete {xattr(part, 'incarnation')}\n".encode())
    part = m.make("t")
    produce(part, "new")
    if how == "clean":
        m.restart()
    if how == "kill":
        m.crash()
    assert (number(part, "hwm"), number(part, "frontier"), number(part, "oldest_offset")) == (1, 0, 0)
    assert log(part) == drain(part) == b"new\n"


# -- the disk, owners and modes


@pytest.mark.local("free space")
def test_statfs_is_the_disks(m):
    mine, disk = os.statvfs(m.mnt), os.statvfs(m.data)
    for field in ("f_bsize", "f_frsize", "f_blocks", "f_files"):
        assert getattr(mine, field) == getattr(disk, field), field
    assert abs(mine.f_bavail - disk.f_bavail) * disk.f_frsize < 4 << 30
    shell(f"df {m.mnt} | tail -n 1 | awk '{{ exit $2 == 0 }}'")


def mode_of(path):
    return stat.S_IMODE(os.stat(path).st_mode)


def test_modes_follow_the_umask_of_mkdir(m):
    shell(f"umask 027; mkdir {m.topic('a')}; umask 002; mkdir {m.topic('b')}")
    assert mode_of(m.topic("a")) == 0o750
    assert mode_of(m.part("a") + "/produce") == 0o640
    assert mode_of(m.part("a") + "/log") == 0o440
    assert mode_of(m.topic("b")) == 0o775
    assert mode_of(m.part("b") + "/produce") == 0o664
    assert os.stat(m.topic("a")).st_uid == os.getuid()


def test_owners_and_modes_persist(m):
    part = m.make("t")
    os.chmod(m.topic("t"), 0o711)
    os.chmod(part + "/produce", 0o622)
    os.chmod(part + "/consume", 0o600)
    if os.getuid() == 0:
        os.chown(m.topic("t"), 1234, 5678)
        os.chown(part + "/log", 4321, -1)
    for restart in (None, m.restart, m.crash):
        if restart:
            restart()
        assert mode_of(m.topic("t")) == 0o711
        assert mode_of(part + "/produce") == 0o622
        assert mode_of(part + "/consume") == 0o600
        if os.getuid() == 0:
            assert (os.stat(m.topic("t")).st_uid, os.stat(m.topic("t")).st_gid) == (1234, 5678)
            assert os.stat(part + "/log").st_uid == 4321


def as_nobody(mnt, script):
    """Runs sh as another user inside the mount (whose parents that user may not be able to enter)."""
    def become():
        os.chdir(mnt)
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)

    done = subprocess.run(["sh", "-c", script], preexec_fn=become, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=20, check=False)
    return done.returncode, done.stdout.decode()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_other_users(mounts):
    m = mounts(options="allow_other")
    part = m.make("t")
    os.chmod(m.topic("t"), 0o755)
    produce(part, "x")
    for path in ("consume", "drain", "consume.jsonl", "ack", "ctl", "../config", "../ctl"):
        os.chmod(f"{part}/{path}", 0o600)
    os.chmod(part + "/produce", 0o644)
    os.chmod(part + "/log", 0o444)
    here = "topics/t/p00000"
    assert as_nobody(m.mnt, f"cat {here}/log") == (0, "x\n")
    before = state(part)
    for script in (f"echo y > {here}/produce", f"cat {here}/drain", f"head -n 1 {here}/consume",
                   f"echo 0:0:1 > {here}/ack", f"echo roll > {here}/ctl", "echo linger_ms=1 > topics/t/config",
                   "rmdir topics/t", "chmod 777 topics/t", f"chown 65534 {here}/log",
                   "setfattr -n user.narad.linger_ms -v 1 topics/t"):
        code, output = as_nobody(m.mnt, script)
        assert code != 0, (script, output)
    assert state(part) == before
    assert xattr(m.topic("t"), "linger_ms") == "100"
    os.chmod(part + "/produce", 0o666)
    os.chmod(part + "/drain", 0o644)
    assert as_nobody(m.mnt, f"echo y > {here}/produce") == (0, "")
    assert as_nobody(m.mnt, f"cat {here}/drain")[0] != 0  # reading it settles, which `ack` does not allow
    os.chmod(part + "/consume", 0o644)
    script = f"exec 3< {here}/consume; read line <&3; echo $line; sync /dev/fd/3"
    assert as_nobody(m.mnt, script)[0] != 0
    assert (number(part, "frontier"), number(part, "lag")) == (0, 2)
    os.chmod(m.topic("t"), 0o777)  # nor does the folder allow what `config` does not
    assert as_nobody(m.mnt, "setfattr -n user.narad.linger_ms -v 1 topics/t")[0] != 0
    os.chmod(part + "/ack", 0o666)
    os.chmod(m.topic("t"), 0o755)
    assert as_nobody(m.mnt, f"cat {here}/drain") == (0, "x\ny\n")
    os.chmod(m.topic("t"), 0o700)
    assert as_nobody(m.mnt, f"cat {here}/log")[0] != 0


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_without_allow_other_others_see_nothing(m):
    m.make("t")
    os.chmod(m.topic("t"), 0o755)
    code, output = as_nobody("/", f"ls {m.mnt}/topics")
    assert code != 0, output


def test_deep_paths_of_files_that_are_not_folders(m):
    part = m.make("t")
    assert fails(os.stat, part + "/log/x") == errno.ENOTDIR
    assert fails(os.listdir, part + "/log") == errno.ENOTDIR
    assert fails(os.rmdir, part + "/log") == errno.ENOTDIR
    assert open_fails(part, os.O_RDWR) == errno.EISDIR
