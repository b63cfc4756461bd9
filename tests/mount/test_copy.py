"""naradctl copy from mount to mount, both over local engines. Up to a cluster and back: test_jetstream_copy.py."""

import hashlib
import os
import pty
import select
import signal
import struct
import subprocess
import threading

import pytest
from copying import (NARADCTL, NOT_ALL, copy, ended, frame, frontier,  # noqa: F401
                     produce_bin, records, refused, same, start_copy)
from support import (ack, configure, drain, log, number, open_fails, produce, read_file, take, wait_for, write_file)

# What a text form of a record would change.
ODD = [(b"", b""), (b"k", b""), (b"", b"\n"), (b"\x00\xff\r\n", b"a\nb\x00\xfe"), (b"", b'"text in quotes"'),
       (b"", b'text in quotes'), (b"", b'{\n"a": 1,\r\n"b":2}'), (b"\xc3\xa9", "é".encode()), (b"k" * 65536, b"x")]


@pytest.fixture
def two(mounts):
    """Two mounts."""
    return mounts("one"), mounts("two")


def sha256(part):
    return hashlib.sha256(b"".join(frame(key, payload) for _, key, payload in records(part))).hexdigest()


# -- log.bin, which it reads


def test_log_bin(m):
    part = m.make("t")
    produce_bin(part, ODD)
    assert records(part) == [(i, *record) for i, record in enumerate(ODD)]
    assert "log.bin" not in os.listdir(part) and os.stat(part + "/log.bin").st_size == 0
    stamp = struct.unpack_from(">Q", read_file(part + "/log.bin"), 24)[0]
    assert int(os.getxattr(part + "/records/0", "user.narad.timestamp")) == stamp
    assert open_fails(part + "/log.bin", os.O_WRONLY) != 0
    fd = os.open(part + "/log.bin", os.O_RDONLY)
    whole = read_file(part + "/log.bin")
    assert [os.pread(fd, 77, pos) for pos in (len(whole) - 30, 40, 0)] == [whole[-30:], whole[40:117], whole[:77]]
    assert os.pread(fd, 100, len(whole)) == b""
    produce(part, "more")  # it grows
    assert os.pread(fd, 100, len(whole)).endswith(b"more")
    os.close(fd)


def test_log_bin_beside_log_jsonl(m):
    """One rendering at a time is remembered with a segment: neither is wrong for the other."""
    part = m.make("t", segment_bytes=65536)
    produce_bin(part, [(b"k%d" % i, b"x" * (i % 700)) for i in range(2000)])
    text, binary = read_file(part + "/log.jsonl"), read_file(part + "/log.bin")
    for _ in range(2):
        assert read_file(part + "/log.jsonl") == text and os.stat(part + "/log.jsonl").st_size == len(text)
        assert read_file(part + "/log.bin") == binary
    m.restart()
    assert read_file(part + "/log.bin") == binary and os.stat(part + "/log.jsonl").st_size == len(text)


# -- what is copied


def test_keys_and_bytes(two):
    one, other = two
    part = one.make("t")
    produce_bin(part, ODD * 3)
    out, err = copy(one.topic("t"), other.topic("t"))
    assert same(part, other.part("t")) == len(ODD) * 3
    assert f"{len(ODD) * 3} records verified" in out and sha256(part) in out and err == ""


def test_settings_partitions_and_where_consumers_are(two):
    one, other = two
    one.make("t", partitions=16, linger_ms=7, max_in_flight=77, segment_bytes=65536, codec="zstd", retention_bytes=1 << 20)
    for i in range(16):
        produce(one.part("t", i), *[f"{i}-{k}" for k in range(i * 3)])
    first, *_, later = [each["handle"] for each in take(one.part("t", 9), 6)]
    ack(one.part("t", 9), first, later, sync=True)
    drain(one.part("t", 5))
    copy(one.topic("t"), other.topic("t"), "--quiet")
    assert read_file(one.topic("t") + "/config") == read_file(other.topic("t") + "/config")
    for i in range(16):
        assert same(one.part("t", i), other.part("t", i)) == i * 3
        assert frontier(other.part("t", i)) == {5: 15, 9: 1}.get(i, 0)
    assert drain(other.part("t", 5)) == b""
    assert drain(other.part("t", 9)).splitlines() == [b"9-%d" % k for k in range(1, 27)]  # unsettled ones come again


