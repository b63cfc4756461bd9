"""`log.jsonl`: the committed records as JSON, one object a line, with an exact size, seekable, growing."""

import base64
import json
import os
import random
import shutil
import subprocess
import time

import pytest

from support import configure, fails, log, number, produce, shell, take, wait_for, write_all, xattr

ODD = [b"plain", b"", b"with\nnewline", b"\0nul\0", b"\xff\xfe\x80 not utf-8", "žluťoučký 🐎".encode(), b'quote " and \\ back',
       b'{"a": 1,\n "b": [true, null]}', b"12", b'"string"', b" ", b"\x01\x1f\x7f", b"x" * 5000, bytes(range(256)) * 20]


def content(part):
    with open(f"{part}/log.jsonl", "rb") as file:
        return file.read()


def records(part):
    """Everything in it, parsed; every line is one object."""
    data = content(part)
    assert data == b"" or data.endswith(b"\n")
    return [json.loads(line) for line in data.split(b"\n")[:-1]]


def payload_bytes(record):
    """The payload as it was produced, when it was no JSON with line breaks."""
    if record.get("payload_encoding") == "base64":
        return base64.b64decode(record["payload"])
    if isinstance(record["payload"], str):
        return record["payload"].encode()
    return None


def check_size(part):
    data = content(part)
    assert os.stat(f"{part}/log.jsonl").st_size == len(data)
    return data


def produce_keyed(part, *pairs):
    """Through produce.jsonl; payloads are bytes."""
    rows = []
    for key, payload in pairs:
        row = {"payload": base64.b64encode(payload).decode(), "payload_encoding": "base64"}
        if key is not None:
            row["key"] = key
        rows.append(json.dumps(row).encode() + b"\n")
    fd = os.open(f"{part}/produce.jsonl", os.O_WRONLY)
    write_all(fd, b"".join(rows))
    os.fsync(fd)
    os.close(fd)


def fill(part, n, seed=1, commits=20):
    """n records of many kinds in some commits; their payloads."""
    rng = random.Random(seed)
    payloads = [rng.choice(ODD) if rng.random() < 0.3 else rng.randbytes(rng.randrange(400)) for _ in range(n)]
    for i in range(commits):
        share = payloads[i * n // commits:(i + 1) * n // commits]
        if share:
            produce_keyed(part, *[(None if rng.random() < 0.5 else f"k{rng.randrange(9)}", p) for p in share])
    return payloads


def check_everywhere(part, data, seed=2, n=60):
    """Any read at any position gives the slice."""
    rng = random.Random(seed)
    fd = os.open(f"{part}/log.jsonl", os.O_RDONLY)
    try:
        assert os.lseek(fd, 0, os.SEEK_END) == len(data)
        for _ in range(n):
            pos, size = rng.randrange(len(data) + 10), rng.randrange(1, 70000)
            assert os.pread(fd, size, pos) == data[pos:pos + size], (pos, size)
    finally:
        os.close(fd)


def test_smoke(mounts, tmp_path):
    part = mounts.start().topic("t")
    payloads = fill(part, 200)
    data = check_size(part)
    assert len(records(part)) == 200
    check_everywhere(part, data)
