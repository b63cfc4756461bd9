"""What the processes of scripts/stress do. Each role is a class; `turn` is one piece of work, repeated until the end.

A turn may end by any exception of an expected kind: the topic was deleted under it, or the process is told to stop.
"""

import base64
import errno
import json
import os
import random
import select
import struct
import subprocess
import time

from journal import Damaged, Journal, make, now, parse

VISIBILITY_S = 4.0
BUFFER = 4 << 20
# of a topic that comes and goes: not there, deleted under the handle, of another incarnation
GONE = (errno.ENOENT, errno.EIDRM, errno.ESTALE)
# of a waiting read
NOTHING = (errno.EAGAIN, errno.EINTR)
MARGIN_S = 0.05  # clocks of the two sides differ by their rounding


class Stop(BaseException):
    """The process is to end."""


class Client:
    def __init__(self, world, process, life):
        self.world = world
        self.rng = random.Random(f"{world.seed}.{process}.{life}")
        self.journal = Journal(world.journals, process, life, type(self).__name__)
        self.number = 0

    def pause(self, longest_s):
        time.sleep(self.rng.random() * longest_s)

    def path(self, topic, part=None):
        base = f"{self.world.mnt}/topics/{topic}"
        return base if part is None else f"{base}/p{part:05d}"

    def place(self, topics=None):
        """A topic, and one of its partitions or None for all of them."""
        topic = self.rng.choice(topics or ["work"] * 3 + ["parent"])
        n = self.world.partitions[topic]
        return topic, None if self.rng.random() < 0.3 else self.rng.randrange(n)

    def run(self):
        while not self.world.over():
            try:
                self.turn()
            except Damaged as damage:
                self.journal.wrong(type(self).__name__, "damaged record", damage)
            except OSError as error:
                self.journal.wrong(type(self).__name__, errno.errorcode.get(error.errno), error.filename or "", error)
                self.pause(0.5)

    def turn(self):
        raise NotImplementedError


# ---- producers


