"""What others do to the data directory while the daemon runs: the file that is written to, small files, folders, records."""

import errno
import os
import re
import shutil

import pytest
from changing import SEGMENT, fill, name, records, reopen, state, status
from naradctl import NARADCTL
from support import (Consumer, configure, drain, fails, lines, log, metric, number, produce, shell, wait_for,
                     write_file, xattr)


def bases(m, topic="t", partition=0):
    return sorted(int(file[:20]) for file in os.listdir(m.data_part(topic, partition)) if file.endswith(".log"))


# -- the file that is written to


def gone_active(m):
    os.unlink(f"{m.data_part('t')}/{name(bases(m)[-1])}")


def gone_folder(m):
    shutil.rmtree(m.data_part("t"))


def gone_topic(m):
    shutil.rmtree(m.data + "/topics/t")


def replaced_active(m):
    path = f"{m.data_part('t')}/{name(bases(m)[-1])}"
    shutil.copy(path, m.base + "/copy")
    os.rename(m.base + "/copy", path)


@pytest.mark.parametrize("take_away", [gone_active, gone_folder, gone_topic, replaced_active])
def test_nothing_is_acknowledged_into_a_file_that_is_gone(m, take_away):
    part = m.make("t", segment_bytes=SEGMENT)
    produce(part, *(f"r{n}" for n in range(10)))
    take_away(m)
    fd = os.open(part + "/produce", os.O_WRONLY)
    try:
        os.write(fd, b"x\n")
        assert fails(os.fsync, fd) == errno.EIO
        assert xattr(part, "poisoned") == "1"
        reason = xattr(part, "poison_reason")
        assert "which records are written to, was " in reason
        assert ("replaced by another file" in reason) == (take_away is replaced_active)
        assert "put that right in the data directory" in status(part)
        assert "1 partition poisoned" in state(m.mnt)
        assert metric(m, 'narad_errors_total{component="storage",kind="taken_away"}') == 1
        if take_away is gone_topic:
            assert fails(write_file, part + "/ctl", b"reopen\n") == errno.EIO
            assert "put topics/t back from a backup, or start the daemon again" in m.stderr()
        else:
            reopen(part)
            os.fsync(fd)  # the batch is still there, and lands once
            kept = records(*range(10)) if take_away is replaced_active else b""
            assert log(part) == kept + b"x\n"
            assert number(part, "next_offset") == 11
            m.stop()
            m.start()
            assert log(part) == kept + b"x\n"
            assert number(part, "next_offset") == 11
    finally:
        try:
            os.close(fd)
        except OSError:
            pass


def test_an_empty_active_segment_is_removed(m):
    part = m.make("t", segment_bytes=SEGMENT)
    fill(part, count=1)
    os.unlink(f"{m.data_part('t')}/{name(10)}")
    assert fails(produce, part, "r10") == errno.EIO
    with open(f"{m.data_part('t')}/{name(10)}", "wb") as file:
        file.write(b"no record")
    assert fails(write_file, part + "/ctl", b"reopen\n") == errno.EIO
    assert f"{name(10)} cannot be used: the next record would begin it" in m.stderr()
    os.unlink(f"{m.data_part('t')}/{name(10)}")
    reopen(part)
    produce(part, "r10")
    write_file(part + "/ctl", b"trim 10\n")
    assert bases(m) == [10]
    m.crash()
    assert log(part) == records(10) and state(m.mnt) == "ok"


def test_another_incarnations_folder_is_not_reopened(m):
    """A backup from before the topic was deleted and made again."""
    part = m.make("t")
    produce(part, "old0", "old1")
    m.stop()
    shutil.copytree(m.data + "/topics/t", m.base + "/backup")
    m.start()
    old = xattr(part, "incarnation")
    write_file(m.topic("t") + "/ctl", f"delete {old}\n".encode())
    part = m.make("t")
    produce(part, "new")
    os.rename(m.data + "/topics/t", m.base + "/aside")
    shutil.copytree(m.base + "/backup", m.data + "/topics/t")
    assert wait_for(lambda: refused(part), "a refusal") == errno.EIO
    before = sorted(os.listdir(m.data_part("t")))
    for _ in range(2):
        assert fails(write_file, part + "/ctl", b"reopen\n") == errno.EIO
        assert xattr(part, "poisoned") == "1"
    assert f"its folder belongs to incarnation {old}" in m.stderr()
    assert sorted(os.listdir(m.data_part("t"))) == before
    shutil.rmtree(m.data + "/topics/t")
    os.rename(m.base + "/aside", m.data + "/topics/t")
    reopen(part)
    produce(part, "last")
    text = log(part)
    assert text.startswith(b"new\n") and text.endswith(b"last\n") and b"old" not in text
    m.crash()
    assert log(part) == text


