"""Compares what the processes of scripts/stress were promised (their journals) with what is there in the end."""

import collections
import glob
import json
import os

from clients import MARGIN_S, VISIBILITY_S
from journal import Damaged, is_cut, make, parse

SHOWN = 12  # findings of one sort that are printed
OF_THE_HANDLE = ("LineConsumer", "DrainConsumer")  # whose leases end with the process


class Findings:
    def __init__(self):
        self.by_sort = collections.defaultdict(list)

    def add(self, sort, text):
        self.by_sort[sort].append(text)

    def print(self):
        for sort, texts in sorted(self.by_sort.items()):
            print(f"FOUND {len(texts)} x {sort}")
            for text in texts[:SHOWN]:
                print("   ", text)

    def __len__(self):
        return sum(len(texts) for texts in self.by_sort.values())


class Lease:
    __slots__ = ("owner", "t0", "t1", "end")

    def __init__(self, owner, t0, t1):
        self.owner = owner
        self.t0 = t0
        self.t1 = t1
        self.end = t0 + VISIBILITY_S  # it lasts until then at least, unless it is given back


class Told:
    """What the journals say."""

    def __init__(self, folder, killed, findings):
        self.acked = []  # (name, topic, incarnation, first, last, t0, offsets: [(part, offset, n)])
        self.leases = collections.defaultdict(list)  # (topic, id) -> [Lease]
        self.settled = {}  # (topic, id) -> when it was said, at the latest
        self.refused = []  # (topic, id, t0, t1)
        self.reopened = collections.defaultdict(list)  # (topic, part) -> [(t0, t1)]
        self.kept = collections.defaultdict(list)  # (topic, part) -> files
        self.family = []  # (time, event)
        self.counts = collections.Counter()
        self.killed = killed
        for path in sorted(glob.glob(folder + "/*.*.*")):
            if not os.path.basename(path).startswith("kept."):
                self.read(path, findings)

    def read(self, path, findings):
        process, life, role = os.path.basename(path).split(".")
        name = f"{process}.{life}"
        mine = {}
        with open(path, encoding="utf-8", errors="replace") as file:
            for line in file:
                if line.endswith("\n"):  # else it was being written when the process was killed
                    self.counts[role + " " + line.split(" ", 1)[0]] += 1
                    self.take(name, line.split(), mine, findings)
        if name in self.killed and role in OF_THE_HANDLE:
            for lease in mine.values():
                lease.end = min(lease.end, self.killed[name])
        if name in self.killed and role == "Family":
            self.family.append((self.killed[name], "killed"))

    def take(self, name, words, mine, findings):
        verb = words[0]
        if verb == "A":
            self.acked.append((name, words[1], words[2], int(words[4]), int(words[5]), float(words[6]), []))
        elif verb == "W":
            self.acked[-1][6].append((int(words[2]), int(words[3]), int(words[4])))
        elif verb == "E":
            findings.add("said by a client", name + ": " + " ".join(words[1:]))
        elif verb == "L":
            key, lease = (words[1], words[2]), Lease(name, float(words[3]), float(words[4]))
            self.leases[key].append(lease)
            mine[key] = lease
        elif verb in "KXGS" and len(verb) == 1:
            self.take_settling(verb, (words[1], words[2]), [float(word) for word in words[3:]], mine)
        elif verb == "V":
            self.kept[(words[1], int(words[2]))].append(words[3])
        elif verb == "reopen":
            self.reopened[(words[1], int(words[2]))].append((float(words[3]), float(words[4])))
        elif verb in ("attached", "detaching"):
            self.family.append((float(words[-1]), verb))

    def take_settling(self, verb, key, times, mine):
        if verb == "K":
            self.settled[key] = min(times[1], self.settled.get(key, times[1]))
        elif verb == "S":
            self.refused.append((*key, *times))
        elif verb == "X":
            mine[key].end = times[0] + VISIBILITY_S
        else:
            mine[key].end = min(mine[key].end, times[0])


