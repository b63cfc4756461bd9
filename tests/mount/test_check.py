"""What `naradctl check` says about a data directory that others have changed comes true: for each message the damage that
brings it, its severity and the exit status, and what a start then does. docs/operations.md lists the same messages."""

import errno
import glob
import json
import os
import re
import shutil
import struct
import subprocess

import pytest
import seglog
from naradctl import NARADCTL
from support import ROOT, Mount, ack, configure, fails, log, number, produce, read_file, take, wait_for, write_file

N_PER_SEGMENT = 12
KILLED = "killed"  # the name of a case over what a kill left
PAGE = ROOT + "/docs/operations.md"


def fill(m):
    """t: three segments in p00000 (the newest with a frame of each 4 records), p00001; u; none; p with its child c."""
    part = m.make("t", partitions=2, segment_bytes=65536)
    for n in range(3):
        for k in range(3):
            produce(part, *[f"{n} {k} {i}" for i in range(4)])
        if n < 2:
            write_file(part + "/ctl", b"roll\n")
    handles = [item["handle"] for item in take(part, 4)]
    ack(part, *handles[:2], handles[3], sync=True)
    produce(m.part("t", 1), *range(5))
    produce(m.make("u"), "one", "two")
    m.make("none")
    m.make("c")
    m.make("p")
    os.mkdir(m.topic("p") + "/children/c")
    produce(m.part("p"), *range(5))
    wait_for(lambda: number(m.part("c"), "hwm") == 5, "the copies")
    for n in range(3):
        produce(m.topic("u"), f"through the ingress {n}")
    wait_for(lambda: number(m.part("u"), "hwm") == 5, "the commits")


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """Data directories that a clean stop and a kill left; not to be changed."""
    m = Mount(tmp_path_factory.mktemp("filled")).start()
    try:
        fill(m)
        m.stop()
        shutil.copytree(m.data, m.base + "/closed")
        m.start()
        for n in range(3):
            produce(m.topic("u"), *[f"{n} {i}" for i in range(30)])
        m.kill()
        shutil.copytree(m.data, m.base + "/killed")
        yield m.base
    finally:
        wrong = m.destroy()
        assert wrong is None, wrong


@pytest.fixture
def changed(filled, mounts):
    """A mount that is not started, over a copy of what the clean stop left."""
    m = mounts(start=False)
    shutil.rmtree(m.data)
    shutil.copytree(filled + "/closed", m.data)
    return m


def check(data, *options):
    done = subprocess.run([NARADCTL, "check", *options, data], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, check=False)
    assert done.stderr == b"", done.stderr
    return done.returncode, done.stdout.decode()


def findings(text, severity):
    return [line for line in text.splitlines() if line.startswith(severity + ": ")]


# -- what others do to the files


def put(path, data):
    with open(path, "wb") as file:
        file.write(data)


def patch(path, pos, data):
    with open(path, "r+b") as file:
        file.seek(pos)
        file.write(data)


def append(path, data):
    with open(path, "ab") as file:
        file.write(data)


def away(m, name):
    os.rename(f"{m.data}/{name}", m.base + "/" + name.replace("/", "_"))


def instead(m, name, kind):
    """Something else in the place of a file or folder."""
    path = f"{m.data}/{name}"
    away(m, name)
    {"folder": os.mkdir, "fifo": os.mkfifo, "link": lambda p: os.symlink("/etc/passwd", p),
     "file": lambda p: put(p, b"x")}[kind](path)


def segment(m, base, suffix="log"):
    return f"{m.data}/topics/t/p00000/{base:020d}.{suffix}"


def hwm(m, value):
    put(f"{m.data}/topics/t/p00000/hwm", struct.pack(">Q", value))


def frames(path):
    return list(seglog.frames(read_file(path)))


# -- what comes of it


def refuses(*words):
    def after(m):
        assert not m.try_start()
        assert all(word in m.stderr() for word in words), m.stderr()
    return after


