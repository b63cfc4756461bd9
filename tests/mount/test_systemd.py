"""The unit under a real service manager: systemd as the first process of name spaces of its own, with nothing but journald
and the unit to look after. Mounts made in there are seen in there."""

import glob
import json
import os
import re
import shutil
import struct
import subprocess

import pytest
from support import NARADFS, ROOT, SANITIZED, Failed, read_file, wait_for, write_file

SYSTEMD = "/lib/systemd/systemd"
UNITS = "/lib/systemd/system"
OF_SYSTEMD = ["sysinit.target", "basic.target", "shutdown.target", "local-fs.target", "umount.target", "sockets.target",
              "slices.target", "paths.target", "timers.target", "multi-user.target", "systemd-journald.service",
              "systemd-journald.socket", "systemd-journald-dev-log.socket"]

pytestmark = [pytest.mark.skipif(os.getuid() != 0, reason="root's name spaces"),
              pytest.mark.skipif(SANITIZED, reason="sanitizers do more than the unit allows"),
              pytest.mark.limit(180)]

# Unmounts outside reach the name space, so that no other mount lives longer for it; its own are seen nowhere else.
FIRST_PROCESS = """set -e
mount -t tmpfs -o mode=755 run /run
mount -t tmpfs -o mode=755 dev {base}/dev
for name in null zero full random urandom fuse; do
    touch {base}/dev/$name
    mount --bind /dev/$name {base}/dev/$name
done
ln -s /proc/self/fd {base}/dev/fd
touch {base}/dev/console
mount --bind {base}/console {base}/dev/console
mount --move {base}/dev /dev
umount -l /sys/fs/cgroup
mount -t cgroup2 cgroup2 /sys/fs/cgroup
exec env -i PATH="$PATH" container=test SYSTEMD_UNIT_PATH={base}/units {systemd} --system --unit=test.target \\
    --log-target=console --show-status=0
"""


class Manager:
    """systemd, until it is stopped. Raises OSError or Failed where it does not come up."""

    def __init__(self, base):
        self.base = base
        self.pid = None
        self.process = None
        for name in ("units", "dev", "conf"):
            os.mkdir(f"{base}/{name}")
        for name in OF_SYSTEMD:
            shutil.copy(f"{UNITS}/{name}", f"{base}/units")
        self.write("units/test.target", "[Unit]\nRequires=basic.target\nAfter=basic.target\nWants=systemd-journald.service\n")
        unit = read_file(f"{ROOT}/mount/naradfs@.service.in").decode()
        assert unit.count("/etc/naradfs/%i.conf") == unit.count("@bindir@") == 1
        self.write("units/naradfs@.service", unit.replace("@bindir@", os.path.dirname(NARADFS)).replace(
            "EnvironmentFile=/etc/naradfs", f"EnvironmentFile={base}/conf"))
        self.write("console", "")
        self.write("first", FIRST_PROCESS.format(base=base, systemd=SYSTEMD))
        self.group = self.make_group()

    def write(self, name, text):
        os.makedirs(os.path.dirname(f"{self.base}/{name}"), exist_ok=True)
        write_file(f"{self.base}/{name}", text.encode(), os.O_CREAT | os.O_TRUNC)

    @staticmethod
    def make_group():
        """A control group that systemd takes for the root of all."""
        found = re.findall(r"^\S+ \S+ \S+ / (\S+) .* - cgroup2 ", read_file("/proc/self/mountinfo").decode(), re.M)
        if not found:
            raise Failed("no control groups (version 2) on this machine")
        group = f"{found[0]}/naradfs-test-{os.getpid()}"
        os.mkdir(group)
        return group

    def start(self):
        script = f"echo $$ > {self.group}/cgroup.procs; exec unshare -m --propagation slave -p -f --kill-child --mount-proc -C " \
            f"bash {self.base}/first"
        with open(self.base + "/console", "ab") as console:
            self.process = subprocess.Popen(["bash", "-c", script], stdin=subprocess.DEVNULL, stdout=console, stderr=console,
                                            start_new_session=True)
        wait_for(self.answers, "systemd", 30, 0.1)

    def answers(self):
        if self.process.poll() is not None:
            raise Failed("systemd ended: " + read_file(self.base + "/console").decode(errors="replace")[-1000:])
        children = read_file(f"/proc/{self.process.pid}/task/{self.process.pid}/children").split()
        self.pid = int(children[0]) if children else None
        return self.pid and self.run("systemctl is-active -q test.target systemd-journald.service", check=False)[0] == 0

    def run(self, script, check=True, limit_s=60):
        """Exit status and output of a shell in there."""
        done = subprocess.run(["nsenter", "-t", str(self.pid), "-m", "-p", "-C", "bash", "-c", script], stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=limit_s, check=False)
        output = done.stdout.decode(errors="replace")
        if check and done.returncode != 0:
            raise Failed(f"{script!r} ended with {done.returncode}: {output}\n{self.journal()}")
        return done.returncode, output

    def show(self, unit, *names):
        """Properties of a unit."""
        text = self.run(f"systemctl show {unit} -p {','.join(names)}")[1]
        found = dict(line.split("=", 1) for line in text.splitlines())
        return [found[name] for name in names]

    def journal(self, unit=""):
        text = self.run(f"journalctl --no-pager -o json {'-u ' + unit if unit else ''}", check=False)[1]
        return [json.loads(line) for line in text.splitlines() if line.startswith("{")]

    def stop(self):
        if self.process:
            self.process.kill()  # and with it all in there
            self.process.wait(30)
        wait_for(lambda: not read_file(self.group + "/cgroup.events").startswith(b"populated 1"), "the end of all in there")
        for group in sorted(glob.glob(self.group + "/**/", recursive=True), key=len, reverse=True):
            os.rmdir(group)


