"""What a mount makes of its data directory: the bytes on disk, and damage to every one of its files."""

import errno
import os
import shutil
import stat
import struct
import time

import pytest
import seglog
from support import (ack, configure, drain, fails, lines, log, number, produce, read_file, take, wait_for, write_file,
                     xattr)


def overwrite(path, data):
    with open(path, "wb") as file:
        file.write(data)


def segments(folder):
    return [f"{folder}/{name}" for name in seglog.segment_names(folder)]


def marker(m, topic):
    return read_file(f"{m.data}/topics/{topic}/incarnation").decode().strip()


# -- the formats, to the byte


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_segments_are_what_was_produced(m, codec):
    part = m.make("t", segment_bytes=65536, codec=codec)
    rows = [b"row %d " % i + bytes((i * j) % 251 + (1 if (i * j) % 251 >= 10 else 0) for j in range(i % 400))
            for i in range(1000)]
    rows = [row.replace(b"\n", b"?") for row in rows]
    before = int(time.time() * 1000) - 2000
    for start in range(0, 1000, 50):
        produce(part, *rows[start:start + 50])
    m.stop()
    records = seglog.read_partition(m.data_part("t"))
    assert [record[0] for record in records] == list(range(1000))
    assert [record[3] for record in records] == rows
    assert {record[2] for record in records} == {b""}
    assert all(before <= record[1] <= time.time() * 1000 + 2000 for record in records)
    names = seglog.segment_names(m.data_part("t"))
    assert names[0] == "0" * 20 + ".log"
    if codec == "none":
        assert len(names) > 1
    used = set()
    for path in segments(m.data_part("t")):
        used |= {frame.codec for frame in seglog.frames(read_file(path))}
    assert used == ({seglog.CODEC_ZSTD} if codec == "zstd" else {seglog.CODEC_NONE})


def test_records_above_the_boundary_are_told(m):
    part = m.make("t")
    produce(part, "a", "b", "c")
    m.stop()
    overwrite(m.data_part("t") + "/hwm", bytes(8))
    m.start()
    assert log(part) == b"" and number(part, "hwm") == 0
    told = [line for line in m.stderr().splitlines() if "are not served" in line]
    assert len(told) == 1 and "from 0 up to 2" in told[0] and "topics/t/p00000/hwm" in told[0], m.stderr()


def test_one_fsync_is_one_frame(m):
    part = m.make("t")
    produce(part, "a", "b", "c")
    produce(part, "d")
    m.stop()
    (path,) = segments(m.data_part("t"))
    frames = list(seglog.frames(read_file(path)))
    assert [(frame.base, frame.n_records) for frame in frames] == [(0, 3), (3, 1)]
    data = read_file(path)
    assert data[:2] == b"\xca\xfe" and data[2] == 0
    assert struct.unpack(">IQII", data[3:23]) == (3, 0, frames[0].raw_size, frames[0].raw_size)
    assert data[27:27 + 6] == struct.pack(">I", 1 + 1 + 8 + 1) + b"\x02\x00"
    assert data[27 + 14:27 + 15] == b"a"


def test_high_watermark_on_disk(m):
    part = m.make("t")
    produce(part, *range(7))
    path = m.data_part("t") + "/hwm"
    assert os.path.getsize(path) == 0 if os.path.exists(path) else True  # emptied while the log is open
    m.stop()
    assert read_file(path) == struct.pack(">Q", 7)
    m.start()
    assert log(part) == lines(*range(7))
    assert read_file(path) == struct.pack(">Q", 7)  # opening writes nothing
    produce(part, 7)
    assert read_file(path) == b""
    m.kill()
    assert read_file(path) == b""
    m.start()
    assert number(part, "hwm") == 8
    m.stop()
    assert read_file(path) == struct.pack(">Q", 8)


def test_consumer_offset_on_disk(m):
    part = m.make("t")
    produce(part, *range(7))
    handles = [item["handle"] for item in take(part)]
    ack(part, *handles[:4], handles[5], sync=True)
    m.stop()
    assert read_file(m.data_part("t") + "/consumer.offset") == struct.pack(">Q", 3)
    assert os.path.getsize(m.data_part("t") + "/consumer.ahead") == 8192
    os.unlink(m.data_part("t") + "/consumer.ahead")
    m.start()
    assert (number(part, "frontier"), number(part, "acked_ahead")) == (4, 0)
    assert drain(part) == lines(4, 5, 6)


