"""What others do to segments while the daemon runs: removed, unreadable, put back, restored; and what a reopen finds."""

import errno
import os
import re
import select
import shutil

import pytest
from changing import SEGMENT, fill, name, records, reopen, state, status
from support import (Consumer, ack, drain, fails, lines, log, metric, number, produce, read_file, shell, take,
                     wait_for, write_file, xattr)


def cold(m, topic="t"):
    """The partition is open, and has no sealed segment open: as after a while."""
    m.restart()
    for i in range(number_of_partitions(m, topic)):
        write_file(m.part(topic, i) + "/ctl", b"roll\n")  # which has nothing to do, but opens it


def number_of_partitions(m, topic):
    return int(re.search(r"^partitions +(\d+)", status(m.topic(topic)), re.M).group(1))


# -- a sealed segment is gone


@pytest.mark.parametrize("where", ["oldest", "middle", "newest_sealed"])
def test_a_removed_segment_is_damage_from_the_first_read_on(m, where):
    part = m.make("t", segment_bytes=SEGMENT)
    fill(part)
    cold(m)
    base = {"oldest": 0, "middle": 20, "newest_sealed": 50}[where]
    os.rename(f"{m.data_part('t')}/{name(base)}", m.base + "/aside")
    kept = [n for n in range(60) if not base <= n < base + 10]
    assert log(part) == records(*kept)
    assert state(part).startswith("damaged")
    text = status(part)
    assert f"records {base} to {base + 9} are missing (10 records)" in text
    assert "reopen" in text
    assert "1 partition with lost records" in state(m.mnt)
    assert f"p00000  records {base} to {base + 9} are missing" in status(m.topic("t"))
    assert metric(m, "narad_lost_records") == 10
    assert metric(m, "narad_partitions_damaged") == 1
    assert number(part, "segments") == 6
    assert m.stderr().count("is gone, and was not deleted by the daemon; put it back and write `reopen`") == 1
    assert name(base) not in os.listdir(part + "/segments")
    assert fails(read_file, f"{part}/records/{base}") == errno.EBADMSG
    assert drain(part) == records(*kept)
    assert log(part) == records(*kept)
    # and it is served again when it is put back
    os.rename(m.base + "/aside", f"{m.data_part('t')}/{name(base)}")
    assert log(part) == records(*kept)
    reopen(part)
    assert log(part) == records(*range(60))
    assert state(part) == "ok" and state(m.mnt) == "ok"
    assert metric(m, "narad_lost_records") == 0
    assert read_file(f"{part}/segments/{name(base)}") == read_file(f"{m.data_part('t')}/{name(base)}")
    write_file(part + "/ctl", b"seek start\n")
    assert drain(part) == records(*range(60))
    m.restart()
    assert log(part) == records(*range(60)) and state(m.mnt) == "ok"


def test_a_segment_that_stays_away_is_told_after_a_reopen_and_a_restart_alike(m):
    part = m.make("t", segment_bytes=SEGMENT)
    fill(part)
    cold(m)
    os.unlink(f"{m.data_part('t')}/{name(20)}")
    os.unlink(f"{m.data_part('t')}/{name(30)}")
    reopen(part)  # finds it without a read
    kept = [*range(20), *range(40, 60)]
    for _ in range(2):
        assert "20 records are missing" in status(part) or "records 20 to 39 are missing (20 records)" in status(part)
        assert log(part) == records(*kept)
        reopen(part)
    m.restart()
    assert log(part) == records(*kept)
    assert "records 20 to 39 are missing (20 records)" in status(part)
    produce(part, "r60")
    assert log(part) == records(*kept, 60)


def test_a_missing_segment_stops_no_consumer(m):
    part = m.make("t", segment_bytes=SEGMENT, partitions=3)
    for i in range(3):
        fill(m.part("t", i))
    cold(m)
    os.unlink(f"{m.data_part('t', 1)}/{name(20)}")
    got = sorted(drain(m.topic("t")).split())
    assert got == sorted([f"r{n}".encode() for n in range(60)] * 2 +
                         [f"r{n}".encode() for n in range(60) if not 20 <= n < 30])
    for i in range(3):
        assert number(m.part("t", i), "frontier") == 60
    assert state(m.part("t", 0)) == "ok" and state(m.part("t", 2)) == "ok"
    assert state(m.part("t", 1)).startswith("damaged")


