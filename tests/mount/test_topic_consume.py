"""A topic consumed as one queue: consume, consume.jsonl, drain and ack in the topic's folder."""

import errno
import json
import os
import select
import signal
import threading
import time

import pytest
from support import Background, Consumer, ack, configure, drain, fails, number, produce, shell, wait_for, xattr


@pytest.fixture
def topic(m):
    m.make("t", partitions=4)
    return m.topic("t")


def fill(m, per_partition, name="t", partitions=4):
    for n in range(partitions):
        produce(m.part(name, n), *(f"{n}-{i}" for i in range(per_partition)))


def names(path):
    return sorted(os.listdir(path))


def test_the_folder_shows_them(topic):
    assert {"consume", "consume.jsonl", "drain", "ack"} <= set(names(topic))
    assert os.readlink(topic + "/consume") == ".streams/consume"
    assert ".streams" not in names(topic)


# ---- taking ----


def test_all_partitions_are_served_fairly(m, topic):
    fill(m, 10)
    with Consumer(topic) as consumer:
        got = [consumer.read().decode().strip() for _ in range(40)]
        assert consumer.none()
    assert sorted(got) == sorted(f"{n}-{i}" for n in range(4) for i in range(10))
    for n in range(4):  # each in its own order
        assert [record for record in got if record.startswith(f"{n}-")] == [f"{n}-{i}" for i in range(10)]
    for start in range(0, 40, 8):  # none is starved by the others
        assert {record[0] for record in got[start:start + 8]} == set("0123")


def test_a_full_partition_starves_nobody(m, topic):
    produce(m.part("t", 0), *range(1000))
    produce(m.part("t", 3), "lonely")
    with Consumer(topic) as consumer:
        assert b"lonely\n" in [consumer.read() for _ in range(8)]


def test_topic_and_partition_readers_share_nothing(m, topic):
    fill(m, 5)
    with Consumer(topic) as all_of_it, Consumer(m.part("t", 2)) as one:
        first = [one.read() for _ in range(3)]
        rest = [all_of_it.read() for _ in range(17)]
        assert all_of_it.none()
        assert one.none()
    assert len(set(first + rest)) == 20


def test_settling_on_the_handle(m, topic):
    fill(m, 2)
    with Consumer(topic) as consumer:
        for _ in range(8):
            consumer.read()
        consumer.sync()
    assert [number(m.part("t", n), "frontier") for n in range(4)] == [2] * 4
    m.crash()
    assert [number(m.part("t", n), "frontier") for n in range(4)] == [2] * 4


def test_lines_name_the_partition(m, topic):
    produce(m.part("t", 1), "one")
    produce(m.part("t", 2), "two")
    with Consumer(topic) as consumer:
        assert {consumer.read(), consumer.read()} == {b"one\n", b"two\n"}
        assert fails(consumer.write, b"ack 0\n") == errno.EINVAL  # which of the two
        assert fails(consumer.write, b"ack 3:0\n") == errno.ESTALE
        assert fails(consumer.write, b"ack 1:\n") == errno.EINVAL
        assert fails(consumer.write, b"ack 1:00\n") == errno.EINVAL
        consumer.write(b"ack 1:0\n")
        consumer.write(b"nack 0\n")  # only one is held now
        assert number(m.part("t", 1), "frontier") == 1
        assert consumer.read() == b"two\n"
        consumer.write(b"ack\n")
    assert number(m.part("t", 2), "frontier") == 1


def test_closing_gives_back(m, topic):
    fill(m, 3)
    with Consumer(topic) as consumer:
        for _ in range(12):
            consumer.read()
        assert sum(number(m.part("t", n), "in_flight") for n in range(4)) == 12
    wait_for(lambda: sum(number(m.part("t", n), "in_flight") for n in range(4)) == 0, "the leases to return")


def test_receipts_are_settled_by_the_topics_ack(m, topic):
    fill(m, 2)
    receipts = []
    with Consumer(topic, "consume.jsonl") as consumer:
        for _ in range(8):
            record = json.loads(consumer.read())
            assert record["payload"] == f"{record['partition']}-{record['offset']}"
            receipts.append(record["handle"])
    ack(topic, *receipts, sync=True)
    m.crash()
    assert [number(m.part("t", n), "frontier") for n in range(4)] == [2] * 4
    assert fails(lambda: ack(topic, receipts[0])) == errno.ESTALE
    assert fails(lambda: ack(topic, "9:0:5")) == errno.EINVAL  # no such partition
    assert fails(lambda: ack(topic, "rubbish")) == errno.EINVAL


def test_a_partitions_ack_takes_its_own_only(m, topic):
    produce(m.part("t", 1), "x")
    with Consumer(topic, "consume.jsonl") as consumer:
        receipt = json.loads(consumer.read())["handle"]
    assert fails(lambda: ack(m.part("t", 0), receipt)) == errno.EINVAL
    ack(m.part("t", 1), receipt)
    assert number(m.part("t", 1), "frontier") == 1


def test_drain_empties_the_topic(m, topic):
    fill(m, 300)
    lines = drain(topic).splitlines()
    assert sorted(lines) == sorted(f"{n}-{i}".encode() for n in range(4) for i in range(300))
    assert drain(topic) == b""
    assert [number(m.part("t", n), "lag") for n in range(4)] == [0] * 4


def test_drains_side_by_side_share(m, topic):
    fill(m, 2000)
    readers = [Background(drain, topic) for _ in range(4)]
    got = b"".join(reader.join(60) for reader in readers).splitlines() + drain(topic).splitlines()
    assert len(got) == 8000 and len(set(got)) == 8000


