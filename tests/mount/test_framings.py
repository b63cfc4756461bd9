"""produce.jsonl, produce.bin and consume.bin: records of any bytes, with keys, and everything that can be wrong about
them."""

import base64
import errno
import json
import mmap
import os
import random
import re
import select
import signal
import struct
import subprocess
import time

import pytest
from support import (PYTHON, ROOT, SANITIZED, Background, Consumer, ack, configure, drain, fails, in_order, lines, log, number,
                     open_fails, payload_of, produce, read_file, shell, take, wait_for, write_all, write_file, xattr)
from test_tree import as_nobody

MIB = 1 << 20
KEY_MAX = 65536
HEAD = struct.Struct(">IIQQQI")  # of a record of consume.bin


def binary(payload, key=b""):
    return struct.pack(">II", len(key), len(payload)) + key + payload


def obj(payload, key=None, **more):
    value = {"payload": payload, **more}
    if key is not None:
        value["key"] = key
    return json.dumps(value).encode() + b"\n"


def based(payload, key=None):
    """An object for a payload of any bytes."""
    return obj(base64.b64encode(payload).decode(), key, payload_encoding="base64")


def open_write(part, name, flags=0):
    return os.open(f"{part}/{name}", os.O_WRONLY | flags)


def send(part, name, data, flags=0):
    """Writes all of it and fsyncs."""
    fd = open_write(part, name, flags)
    try:
        write_all(fd, data)
        os.fsync(fd)
    finally:
        os.close(fd)


def hwm(part):
    return number(part, "hwm")


def record(part, offset):
    return read_file(f"{part}/records/{offset}")


def records(part):
    return [record(part, offset) for offset in range(number(part, "oldest_offset"), hwm(part))]


def key_of(part, offset):
    """The key as the attribute has it; None when there is none."""
    try:
        return os.getxattr(f"{part}/records/{offset}", "user.narad.key")
    except OSError as error:
        assert error.errno == errno.ENODATA, error
        return None


def parse(data):
    """Records of consume.bin, which data holds from the first to the last byte."""
    found = []
    while data:
        length, partition, offset, nonce, timestamp, key_size = HEAD.unpack_from(data)
        assert HEAD.size - 4 + key_size <= length <= len(data) - 4, (length, len(data))
        body = data[HEAD.size:4 + length]
        found.append({"partition": partition, "offset": offset, "nonce": nonce, "timestamp": timestamp,
                      "key": body[:key_size], "payload": body[key_size:], "handle": f"{partition}:{offset}:{nonce}"})
        data = data[4 + length:]
    return found


def take_bin(part, size=MIB):
    """All that is deliverable now; the leases stay."""
    found = []
    with Consumer(part, "consume.bin") as consumer:
        while True:
            try:
                found += parse(consumer.read(size))
            except BlockingIOError:
                return found


def write_until_refused(fd, data):
    """Writes like a program does, sending the rest after a short write; the bytes taken, and the error."""
    done = 0
    while done < len(data):
        try:
            done += os.write(fd, data[done:])
        except OSError as error:
            return done, error.errno
    raise AssertionError("all of it was taken")


def said(m, *words):
    """How many lines of the log have all these words."""
    return sum(all(word in line for word in words) for line in m.stderr().splitlines())


# -- produce.jsonl: what is stored


@pytest.mark.parametrize("value", ["1e400", "0.10", "-0", "123456789012345678901234567890", "true", "null", "[]", "{}",
                                   '{"b": 1,\t"a":[2 ,3 ], "b":2}', '["\\ud800", "\\u0000"]', '{"\\"}": "]"}'])
def test_values_are_stored_as_written(m, value):
    part = m.make("t")
    send(part, "produce.jsonl", f'{{"payload":{value}}}\n{{ "key" : "k" , "payload" : {value} }} \r\n'.encode())
    assert records(part) == [value.encode()] * 2
    assert (key_of(part, 0), key_of(part, 1)) == (None, b"k")
    texts = read_file_until_empty(part, "consume.jsonl")
    assert all(f'"payload":{value}'.encode() in text for text in texts)


def read_file_until_empty(part, name):
    texts = []
    with Consumer(part, name) as consumer:
        while True:
            try:
                texts.append(consumer.read(4 * MIB))
            except BlockingIOError:
                return texts


@pytest.mark.parametrize("text", ["", "plain", "two\nlines\n", "nul \0 nul", "\x01\x1f\x7f", 'quote " \\ /', '{"a": 1}',
                                  "gr\u00fc\u00df \u20ac \U0001f600", "\ufeffmark", "\u2028"])
@pytest.mark.parametrize("ascii_only", [True, False])
def test_strings_are_stored_as_text(m, text, ascii_only):
    part = m.make("t")
    line = json.dumps({"key": text, "payload": text}, ensure_ascii=ascii_only).encode() + b"\n"
    send(part, "produce.jsonl", line)
    assert records(part) == [text.encode()]
    assert key_of(part, 0) == (text.encode() or None)
    (item,) = take(part)
    assert item["key"] == (text or None)
    if text and text[0] != "{":
        assert item["payload"] == text


@pytest.mark.parametrize("data", [b"", b"\0", b"\xff\xfe", bytes(range(256)), b"a\nb\n", os.urandom(3000)])
def test_base64_is_stored_as_bytes(m, data):
    part = m.make("t")
    send(part, "produce.jsonl", based(data, "k"))
    assert records(part) == [data]
    (item,) = take_bin(part)
    assert (item["key"], item["payload"]) == (b"k", data)


def test_keys(m):
    part = m.make("t")
    send(part, "produce.jsonl", obj(1, "order-7") + obj(2) + b'{"key":null,"payload":3}\n' + obj(4, "") +
         b'{"key":"/w==","key_encoding":"base64","payload":5}\n')
    send(part, "produce.bin", binary(b"6", b"k\0\n") + binary(b"7"))
    assert [key_of(part, n) for n in range(7)] == [b"order-7", None, None, None, b"\xff", b"k\0\n", None]
    assert "user.narad.key" in os.listxattr(part + "/records/0")
    assert "user.narad.key" not in os.listxattr(part + "/records/1")
    assert log(part) == lines(*"1234567")
    items = take(part)
    assert [item["key"] for item in items] == ["order-7", None, None, None, "/w==", "k\0\n", None]
    assert items[4]["key_encoding"] == "base64"


