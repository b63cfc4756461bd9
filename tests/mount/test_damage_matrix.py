"""Every file of a partition, damaged in every way, alone and in pairs, through the mount.

Hundreds of damaged partitions lie in one data directory, among healthy ones: one mount meets them all. For each: it is
read (log, consume, attributes, status), a record is produced and read back, the daemon stops and starts again, and the
answer is the same. Never: a record that was not produced or that has moved, a wrong order, a lost record whose bytes are
unhurt, a crash, a hang, a file removed that nobody understands. A partition may be out of service only when something
that is no file stands in a file's place; the log then names it.
"""

import errno
import itertools
import os
import random
import re
import time

import pytest
from damage import (Judge, Template, content, copy_template, cut, directory, fifo, flip, flipped_bits, foreign, listing,
                    missing, noise, read, renamed, symlink, write, wrong_bases)
from support import (XATTRS, Mount, ack, configure, drain, log, number, payload_of, produce, read_file, take,
                     write_file, xattr)

SEED = int(os.environ.get("NARADFS_SEED", "20260101"))
N_FLIPS = int(os.environ.get("NARADFS_FLIPS", "48"))
N_PER_PAIR = int(os.environ.get("NARADFS_PER_PAIR", "6"))
CASE_LIMIT_S = 10
WITNESS_EVERY = 16
CANARY = b"canary: nobody may read this\n"
NEW = b"the record after"


# -- the template


def fill(part, kind, per_segment, n_segments, per_frame, settle):
    """Segments of per_segment records, the third one compressed; (rows, frontier, settled above it)."""
    rows = [b"%s %05d " % (kind, i) + b"%d." % i * (i * 37 % 150) for i in range(per_segment * n_segments)]
    for start in range(0, len(rows), per_frame):
        if start and start % per_segment == 0:
            write_file(part + "/ctl", b"roll\n")
            configure(os.path.dirname(part), codec="zstd" if start == 2 * per_segment else "none")
        produce(part, *rows[start:start + per_frame])
    handles = {item["offset"]: item["handle"] for item in take(part, per_segment * 2)}
    for offsets in settle:
        ack(part, *[handles[offset] for offset in offsets], sync=True)
    settled = set().union(*settle)
    frontier = next(offset for offset in itertools.count() if offset not in settled)
    return rows, frontier, {offset for offset in settled if offset > frontier}


@pytest.fixture(scope="module")
def templates(tmp_path_factory):
    """The partition to be damaged; another one of its topic; one of another topic."""
    m = Mount(tmp_path_factory.mktemp("template")).start()
    try:
        m.make("t", segment_bytes=65536, partitions=2)
        m.make("u", segment_bytes=65536)
        made = [(m.data_part("t"), fill(m.part("t"), b"truth", 12, 4, 4, [range(4), [6], [14, 15]])),
                (m.data_part("t", 1), fill(m.part("t", 1), b"sibling", 10, 4, 5, [range(9), [11], [13]])),
                (m.data_part("u"), fill(m.part("u"), b"stranger", 14, 4, 7, [range(3), [5], [25]]))]
        m.stop()
        found = [Template(folder, *what) for folder, what in made]
        assert all(len(template.logs) == len(template.indexes) == 4 for template in found)
        yield found
    finally:
        wrong = m.destroy()
        assert wrong is None, wrong


@pytest.fixture
def rng(request):
    return random.Random(f"{SEED} {request.node.name}")


# -- the cases: (what it is called, {file: damage}, templates whose bytes are used)


def kinds_of(name, templates, rng, canary):
    """Every damage that is not a flipped bit or a cut."""
    mine = templates[0]
    yield "missing", missing, ()
    yield "empty", cut(0), ()
    for n in range(3):
        yield f"noise {n}", noise(rng), ()
    yield "noise of another size", noise(rng, rng.randrange(1, 9000)), ()
    yield "zeroed", content(lambda data: bytes(len(data))), ()
    for what, other in (("sibling's", templates[1]), ("stranger's", templates[2])):
        yield what, foreign(other.files[mine.counterpart(other, name)]), (other,)
    yield "a folder", directory, ()
    yield "a symlink", symlink(canary), ()
    yield "a symlink to nothing", symlink(canary + ".gone"), ()
    yield "a FIFO", fifo, ()
    if name.endswith((".log", ".index")):
        for base in wrong_bases(mine, name):
            yield f"renamed to {base}", renamed(base), ()
    else:
        yield "renamed", renamed_away, ()


def renamed_away(folder, name):
    os.rename(f"{folder}/{name}", f"{folder}/{name}1")


