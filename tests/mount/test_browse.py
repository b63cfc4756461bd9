"""Looking things up: from/, records/, by-time/, segments/ and metrics; and what looking costs others."""

import contextlib
import datetime
import errno
import os
import re
import select
import signal
import stat
import struct
import subprocess
import time

import pytest
import seglog
from support import (JETSTREAM, XATTRS, Background, Consumer, configure, drain, fails, lines, log, metric, number,
                     open_fails, produce, read_file, read_rest, shell, wait_for, write_file, xattr)
from test_faults import Inject, active_segment, need_strace

HOSTILE_NUMBERS = ["-1", "+1", "00", "01", "0x1", " 1", "1 ", "1\n", "1.0", "1e1", "2147483648", "9223372036854775807",
                   "9223372036854775808", "18446744073709551615", "18446744073709551616", "18446744073709551617",
                   "9" * 30, "\u0661", "one", "NaN", "-", ".x", "@1", "1@x"]
BROWSE = ("from", "records", "by-time", "segments")
FIRST_SEGMENT = () if JETSTREAM else (f"segments/{0:020d}.log",)


def missing(path):
    return fails(os.lstat, path) == errno.ENOENT


def rows_of(count, size=0):
    return [b"row %d " % i + b"x" * (size + i % 7) for i in range(count)]


def segment_files(m, topic, partition=0):
    return seglog.segment_names(m.data_part(topic, partition))


# -- shape


@pytest.mark.local("segments")
def test_shape(m):
    part = m.make("t")
    produce(part, "a", "b")
    assert set(os.listdir(part)) >= set(BROWSE)
    for name in BROWSE:
        assert stat.S_IMODE(os.stat(f"{part}/{name}").st_mode) & 0o111, name
    assert sorted(os.listdir(part + "/from")) == ["end", "start"]
    assert os.listdir(part + "/records") == ["0", "1"]
    assert os.listdir(part + "/by-time") == []
    assert os.listdir(part + "/segments") == ["0" * 20 + ".log"]
    assert "metrics" in os.listdir(m.mnt)
    for path in ("from/start", "from/end", "from/1", "records/1", "segments/" + "0" * 20 + ".log"):
        st = os.lstat(f"{part}/{path}")
        assert stat.S_ISREG(st.st_mode) and stat.S_IMODE(st.st_mode) & 0o222 == 0, path
        assert {name: xattr(f"{part}/{path}", name) for name in XATTRS} == {n: xattr(part, n) for n in XATTRS}, path
        assert len({os.stat(f"{part}/{path}").st_ino for _ in range(3)}) == 1, path
    inodes = [os.stat(f"{part}/{path}").st_ino for path in ("from/0", "from/1", "records/0", "records/1", "log")]
    assert len(set(inodes)) == len(inodes)


@pytest.mark.local("segments")
def test_an_empty_partition(m):
    part = m.make("t")
    assert log(part) == read_file(part + "/from/start") == read_file(part + "/from/end") == b""
    assert read_file(part + "/from/0") == b""
    assert os.listdir(part + "/records") == []
    assert missing(part + "/records/0") and missing(part + "/from/1")
    assert os.readlink(part + "/by-time/0") == "../from/0"
    assert sum(os.stat(f"{part}/segments/{name}").st_size for name in os.listdir(part + "/segments")) == 0


def test_folders_count_their_folders(m):
    """find leaves out looking for folders where the count of links says that there are none."""
    part = m.make("t", partitions=2)
    for folder, _, _ in os.walk(m.mnt):
        inside = [entry for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False)]
        assert os.stat(folder).st_nlink == 2 + len(inside), folder
    found = shell(f"find {part} -type d -printf '%P\\n' | sort").stdout.decode().split()
    assert found == sorted(BROWSE)


# -- from


@pytest.mark.local("sizes of logs")
@pytest.mark.parametrize("codec", ["none", pytest.param("zstd", marks=pytest.mark.local("segments"))])
def test_from_every_offset(m, codec):
    part = m.make("t", codec=codec, segment_bytes=65536)
    rows = rows_of(400, 300)
    for start in range(0, 400, 25):
        produce(part, *rows[start:start + 25])
    assert number(part, "segments") > 1 or codec == "zstd"
    for how in (None, m.restart, m.crash):
        if how:
            how()
        assert read_file(part + "/from/start") == log(part) == lines(*rows)
        for offset in (0, 1, 24, 25, 26, 199, 333, 399, 400):
            path = f"{part}/from/{offset}"
            wanted = lines(*rows[offset:])
            assert os.stat(path).st_size == len(wanted), (how, offset)
            assert read_file(path) == wanted, (how, offset)
        assert missing(part + "/from/401")


@pytest.mark.local("sizes of logs")
def test_from_seeks_and_grows(m):
    part = m.make("t")
    produce(part, *rows_of(100))
    fd = os.open(part + "/from/50", os.O_RDONLY)
    wanted = lines(*rows_of(100)[50:])
    for pos in (0, 1, 100, len(wanted) - 1, len(wanted), len(wanted) + 1000):
        assert os.pread(fd, 37, pos) == wanted[pos:pos + 37], pos
    produce(part, "more")
    assert os.fstat(fd).st_size == len(wanted) + 5
    assert read_rest(fd) == wanted + b"more\n"
    assert os.lseek(fd, -5, os.SEEK_END) == len(wanted)
    assert read_rest(fd) == b"more\n"
    os.close(fd)


def frames_of(part, n):
    """The text of so many records in a few hundred KB each time, which are written as frames."""
    chunks = [rows_of(8000, 20 + i) for i in range(n)]
    for rows in chunks:
        produce(part, *rows)
    return b"".join(lines(*rows) for rows in chunks)


