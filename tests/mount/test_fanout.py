"""Fan-out: children/ of a topic, what mkdir and rmdir in it do, what is copied, and what a delay changes."""

import errno
import json
import os
import struct
import threading
import time

import pytest
from disk import fill
from support import (Background, Consumer, configure, drain, fails, lines, log, number, open_fails, produce, read_file,
                     shell, take, wait_for, write_all, write_file, xattr)
from test_faults import Inject, active_segment, need_strace
from test_tree import as_nobody

HOUR_MS = 3600000
YEAR_MS = 365 * 24 * HOUR_MS


def children(m, parent="p"):
    return m.topic(parent) + "/children"


def attach(m, child="c", parent="p"):
    os.mkdir(f"{children(m, parent)}/{child}")


def detach(m, child="c", parent="p"):
    os.rmdir(f"{children(m, parent)}/{child}")


def delete(topic):
    write_file(topic + "/ctl", f"delete {xattr(topic, 'incarnation')}\n".encode())


def partitions(m, topic):
    return int(xattr(m.topic(topic), "partitions"))


def records(m, topic="c"):
    """Every record of the topic, partition by partition."""
    return [record for n in range(partitions(m, topic)) for record in log(m.part(topic, n)).splitlines()]


def arrive(m, count, topic="c", limit_s=15):
    wait_for(lambda: len(records(m, topic)) >= count, f"{count} records in {topic}", limit_s)
    return records(m, topic)


def settled(m, expected, topic="c"):
    """These records, in any order, and no more of them a little later."""
    expected = sorted(str(record).encode() if not isinstance(record, bytes) else record for record in expected)
    assert sorted(arrive(m, len(expected), topic)) == expected
    time.sleep(0.3)
    assert sorted(records(m, topic)) == expected


def status(m, child="c", parent="p"):
    """The page as a dictionary; its rows under `rows`."""
    page = {"rows": []}
    for line in read_file(f"{children(m, parent)}/{child}/status").decode().splitlines():
        words = line.split()
        if words and words[0].startswith("p0"):
            page["rows"].append(words)
        elif words:
            page[words[0]] = words[1:]
    return page


def lag(m, child="c", parent="p"):
    return int(status(m, child, parent)["lag"][0])


def fnv1a(key):
    value = 0x811C9DC5
    for byte in key:
        value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
    return value


def cursor_files(m, parent="p"):
    return sorted(name for _, _, names in os.walk(f"{m.data}/topics/{parent}") for name in names
                  if name.startswith("fanout-") and name.endswith(".offset"))


@pytest.fixture
def pair(m):
    """A parent p and a child c, attached."""
    m.make("p")
    m.make("c")
    attach(m)
    return m


# ---- attaching, detaching ----


def test_attach_and_detach(m):
    m.make("p")
    m.make("b")
    m.make("c")
    assert os.listdir(children(m)) == []
    attach(m)
    attach(m, "b")
    assert sorted(os.listdir(children(m))) == ["b", "c"]
    assert os.listdir(children(m) + "/c") == ["status"]
    assert os.stat(children(m)).st_nlink == 4
    assert os.stat(m.topic("p")).st_nlink == 4  # children and one partition
    assert os.stat(children(m) + "/c").st_ino != os.stat(children(m) + "/b").st_ino
    m.restart()
    assert sorted(os.listdir(children(m))) == ["b", "c"]
    inside = os.open(children(m) + "/c", os.O_RDONLY | os.O_DIRECTORY)
    detach(m)
    assert os.listdir(children(m)) == ["b"]
    assert fails(lambda: os.stat("status", dir_fd=inside)) == errno.ENOENT
    os.close(inside)
    assert fails(os.stat, children(m) + "/c") == errno.ENOENT
    assert fails(os.stat, children(m) + "/c/status") == errno.ENOENT
    m.crash()
    assert os.listdir(children(m)) == ["b"]
    attach(m)
    assert sorted(os.listdir(children(m))) == ["b", "c"]


@pytest.mark.parametrize("end", ["detach", "delete parent", "delete child"])
def test_what_waits_when_a_link_ends_is_told(m, end):
    m.make("p", partitions=2)
    m.make("c", fanout_delay_ms=600000)
    attach(m)
    produce(m.part("p", 0), *range(30))
    produce(m.part("p", 1), *range(12))
    wait_for(lambda: lag(m) == 42, "42 records to wait")
    m.restart()  # the cursors come from their files
    wait_for(lambda: lag(m) == 42, "42 records to wait")
    detach(m) if end == "detach" else delete(m.topic("p" if end == "delete parent" else "c"))
    assert m.stderr().count("copying to c ends, with 42 records that waited and will not be copied any more") == 1


