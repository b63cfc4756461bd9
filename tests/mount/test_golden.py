"""Data directories that daemons of earlier layout versions left (tests/fixtures/format-*): every later daemon serves them."""

import json
import os
import tarfile

import pytest
from naradctl import NARADCTL
from support import ROOT, log, number, produce, read_file, shell, take, wait_for, xattr

FIXTURES = os.path.join(ROOT, "tests", "fixtures")
FORMATS = sorted(name for name in os.listdir(FIXTURES) if name.startswith("format-"))
NUMBERS = ("hwm", "oldest_offset", "next_offset", "frontier", "lag", "acked_ahead", "segments")


def parts_of(m, topic):
    return [m.part(topic, n) for n in range(number(m.topic(topic), "partitions"))]


def state_of(m):
    """All that a mount shows of its records and of who has settled what, to be compared."""
    topics = {}
    for topic in sorted(os.listdir(m.mnt + "/topics")):
        topics[topic] = {
            "incarnation": xattr(m.topic(topic), "incarnation"),
            "config": read_file(m.topic(topic) + "/config").decode().splitlines(),
            "mode": oct(os.stat(m.topic(topic)).st_mode),
            "children": sorted(os.listdir(m.topic(topic) + "/children")),
            "parts": [{"log.jsonl": read_file(part + "/log.jsonl").decode().splitlines(),
                       **{name: number(part, name) for name in NUMBERS}} for part in parts_of(m, topic)]}
    return {"topics": topics}


def records_of(rows):
    """What can be said of records beside their time."""
    return [[json.loads(row)["key"] or "", json.loads(row)["payload"]] for row in rows]


@pytest.fixture(params=FORMATS)
def golden(request, mounts):
    """An old daemon's data under a mount that has not started, and what is expected of it."""
    folder = os.path.join(FIXTURES, request.param)
    m = mounts(start=False)
    with tarfile.open(folder + "/data.tar.xz") as tar:
        tar.extractall(m.base)
    with open(folder + "/expected.json", encoding="utf-8") as file:
        return m, json.load(file)


def all_arrived(m, expected):
    """What was accepted and not dispatched, and copies that were under way, come by themselves: once each."""
    for topic, records in expected["arrives"].items():
        known = sum(len(part["log.jsonl"]) for part in expected["topics"][topic]["parts"])

        def new(topic=topic):
            return [row for part in parts_of(m, topic) for row in read_file(part + "/log.jsonl").decode().splitlines()]

        wait_for(lambda n=known + len(records), t=topic: len(new(t)) >= n, f"what {topic} waits for")
        assert len(new()) == known + len(records)
        assert sorted(records_of(new()[known:])) == sorted(records)


def same_part(topic, found, expected, arrives):
    n = len(expected["log.jsonl"])
    assert found["log.jsonl"][:n] == expected["log.jsonl"], topic
    assert arrives or len(found["log.jsonl"]) == n, topic
    for name in ("oldest_offset", "frontier", "acked_ahead", *(() if arrives else NUMBERS)):
        assert found[name] == expected[name], (topic, name)


def same_topics(m, expected):
    found = state_of(m)["topics"]
    assert sorted(found) == sorted(expected["topics"])
    for topic, told in expected["topics"].items():
        for name in ("incarnation", "mode", "children"):
            assert found[topic][name] == told[name], (topic, name)
        assert set(told["config"]) <= set(found[topic]["config"])  # later daemons may have more keys
        for mine, theirs in zip(found[topic]["parts"], told["parts"], strict=True):
            same_part(topic, mine, theirs, topic in expected["arrives"])


def test_fixture_has_every_kind_of_file(golden):
    """The folder on disk is what its manifest says, and says enough."""
    m, expected = golden
    assert expected["folders"] == sorted(os.path.relpath(os.path.join(folder, name), m.data)
                                         for folder, _, names in os.walk(m.data) for name in names)
    have = " ".join(expected["folders"])
    for kind in (".log", ".index", "/hwm", "/consumer.offset", "/consumer.ahead", "/fanout-copy.offset", "/fanout-late.offset",
                 "ingress/", "checkpoint", "/incarnation", ".topic", "format", "lock", ".stale-"):
        assert kind in have, kind
    sizes = {os.path.getsize(f"{m.data}/topics/{name}/p00000/hwm") for name in ("plain", "clean")}
    assert sizes == {0, 8}  # of a crash, and of a clean stop
    assert any(part["acked_ahead"] > 0 for topic in expected["topics"].values() for part in topic["parts"])
    assert expected["arrives"] and expected["set_aside"]


@pytest.mark.limit(180)
def test_everything_is_served(golden):
    m, expected = golden
    m.start()
    same_topics(m, expected)
    all_arrived(m, expected)
    assert sorted(os.path.basename(name) for name in os.listdir(m.data + "/topics") if ".stale-" in name) == \
        sorted(expected["set_aside"])
    for _ in range(2):  # and is used and started on
        for topic in expected["topics"]:
            if topic != "late":  # takes nothing but copies
                produce(m.part(topic), "new")
                assert log(m.part(topic)).endswith(b"new\n")
        m.crash()
        same = expected | {"arrives": dict.fromkeys(expected["topics"])}
        same_topics(m, same)
    m.stop()


@pytest.mark.limit(120)
def test_what_is_not_settled_is_delivered(golden):
    m, expected = golden
    m.start()
    all_arrived(m, expected)
    for topic, rests in expected["rest"].items():
        for n, rest in enumerate(rests):
            offsets = [item["offset"] for item in take(m.part(topic, n), 5000)]
            assert offsets[:len(rest)] == rest, topic
            assert len(offsets) == number(m.part(topic, n), "lag"), topic
            assert topic in expected["arrives"] or offsets == rest, topic


def test_read_only_and_offline(golden):
    """Reading alone, and the checker, find nothing wrong and change nothing."""
    m, expected = golden
    done = shell(f"{NARADCTL} check {m.data}", check=False)
    assert done.returncode == 0, done.stdout + done.stderr  # notes of what a crash leaves are no errors
    m.options = "ro"
    m.start()
    for topic, told in expected["topics"].items():
        for n, part in enumerate(told["parts"]):
            rows = read_file(m.part(topic, n) + "/log.jsonl").decode().splitlines()
            assert rows == part["log.jsonl"], topic
    m.stop()
