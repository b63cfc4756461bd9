"""Damage to the files of a partition, and what a mount may then serve.

A Template is the folder of a partition as a clean stop left it, together with what was produced and settled in it. A
case is a copy of it with one or two files damaged. The judge does not ask what was done to the folder: it looks at what
stands there now, and works out from the formats (seglog.py, docs/internals.md) what must be served and what may be.
"""

import functools
import os
import shutil
import stat
import struct

import seglog

MAX_BASE = (1 << 63) - 1
SLOT_BYTES = 4096


class Template:
    """A stopped partition: its files, its records, what is settled."""

    def __init__(self, folder, rows, frontier, settled):
        self.folder = folder
        self.rows = rows
        self.frontier = frontier
        self.settled = settled  # above the frontier
        self.files = {name: read(f"{folder}/{name}") for name in sorted(os.listdir(folder))}
        self.logs = [name for name in self.files if name.endswith(".log")]
        self.indexes = [name for name in self.files if name.endswith(".index")]
        self.frames = {}  # name: [(position, bytes, offset, records)]
        for name in self.logs:
            data = self.files[name]
            self.frames[name] = [(frame.pos, data[frame.pos:frame.end], frame.base, frame.n_records)
                                 for frame in seglog.frames(data)]
        self.bases = [int(name[:-4]) for name in self.logs]

    def counterpart(self, other, name):
        """The file of another template that plays the part of name in this one."""
        for mine, theirs in ((self.logs, other.logs), (self.indexes, other.indexes)):
            if name in mine:
                return theirs[mine.index(name)]
        return name


def read(path):
    with open(path, "rb") as file:
        return file.read()


def write(path, data):
    with open(path, "wb") as file:
        file.write(data)


# -- what is done to a file; each takes (folder, name) and changes the folder


def missing(folder, name):
    os.unlink(f"{folder}/{name}")


def content(make):
    """Damage that replaces the bytes: make(data) gives the new ones."""

    def damage(folder, name):
        write(f"{folder}/{name}", make(read(f"{folder}/{name}")))

    return damage


def cut(size):
    return content(lambda data: data[:size])


def noise(rng, size=None):
    return content(lambda data: rng.randbytes(len(data) if size is None else size))