# -- a sealed segment is there and cannot be read


def unreadable(m, topic, partition, base):
    path = f"{m.data_part(topic, partition)}/{name(base)}"
    os.rename(path, f"{m.base}/aside{partition}")
    os.mkdir(path)


def readable_again(m, topic, partition, base):
    path = f"{m.data_part(topic, partition)}/{name(base)}"
    os.rmdir(path)
    os.rename(f"{m.base}/aside{partition}", path)


def drain_to_the_end(folder):
    """What a drain gives, and the error at its end: 0 for the end of the file."""
    got = b""
    with Consumer(folder, "drain", os.O_RDONLY) as consumer:
        try:
            while text := consumer.read():
                got += text
        except OSError as error:
            return got, error.errno
    return got, 0


def expect_errors(m):
    """None of topic t's partitions can be read: nothing waits, and nothing looks like an end."""
    for file in ("consume", "consume.jsonl", "consume.bin"):
        for flags in (os.O_NONBLOCK, 0):
            with Consumer(m.topic("t"), file, os.O_RDONLY | flags) as consumer:
                poll = select.poll()
                poll.register(consumer.fd, select.POLLIN)
                assert poll.poll() == [(consumer.fd, select.POLLIN)]
                for _ in range(3):
                    assert fails(consumer.read) == errno.EIO
    for _ in range(3):
        assert drain_to_the_end(m.topic("t")) == (b"", errno.EIO)


def test_an_unreadable_segment_is_an_error_and_not_skipped(m):
    part = m.make("t", segment_bytes=SEGMENT)
    fill(part)
    cold(m)
    unreadable(m, "t", 0, 20)
    assert drain_to_the_end(part) == (records(*range(20)), errno.EIO)
    assert number(part, "frontier") <= 20
    assert state(part).startswith("unreadable")
    assert f"segment {name(20)} cannot be read: " in status(part)
    assert "echo reopen > ctl" in status(part)
    assert "1 partition with segments that cannot be read" in state(m.mnt)
    assert f"p00000  segment {name(20)} cannot be read" in status(m.topic("t"))
    assert metric(m, "narad_partitions_unreadable") == 1
    assert metric(m, 'narad_errors_total{component="storage",kind="unreadable"}') == 1
    assert m.stderr().count(f"{name(20)}: it is a folder, and no regular file") == 1
    assert read_file(f"{part}/records/45") == b"r45"
    produce(part, "r60")
    # the file comes back: nothing was passed over
    readable_again(m, "t", 0, 20)
    reopen(part)
    assert log(part) == records(*range(61))
    assert state(m.mnt) == "ok"
    settled = number(part, "frontier")
    assert drain(part) == records(*range(settled, 61))


def test_an_unreadable_segment_is_that_partitions_trouble_alone(m):
    part = m.make("t", segment_bytes=SEGMENT, partitions=3)
    for i in range(3):
        fill(m.part("t", i))
    cold(m)
    unreadable(m, "t", 1, 0)
    got, error = drain_to_the_end(m.topic("t"))
    assert sorted(got.split()) == sorted([f"r{n}".encode() for n in range(60)] * 2)
    assert error == errno.EIO  # and no end of the file: that would say that nothing is left
    assert number(m.part("t", 0), "lag") == 0 and number(m.part("t", 2), "lag") == 0
    assert number(m.part("t", 1), "frontier") == 0
    with Consumer(m.topic("t"), "consume", os.O_RDWR | os.O_NONBLOCK) as consumer:
        assert fails(consumer.read) == errno.EAGAIN  # something may come in the others
    with Consumer(m.topic("t"), "consume", os.O_RDWR) as consumer:  # blocks: waits for what comes
        produce(m.part("t", 0), "more")
        assert consumer.read() == b"more\n"
        consumer.sync()
        readable_again(m, "t", 1, 0)
        assert consumer.read() == b"r0\n"  # it comes by itself
        consumer.sync()
    assert state(m.part("t", 1)) == "ok"
    assert sorted(drain(m.topic("t")).split()) == sorted(f"r{n}".encode() for n in range(1, 60))


