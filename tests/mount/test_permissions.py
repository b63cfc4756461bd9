"""Who may do what: every operation as owner, as member of the group and as anybody else, with exactly the permissions that it
needs, and with each one of these taken away; owners, groups and modes over restarts.

The tests run as root, which makes topics for users that exist as numbers only."""

import errno
import os
import pickle
import stat
import subprocess
import traceback

import pytest
from support import (JETSTREAM, configure, drain, fails, log, name_of, number, open_fails, produce, read_file, take, wait_for, write_all,
                     write_file, xattr)

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root can become other users")

TEAM = 6000
SEGMENT = "segments/00000000000000000000.log"


class User:
    """Somebody who does things in a mount, in a process of its own: the folders above the mount may be closed to it."""

    def __init__(self, uid, gid, *groups):
        self.uid, self.gid, self.groups = uid, gid, list(groups)

    def become(self, mnt):
        os.chdir(mnt)
        os.setgroups(self.groups)
        os.setresgid(self.gid, self.gid, self.gid)
        os.setresuid(self.uid, self.uid, self.uid)

    def does(self, mnt, call, *arguments):
        """What the call returns; its OSError, or AssertionError, is raised here."""
        receiving, sending = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                self.become(mnt)
                answer = (True, call(*arguments))
            except OSError as error:
                answer = (False, OSError(error.errno, error.strerror, error.filename))
            except BaseException:  # pylint: disable=broad-except
                answer = (False, AssertionError(traceback.format_exc()))
            with os.fdopen(sending, "wb") as file:
                pickle.dump(answer, file)
            os._exit(0)
        os.close(sending)
        with os.fdopen(receiving, "rb") as file:
            data = file.read()
        os.waitpid(child, 0)
        well, value = pickle.loads(data)
        if not well:
            raise value
        return value

    def fails(self, mnt, call, *arguments):
        """The name of the error."""
        return name_of(fails(self.does, mnt, call, *arguments))

    def sh(self, mnt, script):
        """Exit status and output of a shell."""
        done = subprocess.run(["bash", "-c", script], preexec_fn=lambda: self.become(mnt), stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=30, check=False)
        return done.returncode, done.stdout.decode()


OWNER = User(5001, 5001, TEAM)
MEMBER = User(5002, 5002, 5999, TEAM)  # by a supplementary group
COLLEAGUE = User(5003, TEAM)           # by the main one
OTHER = User(5004, 5004, 5999)


def in_process(script, umask):
    """For subprocesses of a user: the umask is the process's."""
    return f"umask {umask:04o}; {script}"


# -- what can be done, and what it takes


def do_write(path, data, flags=0):
    fd = os.open(path, os.O_WRONLY | flags)
    try:
        write_all(fd, data)
        os.fsync(fd)
    finally:
        os.close(fd)


def do_read(path):
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert os.read(fd, 1 << 16), path
    finally:
        os.close(fd)


def do_list(path):
    os.listdir(path)


