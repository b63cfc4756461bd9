"""naradctl export and import: what they carry, refuse and leave as it was."""

import io
import os
import random
import shutil
import signal
import struct
import subprocess
import tarfile

import pytest
import seglog
from naradctl import NARADCTL, SEED, check, ctl, data, filled, patch, refused, segments, snapshot  # noqa: F401
from support import log, number, produce, read_file, take, wait_for, write_file


# -- export, import


@pytest.fixture
def target(mounts):
    """A stopped data directory with a topic t of two partitions that never held a record."""
    m = mounts("target")
    m.make("t", partitions=2, segment_bytes=65536, retention_ms=0)
    m.stop()
    return m


def tar_entries(path):
    with tarfile.open(path) as archive:
        return [(entry, archive.extractfile(entry).read()) for entry in archive.getmembers()]


def write_tar(path, entries):
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as archive:
        for entry, content in entries:
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))


def test_export_and_import_carry_a_partition(data, target, tmp_path):
    source = f"{data}/topics/t/p00000"
    records = seglog.read_partition(source)
    before = snapshot(data)
    ctl("export", data, "t/p00000", tmp_path / "t.tar")
    assert snapshot(data) == before
    assert ctl("export", data, "t/p00000", "-") == (tmp_path / "t.tar").read_bytes()
    entries = tar_entries(tmp_path / "t.tar")
    assert [entry.name for entry, _ in entries] == \
        ["manifest", *[os.path.basename(path) for path in segments(source)], "hwm", "consumer.offset", "consumer.ahead"]

    out = ctl("import", target.data, "t/p00001", "-", stdin=(tmp_path / "t.tar").read_bytes())
    assert b"480 records" in out
    check(target.data)
    assert seglog.read_partition(target.data_part("t", 1)) == records
    target.start()
    part = target.part("t", 1)
    assert (number(part, "oldest_offset"), number(part, "hwm")) == (0, 480)
    assert (number(part, "frontier"), number(part, "acked_ahead")) == (4, 1)
    assert [item["offset"] for item in take(part, 5)] == [4, 5, 7, 8, 9]
    assert log(part) == b"".join(payload + b"\n" for _, _, _, payload in records)
    for offset, time_ms, _, payload in records[::37]:
        path = f"{part}/records/{offset}"
        assert (read_file(path), number(path, "timestamp")) == (payload, time_ms)
    produce(part, "the record after")
    assert number(part, "hwm") == 481
    assert number(target.part("t", 0), "hwm") == 0


def test_export_and_import_say_which_records(m, target, tmp_path):
    """Offsets are inclusive in words, as everywhere; a partition without a record has none."""
    m.make("t", partitions=2)
    produce(m.part("t"), *range(3))
    for verb in ("export", "import"):
        assert "unmount it first" in refused(verb, m.data, "t/p00000", tmp_path / "a.tar")
    m.stop()
    assert b"t/p00000: 3 records, offsets 0 to 2, written to" in ctl("export", m.data, "t/p00000", tmp_path / "a.tar")
    assert b"t/p00001: no record, the next offset is 0, " in ctl("export", m.data, "t/p00001", tmp_path / "b.tar")
    assert b"t/p00000: 3 records, offsets 0 to 2, imported" in ctl("import", target.data, "t/p00000", tmp_path / "a.tar")


def test_export_keeps_keys_binary_and_what_retention_left(m, target, tmp_path):
    """Offsets that do not begin at 0, keys, payloads of any bytes, and a log that was not closed."""
    part = m.make("t", segment_bytes=65536)
    for i in range(3):
        fd = os.open(part + "/produce.bin", os.O_WRONLY)
        for k in range(20):
            key, payload = b"k\x00%d" % k if k % 2 else b"", bytes(range(256)) * (k % 4)
            os.write(fd, struct.pack(">II", len(key), len(payload)) + key + payload)
        os.fsync(fd)
        os.close(fd)
        write_file(part + "/ctl", b"roll\n")
    write_file(part + "/ctl", b"trim 20\n")
    wait_for(lambda: number(part, "oldest_offset") == 20, "the trim")
    produce(part, "last")
    m.kill()
    with open(segments(m.data_part("t"))[-1], "ab") as file:
        file.write(b"\xca\xfe torn")
    ctl("export", m.data, "t/0", tmp_path / "t.tar")
    ctl("import", target.data, "t/0", tmp_path / "t.tar")
    m.start()
    assert len(log(part).splitlines()) > 0  # an open cuts the torn tail
    m.stop()
    records = seglog.read_partition(m.data_part("t"))
    assert [record[0] for record in records] == list(range(20, 61))
    assert seglog.read_partition(target.data_part("t")) == records
    target.start()
    assert (number(target.part("t"), "oldest_offset"), number(target.part("t"), "hwm")) == (20, 61)


