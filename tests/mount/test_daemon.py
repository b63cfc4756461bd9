"""The daemon as a program: what it refuses, how it starts, how it stops."""

import errno
import fcntl
import os
import resource
import shutil
import signal
import subprocess
import tempfile
import time

import pytest
from support import (NARADFS, Background, Consumer, drain, fails, log, mountinfo, number, open_fails, produce,
                     read_file, wait_for)


def refused(m, words, command=None):
    """Runs the daemon, which must end by itself with an error and a sentence that has all these words."""
    err_path = os.path.join(m.base, "refused")
    with open(err_path, "wb") as err:
        code = subprocess.run(command or m.command(), stdin=subprocess.DEVNULL, stdout=err, stderr=err, env=m.env(),
                              timeout=30, check=False).returncode
    with open(err_path, encoding="utf-8", errors="replace") as file:
        text = file.read()
    assert code not in (0, 99) and code > 0, (code, text)
    for word in words:
        assert word in text, (word, text)
    assert text.count("\n") <= 4, f"not a plain sentence: {text}"
    return text


@pytest.mark.parametrize("foreground", [True, False])
def test_second_daemon_on_the_same_data(m, tmp_path, foreground):
    part = m.make("t")
    other = tmp_path / "other"
    other.mkdir()
    command = [NARADFS, m.data, str(other)] + (["-f"] if foreground else [])
    refused(m, [str(m.process.pid)], command)
    assert mountinfo(str(other)) is None
    produce(part, "still served")
    assert log(part) == b"still served\n"


def test_second_daemon_on_the_same_mount_point(m, tmp_path):
    other = tmp_path / "data2"
    other.mkdir()
    m.make("t")
    refused(m, [m.mnt], [NARADFS, str(other), m.mnt, "-f"])
    assert os.path.isdir(m.topic("t"))


def test_mount_point_inside_data(mounts):
    m = mounts(start=False)
    inside = m.data + "/inside"
    os.mkdir(inside)
    refused(m, [inside], [NARADFS, m.data, inside, "-f"])
    refused(m, [m.data], [NARADFS, m.data, m.data, "-f"])


def test_data_inside_mount_point(mounts):
    m = mounts(start=False)
    inside = m.mnt + "/inside"
    os.mkdir(inside)
    refused(m, [inside], [NARADFS, inside, m.mnt, "-f"])
    link = m.base + "/link"
    os.symlink(m.mnt, link)
    refused(m, [], [NARADFS, inside, link, "-f"])


def test_mount_point_that_will_not_do(mounts):
    m = mounts(start=False)
    with open(m.mnt + "/file", "w", encoding="utf-8"):
        pass
    refused(m, [m.mnt, "empty"])
    refused(m, [m.base + "/none"], [NARADFS, m.data, m.base + "/none", "-f"])
    refused(m, [m.mnt + "/file"], [NARADFS, m.data, m.mnt + "/file", "-f"])


def test_nonempty_option(mounts):
    m = mounts(start=False, options="nonempty")
    with open(m.mnt + "/file", "w", encoding="utf-8"):
        pass
    m.start()
    m.make("t")
    m.stop()
    assert os.listdir(m.mnt) == ["file"]


def test_options_of_mount_that_mean_nothing_here(mounts):
    m = mounts(options="relatime,strictatime,lazytime,iversion,silent,noatime,nodiratime")
    m.make("t")


def test_empty_names(mounts):
    m = mounts(start=False)
    refused(m, ["the data directory is an empty name"], [NARADFS, "", m.mnt, "-f"])
    refused(m, ["the mount point is an empty name"], [NARADFS, m.data, "", "-f"])
    assert os.listdir(m.data) == []


def test_data_that_will_not_do(mounts):
    m = mounts(start=False)
    path = m.base + "/plain"
    with open(path, "w", encoding="utf-8"):
        pass
    refused(m, [path], [NARADFS, path, m.mnt, "-f"])
    full = m.base + "/photos"
    os.mkdir(full)
    with open(full + "/cat.jpg", "w", encoding="utf-8"):
        pass
    refused(m, [full], [NARADFS, full, m.mnt, "-f"])
    assert os.listdir(full) == ["cat.jpg"]