def do_settle(path):
    """Reads one record and settles it by the receipt that the handle is."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert os.read(fd, 1 << 16)
        os.fsync(fd)
    finally:
        os.close(fd)


def do_line(path, verb):
    fd = os.open(path, os.O_RDWR | os.O_NONBLOCK)
    try:
        assert os.read(fd, 1 << 16)
        os.write(fd, verb + b"\n")
    finally:
        os.close(fd)


def do_drain(path):
    fd = os.open(path, os.O_RDONLY)
    try:
        while os.read(fd, 1 << 16):
            pass
    finally:
        os.close(fd)


FRAMES = {"produce": b"x\n", "produce.jsonl": b'{"payload":"x"}\n', "produce.bin": bytes(7) + b"\1x"}

R, W, X = 4, 2, 1
T, P, C = "topics/t", "topics/t/p00000", "topics/c"


class Operation:
    """call(*arguments) as some user, and the permissions that it takes: {path: bits}."""

    def __init__(self, name, needs, call, *arguments):
        self.name, self.needs, self.call, self.arguments = name, needs, call, arguments


def folders(folder):
    """The way to what is in a topic's folder, or in a partition's."""
    return {T: X} if folder == T else {T: X, P: X}


def in_a_folder(folder):
    """Topic and partition have these in common."""
    where = "topic" if folder == T else "partition"
    way = folders(folder)
    streams = {**way, folder + "/.streams": X}
    consume = folder + "/.streams/consume"
    for name, data in FRAMES.items():
        path = f"{folder}/{name}"
        needs = {**way, folder + "/produce": W, path: W}
        yield Operation(f"{where} {name}", needs, do_write, path, data)
        yield Operation(f"{where} {name} O_DSYNC", needs, do_write, path, data, os.O_DSYNC)
        yield Operation(f"{where} {name}@name", needs, do_write, path + "@somebody", data)
    for name in ("consume", "consume.jsonl", "consume.bin"):
        needs = {**streams, consume: R, f"{folder}/.streams/{name}": R}
        yield Operation(f"{where} {name}", needs, do_read, f"{folder}/{name}")
    yield Operation(f"{where} drain", {**streams, consume: R, folder + "/.streams/drain": R, folder + "/ack": W},
                    do_drain, folder + "/drain")
    yield Operation(f"{where} consume fsync", {**streams, consume: R, folder + "/ack": W}, do_settle, folder + "/consume")
    for verb in (b"ack", b"nack", b"extend"):
        ack = {} if verb == b"nack" else {folder + "/ack": W}  # a close gives back too
        yield Operation(f"{where} consume {verb.decode()}", {**streams, consume: R | W, **ack}, do_line, folder + "/consume",
                        verb)
    for verb in (b"", b"nack ", b"extend "):
        yield Operation(f"{where} ack {verb.decode()}", {**way, folder + "/ack": W}, do_write, folder + "/ack", verb, "receipt")
    yield Operation(f"{where} status", {**way, folder + "/status": R}, do_read, folder + "/status")
    yield Operation(f"{where} ctl read", {**way, folder + "/ctl": R}, do_read, folder + "/ctl")
    yield Operation(f"{where} list", {**way, folder: R}, do_list, folder)


def of_the_topic():
    way = folders(T)
    yield Operation("config read", {**way, T + "/config": R}, do_read, T + "/config")
    yield Operation("config write", {**way, T + "/config": W}, do_write, T + "/config", b"linger_ms=77\n")
    yield Operation("setting as attribute", {T: W, T + "/config": W}, os.setxattr, T, "user.narad.linger_ms", b"78")
    yield Operation("attribute of the topic", {T: R}, os.getxattr, T, "user.narad.incarnation")
    attach = {**way, T + "/children": X | W, P: X, P + "/log": R, C: X, C + "/produce": W}
    yield Operation("attach", attach, os.mkdir, T + "/children/c")
    yield Operation("detach", {**way, T + "/children": X | W}, os.rmdir, T + "/children/c")
    yield Operation("child's status", {**way, T + "/children": X, T + "/status": R}, do_read, T + "/children/c/status")
    yield Operation("list children", {**way, T + "/children": R}, do_list, T + "/children")
    yield Operation("partitions", {**way, T + "/ctl": W}, do_write, T + "/ctl", b"partitions 2\n")


def of_the_partition():
    way = folders(P)
    for verb in (b"reopen", b"roll", b"trim 1", b"seek 1", b"seek start", b"seek end"):
        yield Operation(f"ctl {verb.decode()}", {**way, P + "/ctl": W}, do_write, P + "/ctl", verb + b"\n")
    yield Operation("attribute of the partition", {T: X, P: R}, os.getxattr, P, "user.narad.lag")
    for name, folder in (("log", ""), ("log.jsonl", ""), ("from/start", "from"), ("from/1", "from"), ("records/1", "records"),
                         (SEGMENT, "segments")):
        needs = {**way, P + "/log": R, **({f"{P}/{folder}": X} if folder else {})}
        yield Operation(name, needs, do_read, f"{P}/{name}")
        yield Operation(f"attribute of {name}", needs, os.getxattr, f"{P}/{name}", "user.narad.hwm")
    yield Operation("key of a record", {**way, P + "/log": R, P + "/records": X}, os.getxattr, P + "/records/0",
                    "user.narad.key")
    yield Operation("by-time", {**way, P + "/by-time": X, P + "/from": X, P + "/log": R}, do_read, P + "/by-time/0")
    for folder in ("from", "records", "segments", "by-time"):
        yield Operation(f"list {folder}", {**way, f"{P}/{folder}": R}, do_list, f"{P}/{folder}")


LOCAL = {"attach", "detach", "child's status", "ctl roll", "ctl trim 1", SEGMENT, "attribute of " + SEGMENT}  # of that engine alone
OPERATIONS = [operation for operation in (*in_a_folder(T), *in_a_folder(P), *of_the_topic(), *of_the_partition())
              if not (JETSTREAM and operation.name in LOCAL)]

FILES = ["", "/config", "/ctl", "/status", "/produce", "/produce.jsonl", "/produce.bin", "/ack", "/children", "/.streams",
         "/.streams/consume", "/.streams/consume.jsonl", "/.streams/consume.bin", "/.streams/drain"]
PARTITION_FILES = [name for name in FILES if name not in ("/config", "/children")] + \
    ["/log", "/from", "/records", "/by-time", "/segments"]
EVERYTHING = [T + name for name in FILES] + [P + name for name in PARTITION_FILES] + [C, C + "/produce"]


class Matrix:
    """Two topics, c and t, whose modes are set by class of user."""

    def __init__(self, m, shift):
        self.m = m
        self.shift = shift  # of the class's bits in a mode
        for name in ("c", "t"):
            m.make(name, consume_wait_ms=0)
        for path in EVERYTHING:
            os.chown(f"{m.mnt}/{path}", OWNER.uid, TEAM)
        do_write(f"{m.mnt}/{P}/produce.jsonl", b'{"key":"k","payload":"first"}\n')
        produce(f"{m.mnt}/{P}", *[f"record {n}" for n in range(200)])

    def chmod(self, path, mode):
        os.chmod(f"{self.m.mnt}/{path}", mode)

    def only(self, path, bits):
        """The class has these bits and the others none."""
        self.chmod(path, bits << self.shift)

    def without(self, path, bits):
        """The class lacks these bits, which all others have."""
        self.chmod(path, 0o777 & ~(bits << self.shift))

    def prepare(self, operation):
        """As root, for whom modes are no hindrance: records to take and, for ack, one that is taken. The arguments."""
        write_file(f"{self.m.mnt}/{P}/ctl", b"seek start\n")
        arguments = list(operation.arguments)
        if "receipt" in arguments:
            handle = take(f"{self.m.mnt}/{P}", 1)[0]["handle"]
            arguments.remove("receipt")
            arguments[1] += handle.encode() + b"\n"
        attached = os.path.exists(f"{self.m.mnt}/{T}/children/c")
        if attached == (operation.name == "attach") and not JETSTREAM:
            (os.rmdir if attached else os.mkdir)(f"{self.m.mnt}/{T}/children/c")
        return arguments

    def state(self):
        part, topic = f"{self.m.mnt}/{P}", f"{self.m.mnt}/{T}"
        numbers = [number(part, name) for name in ("hwm", "frontier", "in_flight", "acked_ahead", "segments", "oldest_offset")]
        return numbers + [read_file(topic + "/config"), os.listdir(topic + "/children"), sorted(os.listdir(topic))]


@pytest.fixture(params=[(OWNER, 6), (MEMBER, 3), (COLLEAGUE, 3), (OTHER, 0)], ids=["owner", "member", "colleague", "other"])
def who(request):
    return request.param


@pytest.mark.limit(300)
def test_with_exactly_what_it_takes(mounts, who):
    """Every operation is possible with its permissions and no other one."""
    user, shift = who
    m = mounts(options="allow_other")
    matrix = Matrix(m, shift)
    for path in EVERYTHING:
        matrix.chmod(path, 0)
    for operation in OPERATIONS:
        arguments = matrix.prepare(operation)
        for path, bits in operation.needs.items():
            matrix.only(path, bits)
        try:
            user.does(m.mnt, operation.call, *arguments)
        except OSError as error:
            raise AssertionError(f"{operation.name}: {error}") from error
        for path in operation.needs:
            matrix.chmod(path, 0)


@pytest.mark.limit(300)
def test_without_one_of_them(mounts, who):
    """No operation is possible without any one of its permissions, though everybody else has all; and nothing changes."""
    user, shift = who
    m = mounts(options="allow_other")
    matrix = Matrix(m, shift)
    for path in EVERYTHING:
        matrix.chmod(path, 0o777)
    for operation in OPERATIONS:
        arguments = matrix.prepare(operation)
        before = matrix.state()
        for path, bits in operation.needs.items():
            for bit in [bit for bit in (R, W, X) if bits & bit]:
                matrix.without(path, bit)
                error = user.fails(m.mnt, operation.call, *arguments)
                assert error == "EACCES", (operation.name, path, bit, error)
                matrix.chmod(path, 0o777)
        wait_for(lambda: matrix.state() == before, f"what {operation.name} had leased to come back")  # noqa: B023
    assert log(f"{m.mnt}/{P}") == b"first\n" + b"".join(b"record %d\n" % n for n in range(200))


def test_reading_without_leave_to_settle_gives_back(mounts):
    """Who may read `consume` and not write `ack` sees records, and they stay for the others."""
    m = mounts(options="allow_other")
    part = m.make("t")
    os.chmod(part + "/consume", 0o444)
    produce(part, "x")
    assert OTHER.sh(m.mnt, f"read record < {P}/consume && echo $record") == (0, "x\n")
    wait_for(lambda: number(part, "in_flight") == 0, "the lease to come back")
    assert (number(part, "frontier"), number(part, "lag")) == (0, 1)


# -- deleting


def test_what_the_kernel_cannot_refuse_is_told(mounts):
    """It looks at the mode of the one file alone; what the others say is decided by the daemon, and stands in its log."""
    m = mounts(options="allow_other")
    part = m.make("t")
    produce(part, "a")
    for name in ("produce.jsonl", "produce.bin"):
        os.chmod(f"{part}/{name}", 0o666)

    def sync():
        fd = os.open("topics/t/p00000/consume", os.O_RDONLY)
        assert os.read(fd, 100) == b"a\n"
        os.fsync(fd)

    cases = [
        (os.open, ("topics/t/p00000/drain", os.O_RDONLY), "opening drain refused: user 5004 may not write ack"),
        (os.open, ("topics/t/drain", os.O_RDONLY), "opening drain refused: user 5004 may not write ack"),
        (os.open, ("topics/t/p00000/produce.jsonl", os.O_WRONLY), "opening produce.jsonl refused: user 5004 may not write produce"),
        (os.open, ("topics/t/p00000/produce.bin@x", os.O_WRONLY), "opening produce.bin refused: user 5004 may not write produce"),
        (sync, (), "fsync left a record unsettled: whoever opened the file may not write ack"),
    ]
    for call, arguments, words in cases:
        before = len(m.stderr())
        assert OTHER.fails(m.mnt, call, *arguments) == "EACCES"
        (line,) = wait_for(lambda: m.stderr()[before:].splitlines(), "a line in the log")
        assert words in line and "topic=t" in line, line
    os.chmod(part + "/.streams/consume", 0o600)
    before = len(m.stderr())
    assert OTHER.fails(m.mnt, os.open, "topics/t/p00000/consume.bin", os.O_RDONLY) == "EACCES"
    assert "opening consume.bin refused: user 5004 may not read consume" in m.stderr()[before:]
    os.chmod(m.topic("t"), 0o777)
    before = len(m.stderr())
    assert OTHER.fails(m.mnt, os.setxattr, "topics/t", "user.narad.linger_ms", b"5") == "EACCES"
    assert 'the attribute "user.narad.linger_ms" refused: the caller may not write config' in m.stderr()[before:]


def test_deleting(mounts):
    """By rmdir it takes write permission on topics/, by `ctl` on that."""
    m = mounts(options="allow_other,umask=002,gid=6000")
    for name in ("a", "b"):
        assert OWNER.sh(m.mnt, f"mkdir topics/{name}; chgrp {TEAM} topics/{name}; chmod 775 topics/{name}") == (0, "")
    produce(m.part("b"), "x")
    verb = f"delete {xattr(m.topic('b'), 'incarnation')}\n".encode()
    assert OTHER.fails(m.mnt, os.rmdir, "topics/a") == "EACCES"
    for user in (OTHER, MEMBER):
        assert user.fails(m.mnt, do_write, "topics/b/ctl", verb) == "EACCES"
    MEMBER.does(m.mnt, os.rmdir, "topics/a")
    OWNER.does(m.mnt, os.chmod, "topics/b/ctl", 0o664)
    assert OTHER.fails(m.mnt, do_write, "topics/b/ctl", verb) == "EACCES"
    MEMBER.does(m.mnt, write_file, "topics/b/ctl", verb)
    assert os.listdir(m.mnt + "/topics") == []


def test_where_everybody_makes_topics(mounts):
    """As in /tmp: each takes away only its own."""
    m = mounts(options="allow_other,umask=0")
    assert stat.S_IMODE(os.stat(m.mnt + "/topics").st_mode) == 0o1777
    for user, name in ((OWNER, "a"), (OTHER, "b")):
        user.does(m.mnt, os.mkdir, f"topics/{name}")
        found = os.stat(m.topic(name))
        assert (found.st_uid, found.st_gid) == (user.uid, user.gid)
    assert OTHER.fails(m.mnt, os.rmdir, "topics/a") == "EPERM"
    assert MEMBER.fails(m.mnt, os.rmdir, "topics/b") == "EPERM"
    OTHER.does(m.mnt, os.rmdir, "topics/b")
    os.rmdir(m.topic("a"))


# -- the owner's part


def names_below(topic):
    """Every file and folder that has an owner and a mode of its own, from the topic's folder."""
    return [topic + name for name in FILES] + [f"{topic}/p00000{name}" for name in PARTITION_FILES]