@pytest.mark.parametrize("partitions", [1, 2, 3])
def test_a_topic_without_a_readable_partition_gives_the_error(m, partitions):
    m.make("t", segment_bytes=SEGMENT, partitions=partitions)
    for i in range(partitions):
        fill(m.part("t", i), count=1)
    cold(m)
    for i in range(partitions):
        unreadable(m, "t", i, 0)
    expect_errors(m)
    for i in range(partitions):
        readable_again(m, "t", i, 0)
    got = []

    def all_of_it():  # by itself, within a second
        got.extend(drain_to_the_end(m.topic("t"))[0].split())
        return len(got) == partitions * 10

    wait_for(all_of_it, "the records")
    assert sorted(got) == sorted([f"r{n}".encode() for n in range(10)] * partitions)
    assert drain_to_the_end(m.topic("t")) == (b"", 0)
    assert state(m.mnt) == "ok"


def test_a_topic_whose_partitions_cannot_be_opened_gives_the_error(m):
    m.make("t", partitions=2)
    for i in range(2):
        produce(m.part("t", i), *(f"r{n}" for n in range(10)))
    m.stop()
    hwms = [f"{m.data_part('t', i)}/hwm" for i in range(2)]
    for i in range(2):
        os.rename(hwms[i], f"{m.base}/hwm{i}")
        os.mkdir(hwms[i])
    m.start()
    expect_errors(m)
    os.rmdir(hwms[0])
    os.rename(f"{m.base}/hwm0", hwms[0])
    reopen(m.part("t", 0))
    # one of two: what the other one has, and then the error again
    got, error = drain_to_the_end(m.topic("t"))
    assert (got, error) == (records(*range(10)), errno.EIO)
    with Consumer(m.topic("t"), "consume", os.O_RDWR | os.O_NONBLOCK) as consumer:
        assert fails(consumer.read) == errno.EAGAIN
    os.rmdir(hwms[1])
    os.rename(f"{m.base}/hwm1", hwms[1])
    reopen(m.part("t", 1))
    assert drain_to_the_end(m.topic("t")) == (records(*range(10)), 0)


# -- reopen lists the folder again


def test_a_segment_that_was_missing_at_the_start_comes_back(m):
    part = m.make("t", segment_bytes=SEGMENT)
    fill(part)
    m.stop()
    for base in (0, 20):
        os.rename(f"{m.data_part('t')}/{name(base)}", f"{m.base}/{base}")
    m.start()
    assert log(part) == records(*range(10, 20), *range(30, 60))
    assert number(part, "oldest_offset") == 10
    for base in (0, 20):
        os.rename(f"{m.base}/{base}", f"{m.data_part('t')}/{name(base)}")
    reopen(part)
    assert log(part) == records(*range(60))
    assert number(part, "oldest_offset") == 0
    assert state(m.mnt) == "ok"


def test_the_newest_segments_come_back(m):
    part = m.make("t", segment_bytes=SEGMENT)
    fill(part)
    produce(part, "r60")
    m.stop()
    for base in (40, 50, 60):
        os.rename(f"{m.data_part('t')}/{name(base)}", f"{m.base}/{base}")
    m.start()
    assert log(part) == records(*range(40))
    assert number(part, "next_offset") == 61
    for base in (40, 50, 60):
        os.rename(f"{m.base}/{base}", f"{m.data_part('t')}/{name(base)}")
    reopen(part)
    assert log(part) == records(*range(61))
    produce(part, "r61")
    assert read_file(part + "/records/61") == b"r61"
    m.crash()
    assert log(part) == records(*range(62)) and state(m.mnt) == "ok"


