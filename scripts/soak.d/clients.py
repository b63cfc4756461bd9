"""Producers and consumers that live in a process of their own, apart from who kills the daemon, and note outside the mount
what they were promised.

Commands come as JSON, one a line, and each is answered with one line:

  {"go": [client, ...]}  starts these clients; a client is {"name", "role", "path", "framing", "keyed",
                         "ranges" (offsets are read back), "whole" (a write ends with a record)}
  {"stop": true}         ends them; the answer says what each one did

A producer's records are lines of tests/mount/writer.py: `<name> <sequence> <crc> <text>`, so that every record proves
itself. What a client was promised carries the time of the promise (CLOCK_MONOTONIC), so that the one who cuts the power can
tell what came before the cut.
"""

import base64
import errno
import json
import os
import random
import struct
import sys
import threading
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests", "mount")))

from writer import line  # noqa: E402

GONE = {errno.ENOTCONN, errno.ECONNABORTED, errno.ENODEV, errno.EIDRM, errno.ENOENT}
PAUSE_S = 0.005


def key_of(client, sequence):
    return f"k{sequence % 7}" if client["keyed"] else ""


def framed(client, sequence):
    """One record as the file takes it."""
    payload = line(client["name"], sequence)[:-1]
    key = key_of(client, sequence)
    if client["framing"] == "produce":
        return payload + b"\n"
    if client["framing"] == "produce.bin":
        return struct.pack(">II", len(key), len(payload)) + key.encode() + payload
    if sequence % 2:
        record = {"payload": payload.decode()}
    else:
        record = {"payload": base64.b64encode(payload).decode(), "payload_encoding": "base64"}
    return json.dumps({**record, **({"key": key} if key else {})}).encode() + b"\n"


class Client:
    """One thread; ends when told or when the mount is gone."""

    def __init__(self, name):
        self.name, self.stop, self.thread, self.fd = name, threading.Event(), None, -1
        self.client, self.done = None, None

    def go(self, client):
        self.client, self.stop = client, threading.Event()
        self.done = {"role": client["role"], "errors": {}, "wrong": None, **self.fresh()}
        self.thread = threading.Thread(target=self.guarded, daemon=True)
        self.thread.start()

    def guarded(self):
        try:
            self.run()
        except Exception as error:  # pylint: disable=broad-except
            self.done["wrong"] = f"{self.name}: {error!r}"

    def run(self):
        while not self.stop.is_set():
            try:
                self.turn()
            except OSError as error:
                self.note(error)
                if error.errno in GONE:
                    break
                self.failed()
                time.sleep(PAUSE_S)
        self.close()

    def failed(self):
        """After an error that may pass."""

    def note(self, error):
        name = errno.errorcode.get(error.errno, str(error.errno))
        self.done["errors"][name] = self.done["errors"].get(name, 0) + 1

    def close(self):
        if self.fd >= 0:
            fd, self.fd = self.fd, -1
            try:
                os.close(fd)
                return True
            except OSError as error:
                self.note(error)
        return False


class Producer(Client):
    """Commits batches of records. A batch whose fsync failed is tried again on the same open file, as long as the mount
    is there; what a mount that went away has left open is sent once more next time, or not: `tries` says."""

    def __init__(self, name):
        super().__init__(name)
        self.sequence, self.again, self.batch, self.rest = 0, [], [], b""

    def fresh(self):
        self.batch, self.rest = [], b""
        return {"acked": [], "tried": [], "ranges": []}

    def next_batch(self):
        """Sequences, and the bytes that are still to be written."""
        if self.again:
            self.batch, self.again = self.again, []
        else:
            count = 1 + self.sequence % 9
            self.batch = list(range(self.sequence, self.sequence + count))
            self.sequence += count
        self.done["tried"] += self.batch
        self.rest = b"".join(framed(self.client, sequence) for sequence in self.batch)

    def turn(self):
        if self.fd < 0:
            self.fd = os.open(self.client["path"], os.O_RDWR)
        if not self.batch:
            self.next_batch()
        while self.rest:
            self.rest = self.rest[os.write(self.fd, self.rest[:self.cut()]):]
        os.fsync(self.fd)
        self.promised()

    def cut(self):
        """Records are cut anywhere, as buffers cut them; not where the last close would make a line of a piece."""
        return len(self.rest) if self.client["whole"] else 1 + random.randrange(len(self.rest))

    def promised(self):
        self.done["acked"].append([time.monotonic(), self.batch])
        batch, self.batch = self.batch, []
        if self.client["ranges"]:
            self.done["ranges"].append([batch, os.read(self.fd, 4096).decode()])

    def close(self):
        closed = super().close()
        if self.batch and not closed and random.random() < 0.5:
            self.again = self.batch
        self.batch = []
        return closed