class Producer(Client):
    """Partition or topic, lines, jsonl or bin; fsync, O_DSYNC, or the close alone."""

    topics = None
    fd = -1

    def turn(self):
        topic, part = self.place(self.topics)
        framing = self.rng.choice(["produce", "produce.jsonl", "produce.bin"])
        name = framing + (f"@w{self.rng.randrange(40)}" if self.rng.random() < 0.3 else "")
        how = self.rng.choice(["fsync", "fsync", "dsync", "close"])
        flags = self.rng.choice([os.O_WRONLY, os.O_RDWR]) | (os.O_DSYNC if how == "dsync" else 0)
        path = self.path(topic, part)
        before = os.getxattr(self.path(topic), "user.narad.incarnation").decode()
        self.fd = os.open(f"{path}/{name}", flags)
        try:
            # of a partition's file the handle itself says which topic it is
            incarnation = before if part is None else os.getxattr(self.fd, "user.narad.incarnation").decode()
            after = os.getxattr(self.path(topic), "user.narad.incarnation").decode()
            if part is None and after != before:
                return
            offsets = part is not None and flags & os.O_RDWR and how == "fsync"
            self.produce((topic, incarnation, "-" if part is None else part), framing, how, offsets)
        finally:
            self.close()

    def close(self):
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    def produce(self, place, framing, how, offsets):
        for _ in range(self.rng.randrange(1, 12)):
            t0 = now()
            first = self.number
            records = [self.record(place[1]) for _ in range(self.rng.randrange(1, 20))]
            self.write(b"".join(self.framed(framing, record) for record in records), how)
            if how == "fsync":
                self.sync()
            elif how == "close":
                self.close()
            self.journal.tell(("A", *place, first, self.number - 1, f"{t0:.6f}", f"{now():.6f}"))
            if offsets:
                self.learn_offsets(place, len(records))
            if self.fd < 0:
                break
            self.pause(0.6)

    def record(self, incarnation):
        filling = "x" * (self.rng.choice([0, 10, 60, 200]) if self.rng.random() < 0.98 else self.rng.randrange(150_000))
        record = make(self.journal.name, self.number, incarnation, filling)
        self.number += 1
        return record

    def framed(self, framing, record):
        key = f"k{self.rng.randrange(50)}" if self.rng.random() < 0.5 else ""
        if framing == "produce":
            return record + b"\n"
        if framing == "produce.bin":
            return struct.pack(">II", len(key), len(record)) + key.encode() + record
        line = {"key": key, "payload": record.decode()} if key else {"payload": record.decode()}
        if self.rng.random() < 0.2:
            line["payload"] = base64.b64encode(record).decode()
            line["payload_encoding"] = "base64"
        return json.dumps(line).encode() + b"\n"

    def write(self, data, how):
        """In pieces, cut anywhere; with O_DSYNC in one, so that it ends where a record does."""
        while data:
            size = len(data) if how == "dsync" else self.rng.randrange(1, len(data) + 1)
            n = os.write(self.fd, data[:max(size, len(data) // 4)])
            data = data[n:]

    def sync(self):
        """A sync that fails has lost nothing: another one lands exactly one copy."""
        for turn in range(20):
            try:
                os.fsync(self.fd)
                return
            except OSError as error:
                if error.errno in GONE or turn == 19:
                    raise
                self.journal.tell(("retry", errno.errorcode.get(error.errno)))
                self.pause(0.2)

    def learn_offsets(self, place, n):
        text = b""
        while n > 0:
            text += os.read(self.fd, 4096)
            lines = text.split(b"\n")
            text = lines.pop()
            for line in lines:
                _, first, last = line.split()
                self.journal.tell(("W", place[0], place[2], int(first), int(last) - int(first) + 1))
                n -= int(last) - int(first) + 1


class FlashProducer(Producer):
    """The same, into topics that are deleted under it."""

    @property
    def topics(self):
        return self.world.flashes

    def turn(self):
        try:
            super().turn()
        except OSError as error:
            if error.errno not in GONE:
                raise
            self.pause(0.2)


# ---- consumers


class Consumer(Client):
    """Shared by those that hold records: what is delivered, and what is done with it."""

    names = ()

    def turn(self):
        topic, part = self.place()
        fd = os.open(f"{self.path(topic, part)}/{self.rng.choice(self.names)}", self.flags())
        try:
            for _ in range(self.rng.randrange(1, 20)):
                if not self.work(fd, topic, part):
                    break
                self.pause(0.05)
        finally:
            self.close(fd, topic)

    def flags(self):
        return os.O_RDONLY

    def close(self, fd, topic):
        os.close(fd)

    def read(self, fd, size=BUFFER):
        """(t0, bytes, t1); the wait is shortened by poll, or is the read's own."""
        if self.rng.random() < 0.5 and not self.poll(fd):
            return None
        t0 = now()
        try:
            data = os.read(fd, size)
        except OSError as error:
            if error.errno in NOTHING:
                return None
            raise
        return (t0, data, now()) if data else None

    def poll(self, fd):
        if self.rng.random() < 0.5:
            poller = select.poll()
            poller.register(fd, select.POLLIN)
            return poller.poll(300)
        poller = select.epoll()
        poller.register(fd, select.EPOLLIN)
        try:
            return poller.poll(0.3)
        finally:
            poller.close()

    def delivered(self, topic, records, t0, t1):
        ids = [parse(record)[0] for record in records]
        self.journal.tell(*[("L", topic, one, f"{t0:.6f}", f"{t1:.6f}") for one in ids])
        return ids

    def tell(self, word, topic, ids, *times):
        if ids:
            self.journal.tell(*[(word, topic, one, *[f"{t:.6f}" for t in times]) for one in ids])


class LineConsumer(Consumer):
    """consume, opened for reading and writing: one record a read; lines, fsync and the close act on what it holds."""

    names = ("consume",)

    def __init__(self, *args):
        super().__init__(*args)
        self.held = []  # (id, t0 of its read)
        self.unsure = set()  # ids among them that may have lapsed: an ack that succeeds says nothing of those

    def flags(self):
        return os.O_RDWR | (os.O_NONBLOCK if self.rng.random() < 0.5 else 0)

    def work(self, fd, topic, part):
        got = self.read(fd)
        if got:
            t0, data, t1 = got
            if not data.endswith(b"\n") or data.count(b"\n") != 1:
                raise Damaged(repr(data[:100]))
            self.held += [(one, t0) for one in self.delivered(topic, [data[:-1]], t0, t1)]
        if self.held and (not got or self.rng.random() < 0.4):
            self.act(fd, topic)
        return got or self.rng.random() < 0.7

    def act(self, fd, topic):
        ids = [one for one, _ in self.held]
        verb = self.rng.choices(["ack", "fsync", "nack", "extend"], [6, 3, 1, 1])[0]
        t0 = now()
        if verb == "nack":
            self.tell("G", topic, ids, t0)
        try:
            if verb == "fsync":
                os.fsync(fd)
            else:
                os.write(fd, verb.encode() + b"\n")
        except OSError as error:
            self.failed(error, verb, topic, ids, t0)
            return
        if verb != "nack":
            self.tell("X" if verb == "extend" else "K", topic, [one for one in ids if one not in self.unsure], t0, now())
        if verb == "extend":
            self.held = [(one, t0) for one in ids]
        else:
            self.forget()

    def failed(self, error, verb, topic, ids, t0):
        """Some had lapsed and are held no longer, the others were acted on; or the set is full."""
        if error.errno == errno.ESTALE:
            oldest = min(at for _, at in self.held)
            self.tell("S", topic, [one for one, at in self.held if at == oldest], oldest, now())
        elif error.errno != errno.EAGAIN:
            raise error
        if error.errno == errno.ESTALE and verb == "extend":
            self.unsure.update(ids)  # which it was is not said, and not again
        elif error.errno == errno.ESTALE:
            self.forget()

    def forget(self):
        self.held = []
        self.unsure = set()

    def close(self, fd, topic):
        self.tell("G", topic, [one for one, _ in self.held], now())
        self.forget()
        super().close(fd, topic)


class ReceiptConsumer(Consumer):
    """consume.jsonl and consume.bin: receipts that outlive the handle, used through ack."""

    names = ("consume.jsonl", "consume.bin")

    def turn(self):
        topic, part = self.place()
        name = self.rng.choice(self.names)
        fd = os.open(f"{self.path(topic, part)}/{name}", os.O_RDONLY | (os.O_NONBLOCK if self.rng.random() < 0.5 else 0))
        try:
            got = self.read(fd, BUFFER if name == "consume.jsonl" else 300_000)
        finally:
            os.close(fd)
        if not got:
            return
        t0, data, t1 = got
        pairs = self.from_json(data) if name == "consume.jsonl" else list(self.from_bin(data))
        ids = self.delivered(topic, [record for _, record in pairs], t0, t1)
        self.settle(topic, part, list(zip(ids, [receipt for receipt, _ in pairs])), t0)

    def from_json(self, data):
        record = json.loads(data)
        payload = record["payload"]
        return [(record["handle"], payload.encode())]

    def from_bin(self, data):
        while data:
            size, part, offset, nonce, _, key_size = struct.unpack_from(">IIQQQI", data)
            body = data[36 + key_size:4 + size]
            data = data[4 + size:]
            yield f"{part}:{offset}:{nonce}", body

    def settle(self, topic, part, held, t_read):
        where = self.path(topic, part if self.rng.random() < 0.7 else None)
        fd = os.open(where + "/ack", os.O_WRONLY)
        try:
            for one, receipt in held:
                self.use(fd, topic, one, receipt, t_read)
            if self.rng.random() < 0.3:
                os.fsync(fd)
        finally:
            os.close(fd)

    def use(self, fd, topic, one, receipt, t_read):
        verb = self.rng.choices(["ack", "", "nack", "extend", "leave", "late"], [5, 2, 1, 1, 0.3, 0.05])[0]
        if verb == "leave":
            return
        if verb == "late":  # the receipt lapses meanwhile
            time.sleep(VISIBILITY_S + 0.5)
            verb = "ack"
        t0 = now()
        if verb == "nack":
            self.tell("G", topic, [one], t0)
        try:
            os.write(fd, (f"{verb} " if verb else "").encode() + receipt.encode() + b"\n")
        except OSError as error:
            if error.errno == errno.ESTALE:
                self.tell("S", topic, [one], t_read, now())
            elif error.errno != errno.EAGAIN:
                raise
            return
        if verb == "extend":
            self.tell("X", topic, [one], t0, now())
            self.use(fd, topic, one, receipt, t0)
        elif verb != "nack":
            self.tell("K", topic, [one], t0, now())
        self.again(fd, topic, receipt, verb)

    def again(self, fd, topic, receipt, verb):
        """A receipt is good once."""
        if verb == "extend" or self.rng.random() > 0.05:
            return
        try:
            os.write(fd, receipt.encode() + b"\n")
        except OSError as error:
            if error.errno != errno.ESTALE:
                raise
            return
        self.journal.wrong("a receipt that was used up was taken again:", topic, receipt)


class DrainConsumer(Consumer):
    """drain: each read settles what the one before delivered, but for what lapsed or what the set of records acked ahead has
    no room for: neither is told. So it is only believed in time, and of a topic whose set is large (Tuner)."""

    def turn(self):
        topic, part = self.place()
        fd = os.open(self.path(topic, part) + "/drain", os.O_RDONLY)
        held, t_held, ever = [], 0, []
        try:
            for _ in range(self.rng.randrange(1, 5)):
                t0 = now()
                data = os.read(fd, self.rng.choice([200_000, BUFFER]))
                t1 = now()
                if topic == "work" and t1 - t_held < VISIBILITY_S - MARGIN_S:
                    self.tell("K", topic, held, t0, t1)
                held, t_held = [], t0
                if not data:
                    break
                held = self.delivered(topic, self.records(fd, data), t0, t1)
                ever += held
                self.pause(0.1)
        finally:
            self.tell("G", topic, ever, now())  # what is not settled
            os.close(fd)
        self.pause(0.3)

    def records(self, fd, data):
        if not data.endswith(b"\n"):
            raise Damaged("a drain that ends within a record: " + repr(data[-60:]))
        return data[:-1].split(b"\n")


# ---- readers


class Reader(Client):
    """log, log.jsonl, from/, records/, by-time/, segments/: all that is read is whole, in order, and of this topic."""

    def turn(self):
        flash = self.rng.random() < 0.3
        topic = self.rng.choice(self.world.flashes if flash else ["work", "parent", "kid", "late"])
        part = self.rng.randrange(self.world.partitions[topic])
        try:
            self.rng.choice([self.lines, self.objects, self.one, self.by_time, self.segments])(topic, self.path(topic, part))
        except OSError as error:
            if error.errno not in (GONE if flash else (errno.ENOENT,)):
                raise
        self.pause(0.3)

    def range(self, path):
        return [int(os.getxattr(path, "user.narad." + name)) for name in ("oldest_offset", "hwm")]

    def check(self, topic, path, fd, record):
        one, incarnation = parse(record)
        if incarnation and topic in self.world.flashes and incarnation != os.getxattr(fd, "user.narad.incarnation").decode():
            self.journal.wrong("a record of another incarnation in", path, one, incarnation)

    def lines(self, topic, path):
        oldest, hwm = self.range(path)
        start = self.rng.choice(["log", f"from/{self.rng.randrange(oldest, hwm + 1)}"])
        fd = os.open(f"{path}/{start}", os.O_RDONLY)
        try:
            data = os.read(fd, 200_000)
            for record in data.split(b"\n")[:-1]:
                self.check(topic, path, fd, record)
        finally:
            os.close(fd)

    def objects(self, topic, path):
        fd = os.open(path + "/log.jsonl", os.O_RDONLY)
        try:
            if self.rng.random() < 0.5:
                os.lseek(fd, self.rng.randrange(os.fstat(fd).st_size + 1), os.SEEK_SET)
                os.read(fd, 1000)
                return
            text = os.read(fd, 200_000)
            offsets = []
            for line in text.split(b"\n")[:-1]:
                record = json.loads(line)
                offsets.append(record["offset"])
                self.check(topic, path, fd, record["payload"].encode())
            if offsets and offsets != list(range(offsets[0], offsets[0] + len(offsets))):
                self.journal.wrong("a gap in", path, offsets[:5], "...")
        finally:
            os.close(fd)

    def one(self, topic, path):
        oldest, hwm = self.range(path)
        if oldest == hwm:
            return
        offset = self.rng.randrange(oldest, hwm)
        fd = os.open(f"{path}/records/{offset}", os.O_RDONLY)
        try:
            self.check(topic, path, fd, os.read(fd, BUFFER))
            if int(os.getxattr(fd, "user.narad.offset")) != offset:
                self.journal.wrong("another offset than asked for in", path, offset)
        finally:
            os.close(fd)

    def by_time(self, topic, path):
        at = int((time.time() - self.rng.random() * 20) * 1000)
        fd = os.open(f"{path}/by-time/{at}", os.O_RDONLY)
        try:
            for record in os.read(fd, 50_000).split(b"\n")[:-1]:
                self.check(topic, path, fd, record)
        finally:
            os.close(fd)

    def segments(self, topic, path):
        for name in os.listdir(path + "/segments")[:3]:
            with open(f"{path}/segments/{name}", "rb") as file:
                head = file.read(2)
            if head not in (b"", b"\xca\xfe"):
                self.journal.wrong("no frame at the start of", path, name, head)


class Walker(Client):
    """What looks at everything: ls, find, du, grep, status pages, xattrs."""

    commands = (["ls", "-lR"], ["find"], ["du", "-s"], ["getfattr", "-R", "-d", "-m", "-"], ["cat"])

    def turn(self):
        command = self.rng.choice(self.commands)
        paths = [self.world.mnt + "/topics"]
        if command == ["cat"]:
            paths = [self.world.mnt + "/" + name for name in ("status", "metrics", "HELP")]
            paths += [f"{self.path(topic)}/{name}" for topic in ("work", "parent") for name in ("status", "config", "ctl")]
        subprocess.run(command + paths, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL,
                       check=False)
        self.pause(1.0)


# ---- administrators


class Tuner(Client):
    """Settings change under everybody."""

    choices = {"linger_ms": [0, 5, 100, 700], "codec": ["none", "zstd"], "zstd_level": [1, 3], "max_acked_ahead": [8, 200, 1024],
               "segment_bytes": [65536, 300_000, 1 << 20], "max_in_flight": [20, 1024], "consume_wait_ms": [0, 200, 1500]}

    def turn(self):
        topic = self.rng.choice(["work", "parent", "kid"])
        key = self.rng.choice([key for key in self.choices if topic != "work" or key != "max_acked_ahead"])
        value = self.rng.choice(self.choices[key])
        if self.rng.random() < 0.5:
            os.setxattr(self.path(topic), "user.narad." + key, str(value).encode())
        else:
            fd = os.open(self.path(topic) + "/config", os.O_WRONLY)
            try:
                os.write(fd, f"{key}={value}\n".encode())
            finally:
                os.close(fd)
        self.pause(0.5)


class Maker(Client):
    """Makes topics and deletes them, with records in them and clients at them."""

    def turn(self):
        topic = self.rng.choice(self.world.flashes)
        path = self.path(topic)
        try:
            incarnation = os.getxattr(path, "user.narad.incarnation").decode()
            if self.rng.random() < 0.7:
                write(path + "/ctl", f"delete {incarnation}\n")
            else:
                os.rmdir(path)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTEMPTY, errno.EBUSY, errno.EINVAL, errno.EIDRM, errno.ESTALE):
                raise
        self.pause(0.3)
        try:
            os.mkdir(path)
            write(path + "/config", f"partitions={self.world.partitions[topic]}\nlinger_ms={self.rng.choice([0, 50])}\n")
        except OSError as error:
            if error.errno not in (errno.EEXIST, *GONE):
                raise
        self.pause(2.0)


class Family(Client):
    """Attaches and detaches a child."""

    def turn(self):
        path = self.path("parent") + "/children/kid"
        t0 = now()
        try:
            if self.rng.random() < 0.5:
                os.mkdir(path)
                self.journal.tell(("attached", f"{t0:.6f}", f"{now():.6f}"))
            else:
                self.journal.tell(("detaching", f"{t0:.6f}"))
                os.rmdir(path)
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOENT):
                raise
        self.pause(3.0)


class Operator(Client):
    """roll, reopen, and trim: what a trim deletes is read before, and kept."""

    def turn(self):
        topic = self.rng.choice(["work", "parent"])
        part = self.rng.randrange(self.world.partitions[topic])
        path = self.path(topic, part)
        verb = self.rng.choice(["roll", "reopen", "trim"])
        if verb == "trim":
            self.trim(topic, part, path)
        else:
            t0 = now()
            write(path + "/ctl", verb + "\n")
            self.journal.tell((verb, topic, part, f"{t0:.6f}", f"{now():.6f}"))
        self.pause(1.5)

    def trim(self, topic, part, path):
        """Below the frontier, and only what was kept whole. One operator at a time: each keeps its own copy."""
        oldest = int(os.getxattr(path, "user.narad.oldest_offset"))
        end = min(int(os.getxattr(path, "user.narad.frontier")), oldest + 2000)
        name = os.path.join(self.world.journals, f"kept.{topic}.{part}.{self.journal.name}.{oldest}")
        with open(path + "/log.jsonl", "rb") as file, open(name, "wb") as kept:
            for line in file:
                record = json.loads(line)
                if record["offset"] >= end:
                    break
                kept.write(b"%d %s\n" % (record["offset"], record["payload"].encode()))
        self.journal.tell(("V", topic, part, name))
        write(path + "/ctl", f"trim {end}\n")


def write(path, text):
    fd = os.open(path, os.O_WRONLY)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


# how many of 64
ROLES = ((Producer, 16), (FlashProducer, 8), (LineConsumer, 10), (ReceiptConsumer, 10), (DrainConsumer, 3), (Reader, 8),
         (Walker, 3), (Tuner, 1), (Maker, 3), (Family, 1), (Operator, 1))


def roles(n):
    """n of them, each kind at least once while there is room."""
    weights = [(kind, count * n / 64) for kind, count in ROLES]
    chosen = [kind for kind, count in weights for _ in range(max(1, round(count)))]
    while len(chosen) < n:
        chosen.append(ROLES[len(chosen) % 5][0])
    return chosen[:n] if n >= len(ROLES) else [kind for kind, _ in ROLES][:n]