def exists(name):
    def after(m):
        m.start()
        assert os.path.exists(f"{m.data}/{name}")
        assert os.path.basename(name) not in os.listdir(m.mnt + "/topics")
    return after


def removed(name):
    def after(m):
        m.start()
        assert not os.path.exists(f"{m.data}/{name}")
    return after


def topic_out(name, word):
    def after(m):
        m.start()
        assert fails(read_file, m.part(name) + "/log") in (errno.EIO, errno.ENOENT)
        assert word in read_file(m.topic(name) + "/status").decode()
        assert os.path.exists(f"{m.data}/topics/{name}")
    return after


def partition_out(m):
    m.start()
    assert fails(read_file, m.part("t") + "/log") == errno.EIO
    assert b"out of service" in read_file(m.part("t") + "/status")
    assert log(m.part("t", 1)).count(b"\n") == 5


def serves(n, then=None):
    """So many records of t/p00000, and after a clean stop the check finds no error any more, or what `then` says."""
    def after(m):
        m.start()
        assert log(m.part("t")).count(b"\n") == n
        m.stop()
        code, text = check(m.data)
        if then:
            assert code == 4 and then in text, text
        else:
            assert code == 0, text
    return after


def fresh(name, n=0):
    def after(m):
        m.start()
        assert log(m.part(name)).count(b"\n") == n
        assert os.path.isdir(m.data_part(name))
    return after


def nothing(m):
    m.start()
    assert log(m.part("t")).count(b"\n") == 3 * N_PER_SEGMENT
    assert number(m.part("t"), "frontier") == 2 and number(m.part("t"), "acked_ahead") == 1
    m.stop()


def settled_again(frontier, ahead):
    """What counts as settled then; and the first use writes that down, before a record can have an offset of the file's."""
    def after(m):
        m.start()
        assert (number(m.part("t"), "frontier"), number(m.part("t"), "acked_ahead")) == (frontier, ahead)
        produce(m.part("t"), *["more"] * 1500)
        m.kill()
        m.start()
        assert (number(m.part("t"), "frontier"), number(m.part("t"), "acked_ahead")) == (frontier, ahead)
        m.stop()
        code, text = check(m.data)
        assert code == 0, text
    return after


CASES = {}


def case(message, severity, after, name=None):
    """Registers a damage under the message that it brings."""
    def add(damage):
        assert (message, name) not in CASES
        CASES[message, name] = (damage, severity, after)
        return damage
    return add


@case("is missing although there are topics", "error", refuses("is missing although there are topics"))
def no_meta(m):
    away(m, "meta")


@case("is missing although there are topic records", "error", refuses("is missing although there are topic records"))
def no_topics(m):
    away(m, "topics")


@case("has no file `format`", "error", refuses("has no file `format`"))
def no_format(m):
    away(m, "format")


@case("does not hold a version number", "error", refuses("does not hold a version number"))
def bad_format(m):
    put(m.data + "/format", b"one\n")


@case("format cannot be read: it is not a regular file", "error", refuses("format cannot be read"))
def odd_format(m):
    instead(m, "format", "folder")


@case("cannot be used", "error", refuses("/meta cannot be used"), "meta")
def odd_meta(m):
    instead(m, "meta", "file")


@case("cannot be used", "error", refuses("/ingress cannot be used"), "ingress")
def odd_ingress(m):
    instead(m, "ingress", "link")


@case("DELETES it with its 41 records", "error", removed("topics/t"))
def orphan(m):
    away(m, "meta/t.topic")


@case("DELETES it with its 41 records", "error", removed("topics/t.stale-" + "a" * 16), "quarantined")
def quarantined(m):
    away(m, "meta/t.topic")
    os.rename(m.data + "/topics/t", m.data + "/topics/t.stale-" + "a" * 16)
    put(m.data + "/topics/t.stale-" + "a" * 16 + "/incarnation", b"a" * 16)


@case("and no record in it: the next start removes it", "note", removed("topics/none"))
def empty_orphan(m):
    away(m, "meta/none.topic")