def test_a_link_that_has_copied_all_ends_quietly(pair):
    m = pair
    produce(m.part("p"), *range(5))
    arrive(m, 5)
    wait_for(lambda: lag(m) == 0, "the cursor")
    detach(m)
    assert "any more" not in m.stderr()


def test_errors_of_attaching(m):
    for name in ("p", "q", "c", "d"):
        m.make(name)
    assert fails(attach, m, "none") == errno.ENOENT
    assert fails(attach, m, ".hidden") == errno.ENOENT
    assert fails(attach, m, "x" * 256) == errno.ENAMETOOLONG
    assert fails(attach, m, "p") == errno.EINVAL  # itself
    attach(m)
    assert fails(attach, m) == errno.EEXIST
    assert fails(attach, m, "c", "q") == errno.EBUSY
    assert fails(attach, m, "d", "c") == errno.EINVAL  # a chain
    assert fails(attach, m, "p", "q") == errno.EINVAL  # a chain, from above
    assert fails(detach, m, "d") == errno.ENOENT
    assert fails(detach, m, "none") == errno.ENOENT
    assert os.listdir(children(m)) == ["c"]
    assert os.listdir(children(m, "c")) == os.listdir(children(m, "q")) == []


def test_nothing_else_is_made_or_removed(pair):
    m = pair
    folder = children(m)
    m.make("d")
    assert open_fails(folder + "/d", os.O_WRONLY | os.O_CREAT) == errno.EPERM
    assert fails(os.mkdir, folder + "/c/d") == errno.EPERM
    assert fails(os.rmdir, folder) == errno.EPERM
    assert fails(os.rename, folder + "/c", folder + "/d") == errno.EPERM
    assert fails(os.symlink, "../../d", folder + "/d") == errno.EPERM
    assert fails(os.unlink, folder + "/c/status") == errno.EPERM
    assert open_fails(folder + "/c/status", os.O_WRONLY) == errno.EPERM
    assert fails(os.mkdir, m.topic("p") + "/other") == errno.EPERM
    assert os.listdir(folder) == ["c"]


def test_108_children(m):
    m.make("p")
    for i in range(109):
        os.mkdir(m.topic(f"c{i}"))
    for i in range(108):
        attach(m, f"c{i}")
    assert fails(attach, m, "c108") == errno.EMLINK
    assert len(os.listdir(children(m))) == 108
    assert os.stat(children(m)).st_nlink == 110
    produce(m.part("p"), "for all")
    for i in (0, 54, 107):
        assert arrive(m, 1, f"c{i}") == [b"for all"]
    m.restart()
    assert len(os.listdir(children(m))) == 108
    detach(m, "c7")
    attach(m, "c108")


def test_longest_name(m):
    name = "n" * 200
    m.make("p")
    m.make(name)
    attach(m, name)
    produce(m.part("p"), "x")
    settled(m, ["x"], name)


def test_retention_has_to_leave_time(m):
    m.make("p", retention_ms=HOUR_MS + 4999)
    m.make("c", fanout_delay_ms=5000)
    m.make("d")
    assert fails(attach, m) == errno.EINVAL
    configure(m.topic("p"), retention_ms=HOUR_MS + 5000)
    attach(m)
    attach(m, "d")
    for short in (HOUR_MS + 4999, HOUR_MS, 1000):
        assert fails(write_file, m.topic("p") + "/config", b"retention_ms=%d\n" % short) == errno.EINVAL
    assert fails(os.setxattr, m.topic("p"), "user.narad.retention_ms", b"1000") == errno.EINVAL
    assert int(xattr(m.topic("p"), "retention_ms")) == HOUR_MS + 5000
    configure(m.topic("p"), retention_ms=0)  # keeps everything
    configure(m.topic("p"), retention_ms=HOUR_MS + 5000, linger_ms=5)
    assert "child c" in m.stderr()
    detach(m)
    configure(m.topic("p"), retention_ms=HOUR_MS)
    detach(m, "d")
    configure(m.topic("p"), retention_ms=1000)


def test_the_delay_is_changed_only_while_detached(m):
    m.make("p")
    m.make("c", fanout_delay_ms=7000)
    attach(m)
    for value in (b"0", b"7001"):
        assert fails(write_file, m.topic("c") + "/config", b"fanout_delay_ms=" + value) == errno.EBUSY
        assert fails(os.setxattr, m.topic("c"), "user.narad.fanout_delay_ms", value) == errno.EBUSY
    assert fails(write_file, m.topic("c") + "/config", b"linger_ms=9\nfanout_delay_ms=0\n") == errno.EBUSY
    assert int(xattr(m.topic("c"), "linger_ms")) == 100
    configure(m.topic("c"), fanout_delay_ms=7000, linger_ms=9)
    detach(m)
    configure(m.topic("c"), fanout_delay_ms=0)
    for value in (b"-1", b"%d" % (YEAR_MS + 1)):
        assert fails(write_file, m.topic("c") + "/config", b"fanout_delay_ms=" + value) == errno.EINVAL
    configure(m.topic("p"), retention_ms=0)
    configure(m.topic("c"), fanout_delay_ms=YEAR_MS)
    attach(m)