def test_blank_lines_are_no_records(m):
    part = m.make("t")
    send(part, "produce.jsonl", b"\n\r\n  \n" + obj(1) + b"\n\t\n" + obj(2))
    assert records(part) == [b"1", b"2"]


def test_what_consume_jsonl_says_can_be_produced(m):
    part, copy = m.make("t"), m.make("copy")
    payloads = [b"text", b"{\"a\": 1}", b"\xff\0", b"", b"17", b"a\nb"]
    send(part, "produce.bin", b"".join(binary(payload, b"k%d" % n) for n, payload in enumerate(payloads)))
    send(copy, "produce.jsonl", b"".join(read_file_until_empty(part, "consume.jsonl")))
    assert records(copy) == payloads
    assert [key_of(copy, n) for n in range(6)] == [b"k%d" % n for n in range(6)]


MALFORMED = [b"x", b"1", b"[]", b"{}", b"{", b'{"payload":}', b'{"payload":01}', b'{"payload":NaN}', b"{'payload':1}",
             b'{"payload":1,}', b'{"payload":1}}', b'{"payload":1} x', b'{"payload":1}{"payload":2}',
             b'\xef\xbb\xbf{"payload":1}', b'{"key":"k"}', b'{"key":1,"payload":1}', b'{"payload":1,"payload":1}',
             b'{"key":"a","payload":1,"key":"a"}', b'{"payload":1,"p\\u0061yload":2}', b'{"payload":1,"headers":{}}',
             b'{"payload":"\\ud800"}', b'{"payload":"\\ude00\\ud83d"}', b'{"payload":"\xff"}',
             b'{"payload":["\xed\xa0\x80"]}', b'{"payload":"\xc0\x80"}', b'{"payload":"a\tb"}', b'{"payload":"\\x"}',
             b'{"payload":"Q","payload_encoding":"base64"}', b'{"payload":"QQ","payload_encoding":"base64"}',
             b'{"payload":"Q Q=","payload_encoding":"base64"}', b'{"payload":"QR==","payload_encoding":"base64"}',
             b'{"payload":"QQ==","payload_encoding":"hex"}', b'{"payload":1,"payload_encoding":"base64"}',
             b'{"payload":"QQ==","payload_encoding":null}', b'{"payload":1}\0']


def test_malformed_lines_are_refused(m):
    part = m.make("t", linger_ms=60000)
    for n, line in enumerate(MALFORMED):
        fd = open_write(part, "produce.jsonl")
        assert fails(os.write, fd, line + b"\n" + obj("lost")) == errno.EINVAL, line
        assert os.write(fd, obj(n)) > 0  # the failed write held the record's end
        os.fsync(fd)
        os.close(fd)
        assert hwm(part) == n + 1, line
    assert records(part) == [b"%d" % n for n in range(len(MALFORMED))]
    assert said(m, "topic=t", "partition=0", "refused") == len(MALFORMED)


def test_a_write_is_taken_up_to_a_malformed_line(m):
    part = m.make("t", linger_ms=60000)
    fd = open_write(part, "produce.jsonl")
    good = obj(1) + obj(2)
    assert os.write(fd, good + b"bad\n" + obj(3)) == len(good)
    assert fails(os.write, fd, b"bad\n" + obj(3)) == errno.EINVAL
    assert os.write(fd, b'{"payload":') == 11
    for _ in range(3):
        assert fails(os.write, fd, b"}\n" + obj(4)) == errno.EINVAL
    assert os.write(fd, obj(5)) > 0
    os.fsync(fd)
    os.close(fd)
    assert records(part) == [b"1", b"2", b"5"]


# -- ends that are not in the bytes


def test_a_whole_object_needs_no_newline(m):
    part = m.make("t", linger_ms=60000)
    fd = open_write(part, "produce.jsonl")
    os.write(fd, obj(1)[:-1])
    os.fsync(fd)
    assert hwm(part) == 1
    os.write(fd, b"\n" + obj(2)[:-1])
    os.close(os.dup(fd))
    assert hwm(part) == 2
    os.write(fd, b" \n" + obj(3)[:-1])
    os.close(fd)
    wait_for(lambda: hwm(part) == 3, "the record")
    assert records(part) == [b"1", b"2", b"3"]
    shell(f"""printf '{{"payload":4}}' > {part}/produce.jsonl""")
    assert hwm(part) == 4


@pytest.mark.parametrize("name,whole", [("produce.jsonl", obj("whole")), ("produce.bin", binary(b"whole"))])
def test_an_unfinished_record(m, name, whole):
    """An fsync commits what is complete, fails, and keeps the rest; a close that is not the last does not fail."""
    part = m.make("t", linger_ms=60000)
    fd = open_write(part, name)
    os.write(fd, whole + whole[:7])
    assert [fails(os.fsync, fd), fails(os.fdatasync, fd)] == [errno.EINVAL] * 2
    assert records(part) == [b"whole"]
    os.close(os.dup(fd))
    os.write(fd, whole[7:10])
    subprocess.run(["true"], pass_fds=[fd], check=True)
    assert fails(os.fsync, fd) == errno.EINVAL
    os.write(fd, whole[10:])
    os.fsync(fd)
    assert records(part) == [b"whole"] * 2
    os.write(fd, whole[:-3])
    os.close(fd)
    wait_for(lambda: said(m, "topic=t", "partition=0", "dropped") == 1, "the log")
    send(part, name, whole)
    assert records(part) == [b"whole"] * 3


@pytest.mark.parametrize("name,whole", [("produce.jsonl", obj("whole")), ("produce.bin", binary(b"whole"))])
def test_an_unfinished_record_stays_in_its_own_file(m, name, whole):
    part = m.make("t", linger_ms=60000)
    fd = open_write(part, name)
    os.write(fd, whole + whole[:9])
    send(part, name, whole)  # another open file: neither merged nor refused, and what is complete here goes with it
    assert records(part) == [b"whole"] * 2
    shell(f"sync {part}/{name}")
    os.write(fd, whole[9:])
    os.fsync(fd)
    os.close(fd)
    assert records(part) == [b"whole"] * 3