@case("a start leaves it alone while a topic record is damaged", "error", exists("topics/t"))
def waiting_orphan(m):
    away(m, "meta/t.topic")
    put(m.data + "/meta/none.topic", b"")


@case("it is marked as the folder of the topic u, which is served from topics/u", "error", exists("topics/v"))
def renamed_folder(m):
    os.rename(m.data + "/topics/u", m.data + "/topics/v")


@case("no topic record, and it has no whole marker: a start leaves it alone, and nobody reads its 41 records", "error",
      exists("topics/t"))
def unmarked_orphan(m):
    away(m, "meta/t.topic")
    os.unlink(m.data + "/topics/t/incarnation")


@case("a start leaves it alone; it may be removed", "note", exists("topics/stray"))
def made_by_hand(m):
    os.mkdir(m.data + "/topics/stray")


@case("its record is damaged (it is empty)", "error", topic_out("u", "it is empty"))
def emptied_record(m):
    put(m.data + "/meta/u.topic", b"")


@case("its record is damaged (its checksum is wrong)", "error", topic_out("u", "its checksum is wrong"))
def damaged_record(m):
    patch(m.data + "/meta/u.topic", 20, b"\xff")


@case("it cannot be read: File too large: the topic is out of service", "error", topic_out("u", "File too large"))
def huge_record(m):
    put(m.data + "/meta/u.topic", bytes(2 << 20))


@case("a folder stands in its place: the topic is out of service", "error", topic_out("u", "out of service"))
def odd_record(m):
    instead(m, "meta/u.topic", "folder")


@case("a FIFO stands in its place: the topic is out of service", "error", topic_out("u", "out of service"))
def odd_marker(m):
    instead(m, "topics/u/incarnation", "fifo")


@case("a symbolic link stands in its place: the topic is out of service", "error", topic_out("u", "out of service"))
def odd_topic(m):
    instead(m, "topics/u", "link")


@case("is damaged; if the folder belongs to this topic, write", "error", topic_out("u", "is damaged"))
def damaged_marker(m):
    put(m.data + "/topics/u/incarnation", b"nonsense")


@case("sets it aside and DELETES it with its records", "error", fresh("u"))
def foreign_marker(m):
    put(m.data + "/topics/u/incarnation", b"0123456789abcdef")


def set_aside_and_kept(m):
    folders = os.listdir(m.data + "/topics")
    m.start()
    assert log(m.part("t")) == log(m.part("u")) == b""
    found = set(os.listdir(m.data + "/topics")) - set(folders)
    assert {name[:8] for name in found} == {"t.stale-", "u.stale-"}
    m.stop()
    assert check(m.data)[1].count("it is marked as the folder of the topic") == 2


def exchange(m):
    for name, other in (("t", "x"), ("u", "t"), ("x", "u")):
        os.rename(f"{m.data}/topics/{name}", f"{m.data}/topics/{other}")


@case("deletes nothing of it, and serves t anew, empty; give the folders their names before that", "error",
      set_aside_and_kept)
def exchanged(m):
    exchange(m)


@case("missing or cut short; the next start writes", "note", fresh("u", 5))
def no_marker(m):
    os.unlink(m.data + "/topics/u/incarnation")


@case("missing; a start makes it anew, empty", "error", fresh("u"))
def no_folder(m):
    away(m, "topics/u")


@case("partition folders is missing; the next use makes it anew, empty", "error", fresh("t"))
def no_partition(m):
    away(m, "topics/t/p00000")
    later = os.stat(m.data + "/format").st_mtime + 60
    os.utime(m.data + "/topics/t", (later, later))


def known(m):
    m.start()
    write_file(m.part("t") + "/ctl", b"reopen\n")
    m.stop()
    assert check(m.data)[0] == 0


@case("the folder of p00000 was missing when it was used: made anew, empty", "error", known)
def made_anew(m):
    away(m, "topics/t/p00000")
    m.start()
    produce(m.part("t"), "first of the new ones")
    m.stop()


