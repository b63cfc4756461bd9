"""System calls that programs use around their writes and reads: space reserved beforehand, holes, copies inside the
kernel, maps, locks. None of them adds a byte to a topic or takes one away without saying so."""

import errno
import fcntl
import mmap
import os
import subprocess

import pytest
from support import (PYTHON, Consumer, configure, fails, lines, log, number, open_fails, produce, read_file, shell,
                     wait_for, write_all)

MIB = 1 << 20
WRITABLE = ["produce", "produce.jsonl", "produce.bin", "ack", "ctl"]


def open_write(path, flags=0):
    return os.open(path, os.O_WRONLY | flags)


def hwm(part):
    return number(part, "hwm")


# -- space reserved beforehand


@pytest.mark.parametrize("name", WRITABLE)
def test_space_is_not_reserved(m, name):
    part = m.make("t", linger_ms=0)
    before = read_file(m.topic("t") + "/config")
    for path in (f"{part}/{name}", f"{m.topic('t')}/{name}", m.topic("t") + "/config", part + "/.streams/consume"):
        fd = open_write(path)
        for offset, size in ((0, 1), (0, 4 * MIB), (1 << 30, 8192)):
            assert fails(os.posix_fallocate, fd, offset, size) == errno.EINVAL, path
        os.close(fd)
    produce(part, "x")
    assert log(part) == b"x\n"
    assert read_file(m.topic("t") + "/config") == before
    assert number(part, "frontier") == 0


@pytest.mark.parametrize("options", ["", "--keep-size", "--punch-hole", "--zero-range", "--collapse-range", "--posix",
                                     "--dig-holes"])
def test_fallocate_program(m, options):
    part = m.make("t", linger_ms=0)
    produce(part, "x")
    size = "" if options == "--dig-holes" else "--offset 0 --length 100000"
    done = shell(f"fallocate {options} {size} {part}/produce", check=False)
    # --posix of util-linux 2.38 ignores what it is answered, and there is nothing to dig in
    assert done.returncode != 0 or options in ("--posix", "--dig-holes"), done
    produce(part, "y")
    assert log(part) == b"x\ny\n"


def test_rsync_reserves_in_vain(m, tmp_path):
    part = m.make("t")
    data = lines(*range(3000))
    (tmp_path / "in").write_bytes(data)
    shell(f"rsync --preallocate --inplace --whole-file {tmp_path}/in {part}/produce", check=False)
    wait_for(lambda: hwm(part) == 3000, "the records")
    assert log(part) == data


# -- holes