# ---- what is copied ----


def test_keyed_records_go_where_their_key_says(m):
    m.make("p", partitions=2)
    m.make("c", partitions=3)
    attach(m)
    with open(m.topic("p") + "/produce.jsonl", "w", encoding="utf-8") as file:
        for turn in range(3):
            for key in range(40):
                file.write(json.dumps({"key": f"key-{key}", "payload": f"{key} {turn}"}) + "\n")
    arrive(m, 120)
    for n in range(3):
        copied = take(m.part("c", n))
        assert all(fnv1a(record["key"].encode()) % 3 == n for record in copied)
        for key in {record["key"] for record in copied}:  # in their order
            assert [record["payload"] for record in copied if record["key"] == key] == [f"{key[4:]} {t}" for t in range(3)]
    assert len(records(m)) == 120


def test_unkeyed_records_take_turns(m):
    m.make("p")
    m.make("c", partitions=4)
    attach(m)
    produce(m.part("p"), *range(400))
    settled(m, range(400))
    sizes = [len(log(m.part("c", n)).splitlines()) for n in range(4)]
    assert min(sizes) > 0 and max(sizes) <= 200, sizes


def test_any_bytes(pair):
    m = pair
    samples = [(b"", b""), (b"k", b""), (b"\xff\0\n", bytes(range(256))), (b"", b"\n\n"), (b"x" * 300, b"y" * 100000)]
    write_file(m.part("p") + "/produce.bin",
               b"".join(struct.pack(">II", len(key), len(payload)) + key + payload for key, payload in samples))
    wait_for(lambda: number(m.part("c"), "hwm") == len(samples), "the copies")
    for offset, (key, payload) in enumerate(samples):
        path = f"{m.part('c')}/records/{offset}"
        assert read_file(path) == payload
        if key:
            assert os.getxattr(path, "user.narad.key") == key


def test_every_way_to_produce_is_copied(pair):
    m = pair
    write_file(m.part("p") + "/produce", b"partition\n")
    write_file(m.topic("p") + "/produce", b"topic\n")
    write_file(m.part("p") + "/produce.jsonl", b'{"payload":"json"}\n')
    settled(m, ["partition", "topic", "json"])


def test_every_child_gets_every_record(m):
    m.make("p", partitions=3)
    for child in ("a", "b", "c"):
        m.make(child, partitions=2)
        attach(m, child)
    produce(m.topic("p"), *range(300))
    for child in ("a", "b", "c"):
        settled(m, range(300), child)


def test_nothing_from_before(m):
    m.make("p", partitions=2)
    m.make("c")
    produce(m.part("p", 0), "before", "before too")
    produce(m.part("p", 1), "before")
    attach(m)
    produce(m.part("p", 0), "after")
    settled(m, ["after"])
    m.restart()
    settled(m, ["after"])


def test_attached_again_it_starts_at_the_tail(pair):
    m = pair
    produce(m.part("p"), "one")
    settled(m, ["one"])
    detach(m)
    produce(m.part("p"), "while detached")
    attach(m)
    produce(m.part("p"), "two")
    settled(m, ["one", "two"])
    detach(m)
    produce(m.part("p"), "three")
    time.sleep(0.3)
    m.restart()
    settled(m, ["one", "two"])
    assert cursor_files(m) == []


def test_a_child_is_a_topic_like_any_other(pair):
    m = pair
    produce(m.part("p"), *range(10))
    settled(m, range(10))
    assert drain(m.part("c")) == lines(*range(10))
    assert number(m.part("p"), "lag") == 10  # the parent's consumers see nothing of it
    produce(m.part("c"), "its own")
    assert take(m.part("c"), 1)[0]["payload"] == "its own"
    assert log(m.part("p")) == lines(*range(10))


def test_a_parked_reader_of_the_child_is_woken(pair):
    m = pair
    fd = os.open(m.part("c") + "/consume", os.O_RDONLY)
    reader = Background(os.read, fd, 100)
    time.sleep(0.2)
    produce(m.part("p"), "wake up")
    assert reader.join() == b"wake up\n"
    os.close(fd)


def test_the_childs_limit_does_not_bound_copies(m):
    m.make("p", max_record_bytes=4 << 20)
    m.make("c")
    attach(m)
    produce(m.part("p"), b"x" * (2 << 20))
    assert arrive(m, 1) == [b"x" * (2 << 20)]