def owners_and_modes(m, topic):
    found = {}
    for name in names_below(topic):
        st = os.stat(f"{m.mnt}/{name}")
        found[name] = (st.st_uid, st.st_gid, stat.S_IMODE(st.st_mode))
    return found


@pytest.mark.parametrize("umask, option, mode", [(0o022, "", 0o755), (0o077, "", 0o700), (0o027, "", 0o750), (0o002, "", 0o775),
                                                 (0, "-m 750", 0o750), (0o022, "-m 700", 0o700), (0, "", 0o777)])
def test_umask_of_mkdir(mounts, umask, option, mode):
    """And `mkdir -m`, which narrows the files too."""
    m = mounts(options="allow_other,umask=0")
    assert OWNER.sh(m.mnt, in_process(f"mkdir {option} {T}", umask)) == (0, "")
    for _ in range(2):
        for name, (uid, gid, found) in owners_and_modes(m, T).items():
            path = f"{m.mnt}/{name}"
            read_only = name.endswith(("status", "log", ".jsonl", ".bin", "drain")) and "/produce" not in name
            widest = 0o777 if os.path.isdir(path) else 0o444 if read_only else 0o666
            assert (uid, gid, found) == (OWNER.uid, OWNER.gid, widest & mode), name
        m.restart()


def test_chown_and_chmod_stay(mounts):
    """Of the topic and of each of its files, over a clean stop and a crash."""
    m = mounts(options="allow_other")
    m.make("t")
    wanted = {}
    for n, name in enumerate(names_below(T)):
        wanted[name] = (7000 + n, 8000 + n, 0o100 * (n % 8) | n)
        os.chown(f"{m.mnt}/{name}", *wanted[name][:2])
        os.chmod(f"{m.mnt}/{name}", wanted[name][2])
    assert owners_and_modes(m, T) == wanted
    m.restart()
    assert owners_and_modes(m, T) == wanted
    m.crash()
    assert owners_and_modes(m, T) == wanted


