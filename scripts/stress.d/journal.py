"""What a process was promised, written down outside the mount: a file for each life of a process, a line for each event.

A line is written in one call before the process goes on, so that what it had was seen even if it is killed right after.
Times are of CLOCK_MONOTONIC, the same for all processes, in seconds.

  A topic incarnation part first last t0 t1   records first to last of this process were acknowledged, asked for at t0
  W topic part offset n                       the daemon said: the n records acknowledged last begin at this offset
  L topic id t0 t1                            a record was delivered by a read from t0 to t1; its lease runs from then
  K topic id t0 t1                            the daemon said that it is settled
  X topic id t0 t1                            its lease was extended
  G topic id t0                               it is about to be given back (nack, close)
  S topic id t0 t1                            a receipt was refused as lapsed
  V topic path                                records removed from a partition's log, kept in this file
  E ...                                       something that must not happen
"""

import os
import re
import time
import zlib

now = time.monotonic


class Journal:
    def __init__(self, folder, process, life, role):
        self.name = f"{process}.{life}"
        self.fd = os.open(os.path.join(folder, f"{self.name}.{role}"), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)

    def tell(self, *lines):
        text = "".join(" ".join(str(word) for word in line) + "\n" for line in lines).encode()
        if os.write(self.fd, text) != len(text):
            raise RuntimeError("the journal's disk is full")

    def wrong(self, *words):
        self.tell(("E", f"{now():.3f}", *words))


def make(name, number, incarnation, filling):
    """A record that says who made it, for which topic, and whether it is whole."""
    text = f"{name}.{number}|{incarnation}|{filling}|"
    return f"{text}{zlib.crc32(text.encode()):08x}".encode()


class Damaged(Exception):
    """Bytes that no process has made."""


# The beginning of a record. Of lines, what a process had written of one when it ended is a record, as in a file.
CUT = re.compile(rb"\d+(\.\d*){0,2}|\d+\.\d+\.\d+\|([0-9a-f]{0,16}|[0-9a-f]{16}\|x*(\|[0-9a-f]{0,7})?)")


def is_cut(one):
    return one.startswith("cut:")


def parse(record):
    """(id, incarnation) of a record; of one that is cut the incarnation is None."""
    if CUT.fullmatch(record):
        return "cut:" + record.decode(), None
    head, bar, checksum = record.rpartition(b"|")
    if not bar or checksum != b"%08x" % zlib.crc32(head + b"|"):
        raise Damaged(repr(record[:80]) + "..." + repr(record[-40:]))
    fields = head.split(b"|", 2)
    return fields[0].decode(), fields[1].decode()