def sparse(path, data, hole, rest):
    """A file of data, a hole up to the position hole, and rest; its bytes."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT)
    os.write(fd, data)
    os.pwrite(fd, rest, hole)
    os.close(fd)
    return path.read_bytes()


@pytest.mark.parametrize("how", ["cat in > FILE", "cp --sparse=never in FILE", "dd if=in of=FILE bs=4k status=none",
                                 "tail -c +1 in > FILE", "rsync --inplace --whole-file in FILE", "tee FILE < in"])
def test_holes_of_a_source_are_zeros(m, tmp_path, how):
    part = m.make("t")
    data = sparse(tmp_path / "in", b"a\nb", 200000, b"c\nd\n")
    shell(how.replace("FILE", part + "/produce"), cwd=tmp_path, check="rsync" not in how)
    wait_for(lambda: hwm(part) == 3, "the records")
    assert log(part) == data
    assert "left out" not in m.stderr()


@pytest.mark.parametrize("how", ["cp in FILE", "cp --sparse=always in FILE", "dd if=in of=FILE bs=4k conv=sparse"])
@pytest.mark.parametrize("where", ["t/p00000", "t"])
def test_a_program_that_leaves_zeros_out_does_not_go_unnoticed(m, tmp_path, how, where):
    """A position means nothing here, and what is never written cannot be stored."""
    part = m.make("t")
    sparse(tmp_path / "in", b"a\nb", 200000, b"c\nd\n")
    done = shell(how.replace("FILE", f"{m.mnt}/topics/{where}/produce"), cwd=tmp_path, check=False)
    if "always" in how:
        assert done.returncode != 0  # it could not make the hole, and gives up
    else:
        wait_for(lambda: hwm(part) == 3, "the records")
        assert log(part).replace(b"\0", b"") == b"a\nbc\nd\n"
        said = [line for line in m.stderr().splitlines() if "left out" in line]
        assert len(said) == 1 and "topic=t" in said[0], m.stderr()


def test_writers_that_leave_nothing_out_are_not_suspected(m, tmp_path):
    part = m.make("t")
    file = part + "/produce"
    shell(f"echo 1 > {file}; echo 2 >> {file}; (echo 3; echo 4; sh -c 'echo 5') > {file}; exec 3>> {file}; echo 6 >&3; "
          f"echo 7 >> /dev/fd/3; echo 8 >&3; seq 9 4000 | tee -a {file} > {tmp_path}/copy")
    fd = open_write(file)
    os.write(fd, b"x\n")
    other = os.dup(fd)
    os.write(other, b"y\n")
    os.close(other)
    os.close(fd)
    fd = open_write(part + "/produce.jsonl")
    good = b'{"payload":1}\n'
    assert os.write(fd, good + b"bad\n" + good) == len(good)
    assert fails(os.write, fd, b"bad\n" + good) == errno.EINVAL
    os.write(fd, good)
    os.fsync(fd)
    os.close(fd)
    fd = os.open(part + "/produce", os.O_RDWR)  # reading what was committed moves the position
    for n in range(3):
        os.write(fd, b"z\n")
        os.fsync(fd)
        assert os.read(fd, 100) == b"p00000 %d %d\n" % (4004 + n, 4004 + n)
    os.close(fd)
    assert log(part) == lines(*range(1, 4001), "x", "y", 1, 1, *"zzz")
    assert "left out" not in m.stderr()


# -- dd


@pytest.mark.parametrize("options", [
    "conv=notrunc", "conv=fsync", "conv=fdatasync", "conv=notrunc,fsync", "oflag=append conv=notrunc", "oflag=sync",
    "oflag=dsync", "oflag=direct bs=4k", "oflag=nonblock", "seek=5 bs=16", "oflag=seek_bytes seek=100", "bs=1M",
    "obs=8k ibs=3", "conv=nocreat", "oflag=nocache", "conv=sparse"])
def test_dd(m, tmp_path, options):
    part = m.make("t")
    data = lines(*[f"line {n}" for n in range(2000)])
    (tmp_path / "in").write_bytes(data)
    shell(f"dd if={tmp_path}/in of={part}/produce {options} status=none")
    if "oflag=sync" in options or "oflag=dsync" in options:  # each write ends its line, and 512 bytes end in one
        assert log(part).replace(b"\n", b"") == data.replace(b"\n", b"")
    else:
        assert log(part) == data


# -- copies inside the kernel


def send_all(fd_in, fd_out, size):
    done = 0
    while done < size:
        done += os.sendfile(fd_out, fd_in, done, size - done)


def copy_all(fd_in, fd_out, size):
    done = 0
    while done < size:
        count = os.copy_file_range(fd_in, fd_out, size - done)
        assert count > 0
        done += count


def splice_all(fd_in, fd_out, size):
    back, front = os.pipe()
    done = 0
    while done < size:
        count = os.splice(fd_in, front, min(65536, size - done))
        assert count > 0
        done += count
        while count:
            count -= os.splice(back, fd_out, count)
    os.close(back)
    os.close(front)


# copy_file_range may be refused between two file systems; then programs read and write
KERNEL_COPIES = [send_all, splice_all, copy_all]
BELIEVES_SIZES = {send_all: pytest.mark.local("sizes of logs"), splice_all: pytest.mark.local("sizes of logs")}


@pytest.mark.parametrize("copy", KERNEL_COPIES)
@pytest.mark.parametrize("count", [1, 20000])
def test_kernel_copies_into_a_topic(m, tmp_path, copy, count):
    part = m.make("t")
    data = lines(*[f"line {n} of many" for n in range(count)])
    (tmp_path / "in").write_bytes(data)
    source, sink = os.open(tmp_path / "in", os.O_RDONLY), open_write(part + "/produce")
    try:
        copy(source, sink, len(data))
    except OSError as error:
        assert copy is copy_all and error.errno in (errno.EXDEV, errno.EOPNOTSUPP, errno.EINVAL), error
        write_all(sink, data)
    os.fsync(sink)
    os.close(source)
    os.close(sink)
    assert log(part) == data
    assert hwm(part) == count


@pytest.mark.parametrize("copy", [pytest.param(copy, marks=BELIEVES_SIZES.get(copy, ())) for copy in KERNEL_COPIES])
def test_kernel_copies_out_of_the_log(m, tmp_path, copy):
    part = m.make("t")
    data = lines(*[f"line {n} of many" for n in range(20000)])
    fd = open_write(part + "/produce")
    write_all(fd, data)
    os.fsync(fd)
    os.close(fd)
    source, sink = os.open(part + "/log", os.O_RDONLY), os.open(tmp_path / "out", os.O_WRONLY | os.O_CREAT)
    try:
        copy(source, sink, len(data))
    except OSError as error:
        assert copy is copy_all and error.errno in (errno.EXDEV, errno.EOPNOTSUPP, errno.EINVAL), error
        write_all(sink, read_file(part + "/log"))
    os.close(source)
    os.close(sink)
    assert (tmp_path / "out").read_bytes() == data
    shell(f"cp {part}/log {tmp_path}/cp; cp --sparse=always --reflink=auto {part}/log {tmp_path}/cp2; "
          f"cmp {tmp_path}/cp {tmp_path}/out; cmp {tmp_path}/cp2 {tmp_path}/out")


def test_nothing_is_leased_into_a_pipe(m):
    """The kernel splices from a file of size 0 without asking for it: an end of file, after which programs read."""
    part = m.make("t")
    produce(part, "a", "b")
    back, front = os.pipe()
    with Consumer(part) as consumer:
        assert os.splice(consumer.fd, front, 4096) == 0
        assert number(part, "in_flight") == 0
        assert consumer.read() == b"a\n"
    os.close(back)
    os.close(front)


@pytest.mark.local("sizes of logs")
def test_topic_to_topic_inside_the_kernel(m):
    part, other = m.make("t"), m.make("u")
    data = lines(*range(5000))
    produce(part, *range(5000))
    source, sink = os.open(part + "/log", os.O_RDONLY), open_write(other + "/produce")
    send_all(source, sink, len(data))
    os.fsync(sink)
    os.close(source)
    os.close(sink)
    assert log(other) == data


# -- maps


@pytest.mark.parametrize("name", ["produce", "produce.jsonl", "produce.bin"])
def test_files_that_take_writes_are_not_mapped_shared(m, name):
    part = m.make("t")
    fd = os.open(f"{part}/{name}", os.O_RDWR)
    for size in (1, 4096):
        try:
            mmap.mmap(fd, size, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
        except OSError as error:
            assert error.errno == errno.ENODEV
        except ValueError:  # Python itself: larger than the file
            pass
        else:
            raise AssertionError("mapped")
    os.fsync(fd)
    os.close(fd)
    assert hwm(part) == 0


MMAP = r"""
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    int fd = open(argv[1], O_RDWR);
    char *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    printf("%d\n", p == MAP_FAILED ? errno : 0);
    return fd < 0;
}
"""


def test_a_shared_map_for_writing_is_enodev(m, tmp_path):
    """Without the checks of a language's own."""
    (tmp_path / "map.c").write_text(MMAP)
    subprocess.run(["gcc", "-o", tmp_path / "map", tmp_path / "map.c"], check=True)
    part = m.make("t")
    for path in (part + "/produce", part + "/ack", m.topic("t") + "/config", part + "/consume"):
        done = subprocess.run([tmp_path / "map", path], stdout=subprocess.PIPE, check=True)
        assert int(done.stdout) == errno.ENODEV, path