def test_who_may_chmod_and_chown(mounts):
    m = mounts(options="allow_other")
    m.make("t")
    assert subprocess.run(["chown", "-R", f"{OWNER.uid}:{OWNER.gid}", m.topic("t")], check=True, timeout=60)
    for path in names_below(T):
        before = os.stat(f"{m.mnt}/{path}")
        for user in (MEMBER, OTHER):
            assert user.fails(m.mnt, os.chmod, path, 0o777) == "EPERM", path
            assert user.fails(m.mnt, os.chown, path, user.uid, -1) == "EPERM", path
            assert user.fails(m.mnt, os.chown, path, -1, user.gid) == "EPERM", path
        assert OWNER.fails(m.mnt, os.chown, path, OTHER.uid, -1) == "EPERM", path
        assert OWNER.fails(m.mnt, os.chown, path, -1, OTHER.gid) == "EPERM", path  # a group that it is not in
        after = os.stat(f"{m.mnt}/{path}")
        assert (after.st_mode, after.st_uid, after.st_gid) == (before.st_mode, before.st_uid, before.st_gid)
        OWNER.does(m.mnt, os.chown, path, -1, TEAM)
        OWNER.does(m.mnt, os.chmod, path, 0o751)
    assert set(owners_and_modes(m, T).values()) == {(OWNER.uid, TEAM, 0o751)}