# ---- waiting ----


def test_a_commit_in_any_partition_wakes(m, topic):
    for n in range(4):
        with Consumer(topic, flags=os.O_RDWR) as consumer:
            reader = Background(consumer.read)
            time.sleep(0.05)
            assert reader.running()
            produce(m.part("t", n), f"to {n}")
            assert reader.join() == f"to {n}\n".encode()
            consumer.sync()


def test_one_commit_wakes_one_of_many(m, topic):
    consumers = [Consumer(topic, flags=os.O_RDWR) for _ in range(30)]
    readers = [Background(consumer.read) for consumer in consumers]
    time.sleep(0.2)
    produce(m.part("t", 3), "only one")
    wait_for(lambda: sum(not reader.running() for reader in readers) == 1, "one reader")
    time.sleep(0.1)
    assert sum(reader.running() for reader in readers) == 29
    produce(m.part("t", 0), *range(29))
    assert len({reader.join() for reader in readers}) == 30
    for consumer in consumers:
        consumer.close()


def test_a_nack_and_an_expiry_wake(m, topic):
    configure(topic, visibility_timeout_ms=300)
    produce(m.part("t", 2), "again")
    with Consumer(topic) as first, Consumer(topic, flags=os.O_RDWR) as second:
        assert first.read() == b"again\n"
        reader = Background(second.read)
        time.sleep(0.05)
        first.write(b"nack\n")
        assert reader.join() == b"again\n"
    with Consumer(topic) as first, Consumer(topic, flags=os.O_RDWR) as second:
        assert first.read() == b"again\n"
        assert Background(second.read).join() == b"again\n"  # the lease has lapsed


def test_a_partition_that_is_added_is_served(m, topic):
    with Consumer(topic, flags=os.O_RDWR) as consumer:
        reader = Background(consumer.read)
        time.sleep(0.05)
        configure(topic, partitions=6)
        produce(m.part("t", 5), "new")
        assert reader.join() == b"new\n"


def test_nonblocking_bounded_and_interrupted_waits(m, topic):
    with Consumer(topic) as consumer:
        assert fails(consumer.read) == errno.EAGAIN
    configure(topic, consume_wait_ms=50)
    with Consumer(topic, flags=os.O_RDWR) as consumer:
        assert consumer.read() == b""
    configure(topic, consume_wait_ms=-1)
    done = shell(f"timeout -s INT 0.3 cat {topic}/consume", check=False)
    assert done.returncode == 124


def test_poll(m, topic):
    with Consumer(topic) as consumer:
        poll = select.poll()
        poll.register(consumer.fd, select.POLLIN)
        assert poll.poll(50) == []
        timer = threading.Timer(0.1, produce, (m.part("t", 1), "x"))
        timer.start()
        assert poll.poll(10000) == [(consumer.fd, select.POLLIN)]
        timer.join()
        assert consumer.read() == b"x\n"
        assert poll.poll(50) == []


def test_deletion_ends_the_wait(m, topic):
    consumer = Consumer(topic, flags=os.O_RDWR)
    reader = Background(lambda: fails(consumer.read))
    time.sleep(0.05)
    with open(topic + "/ctl", "w", encoding="ascii") as ctl:
        ctl.write(f"delete {xattr(topic, 'incarnation')}\n")
    assert reader.join() == errno.EIDRM
    assert fails(consumer.read) == errno.EIDRM
    os.close(consumer.fd)


def test_stop_ends_the_wait(m, topic):
    consumer = Consumer(topic, flags=os.O_RDWR)
    reader = Background(lambda: fails(consumer.read))
    time.sleep(0.05)
    m.process.send_signal(signal.SIGTERM)
    assert reader.join() == errno.ENODEV
    consumer.close()
    assert m.wait_exit() == 0
    m.start()


# ---- trouble ----


@pytest.mark.local("the data directory")
def test_a_partition_out_of_service_hinders_no_other(m, topic):
    fill(m, 1)
    m.stop()
    segment = m.data_part("t", 1) + "/00000000000000000000.log"
    os.rename(segment, segment + ".aside")
    os.mkdir(segment)
    m.start()
    with Consumer(topic) as consumer:
        assert {consumer.read() for _ in range(3)} == {b"0-0\n", b"2-0\n", b"3-0\n"}
        assert consumer.none()


@pytest.mark.local("opening and closing of partitions")
def test_partitions_stay_open_while_the_topic_is_consumed(mounts):
    m = mounts(options="idle_close_ms=100")
    m.make("t", partitions=3)
    topic = m.topic("t")
    with Consumer(topic, flags=os.O_RDWR) as consumer:
        reader = Background(consumer.read)
        time.sleep(0.6)
        produce(m.part("t", 2), "late")
        assert reader.join() == b"late\n"
        time.sleep(0.6)
        consumer.sync()  # the lease is still good
    assert number(m.part("t", 2), "frontier") == 1


def test_everyday_worker_loop(m, topic):
    fill(m, 3)
    script = f"""
        exec 3<>{topic}/consume
        for i in 1 2 3 4 5 6 7 8 9 10 11 12; do
            IFS= read -r job <&3 || exit 1
            case $job in 2-1) echo nack >&3; IFS= read -r job <&3;; esac
            echo "$job"
            echo ack >&3
        done
        sync /dev/fd/3
    """
    got = shell(script).stdout.decode().split()
    assert sorted(got) == sorted(f"{n}-{i}" for n in range(4) for i in range(3))
    assert [number(m.part("t", n), "lag") for n in range(4)] == [0] * 4