def test_who_closes_while_frames_are_read_ahead(m):
    """Who reads in order has the frames that follow read ahead: by then the file may be closed, or its topic gone."""
    part = m.make("t")
    wanted = frames_of(part, 5)
    size = 32768
    for n_reads in range(1, 40):
        fd = os.open(part + "/log", os.O_RDONLY)
        got = b"".join(os.read(fd, size) for _ in range(n_reads))
        if n_reads < 39:
            os.close(fd)
        assert got == wanted[:size * n_reads], n_reads
    write_file(m.topic("t") + "/ctl", f"delete {xattr(part, 'incarnation')}\n".encode())
    assert fails(os.read, fd, size) == errno.EIDRM
    os.close(fd)


def n_threads_ahead(m):
    tasks = f"/proc/{m.process.pid}/task"
    n = 0
    for task in os.listdir(tasks):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            n += read_file(f"{tasks}/{task}/comm") == b"naradfs-ahead\n"
    return n


@pytest.mark.local("frames")
def test_one_thread_reads_frames_ahead(m):
    """For all who read in order; it ends with the last of them."""
    part = m.make("t")
    wanted = frames_of(part, 8)
    fds = [os.open(part + "/log", os.O_RDONLY) for _ in range(3)]
    assert n_threads_ahead(m) == 0
    for n, fd in enumerate(fds):
        assert b"".join(os.read(fd, 32768) for _ in range(5)) == wanted[:5 * 32768], n
        wait_for(lambda: n_threads_ahead(m) == 1, "the thread")
    os.close(fds.pop())
    assert n_threads_ahead(m) == 1
    for fd in fds:
        assert read_rest(fd) == wanted[5 * 32768:]
        os.close(fd)
    wait_for(lambda: n_threads_ahead(m) == 0, "the thread to end")


@pytest.mark.local("frames")
def test_the_daemon_ends_while_a_frame_is_read_ahead(m):
    """On a disk that is slow: the end waits for the read, and nothing is left of it."""
    need_strace()
    part = m.make("t")
    wanted = frames_of(part, 8)
    fault = Inject(m, active_segment(m, "t"), "pread64", "delay_enter=1000000")
    fd = os.open(part + "/log", os.O_RDONLY)
    try:
        assert b"".join(os.read(fd, 32768) for _ in range(4)) == wanted[:4 * 32768]
        wait_for(lambda: n_threads_ahead(m) == 1, "the thread")
        m.process.send_signal(signal.SIGTERM)
    finally:
        fault.stop()  # before the end: a build that looks for leaks cannot while it is traced
    assert m.wait_exit() == 0
    m.gone()
    with contextlib.suppress(OSError):  # the file's mount is gone
        os.close(fd)
    m.start()
    assert read_file(m.part("t") + "/log") == wanted


@pytest.mark.local("sizes of logs")
def test_from_end(m):
    part = m.make("t")
    produce(part, "a")
    path = part + "/from/end"
    assert os.stat(path).st_size == 0
    fd = os.open(path, os.O_RDONLY)
    other = os.open(part + "/from/1", os.O_RDONLY)
    assert os.read(fd, 100) == os.read(other, 100) == b""
    produce(part, "b", "c")
    assert os.stat(path).st_size == 0
    assert os.fstat(fd).st_size == os.fstat(other).st_size == 4
    assert os.read(fd, 100) == os.read(other, 100) == b"b\nc\n"
    assert read_file(path) == b""
    os.close(fd)
    os.close(other)


def test_tail_follows_from_end(m, tmp_path):
    part = m.make("t")
    produce(part, "before")
    with open(tmp_path / "out", "wb") as out:
        tail = subprocess.Popen(["tail", "-n", "+1", "-s", "0.1", "-f", part + "/from/end"], stdout=out,
                                stdin=subprocess.DEVNULL)
    try:
        wait_for(lambda: any(os.readlink(f"/proc/{tail.pid}/fd/{fd}").startswith(part)
                             for fd in os.listdir(f"/proc/{tail.pid}/fd")), "tail to open it")
        time.sleep(0.3)
        for n in range(3):
            produce(part, f"new {n}")
            wait_for(lambda: read_file(tmp_path / "out") == lines(*[f"new {i}" for i in range(n + 1)]), "tail")
    finally:
        tail.kill()
        tail.wait(10)


@pytest.mark.parametrize("name", HOSTILE_NUMBERS)
def test_hostile_numbers(m, name):
    part = m.make("t")
    produce(part, *range(12))
    for folder in ("from", "records", "segments"):
        assert missing(f"{part}/{folder}/{name}"), folder
        assert open_fails(f"{part}/{folder}/{name}", os.O_RDONLY) == errno.ENOENT
    assert missing(f"{part}/segments/{name}.log")
    if not re.fullmatch("0|[1-9][0-9]*", name) or int(name) >= 1 << 63:
        assert missing(f"{part}/by-time/{name}")


@pytest.mark.parametrize("length,error", [(24, errno.ENOENT), (255, errno.ENOENT), (256, errno.ENAMETOOLONG)])
def test_long_names(m, length, error):
    part = m.make("t")
    produce(part, "x")
    for folder in BROWSE:
        for letter in "0", "1", "x", ".":
            assert fails(os.lstat, f"{part}/{folder}/{letter * length}") == error, (folder, letter)


# -- records