def test_private_modes(m):
    part = m.make("t")
    produce(part, "x")
    drain(part)
    m.stop()
    for folder, folders, files in os.walk(m.data):
        for name in folders:
            assert stat.S_IMODE(os.lstat(f"{folder}/{name}").st_mode) == 0o700, name
        for name in files:
            assert stat.S_IMODE(os.lstat(f"{folder}/{name}").st_mode) == 0o600, name
    assert sorted(os.listdir(m.data)) >= ["format", "lock", "meta", "topics"] or "ingress" in os.listdir(m.data)
    assert len(marker(m, "t")) == 16
    assert read_file(m.data + "/format").decode().strip().isdigit()


# -- damage to every file


class Store:
    """A stopped store with something in every file: t/p00000 to be damaged, t/p00001 and u/p00000 as witnesses."""

    def __init__(self, m):
        self.m = m
        part = m.make("t", segment_bytes=65536, partitions=2)
        self.rows = [b"%04d " % i + b"abcdefgh" * (i % 50) for i in range(200)]
        for start in range(0, 200, 20):
            produce(part, *self.rows[start:start + 20])
            if start in (60, 120):
                write_file(part + "/ctl", b"roll\n")
        handles = [item["handle"] for item in take(part, 20)]
        ack(part, *handles[:10], handles[12], handles[15], sync=True)
        self.settled = set(range(10)) | {12, 15}
        produce(m.part("t", 1), *[b"witness %d" % i for i in range(30)])
        produce(m.make("u"), *[b"other %d" % i for i in range(30)])
        m.stop()
        self.pristine = m.base + "/pristine"
        shutil.copytree(m.data, self.pristine, symlinks=True)

    def restore(self):
        shutil.rmtree(self.m.data)
        shutil.copytree(self.pristine, self.m.data, symlinks=True)

    def check(self, what, prefix_may_hide=False):
        """Starts on damaged data: it mounts or names a file; nothing damaged is served, nothing else is lost."""
        m = self.m
        if not m.try_start():
            reason = m.stderr()
            assert m.process.returncode > 0, (what, m.process.returncode, reason)
            assert "format" in reason or "lock" in reason or "meta" in reason or "topics" in reason, (what, reason)
            return "refused"
        assert log(m.part("u")) == lines(*[b"other %d" % i for i in range(30)]), what
        try:
            text = log(m.part("t"))
            taken = {item["offset"]: item["payload"].encode() for item in take(m.part("t"))}
            other = log(m.part("t", 1))
        except OSError as error:
            assert error.errno in (errno.EIO, errno.ENOENT), (what, error)
            text, taken, other = None, {}, None
            outcome = "out of service"
        else:
            outcome = "served"
            self.check_records(what, text, taken, prefix_may_hide)
            assert other == lines(*[b"witness %d" % i for i in range(30)]), what
        assert all(offset < 200 and self.rows[offset] == payload for offset, payload in taken.items()), what
        m.stop()
        return outcome

    def check_records(self, what, text, taken, prefix_may_hide):
        served = text.split(b"\n")[:-1]
        wanted = iter(self.rows)
        assert all(row in wanted for row in served), f"{what}: a record that was not produced, or out of order"
        if not prefix_may_hide:
            assert set(taken) | self.settled >= {self.rows.index(row) for row in served}, what


@pytest.fixture
def store(m):
    return Store(m)


