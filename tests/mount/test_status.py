"""The pages that a person reads: `status` at the root, of a topic and of a partition, and HELP."""

import errno
import glob
import os
import re
import shutil
import subprocess
import time

import pytest
import seglog
from disk import start_on
from support import (JETSTREAM, Consumer, configure, drain, fails, log, metric, number, produce, read_file, take,
                     wait_for, write_file, xattr)
from test_faults import Inject, active_segment, need_strace

LINKS_TO = ("start", "end")


def page(path):
    """A page's text, and its `label   value` lines by label."""
    text = read_file(path).decode()
    return text, dict(re.findall(r"^([a-z][a-z-]*(?: [a-z]+)?)  +(.*)$", text, re.M))


def root(m):
    return page(m.mnt + "/status")


def with_marker(m, topic, text):
    path = f"{m.data}/topics/{topic}/incarnation"
    before = read_file(path)
    with open(path, "wb") as file:
        file.write(text)
    return before


# -- the root


@pytest.mark.local("the data directory")
def test_root_when_all_is_well(m):
    m.make("a", partitions=3)
    m.make("b")
    produce(m.part("a", 1), *range(10))
    assert len(take(m.part("a", 1), 4)) == 4
    produce(m.part("b"), "x", "y")
    assert drain(m.part("b")) == b"x\ny\n"
    text, line = root(m)
    version = subprocess.run([m.binary, "-V"], check=True, stdout=subprocess.PIPE).stdout.decode().split()[1]
    assert line["naradfs"].startswith(version + ", up ") and line["naradfs"].endswith("mounted read-write")
    assert line["data"] == m.data
    disk = os.statvfs(m.data)
    assert re.fullmatch(r"[\d.]+ \w+ free of [\d.]+ \w+ \(\d+%\)", line["disk"])
    assert abs(int(re.search(r"\((\d+)%", line["disk"]).group(1)) - 100 * disk.f_bavail / disk.f_blocks) < 5
    assert line["state"] == "ok"
    assert line["topics"] == "2"
    assert line["partitions"].startswith("4: 2 open, ")
    assert line["backlog"].startswith("10 records ")
    assert line["in flight"].startswith("4 records ")
    assert line["ingress"].startswith("0 parts waiting, WAL ")
    assert line["produced"].startswith("12 records since the start, ")
    assert line["settled"].startswith("2 records since the start, ")
    assert os.stat(m.mnt + "/status").st_mode & 0o777 == 0o444
    assert len(text) < 1500


def test_root_of_a_read_only_mount(m):
    produce(m.make("t"), "x")
    m.stop()
    m.options = "ro"
    m.start()
    text, line = root(m)
    assert line["naradfs"].endswith("mounted read-only")
    assert line["state"] == "ok" and "ingress" not in line
    assert fails(os.open, m.mnt + "/status", os.O_WRONLY) in (errno.EROFS, errno.EACCES, errno.EPERM)


@pytest.mark.local("opening and closing of partitions")
def test_looking_opens_and_reads_nothing(m):
    m.make("t", partitions=20)
    produce(m.part("t", 3), "x")
    m.restart()
    for _ in range(3):
        _, line = root(m)
        assert line["partitions"].startswith("20: 0 open, 0 closed, 20 not used since the start")
        assert line["backlog"].startswith("0 records")
    assert metric(m, "narad_partitions_open") == 0
    assert log(m.part("t", 3)) == b"x\n"
    assert root(m)[1]["backlog"].startswith("1 record ")


@pytest.mark.local("the data directory")
def test_a_topic_whose_folder_is_not_its_own(m):
    m.make("good")
    part = m.make("bad")
    produce(part, "x")
    m.stop()
    mine = with_marker(m, "bad", b"rubbish")
    m.start()
    text, line = root(m)
    assert line["state"] == "1 topic out of service"
    assert re.search(r"^bad  out of service: .*topics/bad/incarnation.*\n    .*next use", text, re.M), text
    assert "good" not in text
    assert fails(lambda: log(part)) == errno.EIO
    text, line = page(m.topic("bad") + "/status")
    assert "out of service" in line["state"] and "next use" in line["to do"]
    with_marker(m, "bad", mine)
    assert log(part) == b"x\n"
    assert root(m)[1]["state"] == "ok"
    assert page(m.topic("bad") + "/status")[1]["state"] == "ok"
    assert m.stderr().count("the topic is out of service") == 1
    assert m.stderr().count("the topic is in service again") == 1


