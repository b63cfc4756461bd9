"""NATS servers for tests: a cluster of three on loopback with JetStream, or one; a client that asks one question; and mounts
over them."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import threading
import time

from support import NARADFS, Failed, Mount, freeze, wait_for

SERVER = shutil.which("nats-server")
N_ACCOUNTS = 12  # mounts of one test, and of those that are being emptied meanwhile
MAX_PAYLOAD = 8 << 20
OF_FILES = {"segment_bytes", "codec", "zstd_level", "max_acked_ahead"}  # settings that mean nothing here, and are refused


def why_not():
    """Why there is no JetStream to test, or None."""
    if not SERVER:
        return "nats-server is not installed"
    with open(NARADFS, "rb") as file:
        if b"$JS.API" not in file.read():
            return "naradfs was built without libnats (-Djetstream)"
    return None


def free_ports(n):
    sockets = [socket.socket() for _ in range(n)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


class Server:
    def __init__(self, base, number, port, cluster_port, routes, settings, room="2G"):
        self.name = f"n{number}"
        self.port = port
        self.store = os.path.join(base, self.name)
        self.log = os.path.join(base, self.name + ".log")
        self.config = os.path.join(base, self.name + ".conf")
        self.process = None
        cluster = ""
        if routes:
            listed = ", ".join(f"nats://127.0.0.1:{route}" for route in routes)
            cluster = f"cluster {{ name: test, host: 127.0.0.1, port: {cluster_port}, routes: [{listed}] }}\n"
        with open(self.config, "w", encoding="ascii") as file:
            file.write(f"server_name: {self.name}\nhost: 127.0.0.1\nport: {port}\n"
                       f'jetstream {{ store_dir: "{self.store}", max_mem: 64M, max_file: {room} }}\n{cluster}{settings}')

    def start(self):
        self.process = subprocess.Popen([SERVER, "-c", self.config, "-l", self.log], stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)

    def kill(self):
        self.process.kill()
        self.process.wait(30)

    def hang(self):
        freeze(self.process)

    def end(self):
        """Whatever its state."""
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
            self.process.wait(30)

    def ask(self, subject, payload=b"", limit_s=5, user=None, headers=None):
        """One request, its answer as JSON. Raises OSError when there is none."""
        who = {"user": user, "pass": user} if user else {}
        options = {"verbose": False, "pedantic": False, "headers": True, "no_responders": True, **who}
        with socket.create_connection(("127.0.0.1", self.port), limit_s) as connection:
            connection.settimeout(limit_s)
            file = connection.makefile("rwb")
            file.readline()  # INFO
            head = "".join(f"{key}: {value}\r\n" for key, value in headers.items()) if headers else ""
            head = f"NATS/1.0\r\n{head}\r\n" if head else ""
            sizes = f"{len(head)} {len(head) + len(payload)}" if head else f"{len(payload)}"
            file.write(f"CONNECT {json.dumps(options)}\r\nSUB _INBOX.test 1\r\n"
                       f"{'HPUB' if head else 'PUB'} {subject} _INBOX.test {sizes}\r\n{head}".encode() + payload + b"\r\n")
            file.flush()
            while True:
                line = file.readline().split()
                if not line:
                    raise OSError("the server has closed")
                if line[0] == b"PING":
                    file.write(b"PONG\r\n")
                    file.flush()
                elif line[0] in (b"HMSG", b"-ERR"):
                    raise OSError("nobody is there to answer")
                elif line[0] == b"MSG":
                    return json.loads(file.read(int(line[-1])))


class Listener:
    """What is published on a subject at a server."""

    def __init__(self, server, subject):
        self.socket = socket.create_connection(("127.0.0.1", server.port), 20)
        self.file = self.socket.makefile("rwb")
        self.file.readline()  # INFO
        self.file.write(b'CONNECT {"verbose":false,"headers":true}\r\nSUB ' + subject.encode() + b" 1\r\n")
        self.heard()

    def heard(self):
        """Subject and payload of all that has come by now."""
        came = []
        self.file.write(b"PING\r\n")
        self.file.flush()
        while (line := self.file.readline().split()) != [b"PONG"]:
            if line[0] in (b"MSG", b"HMSG"):
                came.append((line[1].decode(), self.file.read(int(line[-1]) + 2)[:-2]))
        return came

    def close(self):
        self.file.close()
        self.socket.close()


class Cluster:
    """n servers; JetStream answers when start returns."""

    def __init__(self, base, n=3, settings="", room="2G"):
        base = str(base)
        os.makedirs(base, exist_ok=True)
        ports = free_ports(2 * n)
        routes = ports[n:] if n > 1 else []
        self.servers = [Server(base, i + 1, ports[i], ports[n + i], routes, settings, room) for i in range(n)]
        self.url = "nats://" + ",".join(f"127.0.0.1:{server.port}" for server in self.servers)

    def start(self, user=None):
        for server in self.servers:
            server.start()
        self.wait_ready(user=user)
        return self

    def wait_ready(self, limit_s=40, user=None):
        def ready():
            try:
                return "error" not in self.ask("$JS.API.INFO", user=user)
            except OSError:
                return False

        wait_for(ready, "JetStream", limit_s, 0.1)

    def end(self):
        for server in self.servers:
            server.end()

    def ask(self, subject, payload=b"", user=None, headers=None):
        failure = None
        for server in self.servers:
            if server.process.poll() is not None:
                continue
            try:
                return server.ask(subject, payload, user=user, headers=headers)
            except OSError as error:
                failure = error
        raise failure or OSError("no server runs")

    def stream_info(self, stream):
        return self.ask("$JS.API.STREAM.INFO." + stream)

    def leader_of(self, stream):
        """The server that leads the stream now."""
        def leader():
            try:
                name = self.stream_info(stream).get("cluster", {}).get("leader")
            except OSError:
                return None
            return next((server for server in self.servers if server.name == name), None)

        return wait_for(leader, "a leader", 40, 0.1)

    def step_down(self, stream, until):
        """Until a server leads it that `until` takes."""
        def led():
            leader = self.leader_of(stream)
            if until(leader):
                return leader
            self.ask("$JS.API.STREAM.LEADER.STEPDOWN." + stream)
            return None

        return wait_for(led, "another leader", 100, 0.2)

    def wait_copies(self, stream, limit_s=60):
        """Until every copy of the stream is current."""
        def current():
            try:
                cluster = self.stream_info(stream)["cluster"]
            except (OSError, KeyError):
                return False
            return all(replica.get("current") for replica in cluster.get("replicas", []))

        wait_for(current, "all copies", limit_s, 0.2)


def shut(*sockets):
    for each in sockets:
        try:
            each.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # it has ended by itself


class Relay:
    """What lies between a mount and one server, and can lose all that goes `there` or `back`, or hold it up."""

    def __init__(self, server):
        self.lost = set()
        self.held = set()
        self.last = None  # bytes: once they have gone there nothing comes back
        self.server = server
        self.ends = [socket.create_server(("127.0.0.1", 0))]
        self.url = f"nats://127.0.0.1:{self.ends[0].getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        try:
            while True:
                near, _ = self.ends[0].accept()
                far = socket.create_connection(("127.0.0.1", self.server.port))
                self.ends += [near, far]
                threading.Thread(target=self.carry, args=(near, far, "there"), daemon=True).start()
                threading.Thread(target=self.carry, args=(far, near, "back"), daemon=True).start()
        except OSError:
            pass  # its end

    def carry(self, source, target, way):
        try:
            while data := source.recv(65536):
                while way in self.held:
                    time.sleep(0.01)
                if way == "there" and self.last and self.last in data:
                    self.lost = {"back"}
                if way not in self.lost:
                    target.sendall(data)
        except OSError:
            pass
        shut(source, target)

    def cut(self):
        """The connections that there are."""
        shut(*self.ends[1:])

    def end(self):
        self.cut()
        self.ends[0].shutdown(socket.SHUT_RDWR)
        for each in self.ends:
            each.close()


class Accounts:
    """One cluster, in which each mount has an account of its own: it sees no other's topics. Whoever gives one back leaves it
    empty for the next."""

    def __init__(self, base):
        self.free = [f"a{n}" for n in range(N_ACCOUNTS)]
        entries = "".join(f"  {name} {{ jetstream: enabled, users: [ {{ user: {name}, password: {name} }} ] }}\n"
                          for name in self.free)
        self.cluster = Cluster(base, settings=f"max_payload: {MAX_PAYLOAD}\naccounts {{\n{entries}}}\n")
        self.cluster.start(self.free[0])

    def take(self):
        return self.free.pop(0)

    def url(self, account):
        return ",".join(f"nats://{account}:{account}@127.0.0.1:{server.port}" for server in self.cluster.servers)

    def streams(self, account):
        return self.cluster.ask("$JS.API.STREAM.NAMES", user=account)["streams"] or []

    def give_back(self, account):
        def emptied():
            try:
                names = self.streams(account)
                for name in names:
                    self.cluster.ask("$JS.API.STREAM.DELETE." + name, user=account)
            except (OSError, KeyError):
                return False
            return not names

        wait_for(emptied, "the account to be empty", 60, 0.05)
        self.free.append(account)

    def end(self):
        self.cluster.end()


class JetStreamMount(Mount):
    """A mount over servers: nothing of it is on this machine."""

    def __init__(self, base, url, options=""):
        super().__init__(base, "engine=jetstream,url=" + url + ("," + options if options else ""))

    @property
    def data(self):
        raise Failed("there is no data directory: this test is for the local engine, and its mark says so")

    @data.setter
    def data(self, path):
        pass

    def folders(self):
        return [self.mnt]

    def command(self, foreground=True):
        return [self.binary, self.mnt, *(["-f"] if foreground else []), "-o", self.options]

    def discard(self):
        pass


class TwinMount(JetStreamMount):
    """One for a test that runs on both engines."""

    def __init__(self, base, accounts, account, options):
        super().__init__(base, accounts.url(account))
        self.of_engine = self.options
        self.options = options
        self.streams = lambda: accounts.streams(account)

    def command(self, foreground=True):
        options = ",".join(filter(None, [self.of_engine, self.options]))
        return [self.binary, self.mnt, *(["-f"] if foreground else []), "-o", options]

    def kept_topics(self):
        found = {re.fullmatch(r"narad_(.+)_[0-9a-f]{16}_p\d{5}", name) for name in self.streams() if name != "KV_narad"}
        return sorted({match.group(1).replace("=", ".") for match in found})

    def make(self, name, **config):
        return super().make(name, **{key: value for key, value in config.items() if key not in OF_FILES})
