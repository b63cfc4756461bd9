"""What the tests of naradctl copy share, whichever mounts it goes between."""

import os
import struct
import subprocess

import pytest
from naradctl import NARADCTL  # noqa: F401
from support import number, read_file, write_all

NOT_ALL = 3
STARTED = []


@pytest.fixture(autouse=True)
def ended():
    """No copy outlives its test; imported by the files that start any."""
    yield
    for process in STARTED:
        process.kill()
        process.wait(30)
    STARTED.clear()


def start_copy(source, target, *options):
    STARTED.append(subprocess.Popen([NARADCTL, "copy", *options, source, target], stdin=subprocess.DEVNULL,
                                    stdout=subprocess.PIPE, stderr=subprocess.PIPE))
    return STARTED[-1]


def copy(source, target, *options, code=0):
    """Runs it and requires its exit status; what it says on standard output and standard error."""
    process = start_copy(source, target, *options)
    out, err = process.communicate()
    assert process.returncode == code, (process.returncode, out[-3000:], err[-3000:])
    return out.decode(), err.decode()


def refused(source, target, *options):
    out, err = copy(source, target, *options, code=1)
    assert out == "" and err.count("\n") == 1, (out, err)
    return err


def frame(key, payload):
    return struct.pack(">II", len(key), len(payload)) + key + payload


def produce_bin(part, records, name="produce.bin"):
    """(key, payload) each; one fsync."""
    fd = os.open(f"{part}/{name}", os.O_WRONLY)
    try:
        write_all(fd, b"".join(frame(key, payload) for key, payload in records))
        os.fsync(fd)
    finally:
        os.close(fd)


def records(part):
    """(offset, key, payload) of every record, out of log.bin."""
    data, pos, found = read_file(part + "/log.bin"), 0, []
    while pos < len(data):
        length, partition, offset, nonce, _, key_size = struct.unpack_from(">IIQQQI", data, pos)
        assert partition == int(part[-5:]) and nonce == 0
        body = data[pos + 36:pos + 4 + length]
        found.append((offset, body[:key_size], body[key_size:]))
        pos += 4 + length
    assert pos == len(data)
    return found


def same(source, target):
    """Asserts that a partition is the copy of another one."""
    ours, theirs = records(source), records(target)
    assert [each[1:] for each in ours] == [each[1:] for each in theirs]
    assert [each[0] for each in theirs] == list(range(len(ours)))
    return len(ours)


def frontier(part):
    return number(part, "frontier")