@pytest.mark.parametrize("arguments", [["-o", "frobnicate"], ["-o", "frobnicate=1"], ["--frobnicate"],
                                       ["-o", "log_level=loud"], ["-o", "codec=gzip"], ["-o", "retention_ms=abc"],
                                       ["-o", "retention_ms=1"], ["-o", "partitions=0"], ["-o", "partitions=1x"],
                                       ["-o", "umask=9"], ["-o", "uid=-x"]])
def test_bad_options(mounts, arguments):
    m = mounts(start=False)
    word = arguments[-1].lstrip("-").split("=")[0]
    refused(m, [word], m.command() + arguments)


def test_missing_arguments(mounts):
    m = mounts(start=False)
    refused(m, [], [NARADFS])
    refused(m, [], [NARADFS, m.data])
    refused(m, [], [NARADFS, m.data, m.mnt, "third", "-f"])


@pytest.mark.parametrize("text", ["999\n", "2\n"])
def test_newer_format(m, text):
    m.stop()
    with open(m.data + "/format", "w", encoding="utf-8") as file:
        file.write(text)
    refused(m, ["format"])
    assert read_file(m.data + "/format").decode() == text


@pytest.mark.parametrize("text", ["", "x\n", "1x\n", "-1\n", "99999999999999999999999\n", "\0\0"])
def test_garbled_format(m, text):
    m.stop()
    with open(m.data + "/format", "w", encoding="utf-8") as file:
        file.write(text)
    refused(m, ["format"])


def test_help_and_version():
    for option in ("--help", "--version"):
        done = subprocess.run([NARADFS, option], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=20, check=False)
        assert done.returncode == 0, done.stdout
        assert b"naradfs" in done.stdout


# -- background


def lock_is_free(data):
    fd = os.open(data + "/lock", os.O_RDWR)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False
    finally:
        os.close(fd)


def test_background_returns_when_mounted(mounts):
    m = mounts(start=False)
    command = m.command(foreground=False)
    with open(m.base + "/out", "wb") as out:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=m.env(), timeout=30,
                              check=False)
    try:
        assert done.returncode == 0, read_file(m.base + "/out")
        part = m.make("t")  # at once
        produce(part, "x")
        assert log(part) == b"x\n"
    finally:
        subprocess.run(["fusermount3", "-u", m.mnt], check=True, timeout=30)
    wait_for(lambda: lock_is_free(m.data), "the daemon to end")
    m.start()
    assert log(m.part("t")) == b"x\n"


def test_background_lets_go_of_the_terminal(mounts):
    """A pipe that the caller gave as output ends when the command returns, so `naradfs ... | cat` does not hang."""
    m = mounts(start=False)
    done = subprocess.run(m.command(foreground=False), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, env=m.env(), timeout=30, check=False)
    try:
        assert done.returncode == 0, done.stdout
    finally:
        subprocess.run(["fusermount3", "-u", m.mnt], check=False, timeout=30)
    wait_for(lambda: lock_is_free(m.data), "the daemon to end")


@pytest.mark.skipif(os.getuid() != 0, reason="mount(8) is root's")
def test_mount_command(mounts):
    """As from fstab. mount(8) looks for the daemon in the system's own folders only, so one of them is replaced by the
    folder of the build, in a name space of the test's own."""
    m = mounts(start=False)
    script = f"""set -e
mount --bind {os.path.dirname(NARADFS)} /usr/local/bin
mount -t fuse.naradfs {m.data} {m.mnt} -o allow_other,nosuid,nodev
grep -q ' {m.mnt} .* - fuse.naradfs ' /proc/self/mountinfo
mkdir {m.mnt}/topics/t
echo x > {m.mnt}/topics/t/p00000/produce
cat {m.mnt}/topics/t/p00000/log
umount {m.mnt}
"""
    done = subprocess.run(["unshare", "-m", "bash", "-c", script], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, env=m.env(), timeout=40, check=False)
    assert (done.returncode, done.stdout) == (0, b"x\n")
    wait_for(lambda: lock_is_free(m.data), "the daemon to end")


# -- stopping


def test_stop_with_parked_readers(m):
    part = m.make("t")
    consumers = [Consumer(part, flags=os.O_RDONLY) for _ in range(5)]
    reads = [Background(consumer.read) for consumer in consumers]
    time.sleep(0.4)
    assert all(read.running() for read in reads)
    start = time.monotonic()
    m.process.send_signal(signal.SIGTERM)
    for read in reads:
        read.join()
        assert read.error is not None and read.error.errno == errno.ENODEV, (read.value, read.error)
    for consumer in consumers:
        try:
            consumer.close()
        except OSError:
            consumer.fd = -1
    assert m.wait_exit() == 0
    assert time.monotonic() - start < 10
    m.gone()
    assert mountinfo(m.mnt) is None