def served_again(m):
    m.start()
    configure(m.topic("u"), partitions=2)
    assert log(m.part("u", 1)).count(b"\n") == 5


@case("the topic has 1 partition: this one, with 5 records, is not served", "error", served_again)
def old_record(m):
    shutil.copytree(m.data + "/topics/t/p00001", m.data + "/topics/u/p00001")


@case("empty, and changed after the topic was made", "note", fresh("u"))
def emptied_folder(m):
    for path in glob.glob(m.data + "/topics/u/p00000/*"):
        os.unlink(path)
    later = os.stat(m.data + "/format").st_mtime + 60
    os.utime(m.data + "/topics/u/p00000", (later, later))


@case("missing; the next start makes it", "note", nothing)
def no_ingress(m):
    away(m, "ingress")


@case("a folder stands in its place: the partition is out of service", "error", partition_out, "hwm")
def odd_hwm(m):
    instead(m, "topics/t/p00000/hwm", "folder")


@case("a folder stands in its place: the partition is out of service", "error", partition_out, "consumer.offset")
def odd_offset(m):
    instead(m, "topics/t/p00000/consumer.offset", "folder")


@case("a FIFO stands in its place: the partition is out of service", "error", partition_out)
def odd_ahead(m):
    instead(m, "topics/t/p00000/consumer.ahead", "fifo")


@case("a symbolic link stands in its place: the partition is out of service", "error", partition_out)
def odd_segment(m):
    instead(m, f"topics/t/p00000/{N_PER_SEGMENT:020d}.log", "link")


@case("a plain file stands in its place: the partition is out of service", "error", partition_out)
def odd_partition(m):
    instead(m, "topics/t/p00000", "file")


@case("a folder stands in its place: the segment is served without it", "error",
      serves(3 * N_PER_SEGMENT, "the segment is served without it"))
def odd_index(m):
    instead(m, f"topics/t/p00000/{0:020d}.index", "folder")


def copied_again(m):
    m.start()
    wait_for(lambda: number(m.part("c"), "hwm") == 10, "what was copied to be copied again")


@case("a folder stands in its place: what was committed since the attach is copied to that child again", "error",
      copied_again)
def odd_cursor(m):
    instead(m, "topics/p/p00000/fanout-c.offset", "folder")


def ingress_out(m):
    m.start()
    produce(m.part("t"), "to a partition")
    assert fails(produce, m.topic("t"), "to the topic") == errno.EIO


@case("a folder stands in its place: topics cannot be produced to as a whole", "error", ingress_out)
def odd_checkpoint(m):
    if os.path.exists(m.data + "/ingress/checkpoint"):
        os.unlink(m.data + "/ingress/checkpoint")
    os.mkdir(m.data + "/ingress/checkpoint")


@case("its base offset leaves no room for records: the partition is out of service", "error", partition_out)
def huge_base(m):
    put(segment(m, 2**63), b"")


@case("missing between what it holds and the next segment", "error", serves(2 * N_PER_SEGMENT, "between what it holds"))
def no_middle(m):
    os.unlink(segment(m, N_PER_SEGMENT))
    os.unlink(segment(m, N_PER_SEGMENT, "index"))


@case("its segment is gone, and was not deleted by the daemon", "error",
      serves(2 * N_PER_SEGMENT, "its segment is gone"))
def no_oldest(m):
    os.unlink(segment(m, 0))


@case("a frame's checksum does not match; records are lost", "error",
      serves(3 * N_PER_SEGMENT - 4, "a frame's checksum does not match"))
def damaged_frame(m):
    patch(segment(m, 0), 40, b"\xff")


@case("were committed, but the records end at", "error", serves(3 * N_PER_SEGMENT - 4, "but the records end at"))
def cut_end(m):
    os.truncate(segment(m, 24), frames(segment(m, 24))[-1].pos)


@case("there is no segment, but hwm says that records were committed", "error",
      serves(0, "there is no segment, but hwm says"))
