"""The mount over NATS JetStream, beside libnats used directly: three servers of this run on loopback, one stream of three
copies, and both sides work on it in turns, through the same server. What is stored there is the same either way, but that
the mount gives each record a message id, so that a record that is sent again is stored once; a row tells what ids cost."""

import contextlib
import os
import shutil
import subprocess
import sys

from common import ROOT, Daemon, fail, median

ROUNDS = 5
WORKS = [  # name of the direct work, of the mount's, what it is, whether more is better, a unit, the target
    ("batch", "batch", "100 records of 250 bytes, all acknowledged", False, "us", 1.3),
    ("ids", "batch", "  with a message id each", False, "us", None),
    ("one", "one", "one record", False, "us", None),
    ("many", "many", "16 producers, a record at a time each", True, "records/s", None),
    ("cycle", "cycle", "one record taken and settled, confirmed", False, "us", None),
    ("drain", "drain", "20,000 records drained and settled", True, "records/s", None),
]
N_DRAINED = 20_000


class JetStreamDaemon(Daemon):
    """There is no data directory."""

    def start(self, limit_s=60):
        os.rmdir(self.data)
        self.data = "none"
        return super().start(limit_s)


def produce(part, n):
    with open(part + "/produce", "wb", buffering=0) as file:
        for _ in range(n // 1000):
            file.write((b"r" * 250 + b"\n") * 1000)
            os.fsync(file.fileno())


def run(program, *words):
    return float(subprocess.run([program, *map(str, words)], check=True, stdout=subprocess.PIPE).stdout)


def work(bench, program, part, direct, names):
    """Figures of both sides, in turns; each side has records of its own to take."""
    theirs, ours = [], []
    seconds = bench.pick(0.5, 1)
    for _ in range(bench.pick(3, ROUNDS)):
        if names[0] == "drain":
            produce(part, N_DRAINED)
        elif names[0] == "cycle":
            produce(part, 10_000)
        theirs.append(run(program, "direct", *direct, names[0], seconds))
        ours.append(run(program, "mount", part, names[1], seconds))
    return theirs, ours


def rows(bench, program, part, direct):
    for direct_name, mount_name, what, more_is_better, unit, target in WORKS:
        theirs, ours = work(bench, program, part, direct, (direct_name, mount_name))
        ratios = [a / b if not more_is_better else b / a for a, b in zip(ours, theirs)]
        bench.row(f"{what}, libnats directly", f"{median(theirs):.0f} {unit}")
        bench.row("  the mount", f"{median(ours):.0f} {unit}")
        if target:
            bench.ratios("takes", ratios, target)
        else:
            bench.row("  takes", f"{median(ratios):.2f} x ({min(ratios):.2f}-{max(ratios):.2f})")


def measure(bench):
    sys.path.insert(0, os.path.join(ROOT, "tests", "mount"))
    from nats import Cluster  # pylint: disable=import-outside-toplevel

    flags = subprocess.run(["pkg-config", "--cflags", "--libs", "libnats"], stdout=subprocess.PIPE, check=False)
    if flags.returncode != 0 or not shutil.which("nats-server"):
        bench.row("jetstream: libnats-dev or nats-server is missing", "left out")
        return
    program = bench.build("jetstream", "-pthread", *flags.stdout.decode().split())
    with contextlib.ExitStack() as stack:
        cluster = Cluster(os.path.join(bench.folder, "servers"))
        stack.callback(cluster.end)
        cluster.start()
        url = f"nats://127.0.0.1:{cluster.servers[0].port}"
        daemon = JetStreamDaemon(os.path.join(bench.folder, "jetstream-mount"), f"engine=jetstream,url={url},replicas=3")
        stack.callback(daemon.stop)
        daemon.start()
        part = daemon.topic("bench")
        incarnation = os.getxattr(f"{daemon.mnt}/topics/bench", "user.narad.incarnation").decode()
        stream = f"narad_bench_{incarnation}_p00000"
        config = cluster.stream_info(stream)["config"]
        if config["num_replicas"] != 3:
            fail("the stream has not three copies")
        rows(bench, program, part, (url, config["subjects"][0], stream))