@pytest.mark.parametrize("number_", [signal.SIGTERM, signal.SIGINT])
def test_signals_stop_cleanly(m, number_):
    part = m.make("t", linger_ms=60000)
    fd = os.open(part + "/produce", os.O_WRONLY)
    os.write(fd, b"held\n")
    start = time.monotonic()
    m.process.send_signal(number_)
    assert m.wait_exit() == 0
    assert time.monotonic() - start < 10
    m.gone()
    try:
        os.close(fd)
    except OSError:
        pass
    m.start()
    assert log(part) == b"held\n"  # what producers held was committed


def test_umount_stops_the_daemon(m):
    produce(m.make("t"), "x")
    m.stop(how="umount")
    m.start()
    assert log(m.part("t")) == b"x\n"


def test_umount_with_open_files_is_busy(m):
    part = m.make("t")
    fd = os.open(part + "/log", os.O_RDONLY)
    done = subprocess.run(["fusermount3", "-u", m.mnt], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=30,
                          check=False)
    assert done.returncode != 0
    os.close(fd)
    produce(part, "x")


def test_hangup_is_ignored(m):
    part = m.make("t")
    m.process.send_signal(signal.SIGHUP)
    time.sleep(0.3)
    produce(part, "x")
    assert m.process.poll() is None
    assert log(part) == b"x\n"


def test_dead_mount_is_replaced(m):
    part = m.make("t")
    produce(part, "x")
    m.kill()
    assert mountinfo(m.mnt) is not None
    assert fails(os.listdir, m.mnt) == errno.ENOTCONN
    m.start()
    assert log(part) == b"x\n"
    with open("/proc/self/mountinfo", encoding="utf-8") as file:
        assert sum(line.split()[4] == m.mnt for line in file) == 1


def test_aborted_connection_ends_the_daemon(m):
    control = f"/sys/fs/fuse/connections/{os.minor(os.stat(m.mnt).st_dev)}/abort"
    if not os.path.exists(control):
        subprocess.run(["mount", "-t", "fusectl", "none", "/sys/fs/fuse/connections"], check=False, timeout=20,
                       stderr=subprocess.DEVNULL)
    if not os.path.exists(control):
        pytest.skip("no fusectl on this machine")
    produce(m.make("t"), "x")
    with open(control, "w", encoding="utf-8") as file:
        file.write("1")
    m.wait_exit(15)
    m.gone()
    m.start()
    assert log(m.part("t")) == b"x\n"


# -- read-only


def test_read_only_mount(m, mounts):
    part = m.make("t")
    produce(part, "a", "b")
    m.stop()
    m.options = "ro"
    m.start()
    assert log(part) == b"a\nb\n"
    assert fails(os.mkdir, m.topic("u")) == errno.EROFS
    assert open_fails(part + "/produce", os.O_WRONLY) == errno.EROFS
    assert open_fails(part + "/ctl", os.O_WRONLY) == errno.EROFS
    assert fails(os.rmdir, m.topic("t")) == errno.EROFS
    assert fails(os.chmod, part + "/log", 0o600) == errno.EROFS
    assert fails(os.setxattr, m.topic("t"), "user.narad.linger_ms", b"1") == errno.EROFS
    assert number(part, "hwm") == 2
    for _ in range(2):  # what a reader holds comes back at its close; settling it would have to be written
        with Consumer(part, "consume", os.O_RDONLY) as consumer:
            assert consumer.read(99) == b"a\n"
            assert number(part, "in_flight") == 1
            assert fails(os.fsync, consumer.fd) == errno.EROFS
        wait_for(lambda: number(part, "in_flight") == 0, "the lease to come back")
    m.stop()
    m.options = ""
    m.start()
    assert drain(part) == b"a\nb\n"


def test_options_set_defaults_of_new_topics(mounts):
    m = mounts(options="codec=zstd,retention_ms=86400000,partitions=2,log_level=debug")
    m.make("t")
    config = read_file(m.topic("t") + "/config")
    for line in (b"codec=zstd\n", b"retention_ms=86400000\n", b"partitions=2\n"):
        assert line in config, config
    produce(m.part("t", 1), "x")