def no_segments(m):
    for path in glob.glob(m.data + "/topics/t/p00000/*.log") + glob.glob(m.data + "/topics/t/p00000/*.index"):
        os.unlink(path)


@case("its last frame goes on to offset", "error", lambda m: m.start())
def overlapping(m):
    shutil.copy(segment(m, 0), m.base + "/whole")
    os.rename(segment(m, 12), segment(m, 10))
    os.rename(segment(m, 12, "index"), segment(m, 10, "index"))


@case("it holds frames of other offsets than its name says: the partition is out of service", "error", partition_out)
def misnamed(m):
    os.rename(segment(m, 24), segment(m, 50))


@case("torn tail above the high watermark: nobody was promised it; the next start cuts it", "note",
      serves(3 * N_PER_SEGMENT))
def torn_tail(m):
    append(segment(m, 24), b"\xca\xfetorn")


@case("torn tail, as a crash leaves it; the next start cuts it", "note", serves(3 * N_PER_SEGMENT))
def torn_tail_of_a_crash(m):
    append(segment(m, 24), b"\xca\xfetorn")
    put(m.data + "/topics/t/p00000/hwm", b"")


def back_with_a_commit(n):
    def after(m):
        m.start()
        assert log(m.part("t")).count(b"\n") == n
        produce(m.part("t"), "the next")
        assert log(m.part("t")).count(b"\n") == 3 * N_PER_SEGMENT + 1
    return after


@case("whole records above the high watermark: hidden until a commit", "note", back_with_a_commit(2 * N_PER_SEGMENT + 4))
def hidden(m):
    hwm(m, 28)
    os.unlink(segment(m, 24, "index"))


@case("does not match; nobody was promised it", "note", serves(2 * N_PER_SEGMENT + 4))
def hidden_damage(m):
    patch(segment(m, 24), frames(segment(m, 24))[1].pos + 40, b"\xff")
    hidden(m)


@case("hides committed records", "error", back_with_a_commit(2 * N_PER_SEGMENT + 4))
def hiding(m):
    hwm(m, 28)


@case("hides committed records", "error", back_with_a_commit(2 * N_PER_SEGMENT), "below the newest segment")
def hiding_all(m):
    hwm(m, 3)
    done = subprocess.run([NARADCTL, "export", m.data, "t/p00000", m.base + "/t.tar"], stderr=subprocess.PIPE, check=False)
    assert done.returncode == 1 and b"it hides committed records" in done.stderr


@case("lies within a frame, where no commit ends", "error", back_with_a_commit(2 * N_PER_SEGMENT + 5))
def hwm_in_a_frame(m):
    hwm(m, 29)


@case("it holds no offset; the end of the records counts as the boundary", "error", serves(3 * N_PER_SEGMENT))
def hwm_of_no_offset(m):
    hwm(m, 2**64 - 1)


def rolled(m):
    """The newest segment is empty, all records are sealed."""
    m.start()
    write_file(m.part("t") + "/ctl", b"roll\n")
    m.stop()
    assert os.path.getsize(segment(m, 36)) == 0


@case("below the newest segment, which begins at 36: it was set back, and a start takes that", "note",
      serves(3 * N_PER_SEGMENT))
def stale_hwm(m):
    rolled(m)
    hwm(m, 5)
    subprocess.run([NARADCTL, "export", "-q", m.data, "t/p00000", m.base + "/t.tar"], check=True)


@case("below the newest segment, which begins at 36: it was set back, and a start takes that", "note",
      serves(3 * N_PER_SEGMENT), "at the start")
def hwm_zero(m):
    rolled(m)
    hwm(m, 0)


@case("bytes, which counts as empty", "note", serves(3 * N_PER_SEGMENT))
def odd_size_of_hwm(m):
    put(m.data + "/topics/t/p00000/hwm", b"abc")


@case("the log was not closed cleanly; the records tell where it ends", "note", serves(3 * N_PER_SEGMENT))
def no_hwm(m):
    os.unlink(m.data + "/topics/t/p00000/hwm")


