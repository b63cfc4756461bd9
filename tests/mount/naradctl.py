"""naradctl as its tests call it, and a data directory for it to look at."""

import json
import os
import shutil
import subprocess

import pytest
from support import NARADFS, Mount, ack, configure, produce, take, write_file

NARADCTL = os.path.join(os.path.dirname(os.path.dirname(NARADFS)), "ctl", "naradctl")
SEED = int(os.environ.get("NARADFS_SEED", "20260101"))


def ctl(*arguments, code=0, stdin=b""):
    """Runs naradctl and requires its exit status; standard output."""
    done = subprocess.run([NARADCTL, *map(str, arguments)], input=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          check=False)
    assert done.returncode == code, (arguments, done.returncode, done.stdout[-3000:], done.stderr[-3000:])
    return done.stdout


def refused(*arguments, code=1):
    """Runs naradctl and requires a failure; its sentence."""
    done = subprocess.run([NARADCTL, *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, check=False)
    assert done.returncode == code, (done.returncode, done.stdout[-3000:], done.stderr[-3000:])
    assert done.stderr.count(b"\n") == 1, done.stderr
    return done.stderr.decode()


def check(data, code=0):
    """naradctl check --json; (findings, summary)."""
    *findings, last = [json.loads(line) for line in ctl("check", "--json", data, code=code).splitlines()]
    assert last["summary"]["exit"] == code
    assert last["summary"]["errors"] == sum(f["severity"] == "error" for f in findings)
    return findings, last["summary"]


def snapshot(folder):
    """Everything below a folder: names, contents, times."""
    found = {}
    for where, folders, files in os.walk(folder):
        for name in folders + files:
            path = os.path.join(where, name)
            st = os.lstat(path)
            found[path] = (st.st_mode, st.st_size, st.st_mtime_ns, st.st_ctime_ns)
            if name in files:
                with open(path, "rb") as file:
                    found[path] += (file.read(),)
    return found


def patch(path, pos, data):
    with open(path, "r+b") as file:
        file.seek(pos)
        file.write(data)


def segments(folder):
    return [f"{folder}/{name}" for name in sorted(os.listdir(folder)) if name.endswith(".log")]


def fill(m):
    """Topics t (three segments in p00000, one of them compressed, something settled; p00001) and u."""
    part = m.make("t", segment_bytes=65536, partitions=2)
    for i in range(3):
        configure(m.topic("t"), codec="zstd" if i == 1 else "none")
        for k in range(4):
            produce(part, *[b"%d.%d.%d " % (i, k, n) + b"x" * (n * 13 % 90) for n in range(40)])
        if i < 2:
            write_file(part + "/ctl", b"roll\n")
    handles = [item["handle"] for item in take(part, 9)]
    ack(part, *handles[:4], handles[6], sync=True)
    produce(m.part("t", 1), *range(50))
    produce(m.make("u"), "one", "two")
    return 3 * 4 * 40 + 50 + 2


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """A data directory that a clean stop left; not to be changed."""
    m = Mount(tmp_path_factory.mktemp("filled")).start()
    try:
        n_records = fill(m)
        m.stop()
        yield m.data, n_records
    finally:
        wrong = m.destroy()
        assert wrong is None, wrong


@pytest.fixture
def data(filled, tmp_path):
    """A copy of it."""
    shutil.copytree(filled[0], tmp_path / "data")
    return str(tmp_path / "data")


def rows(*arguments):
    return [json.loads(line) for line in ctl(*arguments).splitlines()]