def damages(data):
    """(name, bytes): truncations, zeroing, flipped bits."""
    size = len(data)
    for cut in sorted({0, 1, size // 3, size // 2, size - 1}):
        if 0 <= cut < size:
            yield f"cut to {cut}", data[:cut]
    if size:
        yield "zeroed", bytes(size)
        yield "one byte more", data + b"\0"
        for pos in sorted({0, size // 4, size // 2, size - 1}):
            flipped = bytearray(data)
            flipped[pos] ^= 1 << pos % 8
            yield f"bit flipped at {pos}", bytes(flipped)


FILES = ["topics/t/p00000/00000000000000000000.log", "topics/t/p00000/SECOND.log", "topics/t/p00000/LAST.log",
         "topics/t/p00000/FIRST.index", "topics/t/p00000/hwm", "topics/t/p00000/consumer.offset",
         "topics/t/p00000/consumer.ahead", "topics/t/incarnation", "meta/t.topic", "format", "lock"]


def real_name(store, name):
    folder = store.m.data + "/topics/t/p00000"
    logs = seglog.segment_names(folder)
    indexes = sorted(entry for entry in os.listdir(folder) if entry.endswith(".index"))
    name = name.replace("SECOND.log", logs[1]).replace("LAST.log", logs[-1])
    if "FIRST.index" in name:
        if not indexes:
            pytest.skip("this build keeps no side index file")
        name = name.replace("FIRST.index", indexes[0])
    return name


@pytest.mark.limit(150)
@pytest.mark.parametrize("name", FILES)
def test_damage(store, name):
    name = real_name(store, name)
    path = f"{store.m.data}/{name}"
    pristine = read_file(path)
    outcomes = {}
    for what, data in damages(pristine):
        overwrite(path, data)
        outcomes[what] = store.check(f"{name}: {what}", prefix_may_hide=True)
        store.restore()
    if name.startswith("topics/t/p00000"):
        assert set(outcomes.values()) == {"served"}, outcomes  # a partition's own damage stops nobody
    if name.endswith((".index", "consumer.offset", "consumer.ahead")):
        assert "out of service" not in outcomes.values()


@pytest.mark.limit(150)
@pytest.mark.parametrize("kind", ["symlink", "folder", "fifo", "missing"])
def test_something_else_in_place_of_a_file(store, kind):
    m = store.m
    for name in FILES:
        if "FIRST.index" in name:
            continue
        path = f"{m.data}/{real_name(store, name)}"
        target = m.base + "/target"
        overwrite(target, b"untouched\n" * 100)
        os.unlink(path)
        if kind == "symlink":
            os.symlink(target, path)
        elif kind == "folder":
            os.mkdir(path)
        elif kind == "fifo":
            os.mkfifo(path)
        store.check(f"{kind} in place of {name}", prefix_may_hide=True)
        assert read_file(target) == b"untouched\n" * 100, name
        store.restore()


def test_symlinked_folders_are_not_followed(store):
    m = store.m
    elsewhere = m.base + "/elsewhere"
    shutil.move(m.data + "/topics/t/p00000", elsewhere)
    os.symlink(elsewhere, m.data + "/topics/t/p00000")
    before = {name: read_file(f"{elsewhere}/{name}") for name in os.listdir(elsewhere)}
    store.check("p00000 is a symlink", prefix_may_hide=True)
    assert {name: read_file(f"{elsewhere}/{name}") for name in os.listdir(elsewhere)} == before


@pytest.mark.parametrize("data", [b"", b"1", b"1234567", b"123456789", bytes(64)])
def test_odd_high_watermarks_hide_nothing(store, data):
    overwrite(store.m.data_part("t") + "/hwm", data)
    store.m.start()
    part = store.m.part("t")
    assert log(part) == lines(*store.rows)
    assert number(part, "hwm") == 200
    store.m.stop()
    assert read_file(store.m.data_part("t") + "/hwm") == struct.pack(">Q", 200)


@pytest.mark.parametrize("value", [201, 1 << 40, (1 << 63) - 1, 1 << 63, (1 << 64) - 1])
def test_high_watermarks_above_the_tail_are_clamped(store, value):
    overwrite(store.m.data_part("t") + "/hwm", struct.pack(">Q", value))
    for _ in range(2):  # a clean stop forgets nothing
        store.m.start()
        part = store.m.part("t")
        assert number(part, "hwm") == 200
        assert number(part, "next_offset") == (value if value < 10 ** 6 else 200)
        assert log(part) == lines(*store.rows)
        store.m.stop()
    store.m.start()
    produce(part, "next")
    assert log(part) == lines(*store.rows, "next")
    # offsets that were given out once are not given out again; but so many cannot have been
    assert number(part, "hwm") == (value + 1 if value < 10 ** 6 else 201)
    store.m.crash()
    assert log(part) == lines(*store.rows, "next")


def test_offsets_that_were_lost_are_not_used_again(m):
    part = m.make("t")
    produce(part, *range(10))
    produce(part, *range(10, 20))
    assert drain(part) == lines(*range(20))
    m.stop()
    segment = m.data_part("t") + "/00000000000000000000.log"
    with open(segment, "r+b") as file:
        file.truncate(next(seglog.frames(file.read())).end)
    m.start()
    produce(part, "other")
    assert read_file(part + "/records/20") == b"other"
    assert fails(read_file, part + "/records/10") == errno.EBADMSG
    assert log(part) == lines(*range(10), "other")
    m.stop()
    os.unlink(m.data_part("t") + "/00000000000000000020.log")
    m.start()
    produce(part, "again")
    assert read_file(part + "/records/21") == b"again"


def test_deleted_indexes_are_rebuilt(store):
    folder = store.m.data_part("t")
    for name in os.listdir(folder):
        if name.endswith(".index"):
            os.unlink(f"{folder}/{name}")
    store.m.start()
    assert log(store.m.part("t")) == lines(*store.rows)
    fd = os.open(store.m.part("t") + "/log", os.O_RDONLY)
    text = lines(*store.rows)
    for pos in range(0, len(text), 3001):
        assert os.pread(fd, 50, pos) == text[pos:pos + 50]
    os.close(fd)


# -- tails and middles


def crashed(m):
    """A store after kill -9: three frames of two records in one segment; the partition, the segment, its bytes."""
    part = m.make("t")
    for pair in (("a", "b"), ("c", "d"), ("e", "f")):
        produce(part, *pair)
    m.kill()
    (path,) = segments(m.data_part("t"))
    data = read_file(path)
    end = list(seglog.frames(data))[-1].end
    return part, path, data[:end]


def frame(base, *payloads):
    raw = b"".join(struct.pack(">I", 10 + len(payload)) + b"\x02\x00" + struct.pack(">Q", 1_700_000_000_000) + payload
                   for payload in payloads)
    header = struct.pack(">BIQII", 0, len(payloads), base, len(raw), len(raw))
    return b"\xca\xfe" + header + struct.pack(">I", seglog.crc32c(header + raw)) + raw


def test_frame_maker_matches():
    (made,) = seglog.frames(frame(5, b"x", b"yy"))
    assert [(offset, payload) for offset, _, _, payload in made.records()] == [(5, b"x"), (6, b"yy")]


@pytest.mark.parametrize("tail", [b"\xca", b"\xca\xfe", frame(6, b"torn")[:20], frame(6, b"torn")[:-1],
                                  frame(6, b"torn")[:-4] + bytes(4), bytes(4096), b"garbage" * 100,
                                  frame(6, b"torn")[:27] + bytes(15), b"\xca\xfe" * 2000,
                                  b"\xca\xfe\x00\xff\xff\xff\xff" + b"\xff" * 20],
                         ids=["magic half", "magic", "header half", "last byte", "end zeroed", "zeros", "garbage",
                              "payload zeroed", "magic flood", "absurd header"])
def test_torn_tails_are_cut(m, tail):
    part, path, data = crashed(m)
    overwrite(path, data + tail)
    m.start()
    assert log(part) == b"a\nb\nc\nd\ne\nf\n"
    assert (number(part, "hwm"), number(part, "next_offset"), number(part, "poisoned")) == (6, 6, 0)
    produce(part, "g")
    m.restart()
    assert log(part) == b"a\nb\nc\nd\ne\nf\ng\n"
    m.stop()
    records = seglog.read_partition(m.data_part("t"))
    assert [(record[0], record[3]) for record in records] == list(enumerate(b"a b c d e f g".split()))


@pytest.mark.parametrize("cut", [1, 5, 14, 26, 27, 30])
def test_a_cut_last_frame_goes_whole(m, cut):
    part, path, data = crashed(m)
    overwrite(path, data[:-cut])
    m.start()
    assert log(part) == b"a\nb\nc\nd\n"
    produce(part, "new")
    assert log(part) == b"a\nb\nc\nd\nnew\n"
    assert number(part, "hwm") == 5


def test_a_whole_frame_above_the_boundary_after_a_crash_is_kept_whole(m):
    part, path, data = crashed(m)
    overwrite(path, data + frame(6, b"written but never acknowledged"))
    m.start()
    text = log(part)
    assert text in (b"a\nb\nc\nd\ne\nf\n", b"a\nb\nc\nd\ne\nf\nwritten but never acknowledged\n")


@pytest.mark.parametrize("where", [2, 5, 10, 16, 20, 24, 30, 41])
def test_damage_in_the_middle_is_passed_over(m, where):
    part, path, data = crashed(m)
    second = list(seglog.frames(data))[1]
    damaged = bytearray(data)
    damaged[second.pos + where] ^= 4
    overwrite(path, bytes(damaged))
    m.start()
    assert log(part) == b"a\nb\ne\nf\n"
    assert [(item["offset"], item["payload"]) for item in take(part)] == [(0, "a"), (1, "b"), (4, "e"), (5, "f")]
    assert (number(part, "hwm"), number(part, "next_offset")) == (6, 6)
    produce(part, "g")
    assert log(part) == b"a\nb\ne\nf\ng\n"
    assert bytes(read_file(path)[:len(damaged)]) == bytes(damaged)  # nothing after the damage was cut
    m.restart()
    assert log(part) == b"a\nb\ne\nf\ng\n"


def test_damage_in_a_sealed_segment_is_skipped_by_consumers(store):
    m = store.m
    path = segments(m.data_part("t"))[0]
    data = bytearray(read_file(path))
    hurt = list(seglog.frames(bytes(data)))[1]
    data[hurt.pos + 40] ^= 1
    overwrite(path, bytes(data))
    lost = set(range(hurt.base, hurt.base + hurt.n_records))
    m.start()
    part = m.part("t")
    assert log(part) == lines(*[row for i, row in enumerate(store.rows) if i not in lost])
    offsets = [item["offset"] for item in take(part)]
    assert offsets == [i for i in range(200) if i not in lost and i not in store.settled]


def test_a_frame_inside_a_payload_is_no_record(m):
    part = m.make("t", max_record_bytes=1 << 20)
    inner = frame(1 << 62, b"nobody produced this").replace(b"\n", b"\x0b")
    produce(part, b"before")
    produce(part, b"x" * 100 + inner + b"y" * 100)
    m.kill()
    (path,) = segments(m.data_part("t"))
    data = read_file(path)
    outer = list(seglog.frames(data))[1]
    damaged = bytearray(data[:outer.end])
    damaged[outer.pos + 60] ^= 1
    for bytes_ in (bytes(damaged), data[:outer.end - 1], data[:outer.end - 150]):
        overwrite(path, bytes_)
        m.start()
        assert b"nobody" not in log(part)
        assert number(part, "next_offset") <= 2
        produce(part, "after")
        assert log(part).endswith(b"after\n")
        m.kill()


# -- topics and incarnations


def test_damaged_topic_record_takes_its_topic_out_of_service(store):
    m = store.m
    path = m.data + "/meta/t.topic"
    good = read_file(path)
    overwrite(path, good[:-20] + b"#" * 20)
    before = sorted(os.listdir(m.data_part("t")))
    m.start()
    assert "t" in os.listdir(m.mnt + "/topics")
    assert read_file(m.topic("t") + "/status").strip()
    assert fails(read_file, m.topic("t") + "/config") == errno.EIO
    assert fails(write_file, m.topic("t") + "/config", b"linger_ms=1\n") in (errno.EIO, errno.EPERM)
    for name in ("p00000", "p00000/log", "p00000/produce", "p01023", "produce", "consume", "children"):
        assert fails(os.stat, f"{m.topic('t')}/{name}") == errno.EIO, name  # they are there: nothing says that they are not
    assert fails(os.stat, m.topic("t") + "/p0") == errno.ENOENT
    assert fails(os.mkdir, m.topic("t")) == errno.EEXIST
    assert fails(os.rmdir, m.topic("t")) in (errno.EIO, errno.ENOTEMPTY, errno.EBUSY)
    assert log(m.part("u")) == lines(*[b"other %d" % i for i in range(30)])
    m.stop()
    assert sorted(os.listdir(m.data_part("t"))) == before
    overwrite(path, good)
    m.start()
    assert log(m.part("t")) == lines(*store.rows)


def test_marker_of_a_living_topic_is_quarantined(store):
    m = store.m
    mine, other = marker(m, "t"), marker(m, "u")
    overwrite(m.data + "/topics/t/incarnation", read_file(m.data + "/topics/u/incarnation"))
    m.start()
    assert log(m.part("t")) == b""
    assert number(m.part("t"), "hwm") == 0
    assert xattr(m.part("t"), "incarnation") == mine
    assert log(m.part("u")) == lines(*[b"other %d" % i for i in range(30)])
    produce(m.part("t"), "new")
    assert log(m.part("t")) == b"new\n"
    stale = f"{m.data}/topics/t.stale-{other}"
    assert os.path.isdir(stale)  # u's record carries that id: it may not be reclaimed
    assert seglog.segment_names(stale + "/p00000")
    assert mine in m.stderr() and other in m.stderr()
    m.restart()
    assert os.path.isdir(stale)
    assert log(m.part("t")) == b"new\n"
    assert sorted(os.listdir(m.mnt + "/topics")) == ["t", "u"]


def test_marker_of_a_dead_topic_is_never_served(store):
    m = store.m
    overwrite(m.data + "/topics/t/incarnation", b"00112233445566aa\n"[:len(read_file(m.data + "/topics/t/incarnation"))])
    m.start()
    assert log(m.part("t")) == b""
    produce(m.part("t"), "new")
    assert drain(m.part("t")) == b"new\n"
    m.restart()
    wait_for(lambda: not os.path.exists(m.data + "/topics/t.stale-00112233445566aa"), "it to be reclaimed")
    assert log(m.part("t")) == b"new\n"


def test_missing_marker_is_adopted(store):
    m = store.m
    mine = marker(m, "t")
    os.unlink(m.data + "/topics/t/incarnation")
    m.start()
    assert log(m.part("t")) == lines(*store.rows)
    assert marker(m, "t") == mine


def test_orphans_are_reclaimed_at_start(store):
    m = store.m
    shutil.copytree(m.data + "/topics/t", m.data + "/topics/orphan")
    overwrite(m.data + "/topics/orphan/incarnation", b"00112233445566aa\n")
    shutil.copytree(m.data + "/topics/t", m.data + "/topics/t.stale-aabbccddeeff0011")
    overwrite(m.data + "/topics/t.stale-aabbccddeeff0011/incarnation", b"aabbccddeeff0011\n")
    m.start()
    wait_for(lambda: sorted(os.listdir(m.data + "/topics")) == ["t", "u"], "the orphans to go")
    assert log(m.part("t")) == lines(*store.rows)


def test_nothing_is_reclaimed_while_a_record_is_damaged(store):
    m = store.m
    good = read_file(m.data + "/meta/u.topic")
    overwrite(m.data + "/meta/u.topic", good[:-30])
    shutil.copytree(m.data + "/topics/t", m.data + "/topics/orphan")
    overwrite(m.data + "/topics/orphan/incarnation", b"00112233445566aa\n")
    m.start()
    time.sleep(0.5)
    assert sorted(os.listdir(m.data + "/topics")) == ["orphan", "t", "u"]
    m.stop()
    assert sorted(os.listdir(m.data + "/topics")) == ["orphan", "t", "u"]


def test_unreadable_meta_refuses_to_start(store):
    m = store.m
    shutil.move(m.data + "/meta", m.base + "/meta.away")
    for make in (lambda: None, lambda: overwrite(m.data + "/meta", b""),
                 lambda: os.symlink(m.base + "/meta.away", m.data + "/meta")):
        make()
        assert not m.try_start(), "mounted without its meta folder"
        assert "meta" in m.stderr()
        assert sorted(os.listdir(m.data + "/topics")) == ["t", "u"]
        if os.path.lexists(m.data + "/meta"):
            os.unlink(m.data + "/meta")
    shutil.move(m.base + "/meta.away", m.data + "/meta")
    m.start()
    assert log(m.part("t")) == lines(*store.rows)


def test_strange_files_are_left_alone(store):
    m = store.m
    for path in ("topics/t/p00000/notes.txt", "topics/t/p00000/1.log", "topics/t/p00000/x.log", "topics/notes",
                 "meta/notes", "topics/t/p00007x", "notes"):
        overwrite(f"{m.data}/{path}", b"mine")
    assert m.try_start(), m.stderr()
    assert log(m.part("t")) == lines(*store.rows)
    assert sorted(os.listdir(m.mnt + "/topics")) == ["t", "u"]
    m.stop()
    for path in ("topics/t/p00000/notes.txt", "topics/notes", "notes"):
        assert read_file(f"{m.data}/{path}") == b"mine"


def test_an_empty_newest_segment_is_no_crash_loop(store):
    m = store.m
    overwrite(m.data_part("t") + "/00000000000000000200.log", b"")
    for _ in range(3):
        m.start()
        assert log(m.part("t")) == lines(*store.rows)
        assert number(m.part("t"), "next_offset") == 200
        m.kill()
    m.start()
    produce(m.part("t"), "next")
    assert log(m.part("t")) == lines(*store.rows, "next")


def test_more_partitions_than_folders(store):
    m = store.m
    m.start()
    configure(m.topic("t"), partitions=3)
    m.stop()
    shutil.rmtree(m.data_part("t", 2), ignore_errors=True)
    m.start()
    assert log(m.part("t", 2)) == b""
    produce(m.part("t", 2), "x")
    assert log(m.part("t", 2)) == b"x\n"