# -- sizes and positions


def test_truncate_changes_nothing(m):
    part = m.make("t", linger_ms=60000)
    produce(part, "a")
    before = read_file(m.topic("t") + "/config")
    fd = open_write(part + "/produce")
    os.write(fd, b"b\nc")
    for size in ("0", "1", "1M", "+5", "-1"):
        shell(f"truncate -s {size} {part}/produce {part}/ack {part}/ctl {m.topic('t')}/config", check=False)
    shell(f"truncate -c -s 0 {part}/produce; : > {part}/produce; : > {m.topic('t')}/config")
    os.ftruncate(fd, 0)
    os.ftruncate(fd, 1 << 40)
    os.write(fd, b"d\n")
    os.fsync(fd)
    os.close(fd)
    assert log(part) == lines("a", "b", "cd")
    assert read_file(m.topic("t") + "/config") == before
    assert fails(os.truncate, part + "/log", 0) == errno.EPERM


def test_positions_mean_nothing_to_writers_and_streams_have_none(m):
    part = m.make("t")
    fd = os.open(part + "/produce", os.O_RDWR)
    for whence in (os.SEEK_SET, os.SEEK_CUR, os.SEEK_END):
        os.lseek(fd, 0, whence)
        os.write(fd, b"x\n")
    os.lseek(fd, 1 << 40, os.SEEK_SET)
    os.write(fd, b"y\n")
    os.fsync(fd)
    os.close(fd)
    assert log(part) == lines("x", "x", "x", "y")
    for name in ("consume", "consume.jsonl", "consume.bin", "drain"):
        with Consumer(part, name) as consumer:
            for whence in (os.SEEK_SET, os.SEEK_CUR, os.SEEK_END):
                assert fails(os.lseek, consumer.fd, 0, whence) == errno.ESPIPE, name
            assert fails(os.pread, consumer.fd, 100, 0) == errno.ESPIPE, name
    assert number(part, "in_flight") == 0


