"""Few threads (test_few_threads.py says how) for a mount over NATS JetStream, whose client has threads of its own: a start refuses
with a sentence, or serves, finds the servers again when they were away, and ends in time."""

import pytest

from support import Background, produce, read_file, take, wait_for
from test_few_threads import ENTER, FewThreads, another_user
from test_jetstream import pytestmark  # noqa: F401
from test_jetstream_leases import one_server  # noqa: F401 (a fixture)

LEAST = 16  # docs/operations.md says so
WELL = 24  # those, and a few for requests


class FewThreadsOverServers(FewThreads):
    def command(self, foreground=True):
        return ["unshare", "--mount", "--propagation", "private", "sh", "-c", ENTER, "sh", self.data,
                str(self.user), str(self.limit), self.binary, "/mnt/m", "-f", "-o", self.options]


@pytest.fixture
def few(tmp_path, one_server):  # noqa: F811
    user = another_user()
    made = []

    def make(limit):
        made.append(FewThreadsOverServers(tmp_path / f"{len(made)}", user, limit,
                                          "allow_other,engine=jetstream,url=" + one_server.url))
        return made[-1]

    yield make
    for mount in made:
        if mount.process and mount.process.poll() is None:
            mount.process.kill()
            mount.process.wait(30)
            mount.gone()


def test_each_number_of_threads(few):
    """A start refuses with a sentence that says what to do, or the records come and go and the end is in time."""
    least = None
    for limit in range(1, WELL + 1):
        m = few(limit)
        if not m.serves():
            assert least is None, f"with {limit} threads it refuses, with {least} it did not: {m.stderr()}"
            assert m.process.returncode == 1, m.stderr()
            said = [line for line in m.stderr().splitlines() if "error: " in line]
            assert len(said) == 1 and "RLIMIT_NPROC" in said[0] and "TasksMax" in said[0], m.stderr()
            assert f"over NATS servers {LEAST})" in said[0], said
            continue
        least = least or limit
        part = m.make(f"t{limit}")
        produce(part, b"one")
        assert [record["payload"] for record in take(part)] == ["one"]
        assert read_file(part + "/log.jsonl").count(b"\n") == 1
        m.end()
    assert least == LEAST


def stored(part, record):
    try:
        produce(part, record)
    except OSError:
        return False
    return True


@pytest.mark.parametrize("limit", [LEAST, LEAST + 1])
def test_servers_that_were_away_are_found_again(few, one_server, limit):  # noqa: F811
    """The client's threads end with a connection, and others take their place: those for the next one are kept."""
    m = few(limit)
    assert m.serves()
    part = m.make("t")
    produce(part, b"one")
    one_server.servers[0].kill()
    wait_for(lambda: b"narad_servers_connected 0" in read_file(m.mnt + "/metrics"), "the loss")
    looks = [Background(read_file, part + "/status") for _ in range(20)]  # each of them waits, and takes a thread if there is one
    one_server.servers[0].start()
    one_server.wait_ready()
    wait_for(lambda: stored(part, b"two"), "the connection", 60, 0.5)
    for look in looks:
        look.join(30)
    assert read_file(part + "/log").endswith(b"two\n")
    m.end()