def test_import_refuses_a_damaged_archive_and_changes_nothing(data, target, tmp_path):
    ctl("export", data, "t/p00000", tmp_path / "t.tar")
    whole = (tmp_path / "t.tar").read_bytes()
    entries = tar_entries(tmp_path / "t.tar")
    before = snapshot(target.data)
    rng = random.Random(f"{SEED} archive")
    cases = {"cut": whole[:len(whole) // 2], "empty": b"", "no tar": rng.randbytes(5000)}
    for entry, content in entries:
        if content:
            pos = whole.index(content)
            for _ in range(4):
                flipped = bytearray(whole)
                flipped[pos + rng.randrange(len(content))] ^= 1 << rng.randrange(8)
                cases[f"a bit of {entry.name} {_}"] = bytes(flipped)
    for what, made in (("a file is missing", entries[:2] + entries[3:]), ("the last is missing", entries[:-1]),
                       ("another order", [entries[0], entries[2], entries[1], *entries[3:]]),
                       ("one more", entries + [(tarfile.TarInfo("../../x"), b"x")]),
                       ("no manifest", entries[1:])):
        write_tar(tmp_path / "made.tar", made)
        cases[what] = (tmp_path / "made.tar").read_bytes()
    for what, archive in cases.items():
        (tmp_path / "bad.tar").write_bytes(archive)
        done = subprocess.run([NARADCTL, "import", target.data, "t/p00000", tmp_path / "bad.tar"],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
        assert done.returncode == 1 and b"nothing was imported" in done.stderr, (what, done)
        now = snapshot(target.data)
        topic = f"{target.data}/topics/t"  # its times tell of the folder that was made there and removed
        assert {path: now[path] for path in now if path != topic} == \
            {path: before[path] for path in before if path != topic}, what
    ctl("import", target.data, "t/p00000", tmp_path / "t.tar")


def test_import_refuses_what_is_whole_and_not_true(data, target, tmp_path):
    """A manifest and checksums that match, over segments that do not: somebody made it."""
    ctl("export", data, "t/p00000", tmp_path / "t.tar")
    entries = tar_entries(tmp_path / "t.tar")
    for index, pos in ((1, 50), (len(entries) - 2, 7)):  # a byte of a frame; of consumer.offset
        made = [(entry, bytearray(content)) for entry, content in entries]
        made[index][1][pos] ^= 0x01
        lines = bytes(made[0][1]).decode().splitlines()[:-1]
        name = made[index][0].name
        for i, line in enumerate(lines):
            words = line.split()
            if words[:2] == ["file", name]:
                words[3] = f"{seglog.crc32c(bytes(made[index][1])):08x}"
                lines[i] = " ".join(words)
        text = "".join(line + "\n" for line in lines).encode()
        made[0] = (made[0][0], text + b"crc32c %08x\n" % seglog.crc32c(text))
        write_tar(tmp_path / "made.tar", made)
        refused("import", target.data, "t/p00000", tmp_path / "made.tar")
        assert not segments(target.data_part("t"))


def test_import_only_into_a_partition_that_never_held_a_record(data, target, tmp_path):
    ctl("export", data, "t/p00000", tmp_path / "t.tar")
    assert "there is no topic x" in refused("import", target.data, "x/p00000", tmp_path / "t.tar")
    assert "the last one is p00001" in refused("import", target.data, "t/p00002", tmp_path / "t.tar")
    assert "names no partition" in refused("import", target.data, "t", tmp_path / "t.tar")
    target.start()
    assert f"pid {target.process.pid}" in refused("import", target.data, "t/p00000", tmp_path / "t.tar")
    assert f"pid {target.process.pid}" in refused("export", target.data, "t/p00000", tmp_path / "x.tar")
    produce(target.part("t"), "one")
    target.stop()
    assert "holds records" in refused("import", target.data, "t/p00000", tmp_path / "t.tar")
    assert "holds records" in refused("import", data, "t/p00000", tmp_path / "t.tar")
    os.truncate(f"{target.data_part('t')}/hwm", 0)  # as after a crash
    assert "holds records" in refused("import", target.data, "t/p00000", tmp_path / "t.tar")
    os.mkdir(f"{target.data_part('t', 1)}/{5:020d}.log")
    assert "holds records" in refused("import", target.data, "t/p00001", tmp_path / "t.tar")
    os.rmdir(f"{target.data_part('t', 1)}/{5:020d}.log")
    assert len(seglog.read_partition(target.data_part("t"))) == 1
    # what an import left that was cut short is in nobody's way
    os.mkdir(f"{target.data}/topics/t/.import-p00001")
    with open(f"{target.data}/topics/t/.import-p00001/{0:020d}.log", "w", encoding="utf-8") as file:
        file.write("rubbish")
    assert sorted(f["kind"] for f in check(target.data)[0]) == ["hwm", "stray"]
    ctl("import", target.data, "t/p00001", tmp_path / "t.tar")
    assert [f["path"] for f in check(target.data)[0]] == ["topics/t/p00000/hwm"]


def test_export_refuses_damage_and_replaces_nothing(data, tmp_path):
    (tmp_path / "t.tar").write_bytes(b"precious")
    assert "it exists" in refused("export", data, "t/p00000", tmp_path / "t.tar")
    assert (tmp_path / "t.tar").read_bytes() == b"precious"
    patch(segments(f"{data}/topics/t/p00000")[0], 60, b"\xff")
    assert "damaged" in refused("export", data, "t/p00000", tmp_path / "u.tar")
    assert sorted(os.listdir(tmp_path)) == ["data", "t.tar"]
    with open("/dev/full", "wb") as full:
        done = subprocess.run([NARADCTL, "export", data, "u/p00000", "-"], stdout=full, stderr=subprocess.PIPE,
                              check=False)
    assert done.returncode == 1 and b"No space left" in done.stderr, done


def test_export_refuses_to_leave_records_behind(m, tmp_path):
    """A high watermark that was set back; the log was closed with more than it tells."""
    part = m.make("t")
    for text in ("a", "b", "c"):
        produce(part, text)
    m.stop()
    with open(m.data + "/topics/t/p00000/hwm", "wb") as file:
        file.write(struct.pack(">Q", 2))
    assert "hwm is damaged (it hides committed records)" in refused("export", m.data, "t/p00000", tmp_path / "t.tar")
    assert not [name for name in os.listdir(tmp_path) if "tar" in name]


def test_import_cleans_up_when_it_is_interrupted(data, target):
    archive = ctl("export", data, "t/p00000", "-")
    process = subprocess.Popen([NARADCTL, "import", target.data, "t/p00000", "-"], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdin.write(archive[:20000])
    process.stdin.flush()
    wait_for(lambda: os.path.isdir(f"{target.data}/topics/t/.import-p00000"), "the archive to be unpacked")
    process.send_signal(signal.SIGINT)
    _, sentence = process.communicate(archive[20000:], timeout=30)
    assert process.returncode == 1 and b"interrupted; nothing was imported" in sentence
    assert sorted(os.listdir(f"{target.data}/topics/t")) == ["incarnation", "p00000", "p00001"]
    ctl("import", target.data, "t/p00000", "-", stdin=archive)


def test_import_brings_back_a_folder_that_is_missing(m, tmp_path):
    part = m.make("t", partitions=2)
    produce(part, "a", "b")
    m.stop()
    archive = tmp_path / "t.tar"
    ctl("export", m.data, "t/p00000", archive)
    shutil.rmtree(m.data_part("t"))
    said = refused("export", m.data, "t/p00000", tmp_path / "none.tar")
    assert "topics/t/p00000 is missing: put the folder back from a backup" in said and "start of the daemon" not in said
    with open(archive, "rb") as file:
        whole = file.read()
    (tmp_path / "torn.tar").write_bytes(whole[:len(whole) // 2])
    refused("import", m.data, "t/p00000", tmp_path / "torn.tar")
    assert not os.path.exists(m.data_part("t"))  # a damaged archive changes nothing
    ctl("import", m.data, "t/p00000", archive)
    m.start()
    assert log(part) == b"a\nb\n"
    produce(part, "c")
    assert log(part) == b"a\nb\nc\n"