@pytest.mark.local("the data directory")
def test_a_topic_whose_record_is_damaged(m):
    m.make("bad")
    m.stop()
    with open(m.data + "/meta/bad.topic", "ab") as file:
        file.write(b"more\n")
    m.start()
    text, line = root(m)
    assert line["state"] == "1 topic out of service"
    assert re.search(r"^bad  out of service: .+\n    put meta/bad.topic .* right, then start the daemon again$", text, re.M)
    assert "meta/bad.topic" in page(m.topic("bad") + "/status")[1]["to do"]


@pytest.mark.local("a disk that fails")
def test_a_poisoned_partition(m):
    need_strace()
    part = m.make("t", linger_ms=60000)
    produce(part, "a")
    fault = Inject(m, active_segment(m, "t"), "fdatasync,fsync", "error=EIO")
    try:
        assert fails(produce, part, "b") == errno.EIO
    finally:
        fault.stop()
    text, line = root(m)
    assert line["state"] == "1 partition poisoned"
    assert "(1 poisoned)" in line["partitions"]
    assert f"t/p00000  poisoned: {xattr(part, 'poison_reason')}\n" in text
    hint = re.search(r"echo reopen > (\S+)", text).group(1)
    assert "echo reopen > ctl" in page(part + "/status")[1]["to do"]
    assert f"p00000  {xattr(part, 'poison_reason')}: when the disk is well, echo reopen > p00000/ctl\n" in \
        page(m.topic("t") + "/status")[0]
    write_file(f"{m.mnt}/{hint}", b"reopen\n")
    assert root(m)[1]["state"] == "ok"
    assert "to do" not in page(part + "/status")[1]


@pytest.mark.local("the data directory")
def test_a_partition_that_cannot_be_opened(m):
    part = m.make("t")
    m.make("u")
    produce(part, "a")
    m.stop()
    segment = f"{m.data_part('t')}/{0:020d}.log"
    os.rename(segment, m.base + "/aside")
    os.mkdir(segment)
    m.start()
    assert fails(lambda: log(part)) == errno.EIO
    text, line = root(m)
    assert line["state"] == "1 partition out of service"
    assert "1 out of service" in line["partitions"]
    assert re.search(r"^t/p00000  out of service: .+\n    .*echo reopen > topics/t/p00000/ctl$", text, re.M)
    os.rmdir(segment)
    os.rename(m.base + "/aside", segment)
    assert log(part) == b"a\n"
    assert root(m)[1]["state"] == "ok"


def hurt(m, topic, *frames):
    """Changes a byte in these frames of the topic's first segment, with the daemon stopped."""
    path = f"{m.data_part(topic)}/{0:020d}.log"
    data = bytearray(read_file(path))
    for number in frames:
        data[list(seglog.frames(bytes(read_file(path))))[number].pos + 45] ^= 1
    write_file(path, bytes(data))


@pytest.mark.local("the data directory")
def test_damage_that_is_known(m):
    """Said at the root, for the topic and for the partition, with what to do, as long as its segment is there."""
    part = m.make("t", segment_bytes=65536)
    for n in range(30):
        produce(part, b"%05d" % n + b"x" * 3000, b"y")
    m.stop()
    hurt(m, "t", 3, 4, 7)
    m.start()
    assert root(m)[1]["state"] == "ok"  # nobody has met it
    assert len(log(part).splitlines()) == 54
    text, line = root(m)
    said = "2 damaged frames, 6 records lost, the first at offset 6"
    assert line["state"] == "1 partition with lost records"
    assert f"\nt/p00000  {said}\n    the rest is served; " in text
    assert (metric(m, "narad_partitions_damaged"), metric(m, "narad_lost_records")) == (1, 6)
    text, line = page(m.topic("t") + "/status")
    assert line["state"] == "not all is well, see below" and f"\np00000  {said}; the rest is served; " in text
    _, line = page(part + "/status")
    assert (line["state"], line["damage"]) == ("damaged", said) and line["to do"].startswith("the rest is served; ")
    m.restart()
    os.stat(part + "/log")
    wait_for(lambda: root(m)[1]["state"] == "1 partition with lost records", "the partition to be looked at")
    write_file(part + "/ctl", b"trim %d\n" % int(xattr(part, "hwm")))
    assert root(m)[1]["state"] == "ok" and page(part + "/status")[1]["state"] == "ok"
    assert page(m.topic("t") + "/status")[1]["state"] == "ok"


def segments_of(m, topic="t"):
    """Three sealed segments of ten records, at 0, 10 and 20, and an active one with record 30."""
    part = m.make(topic)
    for first in (0, 10, 20):
        produce(part, *range(first, first + 10))
        write_file(part + "/ctl", b"roll\n")
    produce(part, 30)
    m.stop()
    return part, m.data_part(topic)


