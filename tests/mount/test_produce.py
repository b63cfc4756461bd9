"""Producing: what becomes a record, when it is committed, and what a writer is told."""

import errno
import os
import re
import subprocess

import pytest
from support import (PYTHON, configure, fails, lines, log, number, open_fails, produce, read_file, read_rest, shell,
                     wait_for, write_all)

MIB = 1 << 20


def open_produce(part, flags=os.O_WRONLY, name="produce"):
    return os.open(f"{part}/{name}", flags)


def records(part):
    return number(part, "hwm")


# -- framing


def test_lines_put_together_across_writes(m):
    part = m.make("t", linger_ms=60000)
    fd = open_produce(part)
    for piece in (b"ab", b"c\nde", b"", b"f\n"):
        if piece:
            assert os.write(fd, piece) == len(piece)
    os.fsync(fd)
    assert log(part) == b"abc\ndef\n"
    os.close(fd)
    assert records(part) == 2


def test_last_close_ends_a_partial_line(m):
    part = m.make("t")
    fd = open_produce(part)
    os.write(fd, b"no newline")
    os.close(fd)
    wait_for(lambda: records(part) == 1, "the record")
    assert log(part) == b"no newline\n"


def test_fsync_ends_a_partial_line(m):
    part = m.make("t", linger_ms=60000)
    fd = open_produce(part)
    os.write(fd, b"par")
    os.fsync(fd)
    assert log(part) == b"par\n"
    os.write(fd, b"tial\n")
    os.fsync(fd)
    os.fdatasync(fd)  # nothing new: no empty record
    assert log(part) == b"par\ntial\n"
    os.close(fd)


def test_closing_a_duplicate_ends_nothing(m):
    part = m.make("t", linger_ms=60000)
    fd = open_produce(part)
    os.write(fd, b"whole\nhalf")
    os.close(os.dup(fd))
    assert log(part) == b"whole\n"  # each close commits the complete records
    os.write(fd, b" and half\n")
    os.fsync(fd)
    assert log(part) == b"whole\nhalf and half\n"
    os.close(fd)


def test_children_that_inherit_the_descriptor_end_nothing(m):
    part = m.make("t", linger_ms=60000)
    fd = open_produce(part)
    os.write(fd, b"one ")
    subprocess.run(["true"], pass_fds=[fd], check=True)
    subprocess.run(["bash", "-c", f"printf 'two ' >&{fd}"], pass_fds=[fd], check=True)
    os.write(fd, b"three\n")
    os.fsync(fd)
    assert log(part) == b"one two three\n"
    os.close(fd)


def test_shell_that_redirects_in_the_middle_of_a_line(m):
    part = m.make("t")
    shell(f"exec 3>{part}/produce; printf 'a ' >&3; /bin/echo -n 'b ' >&3; (printf 'c' >&3); echo >&3; exec 3>&-")
    wait_for(lambda: records(part) == 1, "the record")
    assert log(part) == b"a b c\n"


def test_empty_lines_are_empty_records(m):
    part = m.make("t")
    produce(part, b"", b"x", b"")
    assert records(part) == 3
    assert log(part) == b"\nx\n\n"


def test_nothing_written_is_no_record(m):
    part = m.make("t")
    fd = open_produce(part)
    os.fsync(fd)
    os.close(fd)
    shell(f": > {part}/produce; cat /dev/null > {part}/produce")
    assert records(part) == 0


@pytest.mark.parametrize("record", [b"\0", b"a\0b\0", b"\xff\xfe\x80", b"\r", b"caf\xc3\xa9", b"\xca\xfe" * 500,
                                    bytes(b for b in range(256) if b != 10)])
def test_bytes_pass_unchanged(m, record):
    part = m.make("t")
    produce(part, b"before", record, b"after")
    assert log(part) == b"before\n" + record + b"\nafter\n"
    assert read_file(part + "/drain") == b"before\n" + record + b"\nafter\n"


def test_offsets_and_truncation_are_irrelevant(m):
    part = m.make("t")
    fd = open_produce(part, os.O_WRONLY | os.O_TRUNC)
    os.pwrite(fd, b"a\n", 1 << 40)
    os.lseek(fd, 7, os.SEEK_SET)
    os.write(fd, b"b\n")
    os.pwrite(fd, b"c\n", 0)
    os.ftruncate(fd, 0)
    os.fsync(fd)
    os.close(fd)
    os.truncate(part + "/produce", 0)
    assert log(part) == b"a\nb\nc\n"