def test_chown_of_a_whole_topic(mounts):
    """chown -R reaches what is not listed through its link; what has no owner of its own follows the folder."""
    m = mounts(options="allow_other")
    m.make("t")
    done = subprocess.run(["chown", "-R", f"{OWNER.uid}:{TEAM}", m.topic("t")], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, b"")
    m.restart()
    assert {row[:2] for row in owners_and_modes(m, T).values()} == {(OWNER.uid, TEAM)}
    assert OTHER.fails(m.mnt, lambda: os.lchown(T + "/consume", OTHER.uid, -1)) == "EPERM"
    os.lchown(m.topic("t") + "/consume", MEMBER.uid, MEMBER.gid)
    for link in (True, False):
        st = os.stat(m.topic("t") + "/consume", follow_symlinks=link)
        assert (st.st_uid, st.st_gid, stat.S_IMODE(st.st_mode)) == (MEMBER.uid, MEMBER.gid, 0o644 if link else 0o777)
    m.make("u")
    os.chown(m.topic("u"), OWNER.uid, TEAM)
    assert {row[:2] for row in owners_and_modes(m, "topics/u").values()} == {(OWNER.uid, TEAM)}


@pytest.mark.local("the data directory")
def test_what_is_so_already_is_not_written_again(m):
    """chown -R says the same of every record that is listed: one change of the topic's record is enough."""
    part = m.make("t")
    produce(part, *range(20))
    seen = set()
    for name in ("log", "log.jsonl", "records/3", "records/4", "from/start"):
        os.chown(f"{part}/{name}", 7000, 7001)
        os.chmod(f"{part}/{name}", 0o440)
        seen.add(os.stat(m.data + "/meta/t.topic").st_mtime_ns)
    assert len(seen) == 1
    before = read_file(m.data + "/meta/t.topic")
    os.chmod(part + "/log", 0o400)
    assert read_file(m.data + "/meta/t.topic") != before
    assert stat.S_IMODE(os.stat(part + "/records/9").st_mode) == 0o400