def remove(folder, *names):
    for name in names:
        for path in glob.glob(f"{folder}/{name}"):
            os.unlink(path)


def segment(base, suffix="log"):
    return f"{base:020d}.{suffix}"


@pytest.mark.local("the data directory")
@pytest.mark.parametrize("names, said, n_left", [
    ([segment(0)], "records 0 to 9 are missing (10 records)", 21),
    ([segment(0), segment(10)], "20 records are missing in 2 places, the first at offset 0, the last at 19", 11),
    ([segment(10)], "records 10 to 19 are missing (10 records)", 21),
    ([segment(10, "*")], "records 10 to 19 are missing (10 records)", 21),
    ([segment(0), segment(20)], "20 records are missing in 2 places, the first at offset 0, the last at 29", 11),
    ([segment(30)], "record 30 is missing", 30),
    ([segment(30, "*")], "record 30 is missing", 30),
    ([segment(30), "hwm"], "record 30 is missing", 30),
    (["*.log"], "records 0 to 30 are missing (31 records)", 0),
    (["*.log", "*.index"], "records 0 to 30 are missing (31 records)", 0),
    (["*.log", "hwm"], "records 0 to 30 are missing (31 records)", 0),
])
def test_a_segment_that_is_gone(m, names, said, n_left):
    """Status says so by itself, before anybody uses the partition, and at every start, until a trim has passed it."""
    part, folder = segments_of(m)
    remove(folder, *names)
    for n_more in range(3):
        m.start()
        wait_for(lambda: f"\nt/p00000  {said}\n    the rest is served; " in root(m)[0], "the loss to be told")
        assert root(m)[1]["state"] == "1 partition with lost records"
        assert page(part + "/status")[1]["damage"] == said
        assert f"\np00000  {said}; " in page(m.topic("t") + "/status")[0]
        assert metric(m, "narad_lost_records") == 31 - n_left
        assert len(log(part).splitlines()) == n_left + n_more
        produce(part, "more")  # offsets that were given out are not given out again
        assert number(part, "hwm") == 32 + n_more and read_file(f"{part}/records/{31 + n_more}") == b"more"
        m.stop()
    m.start()
    assert len(log(part).splitlines()) == n_left + 3
    write_file(part + "/ctl", b"roll\n")
    write_file(part + "/ctl", b"trim 34\n")
    assert root(m)[1]["state"] == "ok"
    m.restart()
    assert log(part) == b"" and number(part, "hwm") == 34
    assert root(m)[1]["state"] == "ok"


@pytest.mark.local("the data directory")
@pytest.mark.parametrize("base", [0, 10, 30])
def test_a_segment_that_is_put_back(m, base):
    """Taken away, missed by a start, and restored: nothing is missing any more."""
    part, folder = segments_of(m)
    os.rename(f"{folder}/{segment(base)}", m.base + "/away")
    m.start()
    wait_for(lambda: root(m)[1]["state"] != "ok", "the loss to be told")
    produce(part, 31)
    m.stop()
    os.rename(m.base + "/away", f"{folder}/{segment(base)}")
    m.start()
    assert log(part) == b"".join(b"%d\n" % n for n in range(32))
    assert root(m)[1]["state"] == "ok"
    m.restart()
    assert len(log(part).splitlines()) == 32 and root(m)[1]["state"] == "ok"


@pytest.mark.local("the data directory")
def test_a_segment_that_is_empty(m):
    part, folder = segments_of(m)
    for base in (0, 20):
        os.truncate(f"{folder}/{segment(base)}", 0)
    m.start()
    said = "20 records are missing in 2 places, the first at offset 0, the last at 29"
    wait_for(lambda: said in root(m)[0], "the loss to be told")
    assert log(part) == b"".join(b"%d\n" % n for n in (*range(10, 20), 30))
    assert sorted(os.listdir(part + "/records"), key=int) == [str(n) for n in (*range(10, 20), 30)]


@pytest.mark.local("the data directory")
def test_a_partition_whose_folder_is_gone(m):
    m.make("t", partitions=3)
    produce(m.part("t", 1), "x")
    m.stop()
    shutil.rmtree(m.data_part("t", 1))
    said = len(m.stderr())
    m.start()
    line = wait_for(lambda: re.search(r"topics/t/p00001 is missing .*they are lost.*", m.stderr()[said:]), "the line").group(0)
    assert "partition=00001" in line and m.stderr()[said:].count("is missing and is made anew") == 1
    assert log(m.part("t", 1)) == b""


