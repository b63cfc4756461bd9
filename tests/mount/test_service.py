"""As a service: what the service manager is told, the unit, fstab lines, and the manual pages."""

import os
import re
import shutil
import socket
import subprocess
import time

import pytest
from support import (CONFIG_KEYS, NARADFS, ROOT, SANITIZED, Background, Failed, drain, log, mountinfo, produce, read_file,
                     take, wait_for, write_file)
from test_daemon import lock_is_free
from test_faults import Inject, active_segment, need_strace


class Manager:
    """The socket of a service manager."""

    def __init__(self, name):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(name)
        self.socket.setblocking(False)
        self.heard = []

    def listen(self):
        while True:
            try:
                self.heard.append(self.socket.recv(4096).decode())
            except BlockingIOError:
                return self.heard

    def hears(self, state):
        wait_for(lambda: state in self.listen(), state)

    def count(self, state):
        return self.listen().count(state)


@pytest.fixture
def manager(tmp_path, monkeypatch, request):
    """One that listens at a path, or, with the parameter "abstract", at a name."""
    name = f"@naradfs-test-{os.getpid()}" if getattr(request, "param", "") == "abstract" else f"{tmp_path}/notify"
    monkeypatch.setenv("NOTIFY_SOCKET", name)
    one = Manager("\0" + name[1:] if name[0] == "@" else name)
    yield one
    one.socket.close()


# -- the service manager


@pytest.mark.parametrize("manager", ["path", "abstract"], indirect=True)
def test_ready_and_stopping_are_told(manager, mounts):
    m = mounts(start=False)
    m.spawn()
    manager.hears("READY=1")
    assert mountinfo(m.mnt) == "fuse.naradfs"
    produce(m.make("t"), "x")  # it answers
    m.stop()
    assert manager.listen() == ["READY=1", "STOPPING=1"]


@pytest.mark.parametrize("socket_name", ["", "relative", "/nowhere/at/all", "@", "/" + "x" * 300])
def test_a_socket_that_is_not_there(mounts, monkeypatch, socket_name):
    monkeypatch.setenv("NOTIFY_SOCKET", socket_name)
    monkeypatch.setenv("WATCHDOG_USEC", "30000")
    m = mounts()
    produce(m.make("t"), "x")
    m.stop()


def test_the_watchdog_is_answered(manager, mounts, monkeypatch):
    monkeypatch.setenv("WATCHDOG_USEC", "60000")
    m = mounts()
    wait_for(lambda: manager.count("WATCHDOG=1") > 20, "signs of life")
    m.stop()


def test_a_watchdog_of_somebody_else(manager, mounts, monkeypatch):
    monkeypatch.setenv("WATCHDOG_USEC", "30000")
    monkeypatch.setenv("WATCHDOG_PID", "1")
    m = mounts()
    manager.hears("READY=1")
    for _ in range(20):
        produce(m.part("t") if os.path.exists(m.topic("t")) else m.make("t"), "x")
    assert manager.count("WATCHDOG=1") == 0
    m.stop()


def test_no_sign_of_life_while_every_thread_hangs(manager, mounts, monkeypatch):
    need_strace()
    monkeypatch.setenv("WATCHDOG_USEC", "150000")
    m = mounts(start=False)
    m.spawn(m.command() + ["-s"])
    m.wait_mounted()
    part = m.make("t", linger_ms=60000)
    produce(part, "x")
    fault = Inject(m, active_segment(m, "t"), "fdatasync,fsync", "delay_enter=5000000")
    try:
        work = Background(produce, part, "y")
        time.sleep(0.5)
        before = manager.count("WATCHDOG=1")
        time.sleep(1.5)
        assert manager.count("WATCHDOG=1") == before and work.running()
        work.join(30)
    finally:
        fault.stop()
    wait_for(lambda: manager.count("WATCHDOG=1") > before, "a sign of life")
    m.stop()


# -- the unit