def flip(bit):
    def make(data):
        data = bytearray(data)
        data[bit // 8] ^= 1 << bit % 8
        return bytes(data)

    return content(make)


def foreign(data):
    return content(lambda _: data)


def renamed(base):
    def damage(folder, name):
        os.rename(f"{folder}/{name}", f"{folder}/{base:020d}{os.path.splitext(name)[1]}")

    return damage


def directory(folder, name):
    missing(folder, name)
    os.mkdir(f"{folder}/{name}", 0o700)


def symlink(target):
    def damage(folder, name):
        missing(folder, name)
        os.symlink(target, f"{folder}/{name}")

    return damage


def fifo(folder, name):
    missing(folder, name)
    os.mkfifo(f"{folder}/{name}", 0o600)


def flipped_bits(size, count, rng):
    """Bits to flip in a file: half of them in its first 96 bytes, the others anywhere."""
    head = rng.sample(range(min(size, 96) * 8), min(count // 2, min(size, 96) * 8))
    anywhere = rng.sample(range(size * 8), min(count - len(head), size * 8))
    return sorted(set(head + anywhere))


def wrong_bases(template, name):
    """Bases that a segment or an index does not have: beside its own, beside its neighbours', between, and the last."""
    base = int(name.split(".")[0])
    bases = template.bases
    at = bases.index(base)
    ends = bases + [len(template.rows)]
    wrong = {base + 1, base - 1, ends[at + 1] - 1, ends[at + 1] + 1, (base + ends[at + 1]) // 2, MAX_BASE, MAX_BASE - 1,
             len(template.rows) + 1000}
    if at > 0:
        wrong |= {bases[at - 1] - 1, bases[at - 1] + 1, (bases[at - 1] + base) // 2}
    return sorted(value for value in wrong if value >= 0 and value not in bases)


# -- what a folder holds


def listing(folder):
    """name: what it is, and its bytes or target."""
    found = {}
    for name in sorted(os.listdir(folder)):
        path = f"{folder}/{name}"
        mode = os.lstat(path).st_mode
        if stat.S_ISREG(mode):
            found[name] = ("file", read(path))
        elif stat.S_ISLNK(mode):
            found[name] = ("symlink", os.readlink(path))
        elif stat.S_ISDIR(mode):
            found[name] = ("folder", sorted(os.listdir(path)))
        else:
            found[name] = ("fifo" if stat.S_ISFIFO(mode) else "other", None)
    return found


def parse_base(name):
    digits = name[:-4]
    return int(digits) if name.endswith(".log") and len(digits) == 20 and digits.isdigit() else None


@functools.lru_cache(maxsize=None)
def slot(data):
    """(frontier, settled offsets) of a slot of consumer.ahead, or None."""
    if len(data) != SLOT_BYTES or data[:8] != b"NRDAHEAD" or data[24] != 1:
        return None
    if struct.unpack(">I", data[-4:])[0] != seglog.crc32c(data[:-4]):
        return None
    frontier, how, count = struct.unpack(">Q", data[16:24])[0], data[25], struct.unpack(">H", data[26:28])[0]
    settled, pos = set(), 28
    if how == 1:
        settled = {frontier + 1 + i for i in range(4064 * 8) if data[28 + i // 8] >> i % 8 & 1}
    offset = frontier
    for _ in range(count if how == 2 else 0):
        gap = shift = 0
        while True:
            byte = data[pos]
            gap |= (byte & 127) << shift
            shift, pos = shift + 7, pos + 1
            if byte < 128:
                break
        offset += gap + 1
        settled.add(offset)
    return frontier, settled


def valid_slots(found):
    kind, data = found.get("consumer.ahead", ("missing", None))
    if kind != "file":
        return []
    return [state for state in (slot(data[i * SLOT_BYTES:(i + 1) * SLOT_BYTES]) for i in range(2)) if state]


class Judge:
    """What may and must come of a damaged folder. `before` is its listing as the mount meets it."""

    def __init__(self, template, before, strangers):
        self.template = template
        self.before = before
        self.strangers = strangers
        self.n = len(template.rows)
        self.must = self.must_serve()
        self.may = {offset: {row} for offset, row in enumerate(template.rows)}
        for other in strangers:  # the frame format does not say whose it is: at its own offset, one may pass
            for name, (kind, data) in before.items():
                if kind == "file" and parse_base(name) is not None:
                    self.allow_frames(other, data)
        self.clean = None
        kind, data = before.get("hwm", ("missing", b""))
        if kind == "file" and len(data) == 8 and struct.unpack(">Q", data)[0] <= MAX_BASE:
            self.clean = struct.unpack(">Q", data)[0]

    def allow_frames(self, other, data):
        for frames in other.frames.values():
            for pos, frame, offset, count in frames:
                if data[pos:pos + len(frame)] == frame:
                    for i in range(offset, offset + count):
                        self.may.setdefault(i, set()).add(other.rows[i])

    def bases(self):
        return sorted(base for base in map(parse_base, self.before) if base is not None)

    def must_serve(self):
        """Offsets whose frames stand unhurt at their place in the file of their name, up to its successor's base."""
        must = set()
        bases = self.bases()
        for name, frames in self.template.frames.items():
            kind, data = self.before.get(name, ("missing", None))
            if kind != "file":
                continue
            later = [base for base in bases if base > int(name[:-4])]
            for pos, frame, offset, count in frames:
                if data[pos:pos + len(frame)] == frame:
                    must |= {i for i in range(offset, offset + count) if not later or i < later[0]}
        return must

    def logs_intact(self):
        """Whether the segments are just what they were."""
        names = {name for name in self.before if parse_base(name) is not None}
        return names == set(self.template.logs) and all(
            self.before[name] == ("file", self.template.files[name]) for name in names)

    def settled_floor(self):
        """The highest frontier that the files claim with a right to, and what they call settled."""
        floor, settled = 0, set()
        kind, data = self.before.get("consumer.offset", ("missing", None))
        if kind == "file" and len(data) == 8:
            value = struct.unpack(">Q", data)[0]
            if value < max([self.n, *self.bases()]):  # below any watermark that there may be
                floor = value + 1
        for frontier, offsets in valid_slots(self.before):
            if frontier <= MAX_BASE:
                floor = max(floor, frontier)
            settled |= offsets
        return floor, settled

    def may_refuse(self):
        """Names of what stands in a file's place and is none, of segments that can have no records, and of those whose
        whole frames say that they are another one."""
        return [name for name, (kind, data) in self.before.items()
                if kind != "file" and not name.endswith(".index")
                or (parse_base(name) or 0) >= MAX_BASE
                or kind == "file" and self.misnamed(name, data)]

    def misnamed(self, name, data):
        base = parse_base(name)
        return base is not None and any(
            data.startswith(frames[0][1]) and frames[0][2] != base
            for template in (self.template, *self.strangers) for frames in template.frames.values())

    def full(self):
        """Whether a segment's name leaves no room for another record."""
        return any(base >= MAX_BASE - 1 for base in self.bases())

    def wrong_changes(self, after, new_offset):
        """What was done to the files that may not be done."""
        wrong = []
        for name, was in self.before.items():
            now = after.get(name)
            base = parse_base(name)
            if now is None:
                if not (name.endswith(".index") and was[0] == "file"):
                    wrong.append(f"{name} ({was[0]}) was removed")
            elif was[0] != "file":
                if now != was:
                    wrong.append(f"{name}, a {was[0]}, became {now[0]}")
            elif now[0] != "file":
                wrong.append(f"{name} became a {now[0]}")
            elif base is not None:
                wrong += self.lost_frames(name, was[1], now[1])
        for name in after.keys() - self.before.keys():
            base = parse_base(name)
            known = name in ("hwm", "consumer.offset", "consumer.ahead") or name.endswith(".index")
            if not known and (base is None or base != new_offset):
                wrong.append(f"{name} appeared")
        return wrong

    def lost_frames(self, name, was, now):
        common = os.path.commonprefix([was, now])
        if len(common) == len(was):
            return []
        lost = [frame for template in (self.template, *self.strangers) for frames in template.frames.values()
                for _, frame, _, _ in frames if frame in was and frame not in now]
        return [f"{name}: {len(lost)} whole frames were cut off or overwritten from byte {len(common)} on"] if lost else []


def copy_template(template, folder):
    shutil.rmtree(folder, ignore_errors=True)
    os.mkdir(folder, 0o700)
    for name, data in template.files.items():
        write(f"{folder}/{name}", data)