def test_a_new_owner_at_once(mounts):
    """What was looked at a moment ago is not taken for true still."""
    m = mounts(options="allow_other")
    part = m.make("t")
    os.chown(m.topic("t"), OWNER.uid, TEAM)
    for n in range(5):
        OWNER.does(m.mnt, do_write, P + "/ctl", b"seek start\n")
        OWNER.does(m.mnt, do_write, T + "/ctl", b"partitions %d\n" % (n + 2))
        OWNER.does(m.mnt, produce, P, "x")
        os.chown(m.topic("t"), OTHER.uid, OTHER.gid)
        for path in (P + "/ctl", T + "/ctl", P + "/produce", T + "/config", P + "/ack"):
            assert OWNER.fails(m.mnt, os.open, path, os.O_WRONLY) == "EACCES", path
        os.chown(m.topic("t"), OWNER.uid, TEAM)
    assert number(part, "hwm") == 5


def test_set_id_bits(mounts):
    """They mean nothing (the mount is nosuid); a change of owner or group drops them, as on other file systems."""
    m = mounts(options="allow_other")
    m.make("t")
    os.chown(m.topic("t"), OWNER.uid, OWNER.gid)
    OWNER.does(m.mnt, os.chmod, P + "/log", 0o6755)
    OWNER.does(m.mnt, os.chown, P + "/log", -1, TEAM)
    assert stat.S_IMODE(os.stat(m.part("t") + "/log").st_mode) == 0o755
    os.chmod(m.part("t") + "/log", 0o4755)
    os.chown(m.part("t") + "/log", OTHER.uid, OTHER.gid)
    assert stat.S_IMODE(os.stat(m.part("t") + "/log").st_mode) == 0o755
    os.chown(m.topic("t") + "/config", OWNER.uid, 5998)  # a group that its owner is not in
    OWNER.does(m.mnt, os.chmod, T + "/config", 0o2755)
    assert stat.S_IMODE(os.stat(m.topic("t") + "/config").st_mode) == 0o755
    OWNER.does(m.mnt, os.chmod, T, 0o3775)  # a folder keeps its own
    os.chown(m.topic("t"), OWNER.uid, TEAM)
    m.restart()
    assert stat.S_IMODE(os.stat(m.topic("t")).st_mode) == 0o3775
    assert os.statvfs(m.mnt).f_flag & os.ST_NOSUID