def test_it_goes_into_topics_and_back(two):
    one, other = two
    part = one.make("orders")
    produce(part, "a", "b")
    copy(one.topic("orders"), other.mnt + "/topics/")
    copy(other.topic("orders"), one.topic("orders-again"))
    assert log(one.part("orders-again")) == b"a\nb\n"


def test_an_empty_topic(two):
    one, other = two
    one.make("t", partitions=3)
    out, _ = copy(one.topic("t"), other.topic("t"))
    assert out.count("0 records verified") == 3
    assert number(other.part("t", 2), "hwm") == 0


def test_offsets_begin_at_the_oldest(two):
    one, other = two
    part = one.make("t", segment_bytes=65536)
    produce(part, *range(100))
    write_file(part + "/ctl", b"roll\n")
    produce(part, *range(100, 150))
    write_file(part + "/ctl", b"seek 120\ntrim 100\n")
    out, _ = copy(one.topic("t"), other.topic("t"))
    assert log(other.part("t")).splitlines() == [b"%d" % i for i in range(100, 150)]
    assert "offset 100 became 0" in out and "frontier 120 became 20" in out and frontier(other.part("t")) == 20
    write_file(part + "/ctl", b"roll\nseek end\ntrim 150\n")
    out, _ = copy(one.topic("t"), other.topic("empty"))
    assert "0 records verified" in out


def test_again_copies_what_has_come(two):
    one, other = two
    part, there = one.make("t"), other.part("t")
    produce(part, *range(3000))
    copy(one.topic("t"), other.topic("t"))
    out, _ = copy(one.topic("t"), other.topic("t"))
    assert "3000 records verified, 0 new" in out
    produce(part, *range(100))
    read_file(part + "/drain")
    out, _ = copy(one.topic("t"), other.topic("t"))
    assert "3100 records verified, 100 new" in out
    assert same(part, there) == 3100 and frontier(there) == 3100


def test_consumers_of_the_target_are_not_set_back(two):
    one, other = two
    part = one.make("t")
    produce(part, *range(10))
    copy(one.topic("t"), other.topic("t"))
    drain(other.part("t"))
    out, _ = copy(one.topic("t"), other.topic("t"))
    assert "where consumers of the target already were" in out and frontier(other.part("t")) == 10


def test_records_that_are_lost_are_told(mounts):
    """Damage in the source: what can be read is copied, and what cannot is named."""
    one, other = mounts("one"), mounts("two")
    part = one.make("t")
    for i in range(5):  # a frame each
        produce(part, f"{i}" * 3000)
    write_file(part + "/ctl", b"seek 4\n")
    one.stop()
    with open(one.data_part("t") + "/" + "0" * 20 + ".log", "r+b") as file:
        data = file.read()
        file.seek(data.index(b"2222") + 100)
        file.write(b"!")
    one.start()
    out, err = copy(one.topic("t"), other.topic("t"), code=NOT_ALL)
    assert [each[2][:1] for each in records(other.part("t"))] == [b"0", b"1", b"3", b"4"]
    assert "1 record from offset 2 on cannot be read in the source" in err and "frontier 4 became 3" in out
    copy(one.topic("t"), other.topic("t"), code=NOT_ALL)  # and again, with the same gap


# -- while it is produced to


def produce_until(stop, part):
    fd = os.open(part + "/produce", os.O_WRONLY)
    while not stop.is_set():
        os.write(fd, b"more\n")
        os.fsync(fd)
    os.close(fd)


def test_a_source_that_moves_on(two):
    """Somebody produces all the time, about as fast as a copy with an fsync for each record: what was there when it began
    is there, and the exit status says the rest. It does not run after it for ever."""
    one, other = two
    part = one.make("t")
    produce(part, *range(300))
    stop = threading.Event()
    writer = threading.Thread(target=produce_until, args=(stop, part))
    writer.start()
    try:
        wait_for(lambda: number(part, "hwm") > 310, "the writer")
        _, err = copy(one.topic("t"), other.topic("t"), "--batch", "1", code=NOT_ALL)
        n = number(other.part("t"), "hwm")
    finally:
        stop.set()
        writer.join(30)
    assert "has moved on" in err and 300 <= n < number(part, "hwm")
    copy(one.topic("t"), other.topic("t"))
    assert same(part, other.part("t")) > n


