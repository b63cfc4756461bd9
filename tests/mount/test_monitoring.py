"""`metrics` as Prometheus reads it, and what monitoring/ makes of it: alert rules and a dashboard."""

import json
import os
import re
import shutil
import subprocess

import pytest
from support import ROOT, configure, drain, fails, produce, read_file, take, wait_for, write_file
from test_faults import Inject, active_segment, need_strace
from test_status import with_marker

RULES = ROOT + "/monitoring/naradfs.rules.yml"
RULES_TEST = ROOT + "/monitoring/naradfs.rules.test.yml"
DASHBOARD = ROOT + "/monitoring/naradfs.json"
NARADS_OWN = {"narad_fanout_child_dropped_messages", "narad_reaper_restarts"}  # counters with names older than the habit
SAMPLE = re.compile(r'(narad_[a-z_]+)(?:\{((?:[a-z_]+="[^"\\\n]*",?)+)\})? (\d+)')


def samples(m):
    """{(name, sorted labels): value}, after a strict look at the format."""
    text = read_file(m.mnt + "/metrics").decode()
    assert text.endswith("\n")
    found, types, helped, name = {}, {}, None, None
    for line in text[:-1].split("\n"):
        if line.startswith("# HELP "):
            helped = re.fullmatch(r"# HELP (narad_[a-z_]+) \S.*", line).group(1)
            assert helped not in types, line
        elif line.startswith("# TYPE "):
            name, kind = re.fullmatch(r"# TYPE (narad_[a-z_]+) (counter|gauge)", line).groups()
            assert name == helped, line
            types[name] = kind
        else:
            match = SAMPLE.fullmatch(line)
            assert match and match.group(1) == name, line
            key = (name, tuple(sorted(re.findall(r'([a-z_]+)="([^"]*)"', match.group(2) or ""))))
            assert key not in found, line
            found[key] = int(match.group(3))
    for name, kind in types.items():
        assert any(key[0] == name for key in found), name
        assert (kind == "counter") == (name.endswith("_total") or name in NARADS_OWN), name
    return found


def value(m, name, **labels):
    return samples(m)[name, tuple(sorted(labels.items()))]


def promtool(*arguments, data=None):
    """Exit code and output of promtool, which scripts/test fetches."""
    program = shutil.which("promtool") or ROOT + "/build/tools/usr/bin/promtool"
    if not os.path.exists(program):
        pytest.skip("no promtool: scripts/deps promtool build/tools")
    done = subprocess.run([program, *arguments], input=data, stdin=None if data else subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, timeout=60)
    return done.returncode, done.stdout.decode()


# -- metrics


def test_promtool_reads_the_metrics(m):
    part = m.make("t", partitions=2)
    produce(part, "a", "b")
    produce(m.topic("t"), "c")
    take(part, 1)
    code, output = promtool("check", "metrics", data=read_file(m.mnt + "/metrics"))
    complaints = output.splitlines()
    assert {line.split()[0] for line in complaints} == NARADS_OWN and all("_total" in line for line in complaints), output
    assert code == 3
    code, output = promtool("check", "metrics", data=read_file(m.mnt + "/metrics") + b"narad_more{a=b} 1\n")
    assert code == 1, output  # it does look


def test_metrics_tell_what_there_is(m):
    part = m.make("t", partitions=2)
    produce(part, *range(10))
    produce(m.part("t", 1), "x")
    take(part, 4)
    drain(m.part("t", 1))
    assert value(m, "narad_topics") == 1 and value(m, "narad_partitions") == 2
    assert value(m, "narad_partitions_open") == 2 and value(m, "narad_partitions_unknown") == 0
    assert value(m, "narad_lag_records") == 10 and value(m, "narad_in_flight_records") == 4
    assert value(m, "narad_committed_records_total") == 11 and value(m, "narad_settled_records_total") == 1
    stored = sum(int(os.getxattr(m.part("t", n), "user.narad.size_bytes")) for n in range(2))
    assert value(m, "narad_stored_bytes") == stored > 0
    disk = os.statvfs(m.data)
    assert value(m, "narad_disk_size_bytes") == disk.f_blocks * disk.f_frsize
    assert abs(value(m, "narad_disk_free_bytes") - disk.f_bavail * disk.f_frsize) < disk.f_blocks * disk.f_frsize / 20
    version = subprocess.run([m.binary, "-V"], check=True, stdout=subprocess.PIPE).stdout.decode().split()[1]
    assert value(m, "narad_build_info", version=version) == 1
    assert value(m, "narad_read_only") == 0
    before = value(m, "narad_start_time_seconds")
    assert abs(before - os.stat(m.stderr_path).st_ctime) < 60
    m.restart()
    assert value(m, "narad_start_time_seconds") >= before
    m.stop()
    m.options = "ro"
    m.start()
    assert value(m, "narad_read_only") == 1 and value(m, "narad_ingress_available") == 0


