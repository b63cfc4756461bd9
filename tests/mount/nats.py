"""NATS servers for tests: a cluster of three on loopback with JetStream, or one; and a client that asks one question."""

import json
import os
import shutil
import signal
import socket
import subprocess

from support import wait_for

SERVER = shutil.which("nats-server")


def free_ports(n):
    sockets = [socket.socket() for _ in range(n)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


class Server:
    def __init__(self, base, number, port, cluster_port, routes):
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
                       f'jetstream {{ store_dir: "{self.store}", max_mem: 64M, max_file: 2G }}\n{cluster}')

    def start(self):
        self.process = subprocess.Popen([SERVER, "-c", self.config, "-l", self.log], stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)

    def kill(self):
        self.process.kill()
        self.process.wait(30)

    def end(self):
        """Whatever its state."""
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
            self.process.wait(30)

    def ask(self, subject, payload=b"", limit_s=5):
        """One request, its answer as JSON. Raises OSError when there is none."""
        with socket.create_connection(("127.0.0.1", self.port), limit_s) as connection:
            connection.settimeout(limit_s)
            file = connection.makefile("rwb")
            file.readline()  # INFO
            file.write(b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true}\r\n'
                       b"SUB _INBOX.test 1\r\n" + f"PUB {subject} _INBOX.test {len(payload)}\r\n".encode() + payload
                       + b"\r\n")
            file.flush()
            while True:
                line = file.readline().split()
                if not line:
                    raise OSError("the server has closed")
                if line[0] == b"PING":
                    file.write(b"PONG\r\n")
                    file.flush()
                elif line[0] == b"HMSG":
                    raise OSError("nobody is there to answer")
                elif line[0] == b"MSG":
                    return json.loads(file.read(int(line[-1])))


class Cluster:
    """n servers; JetStream answers when start returns."""

    def __init__(self, base, n=3):
        base = str(base)
        os.makedirs(base, exist_ok=True)
        ports = free_ports(2 * n)
        routes = ports[n:] if n > 1 else []
        self.servers = [Server(base, i + 1, ports[i], ports[n + i], routes) for i in range(n)]
        self.url = "nats://" + ",".join(f"127.0.0.1:{server.port}" for server in self.servers)

    def start(self):
        for server in self.servers:
            server.start()
        self.wait_ready()
        return self

    def wait_ready(self, limit_s=40):
        def ready():
            try:
                return "error" not in self.ask("$JS.API.INFO")
            except OSError:
                return False

        wait_for(ready, "JetStream", limit_s, 0.1)

    def end(self):
        for server in self.servers:
            server.end()

    def ask(self, subject, payload=b""):
        failure = None
        for server in self.servers:
            if server.process.poll() is not None:
                continue
            try:
                return server.ask(subject, payload)
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

    def wait_copies(self, stream, limit_s=60):
        """Until every copy of the stream is current."""
        def current():
            try:
                cluster = self.stream_info(stream)["cluster"]
            except (OSError, KeyError):
                return False
            return all(replica.get("current") for replica in cluster.get("replicas", []))

        wait_for(current, "all copies", limit_s, 0.2)