def test_partitions_that_the_parent_gets_later(pair):
    m = pair
    configure(m.topic("p"), partitions=3)
    produce(m.part("p", 2), "from the new one")
    settled(m, ["from the new one"])
    write_file(m.topic("c") + "/ctl", b"partitions 4\n")
    produce(m.part("p", 1), *range(40))
    settled(m, ["from the new one", *range(40)])
    assert all(log(m.part("c", n)) for n in range(4))


def test_codecs_and_segments(m):
    m.make("p", codec="zstd", segment_bytes=65536)
    m.make("c", segment_bytes=65536)
    attach(m)
    expected = [f"{i} {'x' * 100}" for i in range(3000)]
    for start in range(0, 3000, 500):
        produce(m.part("p"), *expected[start:start + 500])
    assert arrive(m, 3000) == lines(*expected).splitlines()  # one partition each: in order
    wait_for(lambda: number(m.part("c"), "segments") > 1, "the segment to be rolled")  # records are seen before


# ---- status ----


def test_status_pages(m):
    m.make("p", partitions=2)
    m.make("c")
    m.make("late", fanout_delay_ms=HOUR_MS)
    attach(m)
    attach(m, "late")
    produce(m.part("p", 1), *range(5))
    arrive(m, 5)
    wait_for(lambda: lag(m) == 0, "the lag to be gone")
    page = status(m)
    assert page["child"] == ["c"] and page["parent"] == ["p"] and page["delay"] == ["0", "ms"]
    assert page["copied"][0] == "5" and page["dropped"][0] == "0"
    assert page["attached"][0].startswith("20")
    assert [row[:4] for row in page["rows"]] == [["p00000", "0", "0", "0"], ["p00001", "5", "5", "0"]]
    late = status(m, "late")
    assert late["lag"][0] == "5" and late["delay"] == [str(HOUR_MS), "ms"] and late["copied"][0] == "0"
    assert late["rows"][1][:4] == ["p00001", "0", "5", "5"]
    text = read_file(m.topic("p") + "/status").decode()
    assert "children     2\n" in text and "late       lag 5, after 3600000 ms" in text
    assert "parent       p, lag 5" in read_file(m.topic("late") + "/status").decode()
    assert "children" not in read_file(m.topic("c") + "/status").decode()
    m.restart()
    assert lag(m, "late") == 5
    fd = os.open(children(m) + "/c/status", os.O_RDONLY)
    detach(m)
    os.pread(fd, 4096, 0)  # what it was when it was opened
    assert b"detached" in os.pread(fd, 4096, 0)
    os.close(fd)
    assert "lag" not in read_file(m.topic("c") + "/status").decode().split("partition ")[0]


# ---- restarts and crashes ----


def test_a_restart_repeats_nothing_and_loses_nothing(m):
    m.make("p", partitions=2)
    m.make("c", partitions=2)
    attach(m)
    for turn in range(3):
        produce(m.topic("p"), *range(turn * 100, turn * 100 + 100))
        if turn % 2:
            arrive(m, turn * 100 + 100)
        m.restart()
    settled(m, range(300))


@pytest.mark.limit(120)
def test_kills_lose_nothing(m):
    """Whatever the parent has committed is in the child, once but for what was being copied when the daemon died."""
    m.make("p", partitions=2)
    m.make("c", partitions=2)
    attach(m)
    for turn in range(5):
        fds = [os.open(m.part("p", n) + "/produce.jsonl", os.O_WRONLY) for n in range(2)]
        until = time.monotonic() + 0.1 * (turn + 1)
        count = 0
        while time.monotonic() < until:
            for n, fd in enumerate(fds):
                key = f"key-{n}" if count % 2 else ""
                write_all(fd, lines(*[json.dumps({"key": key, "payload": f"{turn} {n} {count + i} {key}"})
                                      for i in range(7)]))
                os.fsync(fd)
            count += 7
        m.kill()
        for fd in fds:
            try:
                os.close(fd)
            except OSError:
                pass
        m.start()
        wait_for(lambda: lag(m) == 0, "the copies of this turn", 30)
    produced, copied = records(m, "p"), records(m)
    assert set(copied) == set(produced)
    assert max(copied.count(record) for record in set(copied)) <= 2  # nothing from before an earlier kill comes again
    for n in range(2):  # of one key, what was committed first is copied first
        home = log(m.part("c", fnv1a(b"key-%d" % n) % 2)).splitlines()
        seen = [record.split() for record in dict.fromkeys(home) if record.endswith(b" key-%d" % n)]
        order = [(int(words[0]), int(words[2])) for words in seen]
        assert order and order == sorted(order)