@pytest.mark.parametrize("codec", ["none", pytest.param("zstd", marks=pytest.mark.local("segments"))])
def test_records_are_exact(m, codec):
    part = m.make("t", codec=codec)
    rows = [b"", b"a", b"\0\xff\xfe", b"{\"json\": [1]}", b"\xca\xfe" * 500, b"\r", b"y" * (1 << 20), b"last"]
    before = int(time.time() * 1000)
    for row in rows:
        produce(part, row)
    after = int(time.time() * 1000)
    for how in (None, m.restart, m.crash):
        if how:
            how()
        times = []
        for offset, row in enumerate(rows):
            path = f"{part}/records/{offset}"
            st = os.stat(path)
            assert (st.st_size, st.st_blocks) == (len(row), (len(row) + 511) // 512)
            assert read_file(path) == row
            assert xattr(path, "offset") == str(offset)
            times.append(int(xattr(path, "timestamp")))
            assert st.st_mtime_ns // 1000000 == times[-1]
            assert fails(os.getxattr, path, "user.narad.key") == errno.ENODATA
            assert set(os.listxattr(path)) == {"user.narad." + n for n in (*XATTRS, "timestamp", "offset")}
        assert times == sorted(times) and before <= times[0] and times[-1] <= after
        assert missing(f"{part}/records/{len(rows)}")


def test_reading_a_record_in_pieces(m):
    part = m.make("t")
    row = bytes(range(11, 256)) * 100
    produce(part, row)
    fd = os.open(part + "/records/0", os.O_RDONLY)
    for pos, size in ((0, 1), (1, 4096), (20000, 100000), (len(row) - 1, 5), (len(row), 5), (len(row) + 99, 5)):
        assert os.pread(fd, size, pos) == row[pos:pos + size]
    assert os.lseek(fd, 0, os.SEEK_END) == len(row)
    os.close(fd)
    assert shell(f"sha1sum < {part}/records/0").stdout == shell(f"head -c -1 {part}/log | sha1sum").stdout


@pytest.mark.local("segments")
def test_the_listing_of_records_is_the_newest_thousand(m):
    part = m.make("t", segment_bytes=65536)
    produce(part, *rows_of(2500, 100))
    assert os.listdir(part + "/records") == [str(i) for i in range(1500, 2500)]
    assert read_file(part + "/records/0") == rows_of(1, 100)[0]
    write_file(part + "/ctl", b"roll\n")
    produce(part, "new")
    write_file(part + "/ctl", b"trim 2500\n")
    oldest = number(part, "oldest_offset")
    assert oldest > 0
    assert os.listdir(part + "/records") == [str(i) for i in range(max(oldest, 1501), 2501)]
    assert missing(f"{part}/records/{oldest - 1}") and missing(f"{part}/from/{oldest - 1}")
    assert read_file(f"{part}/records/2500") == b"new"
    assert read_file(f"{part}/from/{oldest}") == log(part)


def keyed_frame(base, *records):
    """A frame of (commit time in ms, key, payload), keys of less than 128 bytes."""
    raw = b""
    for time_ms, key, payload in records:
        size = len(key)
        varint = bytes([size]) if size < 128 else bytes([size & 127 | 128, size >> 7])
        envelope = b"\x02" + varint + key + struct.pack(">Q", time_ms) + payload
        raw += struct.pack(">I", len(envelope)) + envelope
    header = struct.pack(">BIQII", 0, len(records), base, len(raw), len(raw))
    return b"\xca\xfe" + header + struct.pack(">I", seglog.crc32c(header + raw)) + raw


@contextlib.contextmanager
def segment_replaced(m, topic):
    """Stops as by a crash, lets the caller write the bytes of the only segment, and starts again."""
    m.kill()
    folder = m.data_part(topic)
    for name in os.listdir(folder):
        if not name.endswith(".log"):
            os.unlink(f"{folder}/{name}")
    (name,) = seglog.segment_names(folder)
    data = []
    yield data
    with open(f"{folder}/{name}", "wb") as file:
        file.write(b"".join(data))
    m.start()


KEYED = [(1_700_000_000_000, b"k", b"one"), (1_700_000_000_500, b"", b"none"),
         (1_700_000_001_000, b"\0\xff key \n", b"three"), (1_700_000_001_000, b"K" * 1000, b"")]


@pytest.mark.local("the data directory")
def test_keys(m):
    part = m.make("t")
    produce(part, "x")
    with segment_replaced(m, "t") as data:
        data.append(keyed_frame(0, *KEYED))
    assert read_file(part + "/from/0") == log(part) == lines(*[payload for _, _, payload in KEYED])
    for offset, (time_ms, key, payload) in enumerate(KEYED):
        path = f"{part}/records/{offset}"
        assert read_file(path) == payload
        assert xattr(path, "timestamp") == str(time_ms)
        assert os.stat(path).st_mtime_ns == time_ms * 1_000_000
        assert ("user.narad.key" in os.listxattr(path)) == (key != b"")
        if key:
            assert os.getxattr(path, "user.narad.key") == key
            assert fails(os.setxattr, path, "user.narad.key", b"x") == errno.EPERM
            assert fails(os.removexattr, path, "user.narad.key") == errno.EPERM
        else:
            assert fails(os.getxattr, path, "user.narad.key") == errno.ENODATA
        shell(f"getfattr -d -m - {path} > /dev/null")
    for path in (part, part + "/log", part + "/from/0"):
        assert fails(os.getxattr, path, "user.narad.key") == errno.ENODATA
        assert fails(os.getxattr, path, "user.narad.offset") == errno.ENODATA


# -- by time


def rfc3339(ms):
    return datetime.datetime.fromtimestamp(ms / 1000, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.") + \
        f"{ms % 1000:03d}Z"


@pytest.mark.local("the data directory")
def test_by_time(m):
    part = m.make("t")
    produce(part, "x")
    with segment_replaced(m, "t") as data:
        data.append(keyed_frame(0, *KEYED))
        data.append(keyed_frame(4, (1_700_000_001_000, b"", b"five"), (1_700_000_060_000, b"", b"six")))
    wanted = {0: 0, 1_699_999_999_999: 0, 1_700_000_000_000: 0, 1_700_000_000_001: 1, 1_700_000_000_500: 1,
              1_700_000_000_501: 2, 1_700_000_001_000: 2, 1_700_000_001_001: 5, 1_700_000_060_000: 5,
              1_700_000_060_001: 6, 4_000_000_000_000: 6}
    for ms, offset in wanted.items():
        for name in (str(ms), rfc3339(ms), rfc3339(ms).lower()):
            link = f"{part}/by-time/{name}"
            assert stat.S_ISLNK(os.lstat(link).st_mode)
            assert os.readlink(link) == f"../from/{offset}", name
            assert read_file(link) == read_file(f"{part}/from/{offset}")
    assert os.readlink(part + "/by-time/9223372036854775807") == "../from/6"
    assert os.readlink(part + "/by-time/1969-12-31T23:59:59Z") == "../from/0"
    assert os.readlink(part + "/by-time/2023-11-14T23:13:20.0000001+01:00") == "../from/1"  # rounds up
    assert os.listdir(part + "/by-time") == []
    assert shell(f"date -u -d @1700000001 --rfc-3339=seconds | tr -d '\\n' | xargs -d '\\n' -I T readlink '{part}/by-time/T'"
                 ).stdout == b"../from/2\n"
    produce(part, "now")
    assert os.readlink(f"{part}/by-time/{1_700_000_060_001}") == "../from/6"
    assert read_file(f"{part}/by-time/{1_700_000_060_001}") == b"now\n"
    assert os.readlink(part + "/by-time/9223372036854775807") == "../from/7"
    m.restart()
    assert [os.readlink(f"{part}/by-time/{ms}") for ms in (0, 1_700_000_000_501)] == ["../from/0", "../from/2"]


@pytest.mark.local("segments")
@pytest.mark.parametrize("codec", ["none", pytest.param("zstd", marks=pytest.mark.local("segments"))])
def test_by_time_over_many_segments(m, codec):
    part = m.make("t", segment_bytes=65536, codec=codec)
    for batch in range(12):
        produce(part, *[os.urandom(3000).hex() for _ in range(8)])
        time.sleep(0.003)
    assert number(part, "segments") > 3
    times = [int(xattr(f"{part}/records/{offset}", "timestamp")) for offset in range(96)]
    assert times == sorted(times) and len(set(times)) >= 12
    for how in (None, m.restart, m.crash):
        if how:
            how()
        for ms in {t + d for t in times for d in (-1, 0, 1)}:
            first = next((i for i, t in enumerate(times) if t >= ms), 96)
            assert os.readlink(f"{part}/by-time/{ms}") == f"../from/{first}", (how, ms)


@pytest.mark.parametrize("name", [
    "", "now", "-5", "1.5", "2023-11-14", "2023-11-14T22:13:20", "2023-11-14T22:13Z", "20231114T221320Z",
    "2023-W46-2T22:13:20Z", "2023-318T22:13:20Z", "2023-02-30T00:00:00Z", "2023-11-14T25:00:00Z",
    "2023-11-14T22:13:20+1", "2023-11-14T22:13:20Zx", " 2023-11-14T22:13:20Z", "9223372036854775808"])
def test_times_that_do_not_parse(m, name):
    part = m.make("t")
    if name:
        assert missing(f"{part}/by-time/{name}")
        assert open_fails(f"{part}/by-time/{name}", os.O_RDONLY) == errno.ENOENT


# -- segments


@pytest.mark.local("segments")
@pytest.mark.parametrize("codec", ["none", pytest.param("zstd", marks=pytest.mark.local("segments"))])
def test_segments_are_the_files(m, codec):
    part = m.make("t", segment_bytes=65536, codec=codec)
    rows = [os.urandom(2000).hex().encode() for _ in range(100)]
    for start in range(0, 100, 5):
        produce(part, *rows[start:start + 5])
    for how in (None, m.restart, m.crash):
        if how:
            how()
        names = os.listdir(part + "/segments")
        assert names == segment_files(m, "t") and len(names) >= 3
        found = []
        for name in names:
            path = f"{part}/segments/{name}"
            shown = read_file(path)
            st = os.stat(path)
            assert (st.st_size, st.st_blocks) == (len(shown), (len(shown) + 511) // 512)
            assert read_file(f"{m.data_part('t')}/{name}")[:len(shown)] == shown
            records = [record for frame in seglog.frames(shown) for record in frame.records()]
            assert records or name == names[-1]
            assert not records or st.st_mtime_ns // 1_000_000 == records[-1][1]
            found += records
        assert [payload for _, _, _, payload in found] == rows
        assert [offset for offset, _, _, _ in found] == list(range(100))
        assert number(part, "segments") == len(names)
    for wrong in (f"{1:020d}.log", "0.log", f"{0:020d}", f"{0:019d}.log", f"{0:021d}.log", f"{0:020d}.index", "hwm",
                  f"{0:020d}.LOG", "9" * 20 + ".log", f"{1 << 63:020d}.log", " " * 19 + "0.log"):
        assert missing(f"{part}/segments/{wrong}"), wrong


@pytest.mark.local("segments")
def test_the_active_segment_grows_and_seals(m):
    part = m.make("t")
    produce(part, "a")
    path = f"{part}/segments/{0:020d}.log"
    fd = os.open(path, os.O_RDONLY)
    first = os.read(fd, 1 << 20)
    assert os.fstat(fd).st_size == len(first)
    for n in range(5):
        produce(part, f"b{n}")
        assert os.stat(path).st_size == os.fstat(fd).st_size == len(os.pread(fd, 1 << 20, 0))
    whole = os.pread(fd, 1 << 20, 0)
    assert whole.startswith(first) and len(list(seglog.frames(whole))) == 6
    write_file(part + "/ctl", b"roll\n")
    produce(part, "c")
    assert os.pread(fd, 1 << 20, 0) == whole == read_file(path)
    assert os.stat(path).st_size == len(whole)
    assert sorted(os.listdir(part + "/segments")) == [f"{0:020d}.log", f"{6:020d}.log"]
    with open(path, "rb") as again:
        assert again.read() == whole
    os.close(fd)


@pytest.mark.local("segments")
def test_open_readers_survive_trim(m):
    part = m.make("t", segment_bytes=65536)
    rows = rows_of(300, 1000)
    for start in range(0, 300, 10):
        produce(part, *rows[start:start + 10])
    names = os.listdir(part + "/segments")
    segment = read_file(f"{part}/segments/{names[0]}")
    paths = {"log": lines(*rows), "from/start": lines(*rows), "from/7": lines(*rows[7:]), "records/3": rows[3],
             f"segments/{names[0]}": segment}
    fds = {path: os.open(f"{part}/{path}", os.O_RDONLY) for path in paths}
    assert os.read(fds["log"], 10) == rows[0][:10]
    write_file(part + "/ctl", b"trim 300\n")
    oldest = number(part, "oldest_offset")
    assert oldest > 200
    assert os.pread(fds["records/3"], 1 << 20, 0) == rows[3]
    assert os.pread(fds[f"segments/{names[0]}"], 1 << 20, 0) == segment
    for path in ("log", "from/start", "from/7"):
        wanted = lines(*rows[oldest:])
        pos = len(paths[path]) - len(wanted)
        assert os.fstat(fds[path]).st_size == len(paths[path])
        assert os.pread(fds[path], 1 << 20, pos) == wanted, path  # positions stay
    assert log(part) == read_file(part + "/from/start") == read_file(f"{part}/from/{oldest}") == lines(*rows[oldest:])
    for path in ("from/7", "records/3", f"segments/{names[0]}"):
        assert missing(f"{part}/{path}"), path
    assert os.listdir(part + "/segments") == [name for name in names if int(name[:-4]) >= oldest]
    assert os.readlink(part + "/by-time/0") == f"../from/{oldest}"
    for fd in fds.values():
        os.close(fd)


@pytest.mark.local("the data directory")
def test_damage(m):
    part = m.make("t", segment_bytes=65536)
    rows = rows_of(60, 3000)
    for start in range(0, 60, 2):
        produce(part, *rows[start:start + 2])
    m.stop()
    path = f"{m.data_part('t')}/{segment_files(m, 't')[0]}"
    data = bytearray(read_file(path))
    hurt = list(seglog.frames(bytes(data)))[4]
    data[hurt.pos + 60] ^= 1
    write_file(path, bytes(data))
    m.start()
    lost = {8, 9}
    for offset in lost:
        assert fails(os.stat, f"{part}/records/{offset}") == errno.EBADMSG
        assert open_fails(f"{part}/records/{offset}", os.O_RDONLY) == errno.EBADMSG
    for offset in (7, 10, 59):
        assert read_file(f"{part}/records/{offset}") == rows[offset]
    for start in (0, 7, 8, 9, 10, 11):
        wanted = lines(*[row for i, row in enumerate(rows) if i >= start and i not in lost])
        assert read_file(f"{part}/from/{start}") == wanted
        assert os.stat(f"{part}/from/{start}").st_size == len(wanted)
    assert read_file(part + "/from/start") == log(part)
    assert bytes(read_file(f"{part}/segments/{os.path.basename(path)}")) == bytes(data)  # as it is
    def listed():
        return [int(name) for name in os.listdir(part + "/records")]

    kept = [i for i in range(60) if i not in lost]
    assert listed() == kept  # what is known to be lost is left out, so that walks go by
    assert fails(os.stat, f"{part}/records/8") == errno.EBADMSG
    m.restart()  # the side file knows
    assert listed() == kept
    assert fails(os.stat, f"{part}/records/9") == errno.EBADMSG
    m.stop()
    m.options = "idle_close_ms=1"
    m.start()
    for _ in range(3):
        assert listed() == kept  # also of a partition that was closed meanwhile
        wait_for(lambda: metric(m, "narad_partitions_open") == 0, "the partition to be closed")


# -- what is refused, and to whom


def test_nothing_can_be_changed(m):
    part = m.make("t")
    produce(part, "a")
    for folder in BROWSE:
        for name in ("new", "5", f"{5:020d}.log"):
            path = f"{part}/{folder}/{name}"
            if os.path.lexists(path):
                continue
            assert open_fails(path, os.O_WRONLY | os.O_CREAT) == errno.EPERM, path
            assert fails(os.mkdir, path) == errno.EPERM, path
            assert fails(os.symlink, "x", path) == errno.EPERM, path
        assert fails(os.rmdir, f"{part}/{folder}") in (errno.EPERM, errno.ENOTEMPTY)
        assert fails(os.rename, f"{part}/{folder}", f"{part}/other") == errno.EPERM
    for path in ("from/start", "from/end", "from/0", "records/0", *FIRST_SEGMENT):
        for flags in (os.O_WRONLY, os.O_RDWR, os.O_WRONLY | os.O_TRUNC, os.O_WRONLY | os.O_APPEND):
            assert open_fails(f"{part}/{path}", flags) == errno.EPERM, path
        assert fails(os.truncate, f"{part}/{path}", 0) == errno.EPERM
        assert fails(os.unlink, f"{part}/{path}") == errno.EPERM
        assert fails(os.rename, f"{part}/{path}", part + "/x") == errno.EPERM
        assert fails(os.link, f"{part}/{path}", part + "/x") == errno.EPERM
    assert fails(os.unlink, part + "/by-time/0") == errno.EPERM
    assert open_fails(m.mnt + "/metrics", os.O_WRONLY) == errno.EPERM
    assert log(part) == b"a\n"


@pytest.mark.local("the data directory")
def test_read_only_mount(m):
    part = m.make("t")
    produce(part, "a", "b")
    m.stop()
    m.options = "ro"
    m.start()
    assert read_file(part + "/from/1") == b"b\n"
    assert read_file(part + "/records/0") == b"a"
    assert read_file(part + "/by-time/0") == b"a\nb\n"
    assert read_file(part + "/from/end") == b""
    assert len(list(seglog.frames(read_file(f"{part}/segments/{0:020d}.log")))) >= 1
    assert metric(m, "narad_topics") == 1


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_who_may_not_read_the_log_reads_none_of_it(mounts):
    from test_tree import as_nobody

    m = mounts(options="allow_other")
    part = m.make("t")
    produce(part, "secret")
    os.chmod(m.topic("t"), 0o755)
    names = ("log", "from/start", "from/0", "records/0", "by-time/0", *FIRST_SEGMENT)
    for name in names:
        assert as_nobody(m.mnt, f"grep -c secret topics/t/p00000/{name}") == (0, "1\n"), name
    os.chmod(part + "/log", 0o400)
    time.sleep(1.1)  # what the kernel may remember of a sealed segment
    for name in names:
        assert as_nobody(m.mnt, f"cat topics/t/p00000/{name}")[0] != 0, name
        assert stat.S_IMODE(os.stat(f"{part}/{name}").st_mode) == 0o400
    os.chmod(part + "/records/0", 0o444)  # it is the log's
    assert stat.S_IMODE(os.stat(part + "/log").st_mode) == 0o444


def test_deletion_under_open_readers(m):
    part = m.make("t", segment_bytes=65536)
    produce(part, *rows_of(100, 2000))
    names = os.listdir(part + "/segments")
    assert names or JETSTREAM
    produce(part, "last")
    paths = ["log", "from/start", "from/end", "from/5", "records/5", *(f"segments/{name}" for name in names[:1] + names[-1:])]
    fds = [os.open(f"{part}/{path}", os.O_RDONLY) for path in paths]
    for fd in fds:
        os.pread(fd, 1 << 20, 0)
    folder = os.open(part + "/records", os.O_RDONLY)  # its names are those of this moment
    write_file(m.topic("t") + "/ctl", f"delete {xattr(part, 'incarnation')}\n".encode())
    for fd, path in zip(fds, paths):
        assert fails(os.pread, fd, 100, 0) == errno.EIDRM, path
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        ((_, events),) = poll.poll(0)
        assert events & select.POLLERR and events & select.POLLHUP, path
        os.close(fd)
    assert len(os.listdir(folder)) == 101
    assert fails(lambda: os.stat("5", dir_fd=folder)) in (errno.ENOENT, errno.ESTALE)
    os.close(folder)
    new = m.make("t")
    produce(new, "new")
    assert read_file(new + "/from/start") == b"new\n" and read_file(new + "/records/0") == b"new"


def test_poll(m):
    part = m.make("t")
    produce(part, "a")
    for path in ("log", "from/start", "from/end", "from/0", "records/0", *FIRST_SEGMENT):
        fd = os.open(f"{part}/{path}", os.O_RDONLY)
        assert select.select([fd], [], [], 0)[0] == [fd], path
        os.close(fd)


@pytest.mark.local("segments")
def test_scans_of_the_new_folders(m, tmp_path):
    part = m.make("t", segment_bytes=65536)
    rows = rows_of(1500, 300)
    for start in range(0, 1500, 100):
        produce(part, *rows[start:start + 100])
    before = {name: xattr(part, name) for name in XATTRS}
    shell(f"ls -lR {m.mnt} > /dev/null; find {m.mnt} -ls > /dev/null; du -a {m.mnt} > /dev/null")
    found = shell(f"cd {part}; grep -rl 'row 1499' . | sort").stdout.decode().split()
    assert found == ["./from/start", "./log", "./log.jsonl", "./records/1499", f"./segments/{1200:020d}.log"]
    for command in (f"cp -a {part} {tmp_path}/copy", f"mkdir {tmp_path}/tar; tar -C {part} -cf - . | tar -C {tmp_path}/tar -xf -",
                    f"rsync -a {part}/ {tmp_path}/rsync"):
        shell("set -o pipefail; " + command)
        copy = f"{tmp_path}/{command.rsplit('/', 1)[1].split()[0]}".replace("rsync/", "rsync")
    for copy in ("copy", "tar", "rsync"):
        assert sorted(map(int, os.listdir(f"{tmp_path}/{copy}/records"))) == list(range(500, 1500))
        assert read_file(f"{tmp_path}/{copy}/records/777") == rows[777]
        assert read_file(f"{tmp_path}/{copy}/from/start") == lines(*rows)
        found = seglog.read_partition(f"{tmp_path}/{copy}/segments")
        assert [payload for _, _, _, payload in found] == rows
    assert {name: xattr(part, name) for name in XATTRS} == before
    shell(f"tar -C {m.mnt} -cf {tmp_path}/all.tar .")


# -- metrics


@pytest.mark.local("metrics")
def test_metrics(m):
    part = m.make("t")
    before = metric(m, "narad_commits_total")
    produce(part, "a")
    produce(part, "b")
    assert metric(m, "narad_commits_total") == before + 2
    text = read_file(m.mnt + "/metrics").decode()
    assert os.stat(m.mnt + "/metrics").st_size > 0
    for line in text.splitlines():
        assert re.fullmatch(r"# (HELP|TYPE) [a-z_]+ .+|[a-z_]+(\{[^}]*\})? [0-9.e+-]+", line), line
    fd = os.open(m.mnt + "/metrics", os.O_RDONLY)
    assert os.fstat(fd).st_size == len(read_rest(fd))
    produce(part, "c")
    assert f"narad_commits_total {before + 3}\n".encode() in os.pread(fd, 1 << 20, 0)  # read again, it is new
    os.close(fd)


# -- closed partitions


def idle(mounts, ms=300):
    m = mounts(options=f"idle_close_ms={ms},retention_check_ms=100,cold_retention_walk_ms=0,cache_bytes=1000000")
    return m, m.make("t", segment_bytes=65536)


def open_partitions(m):
    return metric(m, "narad_partitions_open")


@pytest.mark.local("opening and closing of partitions")
def test_what_is_not_used_closes(mounts):
    m, part = idle(mounts)
    rows = rows_of(100, 2000)
    produce(part, *rows)
    wait_for(lambda: open_partitions(m) == 0, "the partition to close")
    before = {name: xattr(part, name) for name in XATTRS}
    assert before["hwm"] == "100" and os.stat(part + "/log").st_size == len(lines(*rows))
    os.listdir(part + "/records")
    read_file(part + "/status")
    read_file(m.topic("t") + "/status")
    shell(f"ls -l {part} {m.topic('t')} > /dev/null")
    assert open_partitions(m) == 0  # looking opens nothing
    assert read_file(part + "/records/7") == rows[7]
    wait_for(lambda: open_partitions(m) == 0, "it to close again")
    assert read_file(part + "/from/50") == lines(*rows[50:])
    assert {name: xattr(part, name) for name in XATTRS} == before
    wait_for(lambda: open_partitions(m) == 0, "it to close again")
    produce(part, "more")
    assert drain(part) == lines(*rows, "more")


@pytest.mark.local("opening and closing of partitions")
@pytest.mark.parametrize("path", ["log", "from/start", "from/end", "from/3", f"segments/{0:020d}.log", "produce", "ack",
                                  "consume", "consume.jsonl", "drain"])
def test_an_open_file_keeps_its_partition_open(mounts, path):
    m, part = idle(mounts)
    produce(part, *range(10))
    fd = os.open(f"{part}/{path}", os.O_WRONLY if path in ("produce", "ack") else os.O_RDONLY)
    time.sleep(1.2)
    assert open_partitions(m) == 1
    if path == "produce":
        os.write(fd, b"10\n")
        os.fsync(fd)
        assert log(part) == lines(*range(11))
    elif path != "ack":
        expected = {"log": lines(*range(10)), "from/start": lines(*range(10)), "from/end": b"",
                    "from/3": lines(*range(3, 10)), "drain": lines(*range(10)), "consume": b"0\n"}
        got = os.read(fd, 1 << 20)
        assert got == expected[path] if path in expected else got
    os.close(fd)
    if path != "consume.jsonl":  # its lease lives on
        wait_for(lambda: open_partitions(m) == 0, "the partition to close")


@pytest.mark.local("opening and closing of partitions")
def test_a_record_is_held_by_its_handle(mounts):
    m, part = idle(mounts)
    produce(part, "kept")
    fd = os.open(part + "/records/0", os.O_RDONLY)
    wait_for(lambda: open_partitions(m) == 0, "the partition to close")
    assert os.read(fd, 100) == b"kept"
    assert os.fstat(fd).st_size == 4
    os.close(fd)


@pytest.mark.local("opening and closing of partitions")
def test_everything_at_once_over_closing_partitions(mounts):
    """Readers, writers and closes side by side."""
    m, part = idle(mounts, ms=1)
    produce(part, *range(5))
    deadline = time.monotonic() + 4

    def read():
        n = 0
        while time.monotonic() < deadline:
            assert read_file(part + "/records/3") == b"3"
            assert read_file(part + "/from/2").startswith(b"2\n3\n4\n")
            assert os.readlink(part + "/by-time/0") == "../from/0"
            assert os.stat(part + "/from/start").st_size >= 10
            n += 1
        return n

    def write():
        n = 0
        while time.monotonic() < deadline:
            produce(part, "more")
            n += 1
            time.sleep(0.02)
        return n

    work = [Background(read), Background(read), Background(write)]
    counts = [one.join(30) for one in work]
    assert all(one.error is None for one in work) and min(counts) > 0, [one.error for one in work]
    assert log(part) == lines(*range(5)) + b"more\n" * counts[2]


@pytest.mark.local("idle_close_ms, retention_check_ms, cold_retention_walk_ms, cache_bytes")
@pytest.mark.parametrize("option", ["idle_close_ms=0", "idle_close_ms=soon", "retention_check_ms=0",
                                    "cold_retention_walk_ms=-1", "cache_bytes=64M"])
def test_options_that_are_refused(mounts, option):
    m = mounts(start=False, options=option)
    assert not m.try_start()
    assert option.split("=")[0] in m.stderr() and "expected" in m.stderr()


# -- a slow disk


@contextlib.contextmanager
def slow_partition(m, partitions=1):
    """t, whose first segment takes 6 s for each read, closed uncleanly; u, which is well, as are t's other partitions."""
    need_strace()
    produce(m.make("t", partitions=partitions), "slow")
    produce(m.make("u"), "quick")
    m.crash()
    read_file(m.part("u") + "/log")
    for number in range(1, partitions):
        os.stat(m.part("t", number))
    fault = Inject(m, active_segment(m, "t"), "pread64", "delay_enter=6000000")
    try:
        yield fault
    finally:
        if fault.process.poll() is None:
            fault.stop()


def quick(call, *arguments):
    start = time.monotonic()
    value = call(*arguments)
    assert time.monotonic() - start < 3, (call, arguments)
    return value


@pytest.mark.local("a disk that fails")
@pytest.mark.limit(120)
def test_a_slow_partition_stops_nobody_else(m):
    part, other = m.part("t"), m.part("u")
    with slow_partition(m) as fault:
        work = [Background(os.stat, part), Background(read_file, part + "/log"), Background(os.listdir, part + "/records"),
                Background(os.getxattr, part, "user.narad.hwm"), Background(read_file, part + "/from/0"),
                Background(os.readlink, part + "/by-time/0"), Background(read_file, m.topic("t") + "/status")]
        work += [Background(read_file, part + "/records/0") for _ in range(20)]
        time.sleep(0.3)
        assert any(one.running() for one in work)
        assert quick(os.listdir, m.mnt + "/topics") == ["t", "u"]
        quick(shell, f"ls -l {m.mnt}/topics {m.topic('u')} {other} {other}/records > /dev/null")
        assert quick(read_file, other + "/from/0") == b"quick\n"
        assert quick(read_file, other + "/records/0") == b"quick"
        assert quick(os.readlink, other + "/by-time/0") == "../from/0"
        quick(produce, other, "more")
        quick(read_file, m.mnt + "/metrics")
        fresh = quick(m.make, "fresh")
        assert quick(read_file, fresh + "/from/start") == b""
        assert any(one.running() for one in work)
        fault.stop()
        assert [one.join(60) for one in work][-1] == b"slow"
        assert all(one.error is None for one in work)
    assert log(part) == b"slow\n"


def verb(part, line):
    with open(part + "/ctl", "w", encoding="ascii") as file:
        file.write(line)


@pytest.mark.local("a disk that fails")
@pytest.mark.limit(120)
def test_changes_that_wait_stop_nobody_else(m):
    """More of them than the daemon has workers."""
    with slow_partition(m, partitions=25) as fault:
        work = [Background(os.stat, m.part("t"))]
        time.sleep(0.3)
        assert work[0].running()
        for number in range(1, 25):
            work += [Background(verb, m.part("t", number), "roll\n"),
                     Background(os.chmod, m.part("t", number) + "/log", 0o400)]
        work += [Background(lambda: configure(m.topic("t"), linger_ms=7))]
        time.sleep(0.3)
        assert all(one.running() for one in work)
        assert quick(os.listdir, m.mnt + "/topics") == ["t", "u"]
        quick(produce, m.part("u"), "more")
        assert quick(read_file, m.part("u") + "/log") == b"quick\nmore\n"
        fault.stop()
        for one in work:
            one.join(60)
        assert all(one.error is None for one in work)
    assert os.stat(m.part("t", 24) + "/log").st_mode & 0o777 == 0o400
    assert b"linger_ms=7\n" in read_file(m.topic("t") + "/config")


@pytest.mark.local("a disk that fails")
@pytest.mark.limit(120)
def test_a_stop_answers_what_waits(m):
    part = m.part("t")
    with slow_partition(m) as fault:
        work = [Background(os.stat, part)] + [Background(read_file, part + "/records/0") for _ in range(5)]
        time.sleep(0.3)
        assert work[0].running()
        m.process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        assert work[0].running() and m.process.poll() is None
        fault.stop()
        for one in work:
            one.join(60)
        assert m.wait_exit(60) == 0
    m.gone()
    m.start()
    assert read_file(part + "/records/0") == b"slow"


@pytest.mark.local("a disk that fails")
@pytest.mark.limit(120)
def test_a_cut_connection_ends_what_waits(m):
    part = m.part("t")
    with slow_partition(m) as fault:
        work = [Background(os.stat, part)] + [Background(read_file, part + "/records/0") for _ in range(3)]
        time.sleep(0.3)
        device = os.minor(os.stat(m.mnt).st_dev)
        with open(f"/sys/fs/fuse/connections/{device}/abort", "w", encoding="ascii") as file:
            file.write("1")
        for one in work:
            one.join(20)
        fault.stop()
        m.wait_exit(10)
    m.gone()
    m.start()
    assert read_file(part + "/records/0") == b"slow"


@pytest.mark.local("a disk that fails")
@pytest.mark.limit(120)
def test_a_stopped_client_leaves_nothing_behind(m):
    """Requests that wait are not given up, whatever happens to who asked."""
    part = m.part("t")
    with slow_partition(m) as fault:
        clients = [subprocess.Popen(["cat", part + "/records/0"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                    stderr=subprocess.DEVNULL) for _ in range(5)]
        time.sleep(0.3)
        for client in clients:
            client.kill()
        fault.stop()
        for client in clients:
            client.wait(60)
    assert read_file(part + "/records/0") == b"slow"
    os.mkdir(m.topic("v"))
    with Consumer(part) as consumer:
        assert consumer.read() == b"slow\n"