class Stored:
    """What the partitions hold, and what was kept of them before a trim."""

    def __init__(self, mnt, partitions, told, findings):
        self.incarnation = {}
        self.ids = {}  # topic -> {id: [(part, offset)]}
        self.at = {}  # (topic, part, offset) -> id
        for topic, n in partitions.items():
            if not os.path.isdir(f"{mnt}/topics/{topic}"):
                continue
            self.incarnation[topic] = os.getxattr(f"{mnt}/topics/{topic}", "user.narad.incarnation").decode()
            self.ids[topic] = collections.defaultdict(list)
            for part in range(n):
                self.read(topic, part, f"{mnt}/topics/{topic}/p{part:05d}", told.kept[(topic, part)], findings)

    def read(self, topic, part, path, kept, findings):
        records = {}
        for name in kept:
            with open(name, "rb") as file:
                for line in file:
                    if line.endswith(b"\n"):
                        offset, record = line[:-1].split(b" ", 1)
                        records[int(offset)] = record
        oldest = int(os.getxattr(path, "user.narad.oldest_offset"))
        with open(path + "/log.jsonl", "rb") as file:
            for line in file:
                record = json.loads(line)
                payload = record["payload"].encode()
                if records.get(record["offset"], payload) != payload:
                    findings.add("an offset with another record than before", f"{path} {record['offset']}")
                records[record["offset"]] = payload
        hwm = int(os.getxattr(path, "user.narad.hwm"))
        if sorted(records) != list(range(hwm)):
            lost = sorted(set(range(hwm)) - set(records))
            findings.add("offsets that are not there", f"{path}: {len(lost)} of {hwm}, oldest {oldest}: {lost[:5]}...")
        for offset, payload in records.items():
            self.add(topic, part, offset, payload, findings)

    def add(self, topic, part, offset, payload, findings):
        try:
            one, incarnation = parse(payload)
        except Damaged as damage:
            findings.add("a record that nobody made", f"{topic} {part} {offset} {damage}")
            return
        self.ids[topic][one].append((part, offset))
        self.at[(topic, part, offset)] = one
        if incarnation and topic not in ("kid", "late") and incarnation != self.incarnation[topic]:
            findings.add("a record of a deleted topic in its successor", f"{topic} {part} {offset} {one} {incarnation}")


def numbers(acked):
    name, _, _, first, last, _, _ = acked
    return [f"{name}.{number}" for number in range(first, last + 1)]


def check_produced(told, stored, findings):
    n = 0
    for acked in told.acked:
        _, topic, incarnation, _, _, _, offsets = acked
        if stored.incarnation.get(topic) != incarnation:
            continue  # deleted since
        names = numbers(acked)
        n += len(names)
        for one in names:
            if one not in stored.ids[topic]:
                findings.add("acknowledged and lost", f"{topic} {one}")
        said = [(part, offset + i) for part, offset, count in offsets for i in range(count)]
        for one, (part, offset) in zip(names, said):
            if stored.at.get((topic, part, offset)) != one:
                findings.add("not at the offset that was said", f"{topic} {part} {offset} {one}")
    for topic, ids in stored.ids.items():
        for one, places in ids.items():
            if len(places) > 1 and not is_cut(one):
                findings.add("there twice", f"{topic} {one} {places}")
    check_cut(told, stored, findings)
    return n


def check_cut(told, stored, findings):
    """Each life of a process has one end, and leaves at most one record cut, behind all that was acknowledged."""
    last = {}
    for name, _, _, _, number, _, _ in told.acked:
        last[name] = max(number, last.get(name, -1))
    named = collections.Counter()
    for topic in stored.ids.keys() - {"kid", "late"}:
        for one in filter(is_cut, stored.ids[topic]):
            name, dot, number = one[len("cut:"):].split("|")[0].rpartition(".")
            if "|" not in one or not dot:
                continue  # too little is left to say whose it was
            named[name] += len(stored.ids[topic][one])
            if named[name] > 1 or int(number) <= last.get(name, -1):
                findings.add("a torn record", f"{topic} {one[:60]} {stored.ids[topic][one]}")


def check_copies(told, stored, findings):
    """Of the child that was always attached all; of the other what came after the last attach."""
    last = max(told.family, default=(0, "none"))
    for child, since in (("late", 0), ("kid", last[0] if last[1] == "attached" else None)):
        for one in stored.ids[child]:
            if one not in stored.ids["parent"]:
                findings.add("a copy of nothing", f"{child} {one}")
        for acked in told.acked:
            if since is not None and acked[1] == "parent" and acked[5] > since:
                for one in numbers(acked):
                    if one not in stored.ids[child]:
                        findings.add("not copied", f"{child} {one}")


def reopened(told, stored, key, t0, t1):
    """Whether its partition was reopened between; leases live in memory only."""
    places = stored.ids[key[0]].get(key[1], [])
    return any(a <= t1 and b >= t0 for part, _ in places for a, b in told.reopened[(key[0], part)])


def check_leases(told, stored, findings):
    """Returns how many were compared."""
    n = 0
    for key, leases in told.leases.items():
        if is_cut(key[1]):
            continue  # it may be the same as another
        settled = told.settled.get(key)
        for lease in leases:
            if settled is not None and lease.t0 > settled:
                findings.add("delivered after it was settled", f"{key} at {lease.t0:.3f} to {lease.owner}, settled {settled:.3f}")
            for other in leases:
                n += other is not lease
                if (other is not lease and other.t0 > lease.t1 and other.t1 < lease.end - MARGIN_S and
                        not reopened(told, stored, key, lease.t0, other.t1)):
                    findings.add("two live leases", f"{key} {lease.owner} {lease.t0:.3f}-{lease.end:.3f}, {other.owner} "
                                                    f"{other.t0:.3f}-{other.t1:.3f}")
    for topic, one, t0, t1 in told.refused:
        if t1 < t0 + VISIBILITY_S - MARGIN_S and not reopened(told, stored, (topic, one), t0, t1):
            findings.add("a lease that lapsed early", f"{topic} {one} {t0:.3f} refused {t1:.3f}")
    return n