def unit():
    return read_file(f"{ROOT}/mount/naradfs@.service.in").decode()


def test_the_unit_is_valid(tmp_path):
    if not shutil.which("systemd-analyze"):
        pytest.skip("no systemd-analyze on this machine")
    path = tmp_path / "naradfs@.service"
    path.write_text(unit().replace("@bindir@", os.path.dirname(NARADFS)))
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", str(tmp_path / "naradfs@x.service")],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, timeout=60)
    assert b"naradfs@" not in done.stdout, done.stdout.decode()


def test_the_units_commands_work(mounts):
    """What it starts and stops with, run as written."""
    m = mounts(start=False)
    lines = dict(re.findall(r"^(ExecStart|ExecStop|Type)=-?(.*)$", unit(), re.M))
    assert lines["Type"] == "notify"
    env = {**m.env(), "DATA": m.data, "MNT": m.mnt, "OPTIONS": "partitions=2"}
    start = lines["ExecStart"].replace("@bindir@", os.path.dirname(NARADFS))
    m.spawn(["sh", "-c", "exec " + start.replace("${DATA}", m.data).replace("${MNT}", m.mnt).replace("${OPTIONS}", env["OPTIONS"])])
    m.wait_mounted()
    os.mkdir(m.topic("t"))
    assert os.path.isdir(m.part("t", 1))
    subprocess.run(["sh", "-c", lines["ExecStop"]], env=env, check=True, timeout=30)
    assert m.wait_exit(20) == 0
    m.gone()


def setting(name):
    return re.search(rf"^{name}=(.*)$", unit(), re.M).group(1).split()


def confined():
    """What of the unit's confinement can be had without a service manager."""
    assert setting("NoNewPrivileges") == ["yes"]
    kept = [f"+{name.lower().removeprefix('cap_')}" for name in setting("CapabilityBoundingSet")]
    return ["setpriv", "--no-new-privs", "--inh-caps", "-all", "--bounding-set", ",".join(["-all", *kept])]


def use_all_of_it(m):
    """Starts, files of every sort, fan-out, a roll, a trim, an unmount by ExecStop's command."""
    part = m.make("t", partitions=2, codec="zstd")
    os.mkdir(m.topic("u"))
    os.mkdir(m.topic("t") + "/children/u")
    produce(part, *range(100))
    produce(m.topic("t"), "x")
    produce(part, '{"payload":1}', name="produce.jsonl")
    write_file(part + "/ctl", b"roll\n")
    produce(part, *"wxyz")
    write_file(part + "/ctl", b"trim 100\n")
    for name in ("log", "log.jsonl", "status", "segments/" + os.listdir(part + "/segments")[0]):
        read_file(part + "/" + name)
    assert len(take(part, 3)) == 3 and drain(part)
    for name in ("status", "metrics"):
        read_file(f"{m.mnt}/{name}")
    os.chmod(m.topic("t"), 0o700)
    os.rmdir(m.topic("t") + "/children/u")
    subprocess.run([*confined(), "umount", m.mnt], check=True, timeout=30)
    assert m.wait_exit(20) == 0
    m.gone()


@pytest.mark.skipif(os.getuid() != 0, reason="the unit runs as root")
def test_the_unit_leaves_the_capabilities_that_are_needed(mounts):
    m = mounts(start=False, options="allow_other")
    m.spawn([*confined(), *m.command()])
    m.wait_mounted()
    with open(f"/proc/{m.process.pid}/status", encoding="ascii") as file:
        bounding = int(re.search(r"^CapBnd:\t(\w+)$", file.read(), re.M).group(1), 16)
    assert bin(bounding).count("1") == len(setting("CapabilityBoundingSet"))
    use_all_of_it(m)