# -- flags of single calls and of opening


@pytest.mark.parametrize("where", ["partition", "topic"])
@pytest.mark.parametrize("flag", ["RWF_DSYNC", "RWF_SYNC"])
def test_single_writes_that_are_synchronous(m, flag, where):
    part = m.make("t", linger_ms=60000)
    folder = part if where == "partition" else m.topic("t")
    fd = os.open(folder + "/produce", os.O_RDWR)
    assert os.pwritev(fd, [b"a\n", b"b\n"], 0, getattr(os, flag)) == 4
    wait_for(lambda: hwm(part) == 2, "what the write has committed")
    assert os.write(fd, b"later\n") == 6
    assert hwm(part) == 2
    assert os.pwritev(fd, [b"now"], 0, getattr(os, flag)) == 3  # ends its line, as with O_DSYNC
    wait_for(lambda: hwm(part) == 4, "what the write has committed")
    os.close(fd)
    assert log(part) == lines("a", "b", "later", "now")


def test_flags_of_opening(m):
    part = m.make("t")
    fd = open_write(part + "/produce", os.O_DIRECT | os.O_APPEND | os.O_NOCTTY | os.O_NONBLOCK)
    os.write(fd, b"a\n")
    os.close(fd)
    path_only = os.open(part + "/produce", os.O_PATH)
    fd = open_write(f"/proc/self/fd/{path_only}", os.O_TRUNC)
    os.write(fd, b"b\n")
    os.fsync(fd)
    for fd_ in (fd, path_only):
        os.close(fd_)
    wait_for(lambda: sorted(log(part).splitlines()) == [b"a", b"b"], "the records")
    fd = os.open(part + "/consume", os.O_RDONLY | os.O_DIRECT | os.O_NONBLOCK)
    assert os.read(fd, 100) in (b"a\n", b"b\n")
    os.close(fd)
    for path, flags, error in (("consume", os.O_RDONLY | os.O_NOFOLLOW, errno.ELOOP),
                               ("produce", os.O_RDONLY | os.O_DIRECTORY, errno.ENOTDIR),
                               ("log", os.O_RDONLY | os.O_TRUNC, errno.EPERM), ("log", os.O_RDWR, errno.EPERM),
                               ("drain", os.O_RDWR, errno.EPERM), ("consume.bin", os.O_WRONLY, errno.EPERM),
                               ("produce", os.O_WRONLY | os.O_CREAT | os.O_EXCL, errno.EEXIST)):
        assert open_fails(f"{part}/{path}", flags) == error, path
    wait_for(lambda: number(part, "in_flight") == 0, "the lease")


# -- locks