def test_metrics_of_trouble(m):
    need_strace()
    part = m.make("t", linger_ms=60000)
    produce(part, "a")
    assert value(m, "narad_partitions_poisoned") == 0
    fault = Inject(m, active_segment(m, "t"), "fdatasync,fsync", "error=EIO")
    try:
        fails(produce, part, "b")
    finally:
        fault.stop()
    assert value(m, "narad_partitions_poisoned") == 1
    assert value(m, "narad_errors_total", component="storage", kind="fsync_poisoned") == 1
    write_file(part + "/ctl", b"reopen\n")
    assert value(m, "narad_partitions_poisoned") == 0
    m.stop()
    marker = with_marker(m, "t", b"nonsense")
    m.start()
    fails(produce, part, "c")
    assert value(m, "narad_topics_out_of_service") == 1
    with open(f"{m.data}/topics/t/incarnation", "wb") as file:
        file.write(marker)
    produce(part, "c")
    assert value(m, "narad_topics_out_of_service") == 0


def test_metrics_of_fan_out(m):
    part = m.make("parent")
    m.make("now")
    m.make("later")
    configure(m.topic("later"), fanout_delay_ms=3600000)
    for child in ("now", "later"):
        os.mkdir(m.topic("parent") + "/children/" + child)
    produce(part, *range(5))
    wait_for(lambda: value(m, "narad_fanout_copied_records_total") == 5, "the copies")
    wait_for(lambda: value(m, "narad_fanout_lag_records", delayed="no") == 0, "no lag")
    assert value(m, "narad_fanout_lag_records", delayed="yes") == 5
    assert value(m, "narad_fanout_children") == 2 and value(m, "narad_fanout_failing_partitions") == 0
    m.stop()
    marker = with_marker(m, "now", b"nonsense")
    m.start()
    produce(part, "more")
    wait_for(lambda: value(m, "narad_fanout_failing_partitions") == 1, "a pass that fails")
    assert value(m, "narad_fanout_lag_records", delayed="no") == 1
    with open(f"{m.data}/topics/now/incarnation", "wb") as file:
        file.write(marker)
    produce(part, "and more")
    wait_for(lambda: value(m, "narad_fanout_failing_partitions") == 0 and
             value(m, "narad_fanout_lag_records", delayed="no") == 0, "the copies")


# -- what reads them


def selectors(expression):
    """The metrics of an expression, each with its labels that are compared for equality."""
    for name, labels in re.findall(r"(narad_[a-z_]+)(?:\{([^}]*)\})?", expression):
        yield name, set(re.findall(r'([a-z_]+)="([^"]*)"', labels))


def missing(m, expressions):
    there = samples(m)
    return [expression for expression in expressions for name, labels in selectors(expression)
            if not any(key[0] == name and labels <= set(key[1]) for key in there)]


def test_every_metric_of_the_rules_exists(m):
    text = read_file(RULES).decode()
    expressions = re.findall(r"^ +expr: (?!>-)(.*)$", text, re.M) + re.findall(r"expr: >-\n((?: {10}.*\n)+)", text)
    names = re.findall(r"- alert: (\w+)", text)
    assert len(expressions) == len(names) == len(set(names)) > 15
    assert missing(m, expressions) == []
    assert missing(m, ['narad_nothing > 0', 'narad_errors_total{kind="nothing"}']) != []
    fired = read_file(RULES_TEST).decode()
    assert [name for name in names if name not in fired] == []  # each has a case


def test_rules(m):
    code, output = promtool("check", "rules", RULES)
    assert code == 0, output
    code, output = promtool("test", "rules", RULES_TEST)
    assert code == 0, output


def test_dashboard(m):
    with open(DASHBOARD, encoding="utf-8") as file:
        board = json.load(file)
    panels = board["panels"]
    ids = [panel["id"] for panel in panels]
    assert len(set(ids)) == len(ids)
    expressions = [target["expr"] for panel in panels for target in panel.get("targets", [])]
    expressions += [row["expr"] for row in board["annotations"]["list"]]
    expressions += [row["definition"] for row in board["templating"]["list"] if row["type"] == "query"]
    assert len(expressions) > 30 and missing(m, expressions) == []
    used = set()
    for panel in panels:
        grid = panel["gridPos"]
        cells = {(x, y) for x in range(grid["x"], grid["x"] + grid["w"]) for y in range(grid["y"], grid["y"] + grid["h"])}
        assert not cells & used and max(x for x, _ in cells) < 24, panel["title"]
        used |= cells
    # what alerts tell of can be looked at
    shown = {name for expression in expressions for name, _ in selectors(expression)}
    alerted = {name for name, _ in selectors(re.sub(r"^ +(summary|action):.*$", "", read_file(RULES).decode(), flags=re.M))}
    assert alerted - shown - {"narad_read_only", "narad_ingress_available"} == set()