@pytest.mark.limit(120)
def test_kills_beside_attaching(m):
    """Whatever the moment: it is attached, and not produced to, or it is neither."""
    m.make("p")
    m.make("c", fanout_delay_ms=5000)

    def come_and_go():
        while True:
            attach(m)
            detach(m)

    for turn in range(8):
        background = Background(come_and_go)
        time.sleep(0.05 + 0.013 * turn)
        m.kill()
        background.join()
        m.start()
        attached = os.listdir(children(m)) == ["c"]
        if attached:
            assert open_fails(m.part("c") + "/produce", os.O_WRONLY) == errno.EPERM
            assert read_file(m.topic("c") + "/status").count(b"parent") == 1
            detach(m)
        assert os.listdir(children(m)) == [] and cursor_files(m) == []
        os.close(os.open(m.part("c") + "/produce", os.O_WRONLY))


def test_stop_while_copying(m):
    m.make("p")
    m.make("c")
    attach(m)
    produce(m.part("p"), *range(5000))
    m.restart()
    produce(m.part("p"), *range(5000, 5100))
    settled(m, range(5100))


# ---- deleting ----


def test_deleting_a_child_detaches_it(pair):
    m = pair
    produce(m.part("p"), "one")
    arrive(m, 1)
    delete(m.topic("c"))
    assert os.listdir(children(m)) == []
    produce(m.part("p"), "two")
    m.make("c")
    produce(m.part("p"), "three")
    time.sleep(0.5)
    assert records(m) == []
    assert cursor_files(m) == []
    m.restart()
    assert os.listdir(children(m)) == [] and records(m) == []
    attach(m)
    produce(m.part("p"), "four")
    settled(m, ["four"])


def test_rmdir_of_an_empty_child_detaches_it(pair):
    m = pair
    os.rmdir(m.topic("c"))
    assert os.listdir(children(m)) == []
    m.restart()
    assert os.listdir(children(m)) == []


def test_deleting_a_parent_detaches_its_children(m):
    m.make("p")
    m.make("c")
    m.make("late", fanout_delay_ms=5000)
    attach(m)
    attach(m, "late")
    produce(m.part("p"), "one")
    arrive(m, 1)
    assert open_fails(m.part("late") + "/produce", os.O_WRONLY) == errno.EPERM
    delete(m.topic("p"))
    produce(m.part("late"), "its own now")
    configure(m.topic("late"), fanout_delay_ms=0)
    m.make("p")
    assert os.listdir(children(m)) == []
    produce(m.part("p"), "of another parent")
    time.sleep(0.3)
    assert records(m) == [b"one"] and records(m, "late") == [b"its own now"]
    m.restart()
    assert os.listdir(children(m)) == []
    attach(m, "late")


def test_rmdir_of_an_empty_parent_detaches_its_children(pair):
    m = pair
    m.make("q")
    os.rmdir(m.topic("p"))
    attach(m, "c", "q")
    m.restart()
    assert os.listdir(children(m, "q")) == ["c"]


def test_deletions_beside_copying(m):
    """A child goes while records are on their way to it; the others get all of them."""
    m.make("p", partitions=2)
    for child in ("c", "goes", "goes-too"):
        m.make(child)
        attach(m, child)
    writer = Background(produce, m.topic("p"), *range(20000))
    detach(m, "goes-too")
    delete(m.topic("goes"))
    writer.join()
    settled(m, range(20000))
    assert os.listdir(children(m)) == ["c"]


def test_attaching_beside_traffic(m):
    """Whoever is attached when a record is committed gets it."""
    m.make("p")
    m.make("c")
    stop = threading.Event()
    done = []

    def write():
        fd = os.open(m.part("p") + "/produce", os.O_WRONLY)
        while not stop.is_set():
            write_all(fd, b"%d\n" % len(done))
            os.fsync(fd)
            done.append(len(done))
        os.close(fd)

    writer = Background(write)
    for _ in range(5):
        wait_for(lambda n=len(done): len(done) > n + 3, "traffic")
        before = len(done)
        attach(m)
        after = len(done)
        wait_for(lambda n=after: len(done) > n + 3, "traffic")
        last = len(done)
        wait_for(lambda n=last: str(n - 1).encode() in records(m), "what was committed after the attach")
        detach(m)
        got = [int(record) for record in records(m)]
        new = [n for n in got if n >= before - 1]
        assert set(range(after + 1, last)) <= set(new)
        assert len(got) == len(set(got))
    stop.set()
    writer.join()


# ---- delay ----