def test_access_says_what_open_says(mounts):
    m = mounts(options="allow_other")
    m.make("t")
    for n, path in enumerate(reversed(names_below(T))):
        os.chmod(f"{m.mnt}/{path}", (n * 0o111 + 0o421) & 0o777)
    os.chmod(m.part("t"), 0o751)
    os.chmod(m.topic("t"), 0o751)

    def compare(path):
        can = os.access(path, os.R_OK, effective_ids=True)
        try:
            os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
            return can
        except OSError as error:
            return not can and error.errno == errno.EACCES

    for user in (OWNER, MEMBER, OTHER):
        for path in names_below(T):
            if not path.endswith("drain"):  # reading it settles, which takes more
                assert user.does(m.mnt, compare, path) or "/.streams/consume." in path, (user.uid, path)


# -- two users


@pytest.mark.local("fan-out")
def test_two_users(mounts):
    """Each reads, settles and changes its own, and nothing of the other's; with another umask, the other may look."""
    m = mounts(options="allow_other,umask=0")
    users = {"a": (OWNER, 0o077), "b": (OTHER, 0o022)}
    for name, (user, umask) in users.items():
        assert user.sh(m.mnt, in_process(f"mkdir topics/{name}; echo mine > topics/{name}/p00000/produce", umask)) == (0, "")
        wait_for(lambda: number(m.part(name), "hwm") == 1, "the record")  # noqa: B023
    changes = """echo x > topics/{0}/produce; cat topics/{0}/drain; echo 0:0:1 > topics/{0}/ack; echo linger_ms=1 > topics/{0}/config
        echo roll > topics/{0}/p00000/ctl; mkdir topics/{0}/children/{1}; mkdir topics/{1}/children/{0}; rmdir topics/{0}
        mv topics/{0} topics/mine; chmod 777 topics/{0}; chown {2} topics/{0}; setfattr -n user.narad.linger_ms -v 1 topics/{0}"""
    looks = "ls topics/{0}; cat topics/{0}/status; cat topics/{0}/p00000/log; read record < topics/{0}/consume"
    for mine, theirs, may_look in (("a", "b", True), ("b", "a", False)):
        user = users[mine][0]
        for line in changes.format(theirs, mine, user.uid).replace("\n", ";").split(";"):
            code, output = user.sh(m.mnt, line)
            assert code != 0, (line, output)
        for line in looks.format(theirs).split(";"):
            assert (user.sh(m.mnt, line)[0] == 0) == may_look, line
    for name, (user, _) in users.items():
        wait_for(lambda: number(m.part(name), "in_flight") == 0, "the lease to come back")  # noqa: B023
        assert number(m.part(name), "lag") == 1 and xattr(m.topic(name), "linger_ms") == "100"
        assert user.does(m.mnt, drain, f"topics/{name}") == b"mine\n"