def test_a_damaged_segment_is_mended_from_a_copy(m):
    part = m.make("t", segment_bytes=SEGMENT)
    fill(part)
    m.stop()
    path = f"{m.data_part('t')}/{name(20)}"
    shutil.copy(path, m.base + "/copy")
    good = read_file(path)
    with open(path, "r+b") as file:
        file.write(b"\0" * 64)
    os.unlink(f"{m.data_part('t')}/{name(20, 'index')}")
    m.start()
    assert log(part) == records(*range(20), *range(30, 60))
    with open(path, "r+b") as file:  # in place: the file stays the same
        file.write(good)
    reopen(part)
    assert log(part) == records(*range(60))
    assert state(m.mnt) == "ok"


def test_the_segment_that_is_written_to_is_mended(m):
    part = m.make("t", segment_bytes=SEGMENT)
    for i in range(3):
        produce(part, *(f"r{i * 10 + n}" for n in range(10)))
    m.stop()
    path = f"{m.data_part('t')}/{name(0)}"
    with open(path, "r+b") as file:
        good = file.read(1)
        file.seek(0)
        file.write(bytes([good[0] ^ 1]))
    m.start()
    assert log(part) == records(*range(10, 30))
    assert state(part).startswith("damaged") and number(part, "lag") == 20
    with open(path, "r+b") as file:
        file.write(good)
    reopen(part)
    assert log(part) == records(*range(30))
    assert state(m.mnt) == "ok" and number(part, "lag") == 30
    assert len(os.listdir(part + "/records")) == 30
    assert metric(m, "narad_lost_records") == 0


def test_open_handles_and_leases_live_through_a_reopen(m):
    part = m.make("t", segment_bytes=SEGMENT)
    fill(part)
    cold(m)
    with Consumer(part, "consume") as consumer:
        assert consumer.read() == b"r0\n"
        fd = os.open(part + "/log", os.O_RDONLY)
        fd_jsonl = os.open(part + "/log.jsonl", os.O_RDONLY)
        try:
            assert os.read(fd, 9) == b"r0\nr1\nr2\n"
            assert os.read(fd_jsonl, 1) == b"{"
            os.rename(f"{m.data_part('t')}/{name(20)}", m.base + "/aside")
            reopen(part)
            text = os.pread(fd, 1 << 20, 0)
            assert text == records(*range(20), *range(30, 60))
            os.rename(m.base + "/aside", f"{m.data_part('t')}/{name(20)}")
            reopen(part)
            assert os.pread(fd, 1 << 20, 0) == records(*range(60))
            assert os.pread(fd_jsonl, 1 << 20, 0).count(b"\n") == 60
            produce(part, "r60")
            assert os.pread(fd, 1 << 20, 0) == records(*range(61))
            assert os.pread(fd_jsonl, 1 << 20, 0).count(b"\n") == 61
        finally:
            os.close(fd)
            os.close(fd_jsonl)
        consumer.sync()
    assert number(part, "frontier") == 1


def test_a_restore_over_a_live_folder(m):
    """An older copy of the whole folder, file by file, over the one that is in use."""
    part = m.make("t", segment_bytes=SEGMENT)
    fill(part, count=3)
    produce(part, "r30")
    m.stop()
    shutil.copytree(m.data_part("t"), m.base + "/backup")
    m.start()
    produce(part, "r31")
    fill(part, count=2, first=32)
    assert number(part, "hwm") == 52
    for file in os.listdir(m.data_part("t")):
        os.unlink(f"{m.data_part('t')}/{file}")
    for file in os.listdir(m.base + "/backup"):
        shutil.copy(f"{m.base}/backup/{file}", m.data_part("t"))
    assert fails(produce, part, "x") == errno.EIO
    assert state(part).startswith("poisoned")
    reopen(part)
    assert log(part) == records(*range(31))
    assert number(part, "next_offset") == 52
    assert state(part).startswith("damaged")
    produce(part, "new")
    assert read_file(part + "/records/52") == b"new"
    m.crash()
    assert log(part) == records(*range(31)) + b"new\n"
    assert "records 31 to 51 are missing" in status(part)


