"""The same works for naradfs and for what somebody would run instead, side by side on one disk: each server is started on
loopback over a folder of its own, as durable as it can be set, and stopped afterwards. What is not installed is left out.

redis         streams with a consumer group; appendonly, appendfsync always
beanstalkd    -b, -f 0
nats          JetStream, file storage; 2.9 answers before it syncs and cannot be told otherwise: not durable
postgresql    a table, SKIP LOCKED, LISTEN and NOTIFY; synchronous_commit on
sqlite        a table, WAL, synchronous=FULL; nobody can wait, so there is no row for that"""

import contextlib
import glob
import os
import pwd
import shutil
import signal
import socket
import subprocess
import time

from common import KIB, fail, median

ROUNDS = 5
N_QUEUES = 1000
WORKS = [  # name, arguments behind the queue and seconds, what it is, whether more is better, a unit
    ("one", (), "one producer, 250 bytes, durable", False, "us"),
    ("many", (8,), "8 producers on one queue", True, "records/s"),
    ("many", (64,), "64 producers on one queue", True, "records/s"),
    ("bulk", (), "a thousand records of 100 bytes at once", True, "records/s"),
    ("cycle", (), "lease one and settle it, durably", False, "us"),
    ("cycles", (), "lease and settle by the thousand", True, "records/s"),
    ("wake", (), "from a put to a consumer that waits", False, "us"),
]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def answers(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", int(port))) == 0


class Server:
    """A peer's process over a folder. `address` is what the client program takes."""

    command = None
    waits = True

    def __init__(self, folder):
        self.folder = os.path.join(folder, self.name)
        self.process = None
        self.port = self.address = free_port()
        os.makedirs(self.folder)

    def start(self):
        with open(os.path.join(self.folder, "log"), "ab") as log:
            self.process = subprocess.Popen(self.words(), cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        end = time.monotonic() + 60
        while not self.up():
            if self.process.poll() is not None or time.monotonic() > end:
                fail(f"{self.name} did not start: see {self.folder}/log")
            time.sleep(0.002)

    def up(self):
        return answers(self.port)

    def stop(self):
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(60)

    def pids(self):
        return [self.process.pid]

    def rss_bytes(self):
        total = 0
        for pid in self.pids():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # one of its processes has just ended
                with open(f"/proc/{pid}/status", encoding="utf-8") as file:
                    total += sum(int(line.split()[1]) * KIB for line in file if line.startswith("VmRSS"))
        return total


class Redis(Server):
    name, binary = "redis", "redis-server"

    def words(self):
        return [self.binary, "--port", self.port, "--bind", "127.0.0.1", "--dir", self.folder, "--appendonly", "yes",
                "--appendfsync", "always", "--save", ""]


class Beanstalkd(Server):
    name, binary = "beanstalkd", "beanstalkd"

    def words(self):
        return [self.binary, "-l", "127.0.0.1", "-p", self.port, "-b", self.folder, "-f", "0"]


class Nats(Server):
    name, binary = "nats", "nats-server"

    def words(self):
        return [self.binary, "-a", "127.0.0.1", "-p", self.port, "-js", "-sd", self.folder]


class PostgreSQL(Server):
    """Will not run as root, so it is given to the user that its package made."""

    name = "postgresql"
    binary = next(iter(sorted(glob.glob("/usr/lib/postgresql/*/bin/postgres"), reverse=True)), "postgres")

    def __init__(self, folder):
        super().__init__(folder)
        self.address = f"host=127.0.0.1 port={self.port} dbname=postgres user=postgres"
        self.owner = []
        if os.geteuid() == 0:
            self.owner = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
            os.chmod(folder, 0o711)  # to be walked through
            os.chown(self.folder, pwd.getpwnam("postgres").pw_uid, pwd.getpwnam("postgres").pw_gid)
        initdb = os.path.join(os.path.dirname(self.binary), "initdb")
        subprocess.run(self.owner + [initdb, "-D", self.folder + "/data", "-A", "trust", "-U", "postgres"], cwd=self.folder,
                       check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)

    def words(self):
        return self.owner + [self.binary, "-D", self.folder + "/data", "-p", self.port, "-c", "listen_addresses=127.0.0.1",
                             "-c", f"unix_socket_directories={self.folder}"]

    def up(self):
        ready = os.path.join(os.path.dirname(self.binary), "pg_isready")
        return subprocess.run([ready, "-h", "127.0.0.1", "-p", self.port], stdout=subprocess.DEVNULL, check=False).returncode == 0

    def pids(self):
        children = subprocess.run(["pgrep", "-P", str(self.process.pid)], stdout=subprocess.PIPE, check=False).stdout
        return [self.process.pid, *map(int, children.split())]


class SQLite(Server):
    """No process: its user's own."""

    name, binary, waits = "sqlite", "cc", False

    def __init__(self, folder):
        super().__init__(folder)
        self.address = os.path.join(self.folder, "queues.db")

    def start(self):
        pass

    def rss_bytes(self):
        return 0


class Naradfs:
    """The daemon that every measurement uses, as a server like the others."""

    name, waits = "naradfs", True

    def __init__(self, bench):
        self.daemon = bench.daemon("naradfs")
        self.address = self.daemon.mnt + "/topics"

    def start(self):
        self.daemon.start()

    def stop(self):
        self.daemon.stop()

    def rss_bytes(self):
        return self.daemon.rss_bytes()


def build(bench):
    """The client; None where a library is missing."""
    here = os.path.dirname(os.path.abspath(__file__))
    include = subprocess.run(["pkg-config", "--cflags", "--libs", "libpq", "sqlite3"], stdout=subprocess.PIPE, check=False)
    if include.returncode != 0:
        return None
    program = os.path.join(bench.folder, "peers")
    sources = sorted(glob.glob(os.path.join(here, "peer*.c")))
    subprocess.run([os.environ.get("CC", "cc"), "-O2", "-pthread", "-o", program, *sources, *include.stdout.decode().split()],
                   check=True)
    return program


def work(program, server, name, queue, seconds, *more):
    command = [program, server.name, server.address, name, queue, str(seconds), *map(str, more)]
    return float(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def works(bench, program, servers):
    seconds = bench.pick(0.5, 3)
    for number, (name, more, what, more_is_better, unit) in enumerate(WORKS):
        able = [server for server in servers if server.waits or name != "wake"]
        figures = {server.name: [] for server in able}
        for turn in range(bench.pick(3, ROUNDS)):  # in turns, so that all meet the same machine
            for server in able:
                figures[server.name].append(work(program, server, name, f"w{number}r{turn}", seconds, *more))
        bench.row(what, "")
        ours = figures["naradfs"]
        for server in able:
            theirs = figures[server.name]
            bench.row("  " + server.name, f"{median(theirs):.0f} {unit}")
            if server.name == "naradfs":
                continue
            ratios = [a / b if more_is_better else b / a for a, b in zip(ours, theirs)]
            bench.ratios("  naradfs is ahead by", ratios, 1, at_least=True)


def queues(bench, program, servers):
    """What many queues cost, with a record in each, and how soon one of them can be had after a restart."""
    n = bench.pick(200, N_QUEUES)
    bench.row(f"{n} queues with a record each", "")
    for server in servers:
        before = server.rss_bytes()
        subprocess.run([program, server.name, server.address, "fill", "many", str(n)], check=True)
        grown = server.rss_bytes() - before
        server.stop()
        start = time.monotonic()
        server.start()
        work(program, server, "one", "many0", 0.001)
        bench.row("  " + server.name, f"{grown / (1 << 20):.1f} MiB, {time.monotonic() - start:.2f} s")


def measure(bench):
    program = build(bench)
    if not program:
        bench.row("peers: libpq-dev or libsqlite3-dev is missing", "left out")
        return
    kinds = [kind for kind in (Redis, Beanstalkd, Nats, PostgreSQL, SQLite) if shutil.which(kind.binary)]
    with contextlib.ExitStack() as stack:
        servers = [Naradfs(bench)]
        for kind in kinds:
            servers.append(kind(bench.folder))
        for server in servers:
            stack.callback(server.stop)
            server.start()
        works(bench, program, servers)
        queues(bench, program, servers)