def test_data_and_mount_paths_with_spaces(mounts, tmp_path):
    m = mounts(start=False)
    m.data = str(tmp_path / "my data")
    m.mnt = str(tmp_path / "my mount")
    os.mkdir(m.data)
    os.mkdir(m.mnt)
    m.start()
    produce(m.make("t"), "x")


def test_relative_paths_and_a_fresh_data_folder(mounts):
    m = mounts(start=False)
    os.rmdir(m.data)
    m.spawn(["sh", "-c", f"cd {m.base} && exec {NARADFS} ./data ./mnt -f"])
    made = wait_for(lambda: mountinfo(m.mnt) or m.process.poll() is not None, "the mount or a refusal")
    if made is True or m.process.poll() is not None:
        m.gone()  # refusing to make DATA is fine, when it says so
        assert m.data in m.stderr() or "./data" in m.stderr(), m.stderr()
        return
    m.wait_mounted()
    produce(m.make("t"), "x")


@pytest.mark.limit(90)
def test_nothing_leaks(m):
    """Descriptors and threads of the daemon after work are those before it."""
    def count():
        return len(os.listdir(f"/proc/{m.process.pid}/fd"))

    part = m.make("warm")
    produce(part, "x")
    drain(part)
    before = count()
    for _ in range(300):
        with Consumer(part):
            pass
        produce(part, "x")
        log(part)
        drain(part)
    for n in range(30):
        m.make(f"gone{n}")
        os.rmdir(m.topic(f"gone{n}"))
    wait_for(lambda: count() <= before + 3, f"descriptors to be {before}")
    assert len(os.listdir(f"/proc/{m.process.pid}/task")) < 40


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_an_ordinary_user_mounts():
    """Through fusermount3, without any privilege; also over the mount that a killed daemon left."""
    base = tempfile.mkdtemp(prefix="naradfs-user-")
    device_mode = os.stat("/dev/fuse").st_mode & 0o777
    script = f"""set -e
        cd {base}; mkdir data mnt
        ./naradfs data mnt
        mkdir mnt/topics/t; echo mine > mnt/topics/t/p00000/produce
        pkill -KILL -f "^./naradfs data mnt$" -U 65534
        while mountpoint -q mnt && ls mnt; do sleep 0.05; done >/dev/null 2>&1
        ./naradfs data mnt
        cat mnt/topics/t/p00000/log
        fusermount3 -u mnt"""
    try:
        shutil.copy(NARADFS, base + "/naradfs")  # the build folder may be closed to others
        os.chmod(base, 0o777)
        os.chmod("/dev/fuse", 0o666)  # as everywhere but in some sandboxes
        done = subprocess.run(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c", script],
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=50,
                              check=False)
        assert (done.returncode, done.stdout.decode().splitlines()[-1:]) == (0, ["mine"]), done.stdout.decode()
    finally:
        os.chmod("/dev/fuse", device_mode)
        subprocess.run(["umount", "-l", base + "/mnt"], stderr=subprocess.DEVNULL, check=False)
        shutil.rmtree(base, ignore_errors=True)


def test_stop_without_a_descriptor_left(m):
    part = m.make("t")
    produce(part, "one")
    _, hard = resource.prlimit(m.process.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(m.process.pid, resource.RLIMIT_NOFILE, (4, hard))
    m.process.send_signal(signal.SIGTERM)
    assert m.process.wait(20) in (0, 1), m.stderr()  # what needs a descriptor fails with a sentence; nothing aborts
    wait_for(lambda: mountinfo(m.mnt) is None, "the unmount")


@pytest.mark.parametrize("option", ["max_read=4096", "nonsense", "umask=9", "log_level=loud", "codec=lz4"])
def test_options_that_will_not_do(mounts, option):
    m = mounts(start=False)
    refused(m, [], [NARADFS, m.data, m.mnt, "-o", option])
    assert mountinfo(m.mnt) is None


def test_signals_at_any_moment_of_the_start(mounts):
    """From the fork on: the daemon ends, by the signal itself or cleanly, and leaves no mount."""
    m = mounts(start=False)
    for n in range(25):
        m.spawn()
        time.sleep(0.003 * n)
        m.process.send_signal(signal.SIGTERM)
        assert m.wait_exit(10) in (0, -signal.SIGTERM)
        wait_for(lambda: mountinfo(m.mnt) is None, "the mount to go away")
        m.gone()
    m.start()