def test_a_backup_copied_into_an_empty_partition(m):
    part = m.make("t", segment_bytes=SEGMENT)
    fill(part, count=3)
    produce(part, "r30")
    m.stop()
    shutil.copytree(m.data_part("t"), m.base + "/backup")
    m.start()
    write_file(m.topic("t") + "/ctl", f"delete {xattr(part, 'incarnation')}\n".encode())
    part = m.make("t", segment_bytes=SEGMENT)
    assert log(part) == b""
    for file in sorted(os.listdir(m.base + "/backup")):
        if file.endswith(".log"):
            shutil.copy(f"{m.base}/backup/{file}", m.data_part("t"))
    reopen(part)
    assert log(part) == records(*range(31))
    produce(part, "r31")
    assert log(part) == records(*range(32))
    m.crash()
    assert log(part) == records(*range(32))


# -- what is lost does not count as if it were there


def test_the_lag_leaves_out_what_is_lost(m):
    part = m.make("t", segment_bytes=SEGMENT)
    fill(part)
    cold(m)
    os.unlink(f"{m.data_part('t')}/{name(20)}")
    assert number(part, "lag") == 60
    log(part)
    assert number(part, "lag") == 50
    assert "backlog      50 records" in status(m.mnt)
    drain(part)
    assert number(part, "lag") == 0


def test_what_was_passed_over_counts_once(m):
    part = m.make("t", segment_bytes=SEGMENT)
    fill(part)
    cold(m)
    os.unlink(f"{m.data_part('t')}/{name(20)}")
    held = take(part, 1)
    drain(part)
    assert (number(part, "frontier"), number(part, "acked_ahead"), number(part, "lag")) == (0, 59, 1)
    ack(part, held[0]["handle"])
    assert number(part, "lag") == 0


def test_a_listing_over_a_gap_of_very_many_offsets(m):
    part = m.make("t")
    produce(part, "a")
    write_file(part + "/ctl", b"roll\n")
    m.stop()
    os.rename(f"{m.data_part('t')}/{name(1)}", f"{m.data_part('t')}/{name(1 << 60)}")
    m.start()
    assert log(part) == b"a\n"
    produce(part, "b")
    assert sorted(map(int, os.listdir(part + "/records"))) == [0, 1 << 60]


def test_the_listing_of_records_shows_those_that_are_there(m):
    part = m.make("t", segment_bytes=SEGMENT)
    produce(part, *(f"r{n}" for n in range(1500)))
    write_file(part + "/ctl", b"roll\n")
    produce(part, *(f"r{n}" for n in range(1500, 2700)))
    write_file(part + "/ctl", b"roll\n")
    produce(part, "r2700")
    cold(m)
    os.unlink(f"{m.data_part('t')}/{name(1500)}")
    log(part)
    assert sorted(map(int, os.listdir(part + "/records"))) == [*range(501, 1500), 2700]
    assert shell(f"grep -rc . {part}/records | wc -l").stdout.strip() == b"1000"


def test_a_reopen_that_is_refused_says_why(m):
    part = m.make("t")
    produce(part, "one")
    foreign = f"{m.data_part('t')}/{name(9999)}"
    os.mkdir(foreign)
    assert fails(reopen, part) == errno.EIO
    assert f'"reopen" refused: topics/t/p00000/{name(9999)} cannot be used: it is a folder' in status(m.topic("t"))
    os.rmdir(foreign)
    reopen(part)
    assert log(part) == lines("one")


def test_a_drain_after_a_reopen_does_not_end_early(m):
    m.make("t", partitions=2, segment_bytes=SEGMENT)
    part = m.part("t")
    fill(part)
    cold(m)
    path = f"{m.data_part('t')}/{name(0)}"
    os.rename(path, m.base + "/kept")
    os.mkdir(path)
    assert fails(drain, m.topic("t")) == errno.EIO
    os.rmdir(path)
    os.rename(m.base + "/kept", path)
    reopen(part)
    assert drain(m.topic("t")) == records(*range(60))