def test_flock_program_is_told(m, tmp_path):
    """Locks on a stream would be on one of many inodes and mean nothing: a script fails, and runs nothing unlocked."""
    part = m.make("t")
    for name in ("produce", "consume"):
        done = shell(f"flock -n {part}/{name} -c 'touch {tmp_path}/ran'", check=False)
        assert done.returncode != 0 and not (tmp_path / "ran").exists(), done
        done = shell(f"exec 9>> {part}/produce; flock -n 9 && touch {tmp_path}/ran", check=False)
        assert done.returncode != 0 and not (tmp_path / "ran").exists(), done
    done = shell(f"flock {tmp_path}/lock -c 'echo x >> {part}/produce'")
    assert log(part) == b"x\n"


def test_every_lock_call(m):
    part = m.make("t")
    fd = os.open(part + "/produce", os.O_RDWR)
    for kind in (fcntl.LOCK_SH, fcntl.LOCK_EX, fcntl.LOCK_EX | fcntl.LOCK_NB):
        assert fails(fcntl.flock, fd, kind) == errno.EOPNOTSUPP
        assert fails(fcntl.lockf, fd, kind) == errno.EOPNOTSUPP
    assert fails(os.lockf, fd, os.F_TEST, 0) == errno.EOPNOTSUPP
    assert fails(os.lockf, fd, os.F_TLOCK, 10) == errno.EOPNOTSUPP
    os.write(fd, b"x\n")
    os.fsync(fd)
    os.close(fd)
    assert log(part) == b"x\n"


# -- written by programs that keep a log file


LOGGING = """
import logging, logging.handlers, sys
handler = getattr(logging.handlers if sys.argv[1] == "WatchedFileHandler" else logging, sys.argv[1])(sys.argv[2])
log = logging.getLogger("app")
log.addHandler(handler)
log.setLevel(logging.INFO)
for n in range(200):
    log.info("message %d", n)
logging.shutdown()
"""


@pytest.mark.parametrize("handler", ["FileHandler", "WatchedFileHandler"])
@pytest.mark.parametrize("linger_ms", [0, 60000])
def test_logging_of_python(m, handler, linger_ms):
    """WatchedFileHandler compares device and inode before each message, and opens the file again when they change."""
    part = m.make("t", linger_ms=linger_ms)
    for path in (part + "/produce", m.topic("t") + "/produce"):
        subprocess.run([PYTHON, "-c", LOGGING, handler, path], check=True)
    expected = [f"message {n}" for n in range(200)]
    wait_for(lambda: hwm(part) == 400, "the records")
    assert log(part) == lines(*(expected * 2))


def test_script_program(m):
    part = m.make("t")
    shell(f"script --quiet --flush --append --command 'echo one; echo two' {part}/produce")
    wait_for(lambda: b"two" in log(part), "the session")
    text = log(part)
    assert text.count(b"one\r\n") == 1 and text.count(b"two\r\n") == 1


def test_stdio_modes(m, tmp_path):
    """Every mode of fopen, with each kind of buffer, through a shell of its own each time."""
    part = m.make("t")
    expected = []
    for mode in ("w", "a", "r+", "w+", "a+"):
        for buffering in (-1, 1):
            subprocess.run([PYTHON, "-c", f"f = open({part + '/produce'!r}, {mode + 'b'!r}, 0)\n"
                            f"f.write(b'{mode} {buffering}\\n'); f.flush(); f.close()"], check=True)
            expected.append(f"{mode} {buffering}")
    (tmp_path / "c.c").write_text('#include <stdio.h>\nint main(int c, char **v) { FILE *f = fopen(v[1], v[2]);\n'
                                  'if (!f) return 1; for (int i = 0; i < 3; i++) fprintf(f, "%s %d\\n", v[2], i);\n'
                                  'return fclose(f) != 0; }\n')
    subprocess.run(["gcc", "-o", tmp_path / "c", tmp_path / "c.c"], check=True)
    for mode in ("w", "a", "r+", "w+", "a+"):
        subprocess.run([tmp_path / "c", part + "/produce", mode], check=True)
        expected += [f"{mode} {n}" for n in range(3)]
    assert log(part) == lines(*expected)


def test_settings_by_programs(m):
    """config is written in place by what writes in place."""
    topic = m.topic("t")
    m.make("t")
    shell(f"echo linger_ms=7 > {topic}/config; printf 'retention_ms=5000\\r\\n' > {topic}/config || true")
    configure(topic, visibility_timeout_ms=700)
    text = read_file(topic + "/config").decode()
    assert "linger_ms=7\n" in text and "visibility_timeout_ms=700\n" in text