def check_consumed(told, stored, drained, findings):
    """drained: topic -> ids that were delivered at last."""
    for topic, ids in drained.items():
        for one in ids:
            if (topic, one) in told.settled and not is_cut(one):
                findings.add("delivered after it was settled, and a restart", f"{topic} {one}")
        for one in stored.ids[topic]:
            if (topic, one) not in told.leases and one not in ids:
                findings.add("never delivered", f"{topic} {one} {stored.ids[topic][one]}")


# ---- whether these checks find anything


def a_lost_record(told, stored, drained):
    acked = next(one for one in told.acked if one[1] == "work" and numbers(one)[0] in stored.ids["work"])
    del stored.ids["work"][numbers(acked)[0]]


def a_record_twice(told, stored, drained):
    next(places for places in stored.ids["work"].values()).append((0, 1 << 40))


def another_offset(told, stored, drained):
    acked = next(one for one in told.acked if one[6] and one[1] == "work")
    part, offset, n = acked[6][0]
    acked[6][0] = (part, offset + 1, n)


def a_record_of_the_deleted_topic(told, stored, drained):
    stored.add("work", 0, 1 << 40, make("0.0", 0, "another", "x"), drained["findings"])


def a_changed_record(told, stored, drained):
    stored.add("work", 0, 1 << 40, make("0.0", 0, "another", "x")[:-1], drained["findings"])


def a_torn_record(told, stored, drained):
    acked = next(one for one in told.acked if one[1] == "work" and numbers(one)[0] in stored.ids["work"])
    stored.add("work", 0, 1 << 40, make(acked[0], acked[3], acked[2], "xxx")[:-3], drained["findings"])


def a_copy_less(told, stored, drained):
    acked = next(one for one in told.acked if one[1] == "parent" and numbers(one)[0] in stored.ids["late"])
    del stored.ids["late"][numbers(acked)[0]]


def a_copy_of_nothing(told, stored, drained):
    stored.ids["kid"]["nobody"] = [(0, 1 << 40)]


def a_shared_lease(told, stored, drained):
    lease = next(all_of[0] for all_of in told.leases.values() if all_of[0].end > all_of[0].t1 + 1)
    key = next(key for key, all_of in told.leases.items() if all_of[0] is lease)
    told.reopened.clear()
    told.leases[key].append(Lease("another", lease.t1 + 0.001, lease.t1 + 0.002))


def a_settled_record_again(told, stored, drained):
    key, at = next(iter(told.settled.items()))
    told.leases[key].append(Lease("another", at + 100, at + 100.1))


def a_settled_record_after_the_restart(told, stored, drained):
    drained["work"].add(next(one for topic, one in told.settled if topic == "work"))


def an_early_end(told, stored, drained):
    told.refused.append(("work", "any", 5.0, 6.0))


def a_skipped_record(told, stored, drained):
    one = next(one for topic, one in told.leases if topic == "work" and one in stored.ids["work"])
    del told.leases[("work", one)]
    drained["work"].discard(one)


WOUNDS = {
    a_lost_record: "acknowledged and lost",
    a_record_twice: "there twice",
    another_offset: "not at the offset that was said",
    a_record_of_the_deleted_topic: "a record of a deleted topic in its successor",
    a_changed_record: "a record that nobody made",
    a_torn_record: "a torn record",
    a_copy_less: "not copied",
    a_copy_of_nothing: "a copy of nothing",
    a_shared_lease: "two live leases",
    a_settled_record_again: "delivered after it was settled",
    a_settled_record_after_the_restart: "delivered after it was settled, and a restart",
    an_early_end: "a lease that lapsed early",
    a_skipped_record: "never delivered",
}


def check_the_checks(told, stored, drained, findings):
    """Spoils what was found in one place after the other, and looks again: each has to be noticed. Last, since it spoils."""
    before = {sort: len(texts) for sort, texts in findings.by_sort.items()}
    for wound, sort in WOUNDS.items():
        found = Findings()
        try:
            wound(told, stored, {**drained, "findings": found})
        except StopIteration:
            findings.add("too little happened", f"nothing to try {wound.__name__} on")
            continue
        check_produced(told, stored, found)
        check_copies(told, stored, found)
        check_leases(told, stored, found)
        check_consumed(told, stored, drained, found)
        if len(found.by_sort[sort]) <= before.get(sort, 0):
            findings.add("a check that does not find", wound.__name__)