def test_writev_of_many_pieces(m):
    part = m.make("t")
    fd = open_produce(part)
    pieces = [b"line %d\n" % i for i in range(1000)]
    total = b"".join(pieces)
    written = os.writev(fd, pieces)
    write_all(fd, total[written:])
    os.fsync(fd)
    os.close(fd)
    assert log(part) == total


# -- too long


def test_a_record_of_exactly_the_limit(m):
    part = m.make("t", max_record_bytes=MIB)
    record = os.urandom(MIB).replace(b"\n", b"x")
    produce(part, record, b"next")
    assert log(part) == record + b"\nnext\n"


def write_until_refused(fd, data):
    """Writes like a program does, sending the rest after a short write; the bytes taken before EMSGSIZE."""
    done = 0
    while done < len(data):
        try:
            done += os.write(fd, data[done:])
        except OSError as error:
            assert error.errno == errno.EMSGSIZE, error
            return done
    raise AssertionError("all of it was taken")


def test_one_byte_over_the_limit_in_one_write(m):
    part = m.make("t", linger_ms=60000)
    fd = open_produce(part)
    assert os.write(fd, b"good\n") == 5
    write_until_refused(fd, b"x" * (MIB + 1) + b"\n")
    assert os.write(fd, b"after\n") == 6  # the failed write held the record's end
    os.fsync(fd)
    os.close(fd)
    assert log(part) == b"good\nafter\n"