@pytest.mark.parametrize("flag", ["O_SYNC", "O_DSYNC"])
def test_synchronous_writes(m, flag):
    part = m.make("t", linger_ms=60000)
    fd = open_write(part, "produce.jsonl", getattr(os, flag))
    os.write(fd, obj(1))
    assert hwm(part) == 1
    os.write(fd, obj(2) + obj(3)[:-1])
    assert hwm(part) == 3
    os.write(fd, b"\n" + obj(4) + obj(5)[:6])  # what is unfinished is no error: the next write finishes it
    assert hwm(part) == 4
    os.write(fd, obj(5)[6:])
    assert hwm(part) == 5
    assert fails(os.write, fd, b"bad\n") == errno.EINVAL
    os.close(fd)
    fd = open_write(part, "produce.bin", getattr(os, flag))
    os.write(fd, binary(b"6") + binary(b"7"))
    assert hwm(part) == 7
    for byte in binary(b"8"):
        os.write(fd, bytes([byte]))
    assert hwm(part) == 8
    os.close(fd)
    assert records(part) == [b"%d" % n for n in range(1, 9)]


def test_synchronous_writes_of_programs_with_buffers(m, tmp_path):
    part = m.make("t")
    rows = b"".join(obj(n) for n in range(3000))
    (tmp_path / "in").write_bytes(rows)
    shell(f"dd if=in of={part}/produce.jsonl oflag=dsync bs=4000 status=none", cwd=tmp_path)
    (tmp_path / "in").write_bytes(b"".join(binary(b"%d" % n) for n in range(3000)))
    shell(f"dd if=in of={part}/produce.bin oflag=dsync bs=4000 status=none", cwd=tmp_path)
    assert log(part) == lines(*range(3000)) * 2


def test_background_commits(m):
    part = m.make("t", linger_ms=20)
    fd = open_write(part, "produce.jsonl")
    os.write(fd, obj(1) + obj(2)[:5])
    wait_for(lambda: hwm(part) == 1, "the background commit")
    other = open_write(part, "produce.bin")
    os.write(other, binary(b"x") + binary(b"y")[:5])
    wait_for(lambda: hwm(part) == 2, "the background commit")
    os.close(fd)
    os.close(other)
    assert records(part) == [b"1", b"x"]


def test_ranges_on_read_write_handles(m):
    part = m.make("t", linger_ms=60000)
    for name, data, expected in (("produce.jsonl", obj(1) + obj(2), b"p00000 0 1\n"),
                                 ("produce.bin", binary(b"3"), b"p00000 2 2\n")):
        fd = os.open(f"{part}/{name}", os.O_RDWR)
        os.write(fd, data)
        os.fsync(fd)
        assert os.read(fd, 100) == expected
        os.close(fd)
        assert read_file(f"{part}/{name}") == b""


def test_named_files(m):
    part = m.make("t")
    send(part, "produce.jsonl@w1", obj("one"))
    send(part, "produce.bin@w1", binary(b"two"))
    send(part, "produce@x.jsonl", b"three\n")
    assert records(part) == [b"one", b"two", b"three"]
    for bad in ("produce.jsonl@", "produce.bin@.x", "produce.jsonlx", "produce.bin.x", "produce.json"):
        assert open_fails(f"{part}/{bad}", os.O_WRONLY) in (errno.ENOENT, errno.EINVAL), bad


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_modes_of_a_topic_and_of_its_partitions_are_independent(mounts):
    """And the recipe of docs/delivery.md that changes all; drain needs write permission on ack."""
    m = mounts(options="allow_other")
    part = m.make("np", partitions=2)
    os.chmod(m.topic("np"), 0o755)
    produce(part, "x")
    os.chmod(m.topic("np") + "/consume", 0o600)
    assert as_nobody(m.mnt, "exec 3< topics/np/consume")[0] != 0
    assert as_nobody(m.mnt, "exec 3< topics/np/p00000/consume")[0] == 0
    assert as_nobody(m.mnt, "cat topics/np/p00000/drain")[0] != 0
    assert os.stat(part + "/drain").st_mode & 0o777 == 0o444
    os.chmod(part + "/ack", 0o666)
    assert as_nobody(m.mnt, "cat topics/np/p00000/drain") == (0, "x\n")
    assert os.stat(part + "/drain").st_mode & 0o777 == 0o444
    configure(m.topic("np"), partitions=3)
    recipe = re.findall(r"^    (chmod 600 .*)$", read_file(ROOT + "/docs/delivery.md").decode(), re.M)
    assert len(recipe) == 3
    shell("set -e\n" + "\n".join(recipe), cwd=m.mnt)
    for path in ("topics/np/consume", "topics/np/p00000/consume", "topics/np/p00002/consume", "topics/np/p00001/drain"):
        assert as_nobody(m.mnt, f"exec 3< {path}")[0] != 0, path


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_permissions_of_produce_and_consume_bind_their_siblings(mounts):
    m = mounts(options="allow_other")
    part = m.make("t", consume_wait_ms=0)
    os.chmod(m.topic("t"), 0o755)
    for name in ("produce.jsonl", "produce.bin", "consume.jsonl", "consume.bin", "drain", "ack"):
        os.chmod(f"{part}/{name}", 0o666 if name.startswith(("produce", "ack")) else 0o444)
    os.chmod(part + "/produce", 0o644)
    os.chmod(part + "/consume", 0o600)
    produce(part, "x")
    here = "topics/t/p00000"
    write = f"""printf '{{"payload":1}}\n' > {here}/produce.jsonl"""
    write_bin = f"printf '\\0\\0\\0\\0\\0\\0\\0\\0' > {here}/produce.bin"
    reads = [f"cat {here}/{name}" for name in ("consume", "consume.jsonl", "consume.bin", "drain")]
    for script in [write, write_bin] + reads:
        assert as_nobody(m.mnt, script)[0] != 0, script
    assert (hwm(part), number(part, "in_flight"), number(part, "lag")) == (1, 0, 1)
    os.chmod(part + "/produce", 0o666)
    os.chmod(part + "/produce.bin", 0o644)  # beside their own
    assert as_nobody(m.mnt, write) == (0, "")
    assert as_nobody(m.mnt, write_bin)[0] != 0
    os.chmod(part + "/consume", 0o644)
    assert as_nobody(m.mnt, reads[3]) == (0, "x\n1\n")


