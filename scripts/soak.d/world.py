"""A mount under load, and what must hold of it whatever happens to the daemon.

I1  what was promised is readable, byte for byte           I2  what is served was submitted: whole, and as often as it may
I4  a retry leaves one copy; second copies after a crash are of what was never promised
I6  offsets have no gap and are used once                  I7  what was served once stays as it was
I8  what was settled does not come back, and nothing unsettled is passed over; the frontier is never above the watermark
I10 descriptors and threads do not grow
"""

import collections
import hashlib
import json
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.normpath(os.path.join(HERE, "..", "..", "tests", "mount")))

from support import ack, number, payload_of, read_rest, take, wait_for, write_file, xattr  # noqa: E402
from writer import check  # noqa: E402

ARRIVE_S = 60


class Broken(Exception):
    """An invariant does not hold."""


def must(condition, *what):
    if not condition:
        raise Broken(" ".join(str(word) for word in what)[:4000])


def identity(record):
    """(writer, sequence) of a record that proves itself."""
    whole = check(record if isinstance(record, bytes) else record.encode())
    must(whole is not None, "torn or fabricated:", repr(record[:200]))
    return whole


class Clients:
    """The other process."""

    def __init__(self, seed):
        self.process = subprocess.Popen(["/usr/bin/python3", os.path.join(HERE, "clients.py")], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE)
        self.call(seed=seed)

    def call(self, **command):
        self.process.stdin.write(json.dumps(command).encode() + b"\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        must(answer, "the clients' process ended")
        return json.loads(answer)

    def promises(self):
        return self.call()["acked"]

    def end(self):
        self.process.stdin.close()
        self.process.wait(60)


class Part:
    """One partition as it was read so far."""

    def __init__(self, topic, path, index):
        self.topic, self.path, self.index = topic, path, index
        self.reset()

    def reset(self):
        self.pos, self.next_offset, self.last_time, self.sum = 0, 0, 0, hashlib.sha256()

    def more(self):
        """The objects of log.jsonl behind what was read before."""
        fd = os.open(self.path + "/log.jsonl", os.O_RDONLY)
        try:
            os.lseek(fd, self.pos, os.SEEK_SET)
            data = read_rest(fd)
        finally:
            os.close(fd)
        must(data == b"" or data.endswith(b"\n"), self.path, "a line of log.jsonl is cut")
        self.pos += len(data)
        self.sum.update(data)
        return [self.checked(json.loads(text)) for text in data.splitlines()]

    def checked(self, item):
        must(item["partition"] == self.index, self.path, "names another partition", item)
        must(item["offset"] == self.next_offset, self.path, "has offset", item["offset"], "where", self.next_offset, "is due")
        must(item["timestamp"] >= self.last_time, self.path, "commit times decrease at", item["offset"])
        self.next_offset, self.last_time = self.next_offset + 1, item["timestamp"]
        record = identity(payload_of(item))
        keys = ("", f"k{record[1] % 7}")
        must((item["key"] or "") in keys, self.path, "has a wrong key", item)
        return record, item["offset"]

    def unchanged(self):
        """All of it once more: the same bytes as when it was read piece by piece."""
        known = self.sum.hexdigest(), self.pos, self.next_offset
        self.reset()
        while self.pos < known[1] and self.more():
            pass
        must((self.sum.hexdigest(), self.pos, self.next_offset) == known, self.path, "is not what was read before")


class Topic:
    """What was sent to a topic, what was promised, what came out."""

    def __init__(self, mount, name, partitions, exact=True):
        self.mount, self.name, self.exact = mount, name, exact
        self.parts = [Part(self, mount.part(name, index), index) for index in range(partitions)]
        self.copies, self.tries = collections.Counter(), collections.Counter()
        self.missing, self.promised = set(), set()
        self.places, self.told = {}, []  # where records are; where producers were told that theirs are
        self.attempted, self.settled, self.settled_before, self.again = set(), set(), set(), []

    def read(self):
        for part in self.parts:
            for record, offset in part.more():
                self.copies[record] += 1
                self.missing.discard(record)
                self.places.setdefault(record, []).append((part.index, offset))

    def promise(self, records):
        self.promised.update(records)
        self.missing.update(record for record in records if not self.copies[record])

    def verify(self):
        """Reads on, and checks all that can be said between two rounds."""
        self.read()
        if self.missing and not self.arrived():
            raise Broken(f"{self.name}: lost {len(self.missing)}: {sorted(self.missing)[:5]}")
        for part in self.parts:
            hwm = number(part.path, "hwm")
            if hwm != part.next_offset:
                self.read()  # what was never promised may come late
            must(hwm <= part.next_offset, part.path, "watermark", hwm, "above", part.next_offset)
            must(number(part.path, "frontier") <= number(part.path, "hwm"), part.path, "frontier above the watermark")

    def arrived(self):
        """What was promised to the ingress comes within moments."""
        def all_there():
            self.read()
            return not self.missing
        try:
            return wait_for(all_there, "what was promised", ARRIVE_S)
        except AssertionError:
            return False

    def count(self):
        """Each record as often as it was sent, at most; once when it was promised at the first try."""
        for record, n_copies in self.copies.items():
            must(self.tries[record], self.name, "has a record that nobody sent:", record)
            must(n_copies <= self.tries[record] or not self.exact, self.name, n_copies, "copies of", record, "sent",
                 self.tries[record], "times, at", self.places[record])
            # a topic beside producers of its partitions: once more for each crash (internals.md, "Once or twice")
            must(n_copies <= 5 * self.tries[record], self.name, n_copies, "copies of", record)


class World:
    """The mount, its topics of the moment, and the clients."""

    def __init__(self, mount, rng):
        self.mount, self.rng = mount, rng
        self.clients = Clients(rng.randrange(1 << 30))
        self.topics, self.cast, self.generation = {}, [], 0
        self.whole, self.visibility_ms = False, 60000
        self.n_promised = self.n_settled = self.n_records = 0
        self.n_more = [0, 0]  # copies, in topics and in children
        self.errors = collections.Counter()

    # -- topics and clients

    def begin(self, **config):
        """New topics, and who works on them."""
        self.generation += 1
        name = f"{self.generation}"
        self.topics = {
            "a": self.make("a" + name, 1, **{"codec": "zstd", "segment_bytes": 65536, **config}),
            "b": self.make("b" + name, 3, **{"segment_bytes": 65536, **config}),
            "m": self.make("m" + name, 2, exact=False, **config),
            "c": self.make("c" + name, 2),
            "d": self.make("d" + name, 1, fanout_delay_ms=100),
        }
        for child in "cd":
            os.mkdir(f"{self.path('b')}/children/{child}{name}")
        self.cast = [*self.producers(), *self.consumers()]

    def make(self, name, partitions, exact=True, **config):
        self.mount.make(name, partitions=partitions, consume_wait_ms=0, linger_ms=20,
                        visibility_timeout_ms=self.visibility_ms, **config)
        return Topic(self.mount, name, partitions, exact)

    def path(self, which, part=None):
        folder = self.mount.topic(self.topics[which].name)
        return folder if part is None else f"{folder}/p{part:05d}"

    def producers(self):
        for n, framing in enumerate(("produce", "produce.jsonl", "produce.bin")):
            keyed = framing != "produce"
            yield self.client(f"a{n}", "produce", "a", 0, framing, keyed, ranges=True)
            yield self.client(f"b{n}", "produce", "b", None, framing, keyed)
        yield self.client("m0", "produce", "m", 1, "produce", False)
        yield self.client("m1", "produce", "m", None, "produce.bin", True)

    def consumers(self):
        yield self.client("ca", "consume", "a", 0, "consume", False)
        yield self.client("cj", "consume", "a", 0, "consume.jsonl", False)
        yield self.client("cb", "consume", "b", None, "consume.bin", False)
        yield self.client("ct", "consume", "b", None, "consume", False)
        yield self.client("cd", "drain", "m", 0, "drain", False)
        yield self.client("cm", "consume", "m", None, "consume.jsonl", False)

    def client(self, name, role, which, part, framing, keyed, ranges=False):
        return {"name": f"{name}.{self.generation}", "role": role, "path": f"{self.path(which, part)}/{framing}",
                "framing": framing, "keyed": keyed, "which": which, "ranges": ranges, "whole": self.whole}

    def go(self):
        self.clients.call(go=self.cast)

    def wait_for_promises(self, count, limit_s=60):
        wait_for(lambda: self.clients.promises() >= count, f"{count} promises", limit_s)

    def stop(self, before=float("inf")):
        """Ends the clients; what they were promised before that time counts as promised."""
        for topic in self.topics.values():
            topic.settled_before = set(topic.settled)
        for client, done in zip(self.cast, self.clients.call(stop=True).values()):
            must(done["wrong"] is None, done["wrong"])
            self.errors.update(done["errors"])
            topic = self.topics[client["which"]]
            if client["role"] == "produce":
                self.produced(topic, client["name"], done, before)
            else:
                self.consumed(topic, done, before)

    def produced(self, topic, name, done, before):
        topic.tries.update((name, sequence) for sequence in done["tried"])
        for when, sequences in done["acked"]:
            if when < before:
                topic.promise([(name, sequence) for sequence in sequences])
                self.n_promised += len(sequences)
        topic.told += [(name, *told) for told in done["ranges"]]

    def consumed(self, topic, done, before):
        delivered = [identity(record) for record in done["delivered"]]
        topic.again += [record for record in delivered if record in topic.settled_before]
        topic.attempted.update(identity(record) for record in done["attempted"])
        for when, records in done["settled"]:
            if when < before:
                topic.settled.update(identity(record) for record in records)
                self.n_settled += len(records)

    # -- what must hold

    def verify(self):
        for which in "abm":
            topic = self.topics[which]
            topic.verify()
            topic.count()
            self.check_told(topic)
            self.check_again(topic)
            topic.told, topic.again = [], []

    def check_told(self, topic):
        """Offsets that a producer was told are where its records are."""
        for name, sequences, told in topic.told:
            spans = [[int(word) for word in row.split()[1:]] for row in told.splitlines()]
            offsets = [offset for first, last in spans for offset in range(first, last + 1)]
            must(len(offsets) == len(sequences), topic.name, "told", repr(told), "for", name, sequences)
            for offset, sequence in zip(offsets, sequences):
                must((0, offset) in topic.places.get((name, sequence), ()) or (name, sequence) not in topic.promised,
                     topic.name, "told", told, "but", (name, sequence), "is at", topic.places.get((name, sequence)))

    def check_again(self, topic):
        for record in topic.again:
            must(topic.copies[record] > 1, topic.name, "settled, and delivered again:", record)

    def finish(self):
        """The end of these topics: everything once more, what is left is drained, children have all; then they go."""
        wait_for(lambda: self.pending() == 0, "the ingress to be empty", ARRIVE_S)  # what was never promised may come late
        self.verify()
        for topic in self.topics.values():
            for part in topic.parts if topic.name[0] in "abm" else ():
                part.unchanged()
        for which in "abm":
            self.check_rest(self.topics[which])
        for which in "cd":
            self.check_child(self.topics[which], self.topics["b"])
        for topic in self.topics.values():
            self.n_records += sum(topic.copies.values())
            more = sum(count - 1 for count in topic.copies.values() if count > 1)
            self.n_more[topic.name[0] in "cd"] += more
        self.no_leftovers()
        for which in "cdabm":
            path = self.path(which)
            write_file(path + "/ctl", f"delete {xattr(path, 'incarnation')}\n".encode())

    def pending(self):
        with open(self.mount.mnt + "/metrics", encoding="utf-8") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("narad_ingress_pending_parts "))

    def check_rest(self, topic):
        """Nothing unsettled is passed over, nothing settled is left."""
        rest = set()
        for part in topic.parts:
            wait_for(lambda p=part.path: number(p, "in_flight") == 0, "leases to be given back", 90)
            while items := take(part.path, 500):
                records = [identity(payload_of(item)) for item in items]
                must(not [record for record in records if record in topic.settled and topic.copies[record] == 1],
                     part.path, "settled, and delivered again")
                rest.update(records)
                ack(part.path, *[item["handle"] for item in items])
            must(number(part.path, "lag") == 0, part.path, "lag", number(part.path, "lag"), "and nothing deliverable")
        passed_over = set(topic.copies) - rest - topic.attempted
        must(not passed_over, topic.name, "passed over", len(passed_over), sorted(passed_over)[:5])

    def check_child(self, child, parent):
        child.tries = collections.Counter({record: 1000 for record in parent.copies})
        child.missing = set(parent.copies)
        child.verify()
        child.count()

    def no_leftovers(self):
        """One may be there for a moment."""
        wait_for(lambda: not self.temporary_files(), f"temporary files to go: {self.temporary_files()}")

    def temporary_files(self):
        return [f"{folder}/{name}" for folder, _, names in os.walk(self.mount.data) for name in names if name.endswith(".tmp")]

    def resources(self):
        """Descriptors and threads of the daemon."""
        pid = self.mount.process.pid
        return len(os.listdir(f"/proc/{pid}/fd")), len(os.listdir(f"/proc/{pid}/task"))

    def end(self):
        self.clients.end()