def test_a_folder_that_comes_back(m):
    part = m.make("t", segment_bytes=SEGMENT)
    fill(part, count=2)
    produce(part, "r20")
    os.rename(m.data_part("t"), m.base + "/aside")
    assert wait_for(lambda: refused(part), "a refusal") == errno.EIO
    os.rename(m.base + "/aside", m.data_part("t"))
    reopen(part)
    produce(part, "last")
    text = log(part)
    assert text.startswith(records(*range(21))) and text.endswith(b"last\n")
    m.restart()
    assert log(part) == text and state(m.mnt) == "ok"


def refused(part):
    try:
        produce(part, "y")  # within a second of the last look at its name it goes into the folder that was moved
    except OSError as error:
        return error.errno
    return None


def test_a_topic_goes_on_with_the_other_partitions(m):
    m.make("t", segment_bytes=SEGMENT, partitions=2)
    for i in range(2):
        produce(m.part("t", i), "r0")
    os.unlink(f"{m.data_part('t', 0)}/{name(0)}")
    for i in range(4):
        produce(m.topic("t"), f"x{i}")
    wait_for(lambda: log(m.part("t", 1)).count(b"x") == 4, "the records in the partition that is well")
    assert state(m.part("t", 0)).startswith("poisoned") and state(m.part("t", 1)) == "ok"


def test_the_ingress_wal_is_removed(m):
    m.make("t", partitions=2)
    produce(m.topic("t"), "a")
    for file in os.listdir(m.data + "/ingress"):
        if file.endswith(".wal"):
            os.unlink(f"{m.data}/ingress/{file}")
    produce(m.topic("t"), "b")
    assert any(file.endswith(".wal") for file in os.listdir(m.data + "/ingress"))
    assert "was removed while the daemon runs, and not by it" in m.stderr()
    wait_for(lambda: b"b\n" in log(m.part("t")) + log(m.part("t", 1)), "the record")


def refusal(folder, record="x"):
    """The errno of a sync of one record; 0: it was taken."""
    fd = os.open(folder + "/produce", os.O_WRONLY)
    try:
        os.write(fd, record.encode() + b"\n")
        os.fsync(fd)
        return 0
    except OSError as error:
        return error.errno
    finally:
        try:
            os.close(fd)
        except OSError:
            pass


def test_the_folder_of_the_ingress_is_removed(m):
    m.make("t")
    produce(m.topic("t"), "a")
    wait_for(lambda: log(m.part("t")) == b"a\n", "the first record")
    shutil.rmtree(m.data + "/ingress")
    produce(m.topic("t"), "b")
    wait_for(lambda: log(m.part("t")) == b"a\nb\n", "the record after it")
    assert os.stat(m.data + "/ingress").st_mode & 0o777 == 0o700
    assert any(file.endswith(".wal") for file in os.listdir(m.data + "/ingress"))
    produce(m.topic("t"), "c")
    assert m.stderr().count("ingress/ was removed while the daemon runs, and not by it: it was made anew") == 1
    assert state(m.mnt) == "ok" and metric(m, "narad_ingress_available") == 1
    m.crash()
    wait_for(lambda: log(m.part("t")) == b"a\nb\nc\n", "all of them after a crash")


def test_an_ingress_that_cannot_be_written_is_told(m):
    m.make("t")
    produce(m.topic("t"), "a")
    wait_for(lambda: log(m.part("t")) == b"a\n", "the first record")
    shutil.rmtree(m.data + "/ingress")
    write_file(m.data + "/ingress", b"", os.O_CREAT)  # which cannot become a folder
    for _ in range(2):
        assert refusal(m.topic("t")) == errno.EIO
    assert "the ingress WAL could not be written, ingress/: " in m.stderr()
    assert "see that ingress/ in the data directory is a folder that the daemon may write to" in m.stderr()
    assert metric(m, "narad_ingress_available") == 0
    assert state(m.mnt) == "topics cannot be produced to as a whole"
    for folder in (m.mnt, m.topic("t")):
        assert "see that ingress/ in the data directory is a folder" in status(folder)
    assert state(m.topic("t")) != "ok"
    produce(m.part("t"), "p")
    os.unlink(m.data + "/ingress")
    produce(m.topic("t"), "b")
    wait_for(lambda: log(m.part("t")).endswith(b"b\n"), "the record when it can be written again")
    assert "the ingress WAL can be written again" in m.stderr()
    assert metric(m, "narad_ingress_available") == 1
    assert state(m.mnt) == "ok" and state(m.topic("t")) == "ok"