def calls_allowed():
    """What the unit's filter lets through, with the groups that groups name."""
    names, groups = set(), setting("SystemCallFilter")
    for group in groups:
        done = subprocess.run(["systemd-analyze", "syscall-filter", group], check=True, stdout=subprocess.PIPE, timeout=30)
        for line in done.stdout.decode().splitlines()[1:]:
            word = line.strip()
            if word.startswith("@") and word not in groups:
                groups.append(word)
            elif word and not word.startswith("#"):
                names.add(word)
    return names


@pytest.mark.skipif(os.getuid() != 0, reason="the unit runs as root")
@pytest.mark.skipif(SANITIZED, reason="sanitizers do more than the daemon does")
@pytest.mark.limit(120)
def test_the_unit_allows_the_calls_that_are_made(mounts, manager):
    need_strace()
    if not shutil.which("systemd-analyze"):
        pytest.skip("no systemd-analyze on this machine")
    m = mounts(start=False, options="allow_other")
    trace = m.base + "/trace"
    m.spawn(["strace", "-D", "-f", "-qq", "-o", trace, *m.command()])
    m.wait_mounted()
    use_all_of_it(m)
    manager.hears("STOPPING=1")
    text = wait_for(lambda: (read_file(trace).decode(errors="replace") if b"exit_group" in read_file(trace) else None),
                    "the end of the trace")
    made = set(re.findall(r"^\d+ +([a-z_0-9]+)\(", text, re.M))
    assert {"mount", "openat", "fdatasync", "umount2"} & made >= {"mount", "openat", "fdatasync"}
    assert made - calls_allowed() == set()
    assert set(re.findall(r" socket\((\w+)", text)) <= set(setting("RestrictAddressFamilies"))
    assert not re.search(r"mprotect\(.*PROT_EXEC|PROT_WRITE\|PROT_EXEC", text)  # MemoryDenyWriteExecute
    assert not re.search(r" (unshare|setns)\(|CLONE_NEW", text)  # RestrictNamespaces


def test_the_unit_has_no_file_systems_of_its_own():
    """Each of these would hide the mount from everybody else (systemd.exec(5): mount propagation)."""
    assert not re.search(r"^(Protect(System|Home|KernelTunables|KernelModules|KernelLogs|ControlGroups|Proc|Clock)|Private\w+|"
                         r"\w+Paths|TemporaryFileSystem|MountAPIVFS|MountFlags|Root\w+|DynamicUser|"
                         r"\w+Directory|User)=", unit(), re.M)
    assert setting("DeviceAllow") == ["/dev/fuse", "rw"]


# -- mount(8)


@pytest.mark.skipif(os.getuid() != 0, reason="mount(8) is root's")
@pytest.mark.parametrize("options", ["defaults,allow_other,nofail", "rw,noauto,x-systemd.automount,_netdev,partitions=2"])
def test_a_line_of_fstab(mounts, options):
    """In a name space of the test's own, where the daemon's folder stands for one that mount(8) looks into."""
    m = mounts(start=False)
    with open(m.base + "/fstab", "w", encoding="ascii") as file:
        file.write(f"{m.data} {m.mnt} fuse.naradfs {options} 0 0\n")
    script = f"""set -e
mount --bind {os.path.dirname(NARADFS)} /usr/local/bin
mount -T {m.base}/fstab {m.mnt}
grep -q ' {m.mnt} .*nosuid,nodev.* - fuse.naradfs {m.data} ' /proc/self/mountinfo
mkdir {m.mnt}/topics/t
echo x > {m.mnt}/topics/t/p00000/produce
cat {m.mnt}/topics/t/p00000/log
umount {m.mnt}
"""
    done = subprocess.run(["unshare", "-m", "bash", "-c", script], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, env=m.env(), timeout=40, check=False)
    assert (done.returncode, done.stdout) == (0, b"x\n")
    wait_for(lambda: lock_is_free(m.data), "the daemon to end")
    m.start()
    assert log(m.part("t")) == b"x\n"


# -- the manual


def manual(name):
    return f"{ROOT}/mount/{name}"