def test_a_delayed_copy_is_never_early_and_arrives(m):
    delay = 1500
    m.make("p")
    m.make("c", fanout_delay_ms=delay)
    attach(m)
    produce(m.part("p"), "first")
    time.sleep(0.4)
    produce(m.part("p"), "second")
    committed = [number(f"{m.part('p')}/records/{n}", "timestamp") for n in range(2)]
    seen = {}

    def look():
        count = number(m.part("c"), "hwm")
        now = time.time() * 1000
        for n in range(count):
            seen.setdefault(n, now)
        return count == 2

    wait_for(look, "both copies")
    for n in range(2):
        assert seen[n] >= committed[n] + delay
        assert number(f"{m.part('c')}/records/{n}", "timestamp") >= committed[n] + delay
    assert seen[0] < committed[1] + delay or seen[0] == seen[1]  # each in its own time
    assert log(m.part("c")) == b"first\nsecond\n"


def test_a_delay_holds_over_a_kill(m):
    delay = 2000
    m.make("p")
    m.make("c", fanout_delay_ms=delay)
    attach(m)
    produce(m.part("p"), "one")
    committed = number(m.part("p") + "/records/0", "timestamp")
    m.crash()
    assert log(m.part("c")) == b"" or time.time() * 1000 >= committed + delay
    arrive(m, 1)
    assert time.time() * 1000 >= committed + delay
    assert number(m.part("c") + "/records/0", "timestamp") >= committed + delay
    m.restart()
    settled(m, ["one"])


def test_what_is_not_due_is_not_there(m):
    m.make("p")
    m.make("c", fanout_delay_ms=HOUR_MS)
    m.make("now")
    attach(m)
    attach(m, "now")
    produce(m.part("p"), *range(10))
    arrive(m, 10, "now")
    for _ in range(2):
        time.sleep(0.3)
        assert number(m.part("c"), "hwm") == 0 and log(m.part("c")) == b""
        with Consumer(m.part("c")) as consumer:
            assert consumer.none()
        assert lag(m) == 10
        m.restart()
    detach(m)  # what was not due is not copied any more
    configure(m.topic("c"), fanout_delay_ms=0)
    attach(m)
    produce(m.part("p"), "new")
    settled(m, ["new"])


def test_a_delayed_child_is_not_produced_to(m):
    m.make("p")
    m.make("c", fanout_delay_ms=5000)
    produce(m.part("c"), "before")
    attach(m)
    for folder in (m.topic("c"), m.part("c")):
        for name in ("produce", "produce.jsonl", "produce.bin", "produce@x", "produce.jsonl@x", "produce.bin@x"):
            assert open_fails(f"{folder}/{name}", os.O_WRONLY) == errno.EPERM
            assert open_fails(f"{folder}/{name}", os.O_RDWR) == errno.EPERM
            assert open_fails(f"{folder}/{name}", os.O_WRONLY | os.O_APPEND | os.O_TRUNC) == errno.EPERM
            assert read_file(f"{folder}/{name}") == b""
    shell(f"sync {m.topic('c')}/produce {m.part('c')}/produce")
    m.restart()
    assert open_fails(m.part("c") + "/produce", os.O_WRONLY) == errno.EPERM
    assert "delayed child" in m.stderr()
    assert drain(m.part("c")) == b"before\n"  # consuming is as ever
    detach(m)
    produce(m.part("c"), "after")
    produce(m.topic("c"), "after too")
    settled(m, ["before", "after", "after too"])


def test_handles_from_before_a_delayed_attach(m):
    m.make("p")
    m.make("c", fanout_delay_ms=5000, linger_ms=60000)
    fds = [os.open(folder + "/produce", os.O_WRONLY) for folder in (m.part("c"), m.topic("c"))]
    for fd in fds:
        write_all(fd, b"taken\n")
    attach(m)
    for fd in fds:
        assert fails(os.write, fd, b"refused\n") == errno.EPERM
        os.fsync(fd)  # what was taken is kept
    settled(m, ["taken", "taken"])
    detach(m)
    for fd in fds:
        write_all(fd, b"again\n")
        os.close(fd)
    settled(m, ["taken", "taken", "again", "again"])


def test_records_in_the_ingress_log_go_on(m):
    m.make("p")
    m.make("c", fanout_delay_ms=5000, partitions=3)
    produce(m.topic("c"), *range(2000))
    attach(m)
    settled(m, range(2000))


# ---- damage and trouble ----


def break_partition(m, topic):
    """While stopped: its segment is no file any more."""
    segment = m.data_part(topic) + "/00000000000000000000.log"
    os.rename(segment, segment + ".aside")
    os.mkdir(segment)
    return segment


def repair_partition(segment):
    os.rmdir(segment)
    os.rename(segment + ".aside", segment)