# -- the small files


def test_small_files_are_written_again(m):
    part = m.make("t", segment_bytes=SEGMENT)
    produce(part, *(f"r{n}" for n in range(10)))
    with Consumer(part, "consume") as consumer:
        for _ in range(5):
            consumer.read()
        consumer.sync()
        for file in ("hwm", "consumer.offset", "consumer.ahead"):
            if os.path.exists(f"{m.data_part('t')}/{file}"):
                os.unlink(f"{m.data_part('t')}/{file}")
        consumer.read()
        consumer.sync()
    produce(part, "r10")
    m.crash()
    assert number(part, "frontier") == 6
    assert log(part) == records(*range(11))
    m.restart()
    assert number(part, "frontier") == 6
    assert state(m.mnt) == "ok"


def make_folder(path):
    os.mkdir(path)


def make_fifo(path):
    os.mkfifo(path)


def make_link(path):
    os.symlink("/etc/passwd", path)


@pytest.mark.parametrize("make, words", [(make_folder, "a folder"), (make_fifo, "a FIFO"),
                                         (make_link, "a symbolic link")])
@pytest.mark.parametrize("file", ["hwm", "consumer.offset", "consumer.ahead"])
def test_what_stands_there_is_told_before_anybody_uses_it(m, file, make, words):
    part = m.make("t")
    produce(part, "r0")
    assert drain(part) == b"r0\n"
    m.stop()
    path = f"{m.data_part('t')}/{file}"
    if os.path.exists(path):
        os.unlink(path)
    make(path)
    m.start()
    wait_for(lambda: state(m.mnt) != "ok", "the survey")
    text = status(m.mnt)
    assert f"t/p00000  out of service: topics/t/p00000/{file} cannot be used: it is {words}, and no regular file" in text
    assert "what is none of the daemon's out of the way" in text and "when the disk is well" not in text
    assert f"topics/t/p00000/{file} cannot be used: it is {words}" in status(part)
    assert fails(log, part) == errno.EIO
    shell(f"rm -r {path} 2>/dev/null || rmdir {path}")
    reopen(part)
    assert log(part) == b"r0\n" and state(m.mnt) == "ok"


def test_hwm_becomes_a_folder_under_the_daemon(m):
    part = m.make("t")
    produce(part, "r0")
    m.restart()
    assert log(part) == b"r0\n"
    os.unlink(f"{m.data_part('t')}/hwm")
    os.mkdir(f"{m.data_part('t')}/hwm")
    assert fails(produce, part, "r1") == errno.EIO
    assert "topics/t/p00000/hwm cannot be written: it is a folder, and no regular file" in status(part)
    assert fails(write_file, part + "/ctl", b"reopen\n") == errno.EIO
    os.rmdir(f"{m.data_part('t')}/hwm")
    reopen(part)
    produce(part, "r1")
    assert log(part) == b"r0\nr1\n"


def is_unsaved(m, part, file):
    """Whether partition, topic, root and metrics all say it, and the log which file."""
    said = f"topics/t/p00000/{file} cannot be written: it is a folder, and no regular file"
    assert all(said in status(folder) for folder in (part, m.topic("t"), m.mnt))
    assert state(part) == "unsaved" and state(m.topic("t")) != "ok"
    assert "1 partition whose consumers' progress cannot be written" in state(m.mnt)
    assert metric(m, "narad_partitions_unsaved") == 1
    assert "put the file right in the data directory" in status(part)
    assert m.stderr().count(said) == 1


@pytest.mark.parametrize("name", ["consumer.ahead", "consumer.ahead.tmp"])
def test_consumer_ahead_becomes_a_folder_under_the_daemon(m, name):
    part = m.make("t")
    produce(part, *(f"r{n}" for n in range(4)))
    path = f"{m.data_part('t')}/consumer.ahead"
    with Consumer(part, "consume") as consumer:
        assert consumer.read() == b"r0\n"
        consumer.sync()
        os.unlink(path)
        os.mkdir(m.data_part("t") + "/" + name)
        assert consumer.read() == b"r1\n"
        for _ in range(2):
            assert fails(consumer.sync) == errno.EIO
        is_unsaved(m, part, name)
        produce(part, "r4")  # goes on
        os.rmdir(m.data_part("t") + "/" + name)
        consumer.sync()
        assert state(part) == "ok" and state(m.mnt) == "ok"
        assert metric(m, "narad_partitions_unsaved") == 0
        assert "consumer.ahead can be written again" in m.stderr()
    m.crash()
    assert drain(part) == records(2, 3, 4)