@case("commit times never decrease", "error", serves(3 * N_PER_SEGMENT, "commit times never decrease"))
def time_goes_back(m):
    path = segment(m, 24)
    frame = frames(path)[1]
    stored = bytearray(frame.stored)
    stored[6:14] = struct.pack(">Q", 12345)  # length, version, empty key
    head = seglog.HEADER.pack(seglog.MAGIC, frame.flags, frame.n_records, frame.base, frame.raw_size, frame.size, 0)
    crc = seglog.crc32c(head[2:23] + bytes(stored))
    patch(path, frame.pos, head[:23] + struct.pack(">I", crc) + bytes(stored))


@case("the side index does not fit its segment; it may be deleted, and is made again", "note",
      serves(3 * N_PER_SEGMENT))
def damaged_index(m):
    patch(segment(m, 0, "index"), 30, b"\xff\xff")


@case("bytes behind the last record of a sealed segment", "note", serves(3 * N_PER_SEGMENT))
def bytes_behind(m):
    append(segment(m, 0), b"something")


@case("a side file without its segment; nothing reads it", "note", nothing)
def lone_side_file(m):
    put(segment(m, 7, "rendered"), b"x")


@case("no file of this layout; not checked", "note", nothing)
def stray(m):
    put(m.data + "/topics/t/p00000/notes.txt", b"x")


@case("left by a replacement that a crash cut short; nothing reads it", "note", nothing)
def left_over(m):
    put(m.data + "/meta/t.topic.tmp", b"x")


@case("it does not count: what is settled may be delivered again", "error", settled_again(0, 0))
def damaged_offset_alone(m):
    put(m.data + "/topics/t/p00000/consumer.offset", b"abc")
    os.unlink(m.data + "/topics/t/p00000/consumer.ahead")


@case("it does not count: what is settled may be delivered again", "error", settled_again(0, 0), "of other records")
def foreign_offset_alone(m):
    put(m.data + "/topics/t/p00000/consumer.offset", struct.pack(">Q", 1000))
    os.unlink(m.data + "/topics/t/p00000/consumer.ahead")


@case("consumer.ahead tells what is settled, and nothing comes again", "note", nothing)
def damaged_offset(m):
    put(m.data + "/topics/t/p00000/consumer.offset", b"abc")


@case("no valid slot; what is settled may be delivered again", "error", settled_again(2, 0))
def damaged_ahead(m):
    put(m.data + "/topics/t/p00000/consumer.ahead", b"x" * 8192)


def slot(m):
    """The newest of consumer.ahead."""
    data = read_file(m.data + "/topics/t/p00000/consumer.ahead")
    return max(data[:4096], data[4096:], key=lambda one: one[8:16] if one.strip(b"\0") else b"")


@case("are settled, but the records end at", "error", settled_again(36, 0))
def foreign_ahead(m):
    body = slot(m)[:16] + struct.pack(">Q", 1000) + bytes([1, 0, 0, 0]) + bytes(4064)
    put(m.data + "/topics/t/p00000/consumer.ahead", body + struct.pack(">I", seglog.crc32c(body)) + bytes(4096))
    os.unlink(m.data + "/topics/t/p00000/consumer.offset")


@case("is torn; the other one counts", "note", nothing)
def torn_slot(m):
    put(m.data + "/topics/t/p00000/consumer.ahead", slot(m) + b"torn".ljust(4096, b"\0"))


@case("a slot that is whole counts", "note", nothing)
def short_ahead(m):
    put(m.data + "/topics/t/p00000/consumer.ahead", slot(m))


@case("no valid slot; what was committed since the attach is copied again", "error", copied_again)
def damaged_cursor(m):
    put(m.data + "/topics/p/p00000/fanout-c.offset", b"x" * 4160)


@case("were copied, but the records end at", "error", copied_again)
def foreign_cursor(m):
    path = m.data + "/topics/p/p00000/fanout-c.offset"
    head = read_file(path)[:16] + struct.pack(">Q", 99) + read_file(path)[24:40] + struct.pack(">Q", 1000) + bytes(12)
    patch(path, 0, head + struct.pack(">I", seglog.crc32c(head)))


