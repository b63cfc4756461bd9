"""What tests share that change a data directory behind the daemon."""

import re

from support import lines, produce, read_file, write_file

SEGMENT = 64 * 1024


def name(base, suffix="log"):
    return f"{base:020d}.{suffix}"


def reopen(part):
    write_file(part + "/ctl", b"reopen\n")


def fill(part, count=6, per=10, first=0):
    """`count` segments with `per` records each, and an empty one behind them."""
    for i in range(count):
        produce(part, *(f"r{first + i * per + k}" for k in range(per)))
        write_file(part + "/ctl", b"roll\n")


def records(*numbers):
    return lines(*(f"r{n}" for n in numbers))


def state(folder):
    text = read_file(folder + "/status").decode()
    return re.search(r"^state +(.*)$", text, re.M).group(1)


def status(folder):
    return read_file(folder + "/status").decode()