@pytest.mark.local("the data directory")
def test_what_retention_deletes_is_not_missing(m):
    part, folder = segments_of(m)
    m.start()
    write_file(part + "/ctl", b"trim 20\n")
    m.restart()
    assert log(part).splitlines()[0] == b"20"
    time.sleep(0.3)
    assert root(m)[1]["state"] == "ok" and number(part, "oldest_offset") == 20
    assert sorted(name for name in os.listdir(folder) if name.endswith((".log", ".index"))) == \
        [segment(20, "index"), segment(20), segment(30, "index"), segment(30)]


@pytest.mark.local("the data directory")
def test_records_that_hwm_hides(m):
    """An hwm that was set back: status tells what is there and not served, until the next commit."""
    part, folder = segments_of(m)
    write_file(folder + "/hwm", (10).to_bytes(8, "big"))
    m.start()
    wait_for(lambda: root(m)[1]["state"] != "ok", "the records to be missed")
    text, line = root(m)
    said = "record 30 is there and not served: the hwm file ends before it"
    assert line["state"] == "1 partition with records that are not served"
    assert f"\nt/p00000  {said}\n    the next record produced here " in text
    text, line = page(part + "/status")
    assert (line["state"], line["hidden"]) == ("hiding", said)
    assert page(m.topic("t") + "/status")[1]["state"] == "not all is well, see below"
    assert metric(m, "narad_partitions_hiding_records") == 1
    m.restart()
    wait_for(lambda: root(m)[1]["state"] == "1 partition with records that are not served", "the same after a stop")
    produce(part, 31)
    assert log(part).splitlines()[-2:] == [b"30", b"31"]
    assert root(m)[1]["state"] == "ok" and page(part + "/status")[1]["state"] == "ok"
    m.stop()
    write_file(folder + "/hwm", (28).to_bytes(8, "big"))
    m.start()
    wait_for(lambda: "\nt/p00000  records 30 to 31 (2 records) are there and not served: " in root(m)[0], "both")


@pytest.mark.local("fan-out")
def test_a_refusal_is_one_line(m):
    """Whatever name somebody has given."""
    m.make("t")
    with pytest.raises(FileNotFoundError):
        os.mkdir(m.topic("t") + "/children/x\nstate        fine")
    text = read_file(m.topic("t") + "/status").decode()
    assert text.count("\nstate ") == 1 and '"x?state        fine" was not attached' in text


@pytest.mark.local("fan-out")
def test_copies_are_not_produced(m):
    m.make("parent")
    m.make("child")
    assert "copied" not in root(m)[1]
    os.mkdir(m.topic("parent") + "/children/child")
    produce(m.part("parent"), *range(7))
    produce(m.topic("parent"), *range(3))
    produce(m.part("child"), "own")
    wait_for(lambda: number(m.part("child"), "hwm") == 11, "the copies")
    wait_for(lambda: root(m)[1]["copied"].startswith("10 records since the start, "), "the count")
    assert root(m)[1]["produced"].startswith("11 records since the start, ")
    assert metric(m, "narad_produced_records_total") == 11
    assert metric(m, "narad_fanout_copied_records_total") == 10
    assert metric(m, "narad_committed_records_total") == 21


@pytest.mark.local("the data directory")
@pytest.mark.limit(120)
def test_long_lists_have_an_end(m):
    for number in range(60):
        os.mkdir(m.topic(f"t{number:02d}"))
    m.stop()
    for number in range(60):
        with_marker(m, f"t{number:02d}", b"rubbish")
    m.start()
    text, line = root(m)
    assert line["state"] == "60 topics out of service"
    assert text.count("  out of service: ") == 50 and text.endswith("\n... and 10 more\n")
    assert os.stat(m.mnt + "/status").st_size == len(text)


# -- a topic


def test_table_of_a_topic(m):
    m.make("t", partitions=3)
    produce(m.part("t", 0), "a", "b")
    produce(m.part("t", 2), "c")
    assert len(take(m.part("t", 0), 1)) == 1
    text, line = page(m.topic("t") + "/status")
    assert line["state"] == "ok" and line["partitions"] == "3"
    rows = [row.split() for row in text.partition("\npartition ")[2].splitlines()[1:]]
    assert [row[:7] for row in rows[:3]] == [["p00000", "0", "2", "0", "2", "1", "ok"],
                                            ["p00001", "0", "0", "0", "0", "0", "ok"],
                                            ["p00002", "0", "1", "0", "1", "0", "ok"]]
    assert rows[3][:3] == ["all", "3", "1"] and len(rows) == 4
    header = re.search(r"^partition .*$", text, re.M).group(0)
    for row in text.splitlines()[-4:]:  # the columns stand below their names
        assert row[:header.index("lag") + 3].split()[-1] in ("0", "1", "2", "3") and row[header.index("lag") + 3] == " "