# -- cuts


JSONL_STREAM = obj(1, "k") + b"\n" + obj("z\u00e9\n\U0001f600") + based(b"\0\n\xff") + obj({"a": ["}", {}]}, "\u00e9")
BIN_STREAM = binary(b"one", b"k") + binary(b"") + binary(b"\n\0", b"\0") + binary(b"", b"key") + binary(b"x" * 20)


def expected_of(part, name, stream):
    send(part, name, stream)
    return [(key_of(part, n), record(part, n)) for n in range(hwm(part))]


@pytest.mark.parametrize("name,stream", [("produce.jsonl", JSONL_STREAM), ("produce.bin", BIN_STREAM)])
def test_cuts_at_every_byte(m, name, stream):
    once = expected_of(m.make("whole"), name, stream)
    part = m.make("t", linger_ms=60000)
    fd = open_write(part, name)
    for cut in range(len(stream) + 1):
        for piece in (stream[:cut], stream[cut:]):
            if piece:
                assert os.write(fd, piece) == len(piece)
    for byte in stream:
        assert os.write(fd, bytes([byte])) == 1
    os.fsync(fd)
    os.close(fd)
    items = take_bin(part)
    assert [(item["key"] or None, item["payload"]) for item in items] == once * (len(stream) + 2)


@pytest.mark.parametrize("name,stream", [("produce.jsonl", JSONL_STREAM), ("produce.bin", BIN_STREAM)])
def test_a_sync_at_every_cut(m, name, stream):
    part = m.make("t", linger_ms=60000)
    once = expected_of(m.make("whole"), name, stream)
    fd = open_write(part, name)
    for byte in stream:
        assert os.write(fd, bytes([byte])) == 1
        try:
            os.fsync(fd)
        except OSError as error:
            assert error.errno == errno.EINVAL
    os.close(fd)
    assert [(key_of(part, n), record(part, n)) for n in range(hwm(part))] == once


@pytest.mark.parametrize("name,make", [("produce.jsonl", obj), ("produce.bin", lambda n: binary(b"%d" % n))])
def test_writev_of_many_pieces(m, name, make):
    part = m.make("t")
    stream = b"".join(make(n) for n in range(700))
    pieces = [stream[i:i + 13] for i in range(0, len(stream), 13)][:1000]
    fd = open_write(part, name)
    written = os.writev(fd, pieces)
    write_all(fd, stream[written:])
    os.fsync(fd)
    os.close(fd)
    assert log(part) == lines(*range(700))


@pytest.mark.parametrize("name,make", [("produce.jsonl", lambda n, k: obj(n, k)),
                                       ("produce.bin", lambda n, k: binary(b"%d" % n, k.encode()))])
def test_two_writers_in_pieces(m, name, make):
    part = m.make("t", linger_ms=5)
    fds = [open_write(part, name) for _ in range(2)]
    streams = [b"".join(make(n, f"w{w}") for n in range(300)) for w in range(2)]
    for pos in range(0, max(map(len, streams)), 17):
        for fd, stream in zip(fds, streams):
            if stream[pos:pos + 17]:
                os.write(fd, stream[pos:pos + 17])
    for fd in fds:
        os.fsync(fd)
        os.close(fd)
    items = take_bin(part)
    for w in range(2):
        assert [item["payload"] for item in items if item["key"] == b"w%d" % w] == [b"%d" % n for n in range(300)]


@pytest.mark.parametrize("name,make", [("produce.jsonl", obj), ("produce.bin", lambda n: binary(b"%d" % n))])
@pytest.mark.parametrize("client", ["cat in > FILE", "cp in FILE", "dd if=in of=FILE bs=7 status=none", "tee FILE < in",
                                    PYTHON + " -c 'open(\"FILE\", \"ab\").write(open(\"in\", \"rb\").read())'"])
def test_everyday_programs(m, tmp_path, name, make, client):
    part = m.make("t")
    (tmp_path / "in").write_bytes(b"".join(make(n) for n in range(500)))
    shell(client.replace("FILE", f"{part}/{name}"), cwd=tmp_path)
    wait_for(lambda: hwm(part) == 500, "the records")
    assert log(part) == lines(*range(500))


@pytest.mark.parametrize("name,make", [("produce.jsonl", lambda text: obj(text.decode())), ("produce.bin", binary)])
def test_a_writer_killed_in_the_middle(m, name, make):
    """A whole record or none."""
    part = m.make("t")
    whole = make(b"whole")
    for cut in range(0, len(whole) + 1, 3):
        script = f"import os, time; fd = os.open({part + '/' + name!r}, os.O_WRONLY); " \
                 f"os.write(fd, {whole + whole[:cut]!r}); print('written', flush=True); time.sleep(600)"
        before = hwm(part)
        child = subprocess.Popen([PYTHON, "-c", script], stdout=subprocess.PIPE)
        assert child.stdout.readline() == b"written\n"
        child.kill()
        child.wait(20)
        child.stdout.close()
        wait_for(lambda: hwm(part) > before, "the whole record")
    send(part, name, make(b"after"))
    assert set(records(part)) == {b"whole", b"after"}
    assert records(part)[-1] == b"after"


# -- too long


@pytest.mark.limit(120)
@pytest.mark.parametrize("name,make", [
    ("produce.bin", lambda text: binary(text, b"k")),
    ("produce.jsonl", lambda text: obj(text.decode(), "k")),
    ("produce.jsonl", lambda text: based(text, "k")),
    ("produce.jsonl", lambda text: b'{"key":"k","payload":"' + b"\\u0078" * len(text) + b'"}\n'),
    ("produce.jsonl", lambda text: b'{"key":"k","payload":' + b"1" * len(text) + b"}\n"),
], ids=["bin", "string", "base64", "escapes", "number"])
def test_at_the_limit_and_over_it(m, name, make):
    part = m.make("t", linger_ms=60000)
    fd = open_write(part, name)
    write_all(fd, make(b"x" * MIB))
    os.fsync(fd)
    assert len(record(part, 0)) == MIB
    done, error = write_until_refused(fd, make(b"y" * (MIB + 1)))
    assert error == errno.EMSGSIZE
    write_all(fd, make(b"1after"))
    os.fsync(fd)
    os.close(fd)
    assert hwm(part) == 2
    assert record(part, 1) in (b"1after", b"111111", b"xxxxxx")
    assert said(m, "topic=t", "refused") == 1