@pytest.fixture(scope="module")
def systemd(tmp_path_factory):
    for program in (SYSTEMD, "systemctl", "nsenter", "unshare"):
        if not shutil.which(program):
            pytest.skip(f"no {program} on this machine")
    try:
        manager = Manager(str(tmp_path_factory.mktemp("systemd")))
    except (OSError, Failed) as error:
        pytest.skip(f"systemd cannot be run here: {error}")
    try:
        try:
            manager.start()
        except Failed as error:
            pytest.skip(f"systemd does not come up here: {error}")
        yield manager
    finally:
        manager.stop()


class Service:
    """An instance of the unit."""

    def __init__(self, systemd, name, base, drop_in=""):
        self.systemd, self.unit = systemd, f"naradfs@{name}"
        self.data, self.mnt = f"{base}/data", f"{base}/mnt"
        os.mkdir(self.data)
        os.mkdir(self.mnt)
        systemd.write(f"conf/{name}.conf", f"DATA={self.data}\nMNT={self.mnt}\nOPTIONS=allow_other\n")
        systemd.write(f"units/{self.unit}.service.d/test.conf", f"[Service]\nLimitCORE=0\n{drop_in}")
        systemd.run("systemctl daemon-reload")

    def start(self):
        self.systemd.run(f"systemctl start {self.unit}")

    def produce(self, record):
        part = f"{self.mnt}/topics/t/p00000"
        self.systemd.run(f"mkdir -p {self.mnt}/topics/t; exec 3>{part}/produce; echo {record} >&3; sync /dev/fd/3")

    def log(self):
        return self.systemd.run(f"cat {self.mnt}/topics/t/p00000/log")[1]

    def show(self, *names):
        return self.systemd.show(self.unit, *names)

    def comes_back(self, n_restarts):
        def there():
            return self.show("NRestarts", "ActiveState") == [str(n_restarts), "active"]

        wait_for(there, "the restart", 60, 0.1)

    def messages(self):
        return [entry for entry in self.systemd.journal(self.unit) if entry.get("_COMM") == "naradfs"]


@pytest.fixture
def service(systemd, tmp_path, request):
    made = Service(systemd, re.sub(r"\W", "", request.node.name)[:40], tmp_path, getattr(request, "param", ""))
    yield made
    systemd.run(f"systemctl stop {made.unit}; systemctl reset-failed {made.unit}", check=False)


def test_started_when_the_mount_answers(systemd, service):
    """And confined as the unit says."""
    service.start()
    assert "topics" in systemd.run(f"head -n 30 {service.mnt}/HELP")[1]
    assert service.show("Type", "ActiveState", "NRestarts", "WatchdogUSec") == ["notify", "active", "0", "5min"]
    status = systemd.run(f"cat /proc/{service.show('MainPID')[0]}/status")[1]
    for line in ("Seccomp:\t2", "NoNewPrivs:\t1", "CapEff:\t000000000020000e", "CapBnd:\t000000000020000e"):
        assert f"\n{line}\n" in status, line
    service.produce("x")
    assert service.log() == "x\n"


def test_killed_it_comes_back(systemd, service):
    service.start()
    service.produce("x")
    systemd.run(f"systemctl kill -s KILL {service.unit}")
    service.comes_back(1)
    assert service.log() == "x\n"
    entry = next(entry for entry in service.messages() if "took away the mount" in entry["MESSAGE"])
    wanted = {"PRIORITY": "5", "SYSLOG_IDENTIFIER": "naradfs", "_SYSTEMD_UNIT": f"{service.unit}.service",
              "MESSAGE": f"took away the mount that a crashed daemon left at {service.mnt}"}
    assert wanted.items() <= entry.items(), entry


@pytest.mark.parametrize("service", ["WatchdogSec=3s\n"], indirect=True)
def test_one_that_hangs_is_replaced(systemd, service):
    service.start()
    service.produce("x")
    systemd.run(f"systemctl kill -s STOP {service.unit}")
    service.comes_back(1)
    assert service.log() == "x\n"
    assert service.show("WatchdogUSec") == ["3s"]


@pytest.mark.parametrize("script", ["systemctl stop {unit}", "exec 3< {mnt}/topics/t/p00000/log; systemctl stop {unit}",
                                    "umount {mnt}"], ids=["stop", "with open files", "umount"])
def test_a_stop_is_clean(systemd, service, script):
    service.start()
    service.produce("x")
    systemd.run(script.format(unit=service.unit, mnt=service.mnt))
    wait_for(lambda: service.show("ActiveState") == ["inactive"], "the end", 60, 0.1)
    assert service.show("Result", "ExecMainStatus", "NRestarts") == ["success", "0", "0"]
    assert read_file(service.data + "/topics/t/p00000/hwm") == struct.pack(">Q", 1)
    assert service.mnt not in systemd.run("cat /proc/self/mounts")[1]


def test_a_start_that_is_refused_says_why(systemd, service):
    write_file(service.data + "/format", b"99\n", os.O_CREAT)
    code, output = systemd.run(f"systemctl start {service.unit}", check=False)
    assert code != 0 and service.unit in output
    assert any("99" in entry["MESSAGE"] and entry["PRIORITY"] == "3" for entry in service.messages()), service.messages()