def test_progress_that_nobody_syncs_is_told_too(m):
    part = m.make("t")
    produce(part, "r0", "r1")
    os.mkdir(m.data_part("t") + "/consumer.ahead")
    assert drain(part) == records(0, 1)
    wait_for(lambda: state(part) == "unsaved", "the cadence")
    is_unsaved(m, part, "consumer.ahead")
    os.rmdir(m.data_part("t") + "/consumer.ahead")
    wait_for(lambda: state(m.mnt) == "ok", "the next try")
    m.crash()
    assert drain(part) == b""


def test_consumer_offset_alone_becomes_a_folder(m):
    part = m.make("t")
    produce(part, "r0", "r1")
    assert drain(part) == records(0, 1)
    path = f"{m.data_part('t')}/consumer.offset"
    if os.path.exists(path):
        os.unlink(path)
    os.mkdir(path)
    assert fails(write_file, part + "/ctl", b"seek 1\n") == errno.EIO  # which writes both files
    is_unsaved(m, part, "consumer.offset")
    os.rmdir(path)
    write_file(part + "/ctl", b"seek end\n")
    assert state(part) == "ok" and state(m.mnt) == "ok"
    m.restart()
    assert drain(part) == b""


# -- meta/ is gone


def refused_line(m, topic="t"):
    found = re.search(r"^refused +\S+: (.*)$", status(m.topic(topic)), re.M)
    return found.group(1) if found else ""


def delete(m, topic="t"):
    write_file(m.topic(topic) + "/ctl", b"delete " + xattr(m.topic(topic), "incarnation").encode() + b"\n")


def chmod(m):
    os.chmod(m.topic("t"), 0o700)


def more_partitions(m):
    write_file(m.topic("t") + "/ctl", b"partitions 2\n")


def retention(m):
    configure(m.topic("t"), retention_ms=5000)


@pytest.mark.parametrize("change", [chmod, more_partitions, retention, delete])
def test_a_record_that_cannot_be_written(m, change):
    part = m.make("t")
    produce(part, "r0")
    os.rename(m.data + "/meta", m.base + "/meta")
    assert fails(change, m) == errno.EIO
    said = "meta/t.topic cannot be changed: meta/ is missing in the data directory: put it back"
    assert said in refused_line(m) and said in m.stderr()
    assert fails(os.mkdir, m.topic("new")) == errno.EIO
    assert "meta/new.topic cannot be changed: meta/ is missing" in m.stderr()
    produce(part, "r1")
    assert log(part) == b"r0\nr1\n" and state(part) == "ok"  # nothing of it is deleted
    os.rename(m.base + "/meta", m.data + "/meta")
    change(m)
    if change is delete:
        assert not os.path.exists(m.topic("t")) and not os.path.exists(m.data + "/topics/t")
    else:
        assert log(part) == b"r0\nr1\n"
    m.restart()
    assert os.path.exists(m.topic("t")) == (change is not delete)


@pytest.mark.parametrize("act", [
    lambda m: os.mkdir(m.topic("t") + "/children/k"),
    lambda m: write_file(m.part("t") + "/ctl", b"seek 1\n"),
    lambda m: write_file(m.part("t") + "/ctl", b"trim 2\n"),
    lambda m: write_file(m.part("t") + "/ctl", b"roll\n")], ids=["attach", "seek", "trim", "roll"])
def test_what_needs_a_partitions_folder_that_is_gone(m, act):
    """EIO, and none of the errnos that mean something else: no such topic, no such offset."""
    m.make("k")
    part = m.make("t")
    produce(part, "r0", "r1")
    write_file(part + "/ctl", b"roll\n")
    produce(part, "r2")
    os.rename(m.data_part("t"), m.base + "/aside")
    assert fails(act, m) == errno.EIO
    assert re.search(r"topics/t\b.*(is missing|No such file)", m.stderr())
    os.rename(m.base + "/aside", m.data_part("t"))
    act(m)


def test_an_empty_topic_is_not_removed_without_its_record(m):
    m.make("t")
    os.rename(m.data + "/meta", m.base + "/meta")
    assert fails(os.rmdir, m.topic("t")) == errno.EIO
    assert "the topic was not deleted: meta/t.topic cannot be changed" in refused_line(m)
    os.rename(m.base + "/meta", m.data + "/meta")
    produce(m.part("t"), "r0")
    assert log(m.part("t")) == b"r0\n"


# -- folders that are gone at the start


def remains(m, part, word):
    assert state(part).startswith(word)
    assert "its folder was missing and was made anew, empty" in status(part)
    assert "whose folder was missing" in state(m.mnt)
    assert "t/p00000  its folder was missing" in status(m.mnt)
    assert "p00000  its folder was missing" in status(m.topic("t"))
    assert metric(m, "narad_partitions_anew") == 1