@pytest.mark.local("fan-out")
def test_a_closed_folder_closes_what_is_in_it_to_children(mounts):
    """A topic is attached by its name: nobody attaches one whose folder it may not enter, whatever `produce` in it allows, nor
    copies records that it may not read."""
    m = mounts(options="allow_other,umask=0")
    for user, name in ((OTHER, "own"), (OWNER, "secret")):
        user.does(m.mnt, os.mkdir, f"topics/{name}")
    os.chmod(m.topic("secret") + "/produce", 0o666)
    os.chmod(m.topic("secret"), 0o700)
    assert OTHER.fails(m.mnt, os.mkdir, "topics/own/children/secret") == "EACCES"
    os.chmod(m.topic("secret"), 0o777)
    os.chmod(m.part("secret") + "/log", 0o600)
    assert OTHER.fails(m.mnt, os.mkdir, "topics/secret/children/own") == "EACCES"
    assert "own was not attached: the caller may not read the log of each partition here topic=secret" in m.stderr()
    os.chmod(m.part("secret") + "/log", 0o604)
    OTHER.does(m.mnt, os.mkdir, "topics/secret/children/own")


def test_a_descriptor_keeps_what_it_was_opened_with(mounts):
    """As on other file systems: modes are looked at when a file is opened, and open descriptors can be given away."""
    m = mounts(options="allow_other")
    part = m.make("t")
    fd = os.open(part + "/produce", os.O_WRONLY)
    os.chmod(m.topic("t"), 0)
    os.chmod(part + "/produce", 0)

    def write():
        os.write(fd, b"x\n")
        os.fsync(fd)

    OTHER.does(m.mnt, write)
    os.close(fd)
    assert log(part) == b"x\n"


# -- the mount


def test_options(mounts):
    m = mounts(options="allow_other,uid=5001,gid=6000,umask=027")
    for name, mode in (("", 0o750), ("/topics", 0o750), ("/HELP", 0o440), ("/status", 0o440), ("/metrics", 0o440)):
        st = os.stat(m.mnt + name)
        assert (st.st_uid, st.st_gid, stat.S_IMODE(st.st_mode)) == (OWNER.uid, TEAM, mode), name
        for user in (OWNER, OTHER):
            assert user.fails("/", lambda: os.chmod(m.mnt + name, 0o777)) in ("EPERM", "EACCES")  # noqa: B023
        assert fails(os.chmod, m.mnt + name, 0o777) == errno.EPERM
        assert fails(os.chown, m.mnt + name, 1, 1) == errno.EPERM
    assert MEMBER.sh(m.mnt, "ls topics && cat status >/dev/null") == (0, "")
    assert MEMBER.fails(m.mnt, os.mkdir, "topics/t") == "EACCES"
    for script in ("ls .", "cat status", "cat metrics", "ls topics", "mkdir topics/t"):
        assert OTHER.sh(m.mnt, script)[0] != 0, script
    OWNER.does(m.mnt, os.mkdir, "topics/t")
    assert os.stat(m.topic("t")).st_gid == OWNER.gid


def test_access_lists_are_refused(mounts):
    """Modes are all there is: an access control list would be ignored, so none is taken."""
    m = mounts(options="allow_other")
    part = m.make("t")
    entry = bytes.fromhex("02000000" "01000700ffffffff" "04000500ffffffff" "20000500ffffffff")
    for path in (m.topic("t"), part + "/log"):
        for name in ("system.posix_acl_access", "trusted.x", "security.capability"):
            assert name_of(fails(os.setxattr, path, name, entry)) in ("EOPNOTSUPP", "EPERM", "EINVAL"), name
            assert fails(os.getxattr, path, name) in (errno.EOPNOTSUPP, errno.ENODATA)
    for user, code in ((OTHER, "EACCES"), (User(0, 0), "EPERM")):
        assert user.fails(m.mnt, os.removexattr, T, "user.narad.linger_ms") == code
    assert open_fails(part + "/records", os.O_WRONLY) == errno.EISDIR
    configure(m.topic("t"), linger_ms=1)