@case("it is missing; what was committed here since the attach is copied again", "note", copied_again)
def no_cursor(m):
    os.unlink(m.data + "/topics/p/p00000/fanout-c.offset")


@case("a damaged segment that a daemon set aside; nothing reads it", "note", nothing)
def set_aside(m):
    put(m.data + "/ingress/x.wal.damaged", b"x")


@case("no entry stands in the ingress WAL; the next stop writes it anew", "note", serves(3 * N_PER_SEGMENT))
def damaged_checkpoint(m):
    for path in glob.glob(m.data + "/ingress/*"):
        os.unlink(path)
    put(m.data + "/ingress/checkpoint", b"x")


def wal(m):
    (path,) = [path for path in glob.glob(m.data + "/ingress/*.wal") if b"NRDE" in read_file(path)]
    return path


def all_of_u(n):
    """So many records of u, the five of before among them; those of the ingress WAL may come a second time."""
    def after(m):
        m.start()
        wait_for(lambda: number(m.part("u"), "hwm") >= n, "what the ingress WAL holds")
        assert {f"{n} {i}".encode() for n in range(3) for i in range(30)} <= set(log(m.part("u")).splitlines())
        m.stop()
        assert check(m.data)[0] == 0
    return after


@case("still to be committed to the partitions", "note", all_of_u(95), KILLED)
def waiting(m):
    os.unlink(m.data + "/ingress/checkpoint")


@case("what stands in the ingress WAL is committed again, records may come twice", "error", all_of_u(95), KILLED)
def damaged_checkpoint_of_entries(m):
    put(m.data + "/ingress/checkpoint", b"x")


@case("torn tail: nobody was promised it", "note", all_of_u(95), KILLED)
def torn_wal(m):
    patch(wal(m), len(read_file(wal(m)).rstrip(b"\0")), b"NRDEtorn")


@case("zeros: no entry stands there, or its room was given back", "note", lambda m: m.start(), KILLED)
def punched_wal(m):
    data = read_file(wal(m))
    patch(wal(m), 0, bytes(data.index(b"NRDE", 1)))


@case("damaged entries: what of them was not committed to a partition yet is lost", "error", lambda m: m.start(), KILLED)
def damaged_entry(m):
    patch(wal(m), 100, b"\xff\xfe")


@pytest.mark.parametrize("message,name", CASES, ids=lambda value: str(value)[:60])
def test_what_check_says_comes_true(changed, filled, message, name):
    damage, severity, after = CASES[message, name]
    if name == KILLED:
        shutil.rmtree(changed.data)
        shutil.copytree(filled + "/killed", changed.data)
    assert check(changed.data)[0] == 0
    damage(changed)
    code, text = check(changed.data)
    assert any(message in line for line in findings(text, severity)), text
    assert code == (4 if findings(text, "error") else 0), text
    if severity == "note":
        assert not findings(text, "error"), text
    after(changed)


# -- the page, and the advice at the end


def documented():
    """(message, kind, severity) of each row."""
    return re.findall(r"^\| `(.+?)` \| `(\w+)` \| (error|note) \| .+ \|$", read_file(PAGE).decode(), re.M)


def test_each_message_of_the_page_is_one_that_is_printed():
    """By the cases above; and what they bring is on the page."""
    rows = documented()
    assert len(rows) > 40 and len({message for message, _, _ in rows}) == len(rows)
    layout = {"is missing although there are topics", "is missing although there are topic records", "has no file `format`",
              "does not hold a version number", "format cannot be read: it is not a regular file", "cannot be used"}
    known = [("no daemon starts" if message in layout else message, severity)
             for (message, _), (_, severity, _) in CASES.items()]
    for message, _, severity in rows:
        assert any(message in said and severity == how for said, how in known), message
    for said, severity in known:
        assert any(message in said and severity == how for message, _, how in rows), said