def single_cases(name, templates, rng, canary):
    size = len(templates[0].files[name])
    for what, damage, strangers in kinds_of(name, templates, rng, canary):
        yield f"{name} {what}", {name: damage}, strangers
    for at in sorted({*range(1, min(64, size)), size // 2, size - 1}):
        yield f"{name} cut to {at}", {name: cut(at)}, ()
    for bit in flipped_bits(size, N_FLIPS, rng):
        yield f"{name} bit {bit} flipped", {name: flip(bit)}, ()


def any_damage(name, templates, rng, canary):
    size = len(templates[0].files[name])
    kinds = list(kinds_of(name, templates, rng, canary))
    kinds += [(f"cut to {at}", cut(at), ()) for at in rng.sample(range(size), min(size, 8))]
    kinds += [(f"bit {bit} flipped", flip(bit), ()) for bit in flipped_bits(size, 8, rng)]
    return rng.choice(kinds)


def pair_cases(templates, rng, canary, per_pair):
    for one, two in itertools.combinations(templates[0].files, 2):
        for _ in range(per_pair):
            first, second = (any_damage(name, templates, rng, canary) for name in (one, two))
            yield (f"{one} {first[0]} and {two} {second[0]}", {one: first[1], two: second[1]},
                   (*first[2], *second[2]))


# -- the run


class Case:
    def __init__(self, topic, partition, what, damages, strangers):
        self.topic = topic
        self.partition = partition
        self.what = what
        self.damages = damages
        self.strangers = strangers
        self.judge = None
        self.answer = None  # what the first run left, which the second has to say again

    def __str__(self):
        return f"{self.topic}/p{self.partition:05d}: {self.what}"


class Matrix:
    """A data directory full of cases."""

    def __init__(self, mounts, templates, cases, make_topics):
        self.m = mounts("matrix")
        self.canary = canary_path(self.m.base)
        write(self.canary, CANARY * 40)
        os.utime(self.canary, (1_000_000_000, 1_700_000_000))  # so that reading it changes its access time
        self.failures = []
        self.outcomes = {}
        self.cases = cases
        make_topics(self.m)
        self.m.stop()
        for case in cases:
            folder = self.folder(case)
            copy_template(templates[0], folder)
            for name, damage in case.damages.items():
                damage(folder, name)
            case.judge = Judge(templates[0], listing(folder), case.strangers)

    def folder(self, case):
        return self.m.data_part(case.topic, case.partition)

    def part(self, case):
        return self.m.part(case.topic, case.partition)

    def run(self):
        for look in (self.first_look, self.second_look):
            if not self.m.try_start():
                pytest.fail(f"refused to start: {self.m.stderr()[-2000:]}")
            self.each(look)
            self.m.stop()
        self.check_files()
        if os.stat(self.canary).st_atime != 1_000_000_000:
            self.failures.append("the canary was read")
        if read(self.canary) != CANARY * 40:
            self.failures.append("the canary was changed")

    def check_files(self):
        for case in self.cases:
            for wrong in case.judge.wrong_changes(listing(self.folder(case)), (case.answer or {}).get("new")):
                self.fail(case, wrong)

    def each(self, look):
        for case in self.cases:
            start = time.monotonic()
            try:
                look(case)
            except AssertionError as wrong:
                self.fail(case, str(wrong).partition("\nassert")[0])
            except TimeoutError:
                pytest.fail(f"{case}: hangs")
            except OSError as error:
                self.check_alive(case)
                self.fail(case, f"{look.__name__}: {error}")
            self.check_alive(case)
            if time.monotonic() - start > CASE_LIMIT_S:
                self.fail(case, f"took {time.monotonic() - start:.1f} s")

    def check_alive(self, case):
        if self.m.process.poll() is not None:
            pytest.fail(f"{case}: the daemon died ({self.m.process.returncode}): {self.m.stderr()[-3000:]}")

    def fail(self, case, what):
        self.failures.append(f"{case}: {what}")

    def report(self, what):
        print(f"{what}: {len(self.cases)} cases, {self.outcomes}")
        path = os.environ.get("NARADFS_FAILURES")
        if path and self.failures:
            with open(path, "a", encoding="utf-8") as file:
                file.write("\n".join(self.failures) + "\n")
        if self.failures:
            pytest.fail(f"{len(self.failures)} failures:\n" + "\n".join(self.failures[:40]), pytrace=False)

    # -- one case

    def in_service(self, case):
        """False when the partition refuses, which it may do for a reason that it tells."""
        try:
            os.close(os.open(self.part(case) + "/log", os.O_RDONLY))
        except OSError as error:
            assert error.errno in (errno.EIO, errno.ENOENT), f"log: {error}"
            self.check_refusal(case)
            return False
        return True

    def check_refusal(self, case):
        place = f"topics/{case.topic}/p{case.partition:05d}"
        culprits = case.judge.may_refuse()
        said = [line for line in self.m.stderr().splitlines() if place in line]
        assert culprits, f"out of service without need: {said}"
        assert any(f"{place}/{name}" in line for line in said for name in culprits), f"no line names {culprits}: {said}"
        assert b"out of service" in read_file(self.part(case) + "/status")
        for name, flags in (("produce", os.O_WRONLY), ("consume", os.O_RDONLY | os.O_NONBLOCK)):
            try:
                os.close(os.open(f"{self.part(case)}/{name}", flags))
            except OSError as error:
                assert error.errno == errno.EIO, f"{name}: {error}"

    def first_look(self, case):
        part, judge = self.part(case), case.judge
        if not self.in_service(case):
            case.answer = {"served": False}
            self.count("refused")
            return
        self.count("served")
        assert read_file(part + "/status").strip()
        before = self.check_log(case)
        hidden = judge.clean is not None and judge.clean < judge.n  # by a damaged hwm, until the next commit
        if not hidden:
            self.check_complete(case, before)
        taken = self.check_consume(case, before)
        new = self.check_produce(case, before)
        after = self.check_log(case, new)
        self.check_complete(case, after - {new})
        self.check_drain(case, after, taken, new)
        case.answer = {"served": True, "new": new, "log": log(part), **self.numbers(part)}

    def second_look(self, case):
        part, first = self.part(case), case.answer
        if first is None:
            return  # it failed the first look
        served = self.in_service(case)
        assert served == first["served"], f"in service: {first['served']} at first, {served} at the second start"
        if served:
            assert log(part) == first["log"], "log has changed across a clean stop"
            now = self.numbers(part)
            assert now == {key: first[key] for key in now}, f"attributes: {first}, then {now}"
            assert drain(part) == b"", "settled records come again"

    def count(self, outcome):
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1

    @staticmethod
    def numbers(part):
        for name in XATTRS:
            xattr(part, name)
        return {name: number(part, name) for name in ("oldest_offset", "hwm", "next_offset", "frontier", "lag")}

    def check_produce(self, case, in_log):
        """Produces NEW; its offset, or None where the offsets are used up."""
        part, judge = self.part(case), case.judge
        expected = number(part, "next_offset")
        fd = os.open(part + "/produce", os.O_RDWR)
        try:
            os.write(fd, NEW + b"\n")
            os.fsync(fd)
            told = os.read(fd, 100).split()
        except OSError as error:
            assert judge.full() and error.errno == errno.EFBIG, f"produce: {error}"
            return None
        finally:
            try:
                os.close(fd)
            except OSError as error:
                assert judge.full() and error.errno == errno.EFBIG, f"close of produce: {error}"
        new = int(told[1])
        assert told[1] == told[2] and new == expected, f"next_offset said {expected}, the record went to {told}"
        assert not in_log or new > max(in_log), f"the record went to {new}, {max(in_log)} is served"
        if judge.logs_intact():
            assert new >= judge.n, f"offset {new} was somebody else's, and its record is there"
        return new

    def check_log(self, case, new=None):
        """Offsets of the records that `log` serves: each is one that was produced, in order, once."""
        path = self.part(case) + "/log"
        text = read_file(path)
        offsets, last = set(), -1
        for row in text.split(b"\n")[:-1]:
            offset = self.offset_of(case, row, new)
            assert offset is not None, f"log serves {row[:60]}"
            assert offset > last, f"log serves offset {offset} after {last}"
            last = offset
            offsets.add(offset)
        assert text == b"" or text.endswith(b"\n")
        size = os.stat(path).st_size
        assert size == len(text), f"log says {size} bytes and serves {len(text)}"
        fd = os.open(path, os.O_RDONLY)
        for pos in range(0, len(text), len(text) // 24 + 1):
            assert os.pread(fd, 90, pos) == text[pos:pos + 90], f"log serves something else at {pos} after a seek"
        os.close(fd)
        return offsets

    @staticmethod
    def offset_of(case, row, new):
        if row == NEW:
            return new
        match = re.match(rb"\w+ (\d{5}) ", row)
        offset = int(match.group(1)) if match else None
        return offset if row in case.judge.may.get(offset, ()) else None

    @staticmethod
    def check_complete(case, served):
        lost = sorted(case.judge.must - served)
        assert not lost, f"offsets {lost} are unhurt and not served"
        if case.judge.logs_intact():
            assert served == set(range(case.judge.n)), "not every acknowledged record is served"

    def check_consume(self, case, in_log):
        """What consumers are given, by offset; given back afterwards."""
        part, judge = self.part(case), case.judge
        items = take(part)
        offsets = [item["offset"] for item in items]
        assert offsets == sorted(set(offsets)), f"consumed out of order: {offsets}"
        for item in items:
            assert payload_of(item) in judge.may.get(item["offset"], ()), \
                f"offset {item['offset']} delivers {item['payload'][:60]}"
        floor, settled = judge.settled_floor()
        owed = {offset for offset in in_log if offset >= floor and offset not in settled} - set(offsets)
        assert not owed, f"offsets {sorted(owed)} are not settled and not delivered"
        extra = sorted(set(offsets) - in_log)
        assert not extra, f"delivered, but not in the log: {extra}"
        if items:
            ack(part, *[item["handle"] for item in items], verb="nack")
        return set(offsets)

    def check_drain(self, case, in_log, taken, new):
        rows = drain(self.part(case)).split(b"\n")[:-1]
        offsets = [self.offset_of(case, row, new) for row in rows]
        assert None not in offsets and offsets == sorted(set(offsets)), f"drain gives {offsets}"
        assert (taken | {new}) - {None} <= set(offsets) <= in_log, \
            f"drain gives {offsets} of {sorted(in_log)}, after {sorted(taken)} were delivered and {new} was produced"


def canary_path(base):
    return f"{base}/canary"


def with_healthy(made):
    """The cases, and an undamaged partition after every 15 of them."""
    cases = []
    for case in made:
        if len(cases) % WITNESS_EVERY == WITNESS_EVERY - 1:
            cases.append(("healthy", {}, ()))
        cases.append(case)
    return cases + [("healthy", {}, ())]


def run_partitions(mounts, templates, made, what):
    """Puts the cases into topics of up to 1024 partitions."""
    cases = with_healthy(made)
    topics = [cases[at:at + 1024] for at in range(0, len(cases), 1024)]

    def make(m):
        for i, members in enumerate(topics):
            m.make(f"c{i}", segment_bytes=65536, partitions=len(members))

    matrix = Matrix(mounts, templates, [Case(f"c{i}", n, *case) for i, members in enumerate(topics)
                                        for n, case in enumerate(members)], make)
    matrix.run()
    matrix.report(what)


FILES = ["log 0", "log 1", "log 2", "log 3", "index 0", "index 1", "index 2", "index 3", "hwm", "consumer.offset",
         "consumer.ahead"]


def file_named(template, name):
    kind, _, which = name.partition(" ")
    return {"log": template.logs, "index": template.indexes}[kind][int(which)] if which else kind


@pytest.mark.limit(120)
@pytest.mark.parametrize("name", FILES)
def test_one_file(mounts, templates, rng, tmp_path, name):
    canary = canary_path(tmp_path / "matrix")
    run_partitions(mounts, templates, single_cases(file_named(templates[0], name), templates, rng, canary), name)


@pytest.mark.limit(120)
@pytest.mark.parametrize("name", FILES[:4])
def test_a_segment_after_a_crash(mounts, templates, rng, tmp_path, name):
    """The same where hwm is empty, as a crash leaves it: nothing but the records tells where they end."""
    canary = canary_path(tmp_path / "matrix")
    made = [(what, {**damages, "hwm": cut(0)}, strangers) for what, damages, strangers
            in single_cases(file_named(templates[0], name), templates, rng, canary)]
    run_partitions(mounts, templates, made, f"{name}, after a crash")


@pytest.mark.limit(120)
def test_two_files(mounts, templates, rng, tmp_path):
    canary = canary_path(tmp_path / "matrix")
    run_partitions(mounts, templates, pair_cases(templates, rng, canary, N_PER_PAIR), "two files")


# -- the incarnation marker: whose folder this is


class Markers(Matrix):
    """Topics whose markers are damaged, and of some a file of their partition too. The damage of a marker is a function
    of (folder, name), as for the others; the file is `incarnation` in the topic's folder."""

    def __init__(self, mounts, templates, cases):
        def make(m):
            os.mkdir(m.topic("living"))
            for case in cases:
                m.make(case.topic, segment_bytes=65536)

        self.markers = {case.topic: case.damages.pop("incarnation", None) for case in cases}
        super().__init__(mounts, templates, cases, make)
        self.living = read(f"{self.m.data}/topics/living/incarnation")
        self.expected = {case.topic: self.damage_marker(case) for case in cases}

    def damage_marker(self, case):
        """Damages the marker; the outcome that it must have."""
        folder = f"{self.m.data}/topics/{case.topic}"
        mine = read(f"{folder}/incarnation")
        if self.markers[case.topic] is not None:
            self.markers[case.topic](folder, "incarnation")
        kind, data = listing(folder).get("incarnation", ("file", b""))
        case.marker = (kind, data)
        if kind == "file" and data == self.living:
            return "quarantined"
        return "ours" if kind == "file" and (mine.startswith(data) or data == mine + b"\n") else "out of service"

    def first_look(self, case):
        expected = self.expected[case.topic]
        if expected == "ours":
            return super().first_look(case)
        self.count(expected)
        if expected == "quarantined":
            return self.check_fresh(case, b"")
        return self.check_out_of_service(case)

    def second_look(self, case):
        expected = self.expected[case.topic]
        if expected == "ours":
            return super().second_look(case)
        if expected == "quarantined":
            return self.check_fresh(case, NEW + b"\n")
        return self.check_out_of_service(case)

    def check_fresh(self, case, text):
        """The foreign folder is out of the way, and the topic starts anew."""
        part = self.part(case)
        assert log(part) == text, f"log serves {log(part)[:60]}"
        if not text:
            assert number(part, "next_offset") == 0 and drain(part) == b""
            produce(part, NEW)
            assert log(part) == NEW + b"\n"
        assert f"topics/{case.topic} belonged to" in self.m.stderr() or text

    def check_out_of_service(self, case):
        try:
            text = log(self.part(case))
        except OSError as error:
            assert error.errno in (errno.EIO, errno.ENOENT), error
        else:
            assert False, f"serves {text[:60]}, though the marker is damaged"
        assert f"topics/{case.topic}/incarnation" in self.m.stderr(), "no line names the marker"
        assert b"out of service" in read_file(self.m.topic(case.topic) + "/status")

    def check_files(self):
        for case in self.cases:
            expected, folder = self.expected[case.topic], f"{self.m.data}/topics/{case.topic}"
            new = (case.answer or {}).get("new")
            if expected == "quarantined":
                folder += ".stale-" + self.living.decode()
            if not os.path.isdir(folder + "/p00000"):
                self.fail(case, f"{folder} is gone")
                continue
            now = listing(folder + "/p00000")
            for wrong in case.judge.wrong_changes(now, new):
                self.fail(case, wrong)
            if expected != "ours":
                if now != case.judge.before:
                    self.fail(case, "a folder that is not served was changed")
                if listing(folder).get("incarnation", ("file", b"")) != case.marker:
                    self.fail(case, "the marker was changed")


def marker_damages(rng, canary):
    yield "missing", missing
    yield "renamed", renamed_away
    for size in range(16):
        yield f"cut to {size}", cut(size)
    for bit in range(128):
        yield f"bit {bit} flipped", flip(bit)
    for size in (1, 15, 16, 17, 40, 5000):
        yield f"noise of {size}", noise(rng, size)
    yield "zeroed", content(lambda data: bytes(len(data)))
    yield "with a newline", content(lambda data: data + b"\n")
    yield "in capitals", content(lambda data: (data.upper() if data.upper() != data else b"g" + data[1:]))
    yield "doubled", content(lambda data: data * 2)
    yield "a folder", directory
    yield "a symlink", symlink(canary)
    yield "a FIFO", fifo


def living_marker(folder, name):
    """The marker of another topic that is there."""
    write(f"{folder}/{name}", read(f"{folder}/../living/incarnation"))


def marker_cases(templates, rng, canary):
    damages = [*marker_damages(rng, canary), ("of another topic", living_marker)]
    for what, damage in damages:
        yield f"incarnation {what}", {"incarnation": damage}, ()
    for name in templates[0].files:
        for what, damage in rng.sample(damages, N_PER_PAIR) + damages[-1:] + damages[:1]:
            other, other_damage, strangers = any_damage(name, templates, rng, canary)
            yield (f"incarnation {what} and {name} {other}", {"incarnation": damage, name: other_damage}, strangers)


@pytest.mark.limit(120)
def test_marker_alone_and_with_another_file(mounts, templates, rng, tmp_path):
    canary = canary_path(tmp_path / "matrix")
    made = with_healthy(marker_cases(templates, rng, canary))
    matrix = Markers(mounts, templates, [Case(f"m{n:04d}", 0, *case) for n, case in enumerate(made)])
    matrix.run()
    matrix.report("incarnation")