def test_a_partitions_folder_is_gone_at_the_start(m):
    part = m.make("t", partitions=2)
    produce(part, "a")
    produce(m.part("t", 1), "b")
    m.stop()
    shutil.rmtree(m.data_part("t"))
    m.start()
    wait_for(lambda: state(m.mnt) != "ok", "the survey")  # before anybody uses it
    remains(m, part, "anew")
    produce(part, "new")
    for _ in range(2):
        remains(m, part, "anew")
        assert log(part) == b"new\n"
        assert state(m.part("t", 1)) == "ok" and log(m.part("t", 1)) == b"b\n"
        m.crash()
        wait_for(lambda: state(m.mnt) != "ok", "the survey")
    reopen(part)
    for _ in range(2):
        assert state(m.mnt) == "ok" and state(part) == "ok" and state(m.topic("t")) == "ok"
        assert log(part) == b"new\n"
        m.restart()
    assert sorted(os.listdir(m.data + "/topics/t")) == ["incarnation", "p00000", "p00001"]


def test_a_folder_that_is_made_anew_by_a_reopen_is_told(m):
    part = m.make("t")
    produce(part, "a")
    shutil.rmtree(m.data_part("t"))
    assert fails(produce, part, "b") == errno.EIO
    reopen(part)
    produce(part, "b")
    for _ in range(2):
        remains(m, part, "damaged")  # the offsets went on
        assert log(part) == b"b\n" and number(part, "next_offset") == 2
        m.crash()
        wait_for(lambda: state(m.mnt) != "ok", "the survey")
    reopen(part)
    assert "folder was missing" not in status(part) and metric(m, "narad_partitions_anew") == 0
    assert sorted(os.listdir(m.data + "/topics/t")) == ["incarnation", "p00000"]


def test_a_folder_that_is_put_back_before_it_is_used(m):
    part = m.make("t")
    produce(part, "a")
    m.stop()
    os.rename(m.data_part("t"), m.base + "/aside")
    m.start()
    wait_for(lambda: state(m.mnt) != "ok", "the survey")
    assert not os.path.exists(m.data_part("t"))
    os.rename(m.base + "/aside", m.data_part("t"))
    assert log(part) == b"a\n"
    assert state(part) == "ok" and state(m.mnt) == "ok"
    produce(part, "b")
    m.restart()
    assert log(part) == b"a\nb\n" and state(m.mnt) == "ok"


def test_a_topics_folder_is_gone_at_the_start(m):
    part = m.make("t")
    produce(part, "a")
    m.stop()
    shutil.rmtree(m.data + "/topics/t")
    m.start()
    wait_for(lambda: state(m.mnt) != "ok", "the survey")
    remains(m, part, "anew")
    reopen(part)
    assert state(m.mnt) == "ok" and log(part) == b""


def test_a_new_topic_and_new_partitions_are_not_told(m):
    m.make("t")
    configure(m.topic("t"), partitions=3)
    m.restart()
    for i in range(3):
        produce(m.part("t", i), "a")
    assert state(m.mnt) == "ok" and state(m.topic("t")) == "ok"


# -- meta/ and the lock


def test_a_topics_record_is_written_again_by_a_stop(m):
    part = m.make("t")
    produce(part, "one", "two")
    os.unlink(m.data + "/meta/t.topic")
    m.stop()
    assert "meta/t.topic was gone, and was not removed by the daemon: written again" in m.stderr()
    m.start()
    assert log(part) == lines("one", "two")


def test_a_topics_record_is_written_again_while_the_daemon_runs(mounts):
    m = mounts(options="idle_close_ms=2000")
    part = m.make("t")
    m.make("deleted")
    produce(part, "one")
    os.rmdir(m.topic("deleted"))
    os.unlink(m.data + "/meta/t.topic")
    wait_for(lambda: os.path.exists(m.data + "/meta/t.topic"), "the record")
    m.kill()
    m.start()
    assert log(part) == lines("one")
    assert os.listdir(m.mnt + "/topics") == ["t"]


def test_without_the_lock_file_a_second_daemon_is_refused_all_the_same(m, mounts):
    produce(m.make("t"), "one")
    os.unlink(m.data + "/lock")
    other = mounts("other", start=False)
    other.data = m.data
    assert not other.try_start()
    assert "is in use by" in other.stderr()
    done = shell(f"{NARADCTL} check {m.data}", check=False)
    assert done.returncode == 8 and b"is in use by" in done.stdout + done.stderr