def rendered(name):
    done = subprocess.run(["mandoc", "-Tascii", manual(name)], check=True, stdout=subprocess.PIPE, timeout=30)
    return re.sub(r".\x08", "", done.stdout.decode())


@pytest.fixture
def mandoc():
    if not shutil.which("mandoc"):
        pytest.skip("no mandoc on this machine")


@pytest.mark.parametrize("name", ["naradfs.8", "naradfs.5"])
def test_manual_pages_are_well_formed(mandoc, name):
    done = subprocess.run(["mandoc", "-Tlint", "-Wstyle", manual(name)], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, check=False, timeout=30)
    wrong = [line for line in done.stdout.decode().splitlines() if "referenced manual not found" not in line
             and "outdated mandoc.db" not in line]
    assert wrong == []
    assert "naradfs" in rendered(name)


def test_the_manual_names_every_option(mandoc):
    usage = subprocess.run([NARADFS, "-h"], check=True, stdout=subprocess.PIPE, timeout=30).stdout.decode()
    options = re.findall(r"^ +(?:-o OPTION\[,OPTION\] +)?(?:-(\w)|([a-z_]{2,})(?:=|  ))", usage, re.M)
    text = rendered("naradfs.8")
    names = {letter or word for letter, word in options} - {"and"}
    assert {"f", "s", "allow_other", "ro", "codec", "max_threads", "log_level", "cache_bytes"} <= names, names
    for bound in ("31622400000", "17592186044416", "4294967295", "1024", "1000"):
        assert bound in usage and bound in text, bound
    for name in sorted(names):
        assert re.search(rf"(^|[\s,]){'-' if len(name) == 1 else ''}{name}\b", text, re.M), name


def test_the_first_example_of_the_manual(m):
    """As a script, which does not wait between its lines as who types them does."""
    text = read_file(manual("naradfs.8")).decode()
    start, enter, *script = re.search(r"^\.Bd -literal.*?\n(.*?)^\.Ed", text, re.S | re.M)[1].splitlines()
    assert start.startswith("naradfs /") and enter.startswith("cd /")
    for n in range(20):
        lines = "\n".join(script).replace("topics/mail", f"topics/mail{n}")
        done = subprocess.run(["sh", "-euc", lines], cwd=m.mnt, check=True, stdout=subprocess.PIPE, timeout=30)
        assert done.stdout == b"to be sent\n"


def test_the_manual_names_every_file_and_setting(mandoc, m):
    text = rendered("naradfs.5")
    part = m.make("t")
    for name in [*os.listdir(m.mnt), *os.listdir(m.topic("t")), *os.listdir(part), *CONFIG_KEYS]:
        assert re.search(rf"(^|[\s,;/(]){re.escape(name)}\b", text, re.M), name
    for verb in [*read_file(part + "/ctl").decode().splitlines(), *read_file(m.topic("t") + "/ctl").decode().splitlines()]:
        assert verb.split()[0] in text, verb


# -- installing


def test_what_is_installed(tmp_path):
    build = os.path.dirname(os.path.dirname(NARADFS))
    done = subprocess.run(["meson", "install", "--no-rebuild", "--quiet", "-C", build, "--destdir", str(tmp_path)],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, timeout=60)
    assert done.returncode == 0, done.stdout.decode()
    found = {os.path.basename(path): os.path.join(folder, path) for folder, _, files in os.walk(tmp_path) for path in files}
    assert {"naradfs", "naradfs.8", "naradfs.5", "naradfs@.service"} <= set(found)
    assert "/man8/" in found["naradfs.8"] and "/man5/" in found["naradfs.5"]
    assert "/systemd/system/" in found["naradfs@.service"]
    start = re.search(r"^ExecStart=(\S+)", read_file(found["naradfs@.service"]).decode(), re.M).group(1)
    assert found["naradfs"] == str(tmp_path) + start  # the unit starts what was installed
    if not shutil.which("meson"):
        raise Failed("meson is gone")