def test_a_child_out_of_service_holds_up_itself_alone(m):
    m.make("p")
    for child in ("c", "well"):
        m.make(child)
        produce(m.part(child), "own")
        attach(m, child)
    m.stop()
    segment = break_partition(m, "c")
    m.start()
    produce(m.part("p"), *range(50))
    settled(m, ["own", *range(50)], "well")
    wait_for(lambda: any("failed" in " ".join(row) for row in status(m)["rows"]), "the failure in the page")
    assert lag(m) == 50
    repair_partition(segment)
    write_file(m.part("c") + "/ctl", b"reopen\n")
    settled(m, ["own", *range(50)])
    wait_for(lambda: lag(m) == 0 and "failed" not in " ".join(status(m)["rows"][0]), "the page to say so")


def poison(m, topic):
    """Makes the next sync of the topic's first partition fail."""
    fault = Inject(m, active_segment(m, topic), "fdatasync,fsync", "error=EIO")
    try:
        with pytest.raises(OSError):
            produce(m.part(topic), "lost")
    finally:
        fault.stop()
    assert number(m.part(topic), "poisoned") == 1


def test_a_poisoned_child_waits_for_its_reopen(m):
    need_strace()
    m.make("p")
    for child in ("c", "well"):
        m.make(child)
        produce(m.part(child), "own")
        attach(m, child)
    poison(m, "c")
    produce(m.part("p"), *range(30))
    settled(m, ["own", *range(30)], "well")
    assert log(m.part("c")) == b"own\n"
    wait_for(lambda: "failed" in " ".join(status(m)["rows"][0]), "the failure in the page")
    assert lag(m) == 30 and lag(m, "well") == 0
    write_file(m.part("c") + "/ctl", b"reopen\n")
    settled(m, ["own", *range(30)])


def test_copies_go_around_a_poisoned_partition(m):
    need_strace()
    m.make("p")
    m.make("c", partitions=2)
    produce(m.part("c"), "own")
    attach(m)
    poison(m, "c")
    produce(m.part("p"), *range(30))
    settled(m, ["own", *range(30)])
    assert len(log(m.part("c", 1)).splitlines()) == 30
    wait_for(lambda: lag(m) == 0, "the lag to be gone")


def test_a_full_disk_attaches_nothing(small_disk, on_small_disk):
    m = on_small_disk
    m.make("p")
    m.make("c", fanout_delay_ms=5000)
    filler = fill(small_disk)
    assert fails(attach, m) == errno.ENOSPC
    assert os.listdir(children(m)) == []
    os.unlink(filler)
    os.close(os.open(m.part("c") + "/produce", os.O_WRONLY))
    attach(m)
    m.restart()
    assert os.listdir(children(m)) == ["c"]
    assert open_fails(m.part("c") + "/produce", os.O_WRONLY) == errno.EPERM


def test_a_damaged_parent_leaves_its_children_alone(m):
    m.make("p")
    m.make("c", fanout_delay_ms=5000)
    attach(m)
    m.stop()
    path = m.data + "/meta/p.topic"
    whole = open(path, "rb").read()
    with open(path, "wb") as file:
        file.write(whole[:-5])
    m.start()
    assert open_fails(m.part("c") + "/produce", os.O_WRONLY) == errno.EPERM  # who knows whether it is attached
    assert fails(write_file, m.topic("c") + "/config", b"fanout_delay_ms=0\n") == errno.EBUSY
    assert fails(os.listdir, m.topic("p") + "/children") == errno.EIO
    m.make("q")
    assert fails(attach, m, "c", "q") == errno.EBUSY
    m.stop()
    with open(path, "wb") as file:
        file.write(whole)
    m.start()
    assert os.listdir(children(m)) == ["c"]
    detach(m)


@pytest.mark.parametrize("kind", ["link", "folder"])
def test_no_file_in_the_place_of_a_cursor(pair, kind):
    """The link is replaced, what it points to is not touched; a folder is named, and copying goes on all the same."""
    m = pair
    produce(m.part("p"), "one")
    arrive(m, 1)
    wait_for(lambda: cursor_files(m), "the cursor's file")
    m.stop()
    path = m.data_part("p") + "/fanout-c.offset"
    os.unlink(path)
    with open(m.base + "/mine", "wb") as file:
        file.write(b"mine")
    os.symlink(m.base + "/mine", path) if kind == "link" else os.mkdir(path)
    m.start()
    produce(m.part("p"), "two")
    settled(m, ["one", "one", "two"])
    name = "topics/p/p00000/fanout-c.offset"
    assert name + " is no regular file" in m.stderr()
    assert os.path.islink(path) is False and os.path.isfile(path) == (kind == "link")
    assert (name + " cannot be written" in m.stderr()) == (kind == "folder")
    assert open(m.base + "/mine", "rb").read() == b"mine"
    m.restart()
    if kind == "link":
        settled(m, ["one", "one", "two"])
    else:
        os.rmdir(path)
        produce(m.part("p"), "three")
        wait_for(lambda: os.path.isfile(path), "the cursor's file")