def test_follow(two):
    one, other = two
    one.make("t", partitions=6)  # more than run at a time otherwise
    process = start_copy(one.topic("t"), other.topic("t"), "--follow")
    try:
        for n in range(3):
            produce(one.part("t", n * 2), f"round {n}")
            wait_for(lambda k=n: os.path.exists(other.part("t", 5)) and number(other.part("t", k * 2), "hwm") == 1,
                     "the record")
        drain(one.part("t", 2))
        produce(one.part("t", 5), "the last")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 0, err
    assert out.count(b"1 record verified, 1 new") == 4
    assert frontier(other.part("t", 2)) == 1 and log(other.part("t", 5)) == b"the last\n"


# -- killed, and again


def big(part, n=6000):
    produce_bin(part, [(b"k%d" % (i % 50), b"%d " % i + b"x" * (i % 1500)) for i in range(n)])


@pytest.mark.parametrize("victim", ["naradctl", "source", "target"])
def test_killed_and_run_again(two, victim):
    """kill -9 in the middle, several times: in the end each record is there once."""
    one, other = two
    one.make("t", partitions=2)
    for i in range(2):
        big(one.part("t", i))
    there = [other.part("t", i) for i in range(2)]
    n_kills = 0
    for wanted in (1, 2000, 3500, 5000, 5800):
        process = start_copy(one.topic("t"), other.topic("t"), "--batch", "50")
        wait_for(lambda n=wanted: process.poll() is not None
                 or (os.path.exists(there[1]) and number(there[0], "hwm") >= n), "progress")
        n_kills += process.poll() is None
        {"naradctl": process, "source": one, "target": other}[victim].kill()
        _, err = process.communicate(timeout=30)
        if victim != "naradctl":
            assert process.returncode in (0, 1) and (process.returncode == 0 or err), err
            (one if victim == "source" else other).start()
    assert n_kills >= 3
    copy(one.topic("t"), other.topic("t"))
    for i in range(2):
        assert same(one.part("t", i), there[i]) == 6000


def test_interrupted(two):
    one, other = two
    big(one.make("t"))
    process = start_copy(one.topic("t"), other.topic("t"), "--batch", "1")
    wait_for(lambda: os.path.exists(other.part("t")) and number(other.part("t"), "hwm") > 10, "progress")
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 1 and b"interrupted; run it again to go on" in err
    copy(one.topic("t"), other.topic("t"))
    assert same(one.part("t"), other.part("t")) == 6000


def test_one_copy_at_a_time(two):
    one, other = two
    big(one.make("t"))
    process = start_copy(one.topic("t"), other.topic("t"), "--follow")
    try:
        wait_for(lambda: os.path.exists(other.part("t")) and number(other.part("t"), "hwm") > 0, "progress")
        assert "another copy" in refused(one.topic("t"), other.topic("t"))
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
    assert process.returncode == 0


# -- refused


def test_other_records_are_refused(two):
    one, other = two
    part = one.make("t")
    produce(part, "a", "b", "c")
    produce(other.make("t"), "a", "B")
    assert "the record at offset 1" in refused(one.topic("t"), other.topic("t"))
    produce(other.make("more"), "a", "b", "c", "d")
    assert "which ends before it" in refused(one.topic("t"), other.topic("more"))
    assert log(other.part("t")) == b"a\nB\n" and number(other.part("more"), "hwm") == 4


def test_a_damaged_target_is_refused(two):
    one, other = two
    part = one.make("t")
    for i in range(4):
        produce(part, f"{i}" * 3000)
    copy(one.topic("t"), other.topic("t"), "--batch", "1")
    other.stop()
    path = other.data_part("t") + "/" + "0" * 20 + ".log"
    with open(path, "r+b") as file:
        file.seek(file.read().index(b"1111") + 100)
        file.write(b"!")
    other.start()
    assert "what was copied is damaged" in refused(one.topic("t"), other.topic("t"))


def test_somebody_else_produces_to_the_target(two):
    one, other = two
    part = one.make("t")
    produce(part, "a")
    process = start_copy(one.topic("t"), other.topic("t"), "--follow")
    wait_for(lambda: os.path.exists(other.part("t")) and number(other.part("t"), "hwm") == 1, "the record")
    produce(other.part("t"), "an intruder")
    produce(part, "b")
    _, err = process.communicate(timeout=30)
    assert process.returncode == 1 and b"somebody else produces to it" in err, err