class Consumer(Client):
    """Leases records, settles most of them durably, gives the rest back."""

    def fresh(self):
        self.held = []
        return {"delivered": [], "attempted": [], "settled": []}

    def turn(self):
        if self.fd < 0:
            self.fd = os.open(self.client["path"], os.O_NONBLOCK | self.flags())
        self.held = []
        try:
            for _ in range(random.randrange(1, 20)):
                self.take()
        except BlockingIOError:
            time.sleep(PAUSE_S)
        if self.held:
            self.settle()
        if random.random() < 0.1:
            self.close()

    def failed(self):
        self.close()  # a later fsync would settle what this turn had taken

    def flags(self):
        return os.O_RDWR if self.client["framing"] == "consume" else os.O_RDONLY

    def got(self, payload, receipt=""):
        record = payload.decode("ascii", "replace")
        self.done["delivered"].append(record)
        self.held.append((record, receipt))

    def take(self):
        data = os.read(self.fd, 1 << 20)
        if self.client["framing"] == "consume":
            self.got(data[:-1])
        elif self.client["framing"] == "consume.jsonl":
            item = json.loads(data)
            payload = item["payload"]
            self.got(base64.b64decode(payload) if "payload_encoding" in item else payload.encode(), item["handle"])
        else:
            self.take_binary(data)

    def take_binary(self, data):
        while data:
            length, partition, offset, nonce, _, key_size = struct.unpack_from(">IIQQQI", data)
            self.got(data[36 + key_size:4 + length], f"{partition}:{offset}:{nonce}")
            data = data[4 + length:]

    def settle(self):
        records = [record for record, _ in self.held]
        if self.client["framing"] == "consume":
            self.done["attempted"] += records
            os.fsync(self.fd)
        else:
            records = self.settle_receipts()
        self.done["settled"].append([time.monotonic(), records])

    def settle_receipts(self):
        """In any order, but for some that are given back."""
        random.shuffle(self.held)
        kept = self.held[len(self.held) // 8:]
        self.done["attempted"] += [record for record, _ in kept]
        fd = os.open(os.path.dirname(self.client["path"]) + "/ack", os.O_WRONLY)
        try:
            lines = [f"nack {receipt}\n" for _, receipt in self.held[:len(self.held) // 8]]
            lines += [f"{receipt}\n" for _, receipt in kept]
            settled = self.write_lines(fd, lines, {f"{receipt}\n": record for record, receipt in kept})
            os.fsync(fd)
        finally:
            os.close(fd)
        return settled

    def write_lines(self, fd, lines, records):
        """The records that the file says are settled: a line that is refused (its lease lapsed) is passed over."""
        settled = []
        while lines:
            try:
                taken = os.write(fd, "".join(lines).encode())
            except OSError as error:
                if error.errno not in (errno.ESTALE, errno.EAGAIN):
                    raise
                self.note(error)
                lines = lines[1:]
                continue
            while taken > 0:
                taken -= len(lines[0])
                settled += [records[lines[0]]] if lines[0] in records else []
                lines = lines[1:]
        return settled


class Drainer(Consumer):
    """What a read of drain delivered is settled by the next read, and durable with an fsync after that."""

    def turn(self):
        fd = os.open(self.client["path"], os.O_RDONLY)
        try:
            before = []
            while not self.stop.is_set():
                self.done["attempted"] += before
                data = os.read(fd, 3000)
                os.fsync(fd)
                self.done["settled"].append([time.monotonic(), before])
                if not data:
                    break
                whole = data.split(b"\n")
                before = self.whole(whole)
        finally:
            os.close(fd)
        time.sleep(PAUSE_S)

    def whole(self, parts):
        """Records of a read whose every line is whole; of another one nothing is said."""
        if parts.pop() != b"":
            return []
        self.held = []
        for part in parts:
            self.got(part)
        return [record for record, _ in self.held]


ROLES = {"produce": Producer, "consume": Consumer, "drain": Drainer}


def main():
    clients = {}
    running = []
    for text in sys.stdin:
        command = json.loads(text)
        if "seed" in command:
            random.seed(command["seed"])
            answer = {}
        elif "go" in command:
            running = [clients.setdefault(client["name"], ROLES[client["role"]](client["name"])) for client in command["go"]]
            for client, options in zip(running, command["go"]):
                client.go(options)
            answer = {}
        elif "stop" in command:
            for client in running:
                client.stop.set()
            for client in running:
                client.thread.join()
            answer = {client.name: client.done for client in running}
        else:
            answer = {"acked": sum(len(client.done.get("acked", ())) for client in running)}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