def kinds_of_errors():
    """As the sources name them."""
    found = set()
    for path in glob.glob(ROOT + "/ctl/check*.c"):
        found |= set(re.findall(r'nrd_check_error\(\w+(?:->\w+)?, [^"]+, "(\w+)"', read_file(path).decode()))
    return found


def test_each_kind_of_error_has_its_advice_and_its_rows():
    advised = set(re.findall(r'^    \{ "(\w+)",', read_file(ROOT + "/ctl/check_advice.c").decode(), re.M))
    assert len(kinds_of_errors()) > 8 and kinds_of_errors() <= advised
    assert {kind for _, kind, severity in documented() if severity == "error"} == advised


def test_the_advice_comes_last_and_once_for_each_kind(changed):
    orphan(changed)
    damaged_checkpoint(changed)
    no_folder(changed)
    damaged_record_of_none = changed.data + "/meta/none.topic"
    put(damaged_record_of_none, b"")
    code, text = check(changed.data)
    lines = text.splitlines()
    at = lines.index("what to do next, in this order (docs/operations.md has more):")
    assert code == 4 and [line.split(":")[0].strip() for line in lines[at + 1:]] == ["orphan", "topic", "folder"]
    assert lines[at - 1].startswith(changed.data + ": errors ")
    summary = json.loads(check(changed.data, "--json")[1].splitlines()[-1])["summary"]
    assert [one["kind"] for one in summary["advice"]] == ["orphan", "topic", "folder"]
    assert all(f"  {one['kind']}: {one['do']}" in lines for one in summary["advice"])


def test_nothing_is_said_of_a_start_that_is_refused(changed):
    """Nor is anything told twice: one sentence says why no daemon starts."""
    for damage in (no_meta, no_topics):
        damage(changed)
        code, text = check(changed.data)
        assert code == 4 and len(findings(text, "error")) == 1, text
        assert "the next start" not in text and "missing; " not in text, text
        (name,) = set(os.listdir(changed.base)) & {"meta", "topics"}
        os.rename(changed.base + "/" + name, changed.data + "/" + name)


# -- what to do


def put_back(name):
    def remedy(m):
        path = f"{m.data}/{name}"
        if os.path.isfile(path):
            os.unlink(path)
        os.rename(m.base + "/" + name.replace("/", "_"), path)
    return remedy


def name_again(m):
    os.rename(m.data + "/topics/v", m.data + "/topics/u")


def remove_hwm(m):
    os.unlink(m.data + "/topics/t/p00000/hwm")


def move_out(m):
    os.rename(m.data + "/topics/t.stale-" + "a" * 16, m.base + "/kept")


@pytest.mark.parametrize("damage,remedy,n_records", [
    (orphan, put_back("meta/t.topic"), 36), (unmarked_orphan, put_back("meta/t.topic"), 36),
    (renamed_folder, name_again, 36), (quarantined, move_out, None), (no_meta, put_back("meta"), 36),
    (exchanged, exchange, 36), (no_topics, put_back("topics"), 36), (odd_format, lambda m: (os.rmdir(m.data + "/format"), put_back("format")(m)), 36),
    (hiding, remove_hwm, 36), (hiding_all, remove_hwm, 36), (hwm_in_a_frame, remove_hwm, 36),
    (no_folder, put_back("topics/u"), 36), (odd_record, lambda m: (os.rmdir(m.data + "/meta/u.topic"),
                                                                  put_back("meta/u.topic")(m)), 36),
], ids=lambda value: getattr(value, "__name__", str(value)))
def test_what_is_to_be_done_helps(changed, damage, remedy, n_records):
    """After it the check finds no error, and a start serves what there was."""
    damage(changed)
    assert check(changed.data)[0] == 4
    remedy(changed)
    code, text = check(changed.data)
    assert code == 0, text
    changed.start()
    if n_records:
        assert log(changed.part("t")).count(b"\n") == n_records
    assert log(changed.part("u")).count(b"\n") == 5
    if damage is quarantined:
        assert os.path.isdir(changed.base + "/kept/p00000")