# -- a partition


def test_age_of_the_oldest_record(m):
    part = m.make("t")
    assert page(part + "/status")[1]["oldest from"] == "no record is kept"
    produce(part, "x")
    stamp = int(os.getxattr(part + "/records/0", "user.narad.timestamp"))
    _, line = page(part + "/status")
    date = subprocess.run(["date", "-u", "-d", f"@{stamp // 1000}", "+%Y-%m-%dT%H:%M:%SZ"], check=True,
                          stdout=subprocess.PIPE).stdout.decode().strip()
    assert re.fullmatch(date + r", \d+ s ago", line["oldest from"])
    assert re.fullmatch(date + r", \d+ s ago", line["last commit"])
    m.restart()
    hint = page(part + "/status")[1]["oldest from"]
    if not JETSTREAM:  # nothing was opened: it says how to ask
        assert hint == "getfattr -n user.narad.timestamp records/0"
    assert int(os.getxattr(part + "/records/0", "user.narad.timestamp")) == stamp


# -- HELP


def names_of_the_tree(m):
    part = m.make("t")
    produce(part, "x")
    yield from os.listdir(m.mnt)
    yield from os.listdir(m.topic("t"))
    yield from os.listdir(part)
    for name in LINKS_TO:
        assert name in os.listdir(part + "/from")
        yield "from/" + name


def test_help_names_every_file(m):
    text = read_file(m.mnt + "/HELP").decode()
    for name in names_of_the_tree(m):
        assert re.search(rf"(^|[\s,;]){re.escape(name)}([\s,;./]|$)", text, re.M), f"{name} is not in HELP"
    assert all(len(line) <= 120 for line in text.splitlines()) and text.count("\n") < 60


def test_help_is_true(m):
    """Its examples, and the verbs that it names."""
    text = read_file(m.mnt + "/HELP").decode()
    examples = re.findall(r"^  ((?:mkdir|echo|cat) .*)$", text, re.M)
    assert len(examples) == 4
    done = subprocess.run(["bash", "-e", "-c", "\n".join(examples)], cwd=m.mnt, check=True, stdout=subprocess.PIPE,
                          timeout=30)
    assert done.stdout == b"first order\n" * 2
    part = m.part("orders")
    verbs = re.search(r"^ +ctl +read it for its verbs: (.*)$", text, re.M).group(1).split(", ")
    listed = read_file(part + "/ctl").decode()
    assert verbs == [line.split()[0] for line in listed.splitlines()], listed
    produce(part, "one", "two")
    with Consumer(part) as consumer:  # lines on consume, as HELP says
        assert consumer.read() == b"one\n"
        assert consumer.write(b"ack 1\n") == 6
    configure(m.topic("orders"), visibility_timeout_ms=100)
    receipt = take(part, 1)[0]["handle"]
    assert re.fullmatch(r"\d+:\d+:\d+", receipt)
    wait_for(lambda: take(part, 1), "the lease to lapse")


# -- a disk that is full


def test_a_full_disk(mounts, disks):
    """Said at the root, for the topic and for the partition, with what to do; and no more once there is room."""
    disk = disks(14 << 20)
    m = start_on(disk, mounts)
    part = m.make("q")
    produce(part, "a")
    ballast = disk.folder + "/ballast"
    with open(ballast, "wb", buffering=0) as file, pytest.raises(OSError):
        while True:
            file.write(bytes(4096))
    fd = os.open(part + "/produce", os.O_WRONLY)
    os.write(fd, b"x" * 100000 + b"\n")
    assert fails(os.fsync, fd) == errno.ENOSPC
    text, line = root(m)
    assert line["state"] == "disk full, 1 partition that cannot commit"
    assert "\nq/p00000  commits fail: No space left on device\n    make room " in text
    text, line = page(m.topic("q") + "/status")
    assert line["state"] == "not all is well, see below"
    assert "\np00000  commits fail: No space left on device; make room " in text
    text, line = page(part + "/status")
    assert (line["state"], line["commits"]) == ("failing", "fail: No space left on device")
    assert line["to do"].startswith("make room ")
    os.unlink(ballast)
    os.fsync(fd)
    os.close(fd)
    assert root(m)[1]["state"] == "ok"
    assert page(m.topic("q") + "/status")[1]["state"] == "ok"
    assert page(part + "/status")[1]["state"] == "ok"