def test_records_that_are_too_long(two):
    one, other = two
    longest = 1 << 20
    produce_bin(one.make("fits"), [(b"k" * 65536, b"y" * longest), (b"", b"z" * longest)])
    copy(one.topic("fits"), other.topic("fits"))
    assert same(one.part("fits"), other.part("fits")) == 2
    produce(one.make("t", max_record_bytes=2 << 20), "a", "b", "c" * (longest + 1), "d")
    produce(other.make("t"), "a")  # it has settings of its own
    error = refused(one.topic("t"), other.topic("t"))
    assert "the record at offset 2 (1048577 bytes, its key 0) is longer" in error and "max_record_bytes there is 1048576" in error
    assert log(other.part("t")) == b"a\nb\n"
    configure(other.topic("t"), max_record_bytes=2 << 20)
    copy(one.topic("t"), other.topic("t"))
    assert same(one.part("t"), other.part("t")) == 4


def test_partitions_have_to_be_as_many(two):
    one, other = two
    one.make("t", partitions=2)
    produce(one.part("t"), "a")
    other.make("t", partitions=3)
    assert "has 3 partitions and the source 2" in refused(one.topic("t"), other.topic("t"))
    copy(one.topic("t"), other.topic("u"))
    configure(one.topic("t"), partitions=4)
    assert "naradctl config TARGET partitions=4" in refused(one.topic("t"), other.topic("u"))
    configure(other.topic("u"), partitions=4)
    copy(one.topic("t"), other.topic("u"))


def test_places(two, tmp_path):
    one, other = two
    part = one.make("t")
    assert "is a partition" in refused(part, other.topic("t"))
    other.make("there")
    assert "is a partition" in refused(one.topic("t"), other.part("there"))
    assert "is no place for a topic" in refused(one.topic("t"), str(tmp_path))
    assert "are the same topic" in refused(one.topic("t"), one.topic("t"))
    assert "there is no topic" in refused(one.topic("nothing"), other.topic("t"))
    assert os.listdir(other.mnt + "/topics") == ["there"]
    copy(one.topic("t"), other.topic("t"), "--jobs", "0", code=2)


# -- what is shown


def test_a_bar_on_a_terminal(two):
    one, other = two
    big(one.make("t"))
    main, side = pty.openpty()
    with subprocess.Popen([NARADCTL, "copy", "--batch", "5", one.topic("t"), other.topic("t")], stdin=subprocess.DEVNULL,
                          stdout=subprocess.DEVNULL, stderr=side) as process:
        os.close(side)
        text = b""
        while process.poll() is None or select.select([main], [], [], 0)[0]:
            if select.select([main], [], [], 0.1)[0]:
                try:
                    text += os.read(main, 4096)
                except OSError:
                    break
    os.close(main)
    assert process.returncode == 0 and b"% " in text and b"records/s" in text and text.endswith(b"\r\x1b[K")


def test_quiet(two):
    one, other = two
    produce(one.make("t"), "a")
    assert copy(one.topic("t"), other.topic("t"), "--quiet") == ("", "")


def test_it_tells_how_far_it_is_in_lines(two):
    """Every five seconds, where there is no terminal; and a copy of more than that ends."""
    one, other = two
    produce(one.make("t"), "a")
    process = start_copy(one.topic("t"), other.topic("t"), "--verbose", "--follow")
    line = process.stderr.readline()
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=30)
    assert line == b"100%  1 record copied  0 records/s\n" and process.returncode == 0 and b"1 record verified" in out
    process = start_copy(one.topic("t"), other.topic("t"), "--verbose", "--follow")
    line = process.stderr.readline()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert line == b"100%  1 record that was there compared  0 records copied  0 records/s\n"


def test_open_files_of_who_follows(two):
    """Three for each partition: as many as may be, or a refusal before anything is copied."""
    one, other = two
    one.make("t", partitions=6)
    for n in range(6):
        produce(one.part("t", n), "a")
    command = f"ulimit -n 40; exec {NARADCTL} copy --follow {one.topic('t')} {other.topic('t')}"
    done = subprocess.run(["bash", "-c", command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, check=False, timeout=30)
    assert done.returncode == 1 and b"6 partitions takes 50 open files, 3 for each, and 40 are allowed" in done.stderr
    assert number(other.part("t", 5), "hwm") == 0
    process = subprocess.Popen(["bash", "-c", command.replace("ulimit -n", "ulimit -Sn")], stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        wait_for(lambda: all(number(other.part("t", n), "hwm") == 1 for n in range(6)), "the records")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 0, err