@pytest.mark.parametrize("size", [MIB + 1, 2 * MIB - 8, 2 * MIB, 3 * MIB, 9 * MIB + 3])
@pytest.mark.parametrize("name,make", [("produce", lambda text: text + b"\n"), ("produce.bin", binary),
                                       ("produce.jsonl", lambda text: obj(text.decode()))])
def test_over_long_records_never_swallow_what_follows(m, name, make, size):
    part = m.make("t", linger_ms=60000)
    fd = open_write(part, name)
    os.write(fd, make(b"before"))
    _, error = write_until_refused(fd, make(b"before") + make(b"x" * size))
    assert error == errno.EMSGSIZE
    write_all(fd, make(b"after"))
    os.fsync(fd)
    os.close(fd)
    assert records(part) == [b"before", b"before", b"after"]
    assert said(m, "topic=t", "refused") == 1


@pytest.mark.parametrize("where", ["part", "topic"])
@pytest.mark.parametrize("name,make,bad", [
    ("produce", lambda text: text + b"\n", lambda text: text + b"\n"),
    ("produce.bin", binary, binary),
    ("produce.jsonl", lambda text: obj(text.decode()), lambda text: obj(text.decode())[:-2] + b",}\n"),
], ids=["lines", "bin", "malformed"])
def test_the_rest_of_a_refused_record_swallows_nothing(m, name, make, bad, where):
    """The rest that a program sends lies elsewhere in its memory, so the kernel cuts it elsewhere: just before the end."""
    part = m.make("t", linger_ms=60000)
    fd = open_write(part if where == "part" else m.topic("t"), name)
    expected = []
    for size in range(3 * MIB - 4200, 3 * MIB, 307):
        _, error = write_until_refused(fd, bad(b"x" * size))
        assert error in (errno.EMSGSIZE, errno.EINVAL)
        for text in (b"first %d" % size, b"second %d" % size):
            write_all(fd, make(text))
            expected.append(text)
    os.fsync(fd)
    os.close(fd)
    wait_for(lambda: hwm(part) >= len(expected), "the records")
    assert records(part) == expected


@pytest.mark.parametrize("name,data", [("produce", b"x" * 4 * MIB), ("produce.jsonl", b'{"payload":"' + b"x" * 20 * MIB),
                                       ("produce.bin", binary(b"x" * 6 * MIB)[:4 * MIB])],
                         ids=["lines", "jsonl", "bin"])