def test_a_damaged_child_stays_one(m):
    m.make("p")
    m.make("c")
    attach(m)
    produce(m.part("p"), "one")
    arrive(m, 1)
    m.stop()
    path = m.data + "/meta/c.topic"
    whole = open(path, "rb").read()
    with open(path, "wb") as file:
        file.write(whole[:-5])
    m.start()
    assert os.listdir(children(m)) == ["c"]
    assert "out of service" in read_file(children(m) + "/c/status").decode()
    produce(m.part("p"), "two")
    m.stop()
    with open(path, "wb") as file:
        file.write(whole)
    m.start()
    settled(m, ["one", "two"])


def test_read_only(m):
    m.make("p")
    m.make("c")
    m.make("d")
    attach(m)
    produce(m.part("p"), *range(3))
    arrive(m, 3)
    m.stop()
    m.options = "ro"
    m.start()
    assert os.listdir(children(m)) == ["c"]
    assert "read-only" in read_file(children(m) + "/c/status").decode()
    assert fails(attach, m, "d") == errno.EROFS
    assert fails(detach, m) == errno.EROFS
    m.stop()
    m.options = ""
    m.start()
    settled(m, range(3))


# ---- permissions and scans ----


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_permissions(mounts):
    m = mounts(options="allow_other")
    m.make("p")
    m.make("c")
    make, remove = "mkdir topics/p/children/c", "rmdir topics/p/children/c"
    assert "Permission denied" in as_nobody(m.mnt, make)[1]
    os.chmod(children(m), 0o777)
    assert "Permission denied" in as_nobody(m.mnt, make)[1]  # who may not write c/produce
    assert os.listdir(children(m)) == []
    os.chmod(m.topic("c") + "/produce", 0o666)
    assert as_nobody(m.mnt, make) == (0, "")
    assert "File exists" in as_nobody(m.mnt, make)[1]
    m.restart()
    assert os.stat(children(m)).st_mode & 0o777 == 0o777
    assert os.stat(m.topic("p")).st_mode & 0o777 != 0o777
    assert as_nobody(m.mnt, remove) == (0, "")
    attach(m)
    os.chmod(children(m), 0o755)
    assert "Permission denied" in as_nobody(m.mnt, remove)[1]
    assert fails(os.chmod, children(m) + "/c", 0o777) == errno.EPERM
    assert fails(os.chmod, children(m) + "/c/status", 0o777) == errno.EPERM
    os.chmod(m.topic("p") + "/status", 0o600)
    assert as_nobody(m.mnt, "cat topics/p/children/c/status")[0] != 0
    os.chmod(children(m), 0o700)
    assert as_nobody(m.mnt, "ls topics/p/children")[0] != 0


def test_scans(pair, tmp_path):
    m = pair
    produce(m.part("p"), "needle")
    arrive(m, 1)
    m.make("late", fanout_delay_ms=5000)
    attach(m, "late")
    found = shell(f"find {m.topic('p')} -path '*children*' | sort").stdout.decode().split()
    assert [path[len(children(m)):] for path in found] == ["", "/c", "/c/status", "/late", "/late/status"]
    assert int(shell(f"find {m.topic('p')} -type d | wc -l").stdout) >= 4
    assert shell(f"ls -laR {children(m)}").stdout.count(b"status") == 2
    shell(f"grep -r needle {m.topic('p')} | grep -q p00000")
    shell(f"cp -a {children(m)} {tmp_path}/copy && cat {tmp_path}/copy/c/status | grep -q ^parent")
    shell(f"tar -cf {tmp_path}/copy.tar -C {m.topic('p')} children && du -s {children(m)} && stat {children(m)}/*")
    assert number(m.part("c"), "in_flight") == 0 and number(m.part("c"), "lag") == 1


def test_ordinary_tools(m):
    done = shell("""set -eu
        mkdir topics/orders topics/audit topics/later
        echo fanout_delay_ms=500 > topics/later/config
        mkdir topics/orders/children/audit topics/orders/children/later
        ls topics/orders/children
        seq 10 > topics/orders/produce
        for i in $(seq 100); do [ "$(wc -l < topics/later/p00000/log)" = 10 ] && break; sleep 0.1; done
        cat topics/audit/p00000/log topics/later/p00000/log | sort | uniq -c | grep -c '^ *2 '
        cat topics/orders/children/later/status | grep -E '^lag +0 '
        rmdir topics/orders/children/*
        ls topics/orders/children | wc -l
        """, cwd=m.mnt).stdout.decode().split("\n")
    assert done[:3] == ["audit", "later", "10"] and done[4] == "0"


def test_help_says_it(m):
    assert b"children/" in read_file(m.mnt + "/HELP")
