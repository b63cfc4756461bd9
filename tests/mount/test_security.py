"""What the daemon is built with, what it may do and does, and things planted in DATA."""

import os
import pwd
import re
import shutil
import subprocess
import tempfile

import pytest
from support import (NARADFS, ROOT, SANITIZED, Failed, Mount, ack, drain, fails, lines, log, mountinfo, produce, read_file, shell,
                     take, wait_for, write_file)
from test_faults import need_strace

as_root = pytest.mark.skipif(os.getuid() != 0, reason="root's daemon, devices and other users are looked at")

# -- how it is built


def check_hardening(*arguments):
    return subprocess.run([ROOT + "/scripts/check-hardening", *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          timeout=30, check=False)


def test_hardened():
    programs = [NARADFS] + [path for path in [f"{os.path.dirname(NARADFS)}/../ctl/naradctl"] if os.path.exists(path)]
    done = check_hardening(*(["--sanitized"] if SANITIZED else []), *programs)
    assert (done.returncode, done.stdout) == (0, b"")


def test_what_is_not_hardened_is_noticed(tmp_path):
    if not shutil.which("gcc"):
        pytest.skip("no gcc on this machine")
    source, program = f"{tmp_path}/soft.c", f"{tmp_path}/soft"
    write_file(source, b"int main(void)\n{\n    return 0;\n}\n", os.O_CREAT)
    soft = ["-no-pie", "-fno-stack-protector", "-Wl,-z,norelro", "-Wl,-z,lazy", "-Wl,-z,execstack"]
    subprocess.run(["gcc", *soft, source, "-o", program], check=True, timeout=30)
    done = check_hardening(program)
    assert done.returncode == 1 and done.stdout.count(b"check-hardening: ") == 6, done.stdout.decode()


# -- what it may do

NEEDED = {1, 2, 3, 21}  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_FOWNER, CAP_SYS_ADMIN


def capabilities(path):
    """{set: numbers} of a process or thread, and NoNewPrivs."""
    text = read_file(path + "/status").decode()
    sets = {name: int(mask, 16) for name, mask in re.findall(r"^Cap(\w+):\t(\w+)$", text, re.M)}
    found = {name: {bit for bit in range(64) if mask >> bit & 1} for name, mask in sets.items()}
    return found, re.search(r"^NoNewPrivs:\t(\d)$", text, re.M).group(1)


def threads(pid):
    return [f"/proc/{pid}/task/{tid}" for tid in os.listdir(f"/proc/{pid}/task")]


@as_root
def test_root_keeps_four_capabilities(mounts):
    """Of every thread; with them it goes on to serve, to unmount and to take away a dead mount."""
    m = mounts(options="allow_other")
    part = m.make("t")
    produce(part, "x")
    for thread in threads(m.process.pid):
        sets, no_new = capabilities(thread)
        assert sets["Prm"] == sets["Eff"] == NEEDED and sets["Bnd"] <= NEEDED, sets
        assert not sets["Inh"] and not sets["Amb"] and no_new == "1", sets
    m.crash()
    m.stop()
    assert mountinfo(m.mnt) is None


@as_root
def test_data_of_somebody_else(mounts):
    m = mounts(start=False)
    for path in (m.data, m.mnt):
        os.chmod(path, 0o700)
        os.chown(path, 5001, 5001)
    m.start()
    part = m.make("t")
    produce(part, "x")
    m.stop()
    shutil.chown(m.data, 5002)
    for folder, folders, files in os.walk(m.data):
        for name in folders + files:
            os.chown(f"{folder}/{name}", 5001, 5001)
    m.start()
    produce(part, "y")
    assert log(part) == b"x\ny\n"
    m.crash()
    assert log(part) == b"x\ny\n"


@pytest.fixture
def open_folder():
    """One that every user may enter."""
    path = tempfile.mkdtemp(prefix="naradfs-test-")
    os.chmod(path, 0o777)
    yield path
    subprocess.run(["umount", "-l", path + "/mnt"], stderr=subprocess.DEVNULL, check=False)
    shutil.rmtree(path, ignore_errors=True)


def use(mnt):
    """All kinds of files, in a shell: as another user, maybe."""
    return f"""cd {mnt}; mkdir topics/t topics/c topics/t/children/c
        echo a > topics/t/produce; echo b > topics/t/p00000/produce; sync topics/t/p00000/produce
        for i in $(seq 200); do [ $(wc -l < topics/t/p00000/log) = 2 ] && break; sleep 0.05; done
        cat topics/t/drain topics/t/p00000/log.jsonl topics/t/p00000/segments/* status metrics HELP topics/t/status > /dev/null
        echo roll > topics/t/p00000/ctl; echo reopen > topics/t/p00000/ctl; ls -lR . > /dev/null; cd /"""


@as_root
@pytest.mark.limit(120)
@pytest.mark.skipif(SANITIZED, reason="sanitizers run a symbolizer")
@pytest.mark.parametrize("user, programs", [("root", set()), ("nobody", {"fusermount3"})])
def test_what_it_runs_and_which_sockets_it_opens(open_folder, user, programs):
    need_strace()
    m = Mount(open_folder)
    trace = open_folder + "/trace"
    shutil.copy(NARADFS, open_folder + "/naradfs")  # the build folder may be closed to others
    m.binary = open_folder + "/naradfs"
    for path in (m.data, m.mnt):
        shutil.chown(path, user)
    device_mode = os.stat("/dev/fuse").st_mode & 0o777
    try:
        os.chmod("/dev/fuse", 0o666)  # as everywhere but in some sandboxes
        m.spawn(["strace", "-D", "-u", user, "-f", "-qq", "-e", "trace=execve,execveat,socket,socketpair", "-e", "signal=none",
                 "-o", trace, *m.command()])
        wait_for(lambda: mountinfo(m.mnt), "the mount", 30)
        become = ["setpriv", "--reuid", user, "--regid", str(pwd.getpwnam(user).pw_gid), "--clear-groups"]
        done = subprocess.run([*become, "sh", "-ec", use(m.mnt)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=60, check=False)
        assert done.returncode == 0, done.stdout.decode()
        m.stop()
    finally:
        os.chmod("/dev/fuse", device_mode)
        m.destroy()
    text = read_file(trace).decode()
    ran = {os.path.basename(path) for path in re.findall(r' execve\("([^"]*)".*\) = 0', text)}
    assert ran == programs | {"naradfs"} and "execveat(" not in text
    assert set(re.findall(r" socket(?:pair)?\((\w+)", text)) <= {"AF_UNIX"}


def test_no_network_socket_is_open(m):
    """As the kernel lists them, in use and while it waits."""
    part = m.make("t")
    produce(part, "x")
    take(part, 1)
    sockets = set(re.findall(r"socket:\[(\d+)\]", "".join(
        os.readlink(f"/proc/{m.process.pid}/fd/{fd}") for fd in os.listdir(f"/proc/{m.process.pid}/fd"))))
    for name in ("tcp", "tcp6", "udp", "udp6", "udplite", "udplite6", "raw", "raw6", "icmp", "icmp6", "packet", "netlink"):
        if os.path.exists(f"/proc/net/{name}"):
            inodes = set(re.findall(r"\b\d+\b", read_file(f"/proc/net/{name}").decode()))
            assert not sockets & inodes, name


# -- things planted in DATA

CANARY = b"canary\n" * 1000


class Planted:
    """A data directory with every kind of file, and targets outside of it."""

    def __init__(self, m):
        self.m = m
        m.start()
        for name in ("child", "t", "witness"):
            m.make(name)
        os.mkdir(m.topic("t") + "/children/child")
        part = m.part("t")
        produce(part, *range(50))
        write_file(part + "/ctl", b"roll\n")
        produce(part, *range(50, 90))
        produce(m.part("witness"), "well")
        produce(m.topic("child"), "by the ingress log")
        read_file(part + "/log.jsonl")
        handles = [row["handle"] for row in take(part, 6)]
        ack(part, *handles[:3], *handles[4:], sync=True)
        wait_for(lambda: len(log(m.part("child")).splitlines()) == 91, "the copies")
        shutil.copytree(m.data + "/ingress", m.base + "/ingress")  # a clean stop leaves no segment of it
        m.stop()
        self.pristine = m.base + "/pristine"
        shutil.copytree(m.data, self.pristine, symlinks=True)
        for name in os.listdir(m.base + "/ingress"):
            if name.endswith(".wal"):
                shutil.copy(f"{m.base}/ingress/{name}", self.pristine + "/ingress")
        shutil.rmtree(m.data)
        shutil.copytree(self.pristine, m.data, symlinks=True)
        self.outside = m.base + "/outside"
        os.mkdir(self.outside)

    def places(self):
        """Every file and folder in DATA, but for what is like that of the first topic."""
        found = []
        for folder, folders, files in os.walk(self.pristine):
            found += [os.path.relpath(f"{folder}/{name}", self.pristine) for name in folders + files]
        return sorted(place for place in found if not re.search(r"(topics|meta)/(child|witness)", place))

    def restore(self):
        for path in (self.m.data, self.outside):
            shutil.rmtree(path)
        shutil.copytree(self.pristine, self.m.data, symlinks=True)
        os.mkdir(self.outside)

    def contents(self):
        """Of what lies outside: names, bytes, modes."""
        found = {}
        for folder, folders, files in os.walk(self.outside):
            for name in folders + files:
                path = f"{folder}/{name}"
                found[path] = (os.lstat(path).st_mode, os.lstat(path).st_mtime_ns if name in files else 0,
                               read_file(path) if name in files else None)
        return found

    def plant(self, place, kind):
        """Puts something else there; what was there lies outside, where a link leads to it."""
        path, target = f"{self.m.data}/{place}", f"{self.outside}/target"
        was_folder = os.path.isdir(path)
        os.rename(path, target)
        if kind == "link":
            os.symlink(target, path)
        elif kind == "link to another file":
            write_file(self.outside + "/canary", CANARY, os.O_CREAT)
            os.symlink(self.outside + "/canary", path)
        elif kind == "link to nothing":
            os.symlink(self.outside + "/made", path)
        elif kind == "FIFO":
            os.mkfifo(path, 0o600)
        elif kind == "device":
            os.mknod(path, 0o600 | 0o020000, os.makedev(1, 5))  # /dev/zero, which never ends
        elif kind == "the other":
            if was_folder:
                write_file(path, CANARY, os.O_CREAT)
            else:
                os.mkdir(path, 0o700)


def touch_everything(m):
    """Reads, produces, takes and settles; errors are allowed, hanging is not."""
    for name in ("t", "child"):
        part = m.part(name)
        for use_it in (lambda: read_file(part + "/log"), lambda: read_file(part + "/log.jsonl"),  # noqa: B023
                       lambda: produce(part, "new"), lambda: drain(part), lambda: produce(m.topic(name), "new"),  # noqa: B023
                       lambda: write_file(part + "/ctl", b"roll\n"), lambda: read_file(m.topic(name) + "/status")):  # noqa: B023
            try:
                use_it()
            except OSError:
                pass


@as_root
@pytest.mark.limit(400)
@pytest.mark.parametrize("kind", ["link", "link to another file", "link to nothing", "FIFO", "device", "the other"])
def test_planted_in_place_of(mounts, kind):
    """Of each file and folder of DATA: what lies outside stays as it is, and the daemon starts, or says which name stops it."""
    m = mounts(start=False, options="log_level=debug")
    planted = Planted(m)
    places = planted.places()
    assert {"lock", "format", "meta", "meta/t.topic", "ingress", "ingress/checkpoint", "topics", "topics/t", "topics/t/incarnation",
            "topics/t/p00000", "topics/t/p00000/hwm", "topics/t/p00000/consumer.offset", "topics/t/p00000/consumer.ahead",
            "topics/t/p00000/fanout-child.offset"} <= set(places)
    assert {".log", ".index", ".rendered", ".wal"} <= {os.path.splitext(place)[1] for place in places}
    for place in places:
        planted.plant(place, kind)
        before = planted.contents()
        started = m.try_start(30)
        if started:
            touch_everything(m)
            if place != "topics":
                assert log(m.part("witness")) == lines("well"), place
            m.stop()
        else:
            assert m.process.returncode == 1, (place, m.process.returncode)
            assert place in m.stderr() or f" {os.path.basename(place)}" in m.stderr(), (place, m.stderr())
        assert planted.contents() == before, place
        planted.restore()


def test_a_link_to_the_data_directory_itself(mounts):
    """Given by whoever starts the daemon, it is followed."""
    m = mounts(start=False)
    os.rename(m.data, m.base + "/real")
    os.symlink(m.base + "/real", m.data)
    m.start()
    produce(m.make("t"), "x")
    m.stop()
    assert os.path.isdir(m.base + "/real/topics/t")
    assert fails(os.rmdir, m.data) != 0
    if shell(f"ls {m.base}/real/meta").stdout != b"t.topic\n":
        raise Failed("the topic is not where the link leads")