def test_writes_of_whole_requests_are_told_at_the_sync(m, name, data):
    """Aligned memory, so that every request may be the middle of a write: none of them fails."""
    part = m.make("t", linger_ms=60000)
    fd = open_write(part, name)
    with mmap.mmap(-1, len(data)) as memory:
        memory[:] = data
        taken = os.write(fd, memoryview(memory)[:len(data) // MIB * MIB])
    if taken == len(data) // MIB * MIB:
        assert fails(os.fsync, fd) == errno.EMSGSIZE
    os.close(fd)
    send(part, name, {"produce": b"after\n", "produce.jsonl": obj("after"), "produce.bin": binary(b"after")}[name])
    assert records(part) == [b"after"]


def test_over_long_binary_record_in_many_writes(m):
    """What the header said is skipped, and not a byte more."""
    part = m.make("t", linger_ms=60000)
    fd = open_write(part, "produce.bin")
    long = binary(b"x" * (MIB + 5), b"key")
    assert fails(os.write, fd, long[:5000]) == errno.EMSGSIZE
    for pos in range(5000, len(long), 100000):
        write_all(fd, long[pos:pos + 100000])
    os.write(fd, binary(b"after"))
    os.fsync(fd)
    os.close(fd)
    assert records(part) == [b"after"]


@pytest.mark.parametrize("lengths", [(0, 0xFFFFFFFF), (0xFFFFFFFF, 0), (0xFFFFFFFF, 0xFFFFFFFF), (0x80000000, 1),
                                     (KEY_MAX + 1, 0), (0, MIB + 1)])
def test_lengths_beyond_reason(m, lengths):
    part = m.make("t", linger_ms=60000)
    fd = open_write(part, "produce.bin")
    assert os.write(fd, binary(b"before") + struct.pack(">II", *lengths)) == 14
    assert fails(os.write, fd, struct.pack(">II", *lengths)) == errno.EMSGSIZE
    assert os.write(fd, b"of the refused one") == 18
    os.fsync(fd)
    assert resident_mib(m) < (2000 if SANITIZED else 300)
    os.close(fd)
    send(part, "produce.bin", binary(b"after"))
    assert records(part) == [b"before", b"after"]


def resident_mib(m):
    with open(f"/proc/{m.process.pid}/status", encoding="utf-8") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS")) // 1024


@pytest.mark.local("the longest records")
def test_longest_key(m):
    part = m.make("t")
    send(part, "produce.bin", binary(b"1", b"k" * KEY_MAX))
    send(part, "produce.jsonl", obj(2, "k" * KEY_MAX))
    assert [len(key_of(part, n)) for n in range(2)] == [KEY_MAX] * 2
    for name, data in (("produce.bin", binary(b"1", b"k" * (KEY_MAX + 1))), ("produce.jsonl", obj(2, "k" * (KEY_MAX + 1)))):
        assert fails(write_file, f"{part}/{name}", data) == errno.EMSGSIZE
    assert hwm(part) == 2


@pytest.mark.limit(120)
def test_a_line_of_100_mb(m):
    part = m.make("t", linger_ms=60000)
    fd = open_write(part, "produce.jsonl")
    os.write(fd, obj(1))
    piece = b'{"payload":"' + os.urandom(500000).hex().encode()
    taken, refused = 0, 0
    for _ in range(100):
        try:
            taken += os.write(fd, piece)
        except OSError as error:
            assert error.errno == errno.EMSGSIZE
            refused += 1
    assert refused > 0
    assert resident_mib(m) < (2000 if SANITIZED else 300)
    os.write(fd, b"\n" + obj(2))
    os.fsync(fd)
    os.close(fd)
    assert records(part) == [b"1", b"2"]


def test_deep_nesting(m):
    part = m.make("t")
    deep = b"[" * 100000 + b"]" * 100000
    send(part, "produce.jsonl", b'{"payload":' + deep + b"}\n")
    assert record(part, 0) == deep
    fd = open_write(part, "produce.jsonl")
    assert fails(os.write, fd, b'{"payload":' + b"[" * 100000 + b"}\n") == errno.EINVAL
    os.write(fd, b'{"payload":' + b'{"a":' * 20000)
    assert fails(os.fsync, fd) == errno.EINVAL
    os.close(fd)
    (text,) = read_file_until_empty(part, "consume.jsonl")
    assert b'"payload":' + deep in text


@pytest.mark.limit(120)
@pytest.mark.parametrize("flood", [b"{", b"}", b"[", b'"', b"\\", b"\0", b"\n", b"\xff", b"\xca\xfe", b"{}\n", b"{\"payload\":\n"])
def test_floods(m, flood):
    """Nothing that is no record becomes one, and the daemon goes on."""
    part = m.make("t", linger_ms=5)
    for name in ("produce.jsonl", "produce.bin"):
        fd = open_write(part, name)
        for _ in range(12):
            try:
                os.write(fd, flood * (MIB // len(flood) - 5))
            except OSError as error:
                assert error.errno in (errno.EINVAL, errno.EMSGSIZE)
        os.close(fd)
    produce(part, "alive")
    found = records(part) if hwm(part) < 1000 else [record(part, hwm(part) - 1)]
    assert found[-1] == b"alive"
    if flood != b"\0":  # a flood of zeros is a flood of empty binary records
        assert len(found) == 1


# -- consume.bin


def test_as_many_records_as_fit(m):
    part = m.make("t")
    before = time.time()
    send(part, "produce.bin", b"".join(binary(b"%03d" % n, b"k") for n in range(10)))
    each = HEAD.size + 4
    with Consumer(part, "consume.bin") as consumer:
        for size, count in ((3 * each, 3), (each, 1), (2 * each - 1, 1), (4 * each + HEAD.size, 4)):
            items = parse(consumer.read(size))
            assert len(items) == count
        assert number(part, "in_flight") == 9  # what did not fit is nobody's
        (item,) = parse(consumer.read())
        assert consumer.none()
    assert item["payload"] == b"009" and item["key"] == b"k" and item["partition"] == 0 and item["offset"] == 9
    assert 0 <= item["nonce"] < 1 << 63
    assert before * 1000 - 2000 <= item["timestamp"] <= time.time() * 1000 + 2000


def test_receipts_of_binary_records_outlive_the_handle(m):
    m.make("t", partitions=2)
    part = m.part("t", 1)
    produce(part, *"abcd")
    items = take_bin(part)
    assert [item["partition"] for item in items] == [1] * 4
    time.sleep(0.2)
    assert number(part, "in_flight") == 4
    ack(part, items[0]["handle"], items[1]["handle"], sync=True)
    ack(part, items[2]["handle"], verb="nack")
    assert (number(part, "frontier"), number(part, "in_flight")) == (2, 1)
    assert fails(ack, part, items[2]["handle"]) == errno.ESTALE
    (again,) = take_bin(part)
    ack(part, again["handle"], items[3]["handle"])
    assert number(part, "lag") == 0


@pytest.mark.parametrize("size", [1, 7, HEAD.size - 1, HEAD.size, HEAD.size + 1])
def test_small_buffers_get_the_rest_later(m, size):
    part = m.make("t")
    send(part, "produce.bin", binary(b"payload", b"key") + binary(b"", b"") + binary(b"x" * 50))
    with Consumer(part, "consume.bin") as consumer:
        data = b""
        while True:
            try:
                piece = consumer.read(size)
            except BlockingIOError:
                break
            assert 0 < len(piece) <= size
            data += piece
    items = parse(data)
    assert [(item["key"], item["payload"]) for item in items] == [(b"key", b"payload"), (b"", b""), (b"", b"x" * 50)]
    assert number(part, "in_flight") == 3
    ack(part, *[item["handle"] for item in items])
    assert number(part, "lag") == 0


def test_a_record_read_in_part_goes_back_with_its_reader(m):
    part = m.make("t")
    produce(part, "a", "b" * 1000, "c")
    consumer = Consumer(part, "consume.bin")
    (first,) = parse(consumer.read(100))
    assert len(consumer.read(100)) == 100
    assert number(part, "in_flight") == 2
    consumer.close()
    wait_for(lambda: number(part, "in_flight") == 1, "the lease to return")
    items = take_bin(part)
    assert in_order(item["offset"] for item in items) == [1, 2]
    ack(part, first["handle"])


def test_no_lease_is_lost_with_a_killed_reader(m):
    part = m.make("t")
    produce(part, *[b"r%03d" % n + b"x" * 300 for n in range(200)])
    script = f"import os, time; fd = os.open({part + '/consume.bin'!r}, os.O_RDONLY); " \
             "data = os.read(fd, 5000); print(data.hex(), flush=True); time.sleep(600)"
    seen = []
    for _ in range(4):
        child = subprocess.Popen([PYTHON, "-c", script], stdout=subprocess.PIPE)
        seen += parse(bytes.fromhex(child.stdout.readline().decode()))
        child.kill()
        child.wait(20)
        child.stdout.close()
    assert number(part, "in_flight") == len(seen) > 4
    rest = take_bin(part)
    assert sorted(item["offset"] for item in seen + rest) == list(range(200))


def test_large_records(m):
    part = m.make("t", max_record_bytes=3 * MIB)
    payloads = [os.urandom(size) for size in (3 * MIB, 10, MIB, MIB - 40, 5)]
    for payload in payloads:
        send(part, "produce.bin", binary(payload, b"k"))
    with Consumer(part, "consume.bin") as consumer:
        data = b""
        while True:
            try:
                data += consumer.read(8 * MIB)
            except BlockingIOError:
                break
    assert [item["payload"] for item in parse(data)] == payloads


def test_waiting(m):
    part = m.make("t")
    with Consumer(part, "consume.bin") as consumer:
        assert fails(consumer.read) == errno.EAGAIN
    with Consumer(part, "consume.bin", os.O_RDONLY) as consumer:
        read = Background(consumer.read)
        time.sleep(0.2)
        assert read.running()
        produce(part, "a", "b")
        items = parse(read.join())
        assert items[0]["payload"] == b"a"
    configure(m.topic("t"), consume_wait_ms=300)
    take_bin(part)
    with Consumer(part, "consume.bin", os.O_RDONLY) as consumer:
        start = time.monotonic()
        assert consumer.read() == b""
        assert 0.2 < time.monotonic() - start < 10
    configure(m.topic("t"), consume_wait_ms=0)
    assert read_file(part + "/consume.bin") == b""


def test_a_signal_ends_the_wait(m):
    part = m.make("t")
    readers = [subprocess.Popen(["cat", part + "/consume.bin"], stdout=subprocess.PIPE) for _ in range(3)]
    time.sleep(0.5)
    for reader in readers:
        assert reader.poll() is None
        reader.send_signal(signal.SIGINT)
    for reader in readers:
        assert reader.wait(10) == -signal.SIGINT
        reader.stdout.close()
    produce(part, "a")
    assert [item["payload"] for item in take_bin(part)] == [b"a"]


def test_poll(m):
    part = m.make("t")
    with Consumer(part, "consume.bin") as consumer:
        poll = select.poll()
        poll.register(consumer.fd, select.POLLIN)
        assert poll.poll(100) == []
        waiting = Background(poll.poll, 15000)
        time.sleep(0.2)
        produce(part, "a", "b" * 100)
        assert waiting.join() == [(consumer.fd, select.POLLIN)]
        assert len(parse(consumer.read(HEAD.size + 1))) == 1
        assert poll.poll(1000) == [(consumer.fd, select.POLLIN)]
        consumer.read(10)
        assert poll.poll(1000) == [(consumer.fd, select.POLLIN)]  # the rest of a record
        consumer.read()
        assert wait_for(lambda: poll.poll(10) == [], "nothing to read")


def test_a_deleted_topic(m):
    part = m.make("t")
    produce(part, "a")
    fds = [open_write(part, name) for name in ("produce.jsonl", "produce.bin")]
    os.write(fds[0], obj(1)[:5])
    os.write(fds[1], binary(b"2")[:5])
    waiting = Consumer(part, "consume.bin", os.O_RDONLY)
    waiting.read()
    read = Background(waiting.read)
    time.sleep(0.2)
    write_file(m.topic("t") + "/ctl", b"delete " + xattr(part, "incarnation").encode() + b"\n")
    read.join()
    assert read.error.errno == errno.EIDRM
    assert fails(waiting.read) == errno.EIDRM
    again = m.make("t")
    for fd, rest in zip(fds, (obj(1)[5:], binary(b"2")[5:])):
        assert fails(os.write, fd, rest) == errno.EIDRM
        assert fails(os.fsync, fd) == errno.EIDRM
        assert fails(os.close, fd) == errno.EIDRM  # it had written
    waiting.close()
    assert hwm(again) == 0


def test_max_in_flight(m):
    part = m.make("t", max_in_flight=3)
    produce(part, *range(5))
    items = take_bin(part)
    assert [item["payload"] for item in items] == [b"0", b"1", b"2"]
    ack(part, items[0]["handle"])
    assert [item["payload"] for item in take_bin(part)] == [b"3"]


@pytest.mark.limit(120)
def test_readers_never_share(m):
    part = m.make("t", consume_wait_ms=0, max_in_flight=100000)
    count = 3000
    produce(part, *[b"r%d" % n for n in range(count)])
    script = f"""
import os, sys
fd = os.open({part + '/consume.bin'!r}, os.O_RDONLY)
while True:
    data = os.read(fd, 1000)
    if not data: break
    sys.stdout.buffer.write(data)
"""
    readers = [subprocess.Popen([PYTHON, "-c", script], stdout=subprocess.PIPE) for _ in range(4)]
    outs = [Background(reader.communicate) for reader in readers]
    items = [item for out in outs for item in parse(out.join(60)[0])]
    items += take_bin(part)  # what one gave back when the others had found the end
    assert sorted(item["offset"] for item in items) == list(range(count))
    assert len({item["nonce"] for item in items}) == count


def test_a_topic_as_one_queue(m):
    m.make("t", partitions=3)
    for n in range(3):
        send(m.part("t", n), "produce.bin", b"".join(binary(b"%d-%d" % (n, i), b"k") for i in range(20)))
    topic = m.topic("t")
    assert os.readlink(topic + "/consume.bin") == ".streams/consume.bin"
    with Consumer(topic, "consume.bin") as consumer:
        first = parse(consumer.read(6 * (HEAD.size + 5)))
        assert {item["partition"] for item in first} == {0, 1, 2}
    items = first + take_bin(topic)
    assert sorted(item["payload"] for item in items) == sorted(b"%d-%d" % (n, i) for n in range(3) for i in range(20))
    assert all(item["payload"] == b"%d-%d" % (item["partition"], item["offset"]) for item in items)
    ack(topic, *[item["handle"] for item in items])
    assert [number(m.part("t", n), "lag") for n in range(3)] == [0] * 3
    with Consumer(topic, "consume.bin", os.O_RDONLY) as consumer:
        read = Background(consumer.read)
        time.sleep(0.2)
        produce(m.part("t", 2), "late")
        assert [(item["partition"], item["payload"]) for item in parse(read.join())] == [(2, b"late")]


def test_the_link(m):
    part = m.make("t")
    assert os.readlink(part + "/consume.bin") == ".streams/consume.bin"
    assert {"produce.jsonl", "produce.bin", "consume.bin"} <= set(os.listdir(part))
    assert open_fails(part + "/consume.bin", os.O_RDWR) == errno.EPERM


# -- all ways in, all ways out


def random_payload(rng):
    kind = rng.randrange(6)
    if kind == 0:
        return rng.randbytes(rng.choice([0, 1, 2, 3, 50, 700]))
    if kind == 1:
        return json.dumps({"n": rng.random(), "list": [rng.randrange(9)] * rng.randrange(5)}).encode()
    if kind == 2:
        return rng.choice([b"1e400", b"0.10", b"null", b'"a string"', b"[ ]", b' {"a" : 1}', b"{", b'"'])
    if kind == 3:
        return "".join(rng.choice("a\n\0\"\\/\u00e9\u20ac\U0001f600\x01") for _ in range(rng.randrange(40))).encode()
    return bytes(rng.choices(b"\n\r\0 {}\"\\x", k=rng.randrange(30)))


def as_object(rng, payload, key):
    try:
        text, name = payload.decode(), key.decode()
    except UnicodeDecodeError:
        return json.dumps({"payload": base64.b64encode(payload).decode(), "payload_encoding": "base64",
                           "key": base64.b64encode(key).decode(), "key_encoding": "base64"}).encode()
    try:
        json.loads(text, parse_constant=lambda word: 1 / 0)
        if "\n" not in text and not text.isspace() and text == text.strip() and rng.random() < 0.5 and text[0] != '"':
            return b'{"key":' + json.dumps(name).encode() + b',"payload":' + payload + b"}"
    except (ValueError, ZeroDivisionError):
        pass
    return json.dumps({"payload": text, "key": name}, ensure_ascii=rng.random() < 0.5).encode()


def consumed_payload(text):
    """The payload's bytes as they stand in an object of consume.jsonl."""
    item = json.loads(text)
    if isinstance(item["payload"], str) and item.get("payload_encoding") == "base64":
        return base64.b64decode(item["payload"])
    raw = text[text.index(b',"payload":') + len(b',"payload":'):-2]
    return raw, item["payload"]


@pytest.mark.limit(120)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("codec", ["none", pytest.param("zstd", marks=pytest.mark.local("segments"))])
def test_all_ways_in_and_out_agree(m, seed, codec):
    rng = random.Random(seed)
    part = m.make("t", codec=codec, max_in_flight=100000)
    sent = [(rng.choice([b"", b"k", rng.randbytes(rng.randrange(1, 20))]), random_payload(rng)) for _ in range(400)]
    fds = {name: open_write(part, name) for name in ("produce.jsonl", "produce.bin")}
    for key, payload in sent:
        name = rng.choice(list(fds))
        data = binary(payload, key) if name == "produce.bin" else as_object(rng, payload, key) + b"\n"
        cut = rng.randrange(len(data))
        for piece in (data[:cut], data[cut:]):
            if piece:
                os.write(fds[name], piece)
        os.fsync(fds[name])
    for fd in fds.values():
        os.close(fd)
    assert [(key_of(part, n) or b"", record(part, n)) for n in range(hwm(part))] == sent
    items = take_bin(part, size=rng.choice([500, 5000, MIB]))
    assert [(item["key"], item["payload"]) for item in items] == sent
    write_file(part + "/ctl", b"seek start\n")
    texts = read_file_until_empty(part, "consume.jsonl")
    for text, (key, payload) in zip(texts, sent):
        item = json.loads(text)
        seen = item["key"] or ""
        assert (base64.b64decode(seen) if item.get("key_encoding") else seen.encode()) == key
        found = consumed_payload(text)
        if not isinstance(found, bytes):
            raw, value = found
            # verbatim JSON, or a string that says it
            found = payload if raw == payload.replace(b"\n", b" ").replace(b"\r", b" ") else value.encode()
        assert found == payload
    assert len(texts) == len(sent)
    m.restart()
    assert [record(part, n) for n in range(hwm(part))] == [payload for _, payload in sent]


def test_lines_and_framings_meet(m):
    part = m.make("t")
    produce(part, "line")
    send(part, "produce.jsonl", obj({"a": 1}, "k"))
    send(part, "produce.bin", binary(b"two\nlines", b"k"))
    assert log(part) == b'line\n{"a": 1}\ntwo\nlines\n'
    assert payload_of(take(part)[2]) == b"two\nlines"
    write_file(part + "/ctl", b"seek start\n")
    assert drain(part) == b'line\n{"a": 1}\ntwo\nlines\n'


# -- what is not finished


@pytest.mark.parametrize("name", ["produce", "produce.jsonl", "produce.bin"])
def test_unfinished_records_have_a_bound_together(mounts, name):
    """However many handles begin a record: beyond partial_bytes a write gets EAGAIN, and nothing of it is taken."""
    size = MIB - 16384
    begin = {"produce": b"", "produce.jsonl": b'{"payload":"', "produce.bin": struct.pack(">II", 0, size)}[name]
    end = {"produce": b"\n", "produce.jsonl": b'"}\n', "produce.bin": b""}[name]
    payload = b"x" * size
    m = mounts(options=f"partial_bytes={4 * MIB}")
    part = m.make("t")
    half = MIB // 2
    fds, refused = [], []
    for _ in range(20):
        fd = open_write(part, name)
        fds.append(fd)
        try:
            assert os.write(fd, begin + payload[:half]) == len(begin) + half
        except OSError as error:
            assert error.errno == errno.EAGAIN
            refused.append(fd)
    assert len(refused) == 20 - 4 * MIB // (half + len(begin) - 65536)
    assert m.stderr().count("unfinished records") == 1, m.stderr()
    assert fails(os.write, refused[0], begin + payload[:half]) == errno.EAGAIN
    os.write(refused[0], begin + payload + end)  # what one request holds needs nothing
    kept = [fd for fd in fds if fd not in refused]
    os.write(kept[0], payload[half:] + end)  # ... and what ends one neither
    os.write(refused[1], begin + payload[:half])
    assert fails(os.write, refused[2], begin + payload[:half]) == errno.EAGAIN
    os.close(kept[1])  # dropped, or a line that ends; the kernel tells the daemon a little later

    def taken():
        try:
            return os.write(refused[2], begin + payload[:half])
        except BlockingIOError:
            return 0

    assert wait_for(taken, "what the closed file kept") == len(begin) + half
    write_all(refused[2], payload[half:] + end)
    for fd in fds:
        if fd != kept[1]:
            os.close(fd)
    whole = [found for found in records(part) if found == payload]
    assert len(whole) == 3, (len(whole), [len(found) for found in records(part)])