def test_too_long_record_that_ends_in_the_failed_write(m):
    part = m.make("t", linger_ms=60000)
    fd = open_produce(part)
    assert os.write(fd, b"x" * (MIB // 2)) == MIB // 2
    assert fails(os.write, fd, b"x" * (MIB * 5 // 8) + b"\n") == errno.EMSGSIZE
    assert os.write(fd, b"after\n") == 6
    os.fsync(fd)
    os.close(fd)
    assert log(part) == b"after\n"


def test_too_long_record_that_ends_later(m):
    part = m.make("t", linger_ms=60000)
    fd = open_produce(part)
    assert os.write(fd, b"x" * (MIB // 2)) == MIB // 2
    assert fails(os.write, fd, b"x" * (MIB * 5 // 8)) == errno.EMSGSIZE
    assert os.write(fd, b"still the refused one\nafter\n") == 28  # skipped up to its end
    os.fsync(fd)
    os.close(fd)
    assert log(part) == b"after\n"


def test_three_mib_in_one_write(m):
    part = m.make("t", linger_ms=60000)
    fd = open_produce(part)
    data = b"a\nb\n" + b"x" * (3 * MIB) + b"\n"
    assert write_until_refused(fd, data) >= 4
    # the kernel cut the write up, so the record's end may or may not have been seen
    write_all(fd, b"\nafter\n")
    os.fsync(fd)
    os.close(fd)
    text = log(part)
    assert text in (b"a\nb\nafter\n", b"a\nb\n\nafter\n"), text[:100]


def test_refused_record_at_close_is_no_record(m):
    part = m.make("t")
    fd = open_produce(part)
    # no whole number of requests from wherever it begins: a last one that is full may not be the last one (framing.h)
    write_until_refused(fd, b"x" * (2 * MIB + 100))
    os.close(fd)
    produce(part, b"after")
    assert log(part) == b"after\n"


def test_longer_records_when_the_topic_allows_them(m):
    part = m.make("t", max_record_bytes=4 * MIB)
    record = b"y" * (4 * MIB)
    produce(part, record)
    assert log(part) == record + b"\n"


# -- when


@pytest.mark.parametrize("flag", ["O_SYNC", "O_DSYNC"])
def test_synchronous_descriptors_commit_each_write(m, flag):
    part = m.make("t", linger_ms=60000)
    fd = open_produce(part, os.O_WRONLY | getattr(os, flag))
    os.write(fd, b"one\n")
    assert log(part) == b"one\n"
    os.write(fd, b"two\nthree")
    assert log(part) == b"one\ntwo\nthree\n"
    os.close(fd)


def test_linger_commits_in_the_background(m):
    part = m.make("t", linger_ms=50)
    fd = open_produce(part)
    os.write(fd, b"complete\npartial")
    wait_for(lambda: records(part) == 1, "the background commit")
    assert log(part) == b"complete\n"
    os.write(fd, b" no more\n")
    wait_for(lambda: records(part) == 2, "the background commit")
    assert log(part) == b"complete\npartial no more\n"
    os.close(fd)


@pytest.mark.parametrize("count,size", [(1000, 5), (30, 40000)])
def test_full_batches_commit_before_linger(m, count, size):
    part = m.make("t", linger_ms=60000)
    fd = open_produce(part)
    write_all(fd, lines(*[b"x" * size] * count))
    wait_for(lambda: records(part) > 0, "a commit at 1,000 records or 1 MiB")
    os.close(fd)


def test_close_commits_at_once(m):
    part = m.make("t", linger_ms=60000)
    fd = open_produce(part)
    os.write(fd, b"x\n")
    os.close(fd)
    assert log(part) == b"x\n"


def test_sync_of_the_file_commits_what_others_hold(m):
    part = m.make("t", linger_ms=60000)
    fd = open_produce(part)
    os.write(fd, b"complete\npart")
    shell(f"sync {part}/produce")
    assert log(part) == b"complete\n"
    other = open_produce(part)
    os.write(fd, b"ial\n")
    os.fsync(other)
    assert log(part) == b"complete\npartial\n"
    os.close(fd)
    os.close(other)


def test_handles_never_mix(m):
    part = m.make("t", linger_ms=60000)
    fds = [open_produce(part) for _ in range(8)]
    for piece in range(10):
        for n, fd in enumerate(fds):
            os.write(fd, b"%d" % n * 3)
    for fd in fds:
        os.write(fd, b"\n")
    for fd in fds:
        os.close(fd)
    assert sorted(log(part).splitlines()) == [b"%d" % n * 30 for n in range(8)]


# -- ranges


def test_read_write_handles_tell_the_offsets(m):
    part = m.make("t", linger_ms=60000)
    fd = open_produce(part, os.O_RDWR)
    os.write(fd, b"a\nb\nc\n")
    os.fsync(fd)
    assert os.read(fd, 4096) == b"p00000 0 2\n"
    produce(part, "other")
    os.write(fd, b"d\n")
    os.fsync(fd)
    os.write(fd, b"e\nf\n")
    os.fsync(fd)
    text = b""
    while text.count(b"\n") < 2:
        piece = os.read(fd, 5)
        assert piece
        text += piece
    assert text == b"p00000 4 4\np00000 5 6\n"
    os.close(fd)
    assert log(part) == b"a\nb\nc\nother\nd\ne\nf\n"


def test_ranges_of_background_commits(m):
    part = m.make("t", linger_ms=20)
    fd = open_produce(part, os.O_RDWR)
    os.write(fd, b"a\nb\n")
    wait_for(lambda: records(part) == 2, "the background commit")
    assert wait_for(lambda: os.read(fd, 4096), "the range") == b"p00000 0 1\n"
    os.close(fd)


def test_reading_produce_is_an_empty_file(m):
    part = m.make("t")
    produce(part, "x")
    assert read_file(part + "/produce") == b""


# -- names


def test_named_produce_files(m):
    part = m.make("t")
    produce(part, "one", name="produce@worker-1")
    produce(part, "two", name="produce@a.b_c")
    assert log(part) == b"one\ntwo\n"
    assert not [name for name in os.listdir(part) if "@" in name]
    for bad in ("produce@", "produce@.x", "produce@a b", "produce@x.stale-y", "produced"):
        assert open_fails(f"{part}/{bad}", os.O_WRONLY) in (errno.ENOENT, errno.EINVAL), bad
    for folder in (part, m.topic("t")):
        for name in ("produce", "produce.jsonl", "produce.bin"):
            assert os.path.samefile(f"{folder}/{name}", f"{folder}/{name}@w1"), name
            assert open_fails(f"{folder}/{name}@" + "n" * 201, os.O_WRONLY) == errno.ENAMETOOLONG, name
            os.close(os.open(f"{folder}/{name}@" + "n" * 200, os.O_WRONLY))


def test_many_named_writers(m):
    part = m.make("t")
    script = f"for i in $(seq 40); do echo \"$0 $i\"; done > {part}/produce@w$0"
    writers = [subprocess.Popen(["bash", "-c", script, str(n)]) for n in range(12)]
    assert [writer.wait(30) for writer in writers] == [0] * 12
    seen = log(part).decode().splitlines()
    for n in range(12):
        assert [line for line in seen if line.split()[0] == str(n)] == [f"{n} {i}" for i in range(1, 41)]


# -- clients


@pytest.mark.parametrize("client", [
    "echo 'line 1' > FILE; echo 'line 2' >> FILE; printf 'line 3\\n' > FILE",
    "seq -f 'line %g' 3 | tee FILE > /dev/null",
    "seq -f 'line %g' 3 | tee -a FILE > /dev/null",
    "seq -f 'line %g' 3 > in; cp in FILE",
    "seq -f 'line %g' 3 > in; cat in >> FILE",
    "seq -f 'line %g' 3 > in; dd if=in of=FILE bs=5 conv=fsync status=none",
    "seq -f 'line %g' 3 > in; dd if=in of=FILE oflag=append conv=notrunc bs=1 status=none",
    "seq 3 | awk '{ print \"line \" $1 > \"FILE\" }'",
    "seq 3 | awk '{ print \"line \" $1 >> \"FILE\"; fflush() }'",
    "seq -f 'line %g' 3 | sed -n 'w FILE'",
    PYTHON + " -c 'f = open(\"FILE\", \"a\")\nfor i in 1, 2, 3: print(\"line\", i, file=f)'",
    PYTHON + " -c 'f = open(\"FILE\", \"wb\", 0)\nfor i in 1, 2, 3: f.write(b\"line %d\\n\" % i)'",
    "seq -f 'line %g' 3 > in; cat in | (trap '' HUP; cat > FILE)",
    "seq -f 'line %g' 3 | split -n r/1 --filter='cat > FILE' -",
])
def test_everyday_programs_produce(m, tmp_path, client):
    part = m.make("t")
    shell(client.replace("FILE", part + "/produce"), cwd=tmp_path)
    wait_for(lambda: records(part) == 3, "three records")
    assert log(part) == b"line 1\nline 2\nline 3\n"


def test_noclobber_and_exclusive_create_are_refused(m):
    part = m.make("t")
    assert open_fails(part + "/produce", os.O_WRONLY | os.O_CREAT | os.O_EXCL) == errno.EEXIST
    assert shell(f"set -C; echo x > {part}/produce", check=False).returncode != 0
    assert records(part) == 0


def test_partitions_of_a_topic_are_apart(m):
    m.make("t", partitions=3)
    for n in range(3):
        produce(m.part("t", n), *[f"{n}-{i}" for i in range(n + 1)])
    for n in range(3):
        assert log(m.part("t", n)) == lines(*[f"{n}-{i}" for i in range(n + 1)])


@pytest.mark.parametrize("codec", ["none", pytest.param("zstd", marks=pytest.mark.local("segments"))])
def test_codecs_change_nothing_that_is_seen(m, codec):
    part = m.make("t", codec=codec)
    text = lines(*[f'{{"number": {i}, "name": "record"}}' for i in range(5000)])
    fd = open_produce(part)
    write_all(fd, text)
    os.fsync(fd)
    os.close(fd)
    assert log(part) == text
    fd = os.open(part + "/log", os.O_RDONLY)
    for pos in (0, 1, 77777, len(text) - 5, len(text)):
        assert os.pread(fd, 1000, pos) == text[pos:pos + 1000]
    os.close(fd)
    m.restart()
    assert log(part) == text
    if codec == "zstd":
        assert number(part, "size_bytes") < len(text) / 3


@pytest.mark.local("sizes of logs")
def test_log_has_an_exact_size_and_seeks(m):
    part = m.make("t", segment_bytes=65536)
    sizes = [(i * 7919) % 3000 for i in range(400)]
    rows = [b"%05d " % i + b"z" * size for i, size in enumerate(sizes)]
    for i in range(0, 400, 25):
        produce(part, *rows[i:i + 25])
    text = lines(*rows)
    assert number(part, "segments") > 3
    assert os.stat(part + "/log").st_size == len(text)
    fd = os.open(part + "/log", os.O_RDONLY)
    for pos in range(0, len(text), 49999):
        assert os.pread(fd, 100, pos) == text[pos:pos + 100]
    assert os.lseek(fd, -10, os.SEEK_END) == len(text) - 10
    assert read_rest(fd) == text[-10:]
    produce(part, "more")
    assert os.fstat(fd).st_size == len(text) + 5
    assert os.read(fd, 100) == b"more\n"
    os.close(fd)
    m.restart()
    assert log(part) == text + b"more\n"


def test_refused_write_is_logged_once_with_its_place(m):
    part = m.make("orders")
    fd = open_produce(part)
    write_until_refused(fd, b"x" * (2 * MIB) + b"\n")
    os.close(fd)
    told = [line for line in m.stderr().splitlines() if "topic=orders" in line and "partition=0" in line]
    assert len(told) == 1, m.stderr()


def test_configuration_of_linger_applies_at_once(m):
    part = m.make("t", linger_ms=60000)
    configure(m.topic("t"), linger_ms=0)
    fd = open_produce(part)
    os.write(fd, b"x\n")
    wait_for(lambda: records(part) == 1, "the commit")
    os.close(fd)


def test_status_of_a_partition_is_text(m):
    part = m.make("t")
    produce(part, "x", "y")
    text = read_file(part + "/status").decode()
    assert re.search(r"\b2\b", text), text
