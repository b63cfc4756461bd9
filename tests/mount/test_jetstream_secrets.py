"""What the servers of engine=jetstream want to be shown, and who else gets to see it: passwords, keys, certificates."""

import os
import signal
import socket
import subprocess
import tempfile
import threading

import pytest

import nkeys
from nats import Cluster, JetStreamMount, why_not
from support import NARADFS, SANITIZED, Failed, Mount, log, produce, read_file, wait_for
from test_systemd import Service, systemd  # noqa: F401

pytestmark = [
    pytest.mark.skipif(why_not() is not None, reason=str(why_not())),
    pytest.mark.limit(120),
]

PASSWORD = 'pa,ss@w%"\\r#é'  # what options, URLs and JSON have a meaning for
ENCODED = "pa%2Css%40w%25%22%5cr%23%C3%A9"
SECRET = "s3cr3t"


class Guarded(Cluster):
    """One server with something more in its configuration, which may let nobody in who just asks whether it is there."""

    def __init__(self, base, text):
        super().__init__(base, 1)
        self.server = self.servers[0]
        self.address = f"127.0.0.1:{self.server.port}"
        with open(self.server.config, "a", encoding="utf-8") as file:
            file.write(text)

    def wait_ready(self, limit_s=40, user=None):
        def ready():
            if self.server.process.poll() is not None:
                raise Failed(read_file(self.server.log).decode())
            return os.path.exists(self.server.log) and read_file(self.server.log).count(b"Server is ready") > self.n_ready

        wait_for(ready, "the server", limit_s)

    n_ready = 0

    def restart(self):
        self.n_ready = read_file(self.server.log).count(b"Server is ready")
        self.server.kill()
        return self.start()


@pytest.fixture
def guarded(tmp_path):
    made = []

    def make(text):
        made.append(Guarded(tmp_path / f"nats{len(made)}", text))
        return made[-1].start()

    yield make
    for mount in list(Mount.live):
        mount.destroy()
    for each in made:
        each.end()


@pytest.fixture
def mount(tmp_path, limit):
    """A mount with these options, not started yet."""
    made = []

    def make(*options):
        made.append(JetStreamMount(tmp_path / f"m{len(made)}", "", ""))
        made[-1].options = ",".join(("engine=jetstream", *options))
        return made[-1]

    yield make
    wrong = [error for error in [each.destroy() for each in reversed(made)] if error]
    if wrong:
        raise wrong[0]


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return nkeys.Authority(tmp_path_factory.mktemp("ca"))


def write_secret(path, text, mode=0o600):
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    os.write(fd, text if isinstance(text, bytes) else text.encode())
    os.close(fd)
    os.chmod(path, mode)
    return str(path)


def works(m, name="t"):
    part = m.make(name)
    produce(part, "a")
    assert log(part) == b"a\n"
    return part


def refused(m, *words):
    """It does not start, and says so in these words."""
    assert not m.try_start()
    said = m.stderr()
    for word in words:
        assert word in said, (word, said)
    assert SECRET not in said
    return said


def seen_of(process):
    return read_file(f"/proc/{process.pid}/cmdline")


def daemon_of(mnt):
    """The process in the background that serves this mount."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            arguments = read_file(f"/proc/{pid}/cmdline").split(b"\0")
        except OSError:
            continue
        if mnt.encode() in arguments and b"naradfs" in os.path.basename(arguments[0]):
            return int(pid)
    return None


# -- the command line


def user_only(password=SECRET):
    quoted = password.replace("\\", "\\\\").replace('"', '\\"')
    return f'authorization {{ user: me, password: "{quoted}" }}\n'


@pytest.mark.parametrize("form", ["option", "first", "twice"])
def test_a_password_on_the_command_line(guarded, mount, form):
    """It works, is told about, and nobody sees it afterwards, wherever he looks."""
    server = guarded(user_only())
    url = f"nats://me:{SECRET}@{server.address}"
    m = mount()
    options = "engine=jetstream" if form == "first" else f"engine=jetstream,url={url}"
    if form == "twice":
        options += f",me:{SECRET}@127.0.0.1:1,replicas=1"
    m.spawn([m.binary, *([url] if form == "first" else []), m.mnt, "-f", "-o", options + ",log_level=debug"])
    m.wait_mounted()
    part = works(m)
    places = [seen_of(m.process), read_file("/proc/self/mountinfo"), read_file(m.mnt + "/status"), read_file(m.mnt + "/metrics"),
              read_file(part + "/status"), read_file(m.topic("t") + "/status"), m.stderr().encode(),
              *(os.getxattr(part, key) for key in os.listxattr(part))]
    assert server.address.encode() in places[0] and server.address.encode() in places[1]
    assert not [place for place in places if SECRET.encode() in place or b"me:" in place]
    assert "stood on the command line" in m.stderr() and "url_file=FILE" in m.stderr()
    m.stop()
    assert SECRET not in m.stderr()


def test_a_password_in_the_background(guarded, mount):
    server = guarded(user_only())
    m = mount(f"url=nats://me:{SECRET}@{server.address}", "allow_other")
    done = subprocess.run(m.command(foreground=False), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=60, check=False)
    assert done.returncode == 0 and SECRET.encode() not in done.stdout
    try:
        pid = daemon_of(m.mnt)
        assert pid and SECRET.encode() not in read_file(f"/proc/{pid}/cmdline")
        assert b"allow_other" in read_file(f"/proc/{pid}/cmdline")
        works(m)
    finally:
        subprocess.run(["fusermount3", "-u", m.mnt], check=True, timeout=30)
    wait_for(lambda: not os.path.exists(f"/proc/{pid}"), "the daemon's end")


@pytest.mark.parametrize("options,words", [
    ("url=nats://me:s3,cr3t@127.0.0.1:1", "%2C or %40"),
    ("url=nats://me:12,s3cr3t@127.0.0.1:1", "its user is another one"),
    ("url=nats://me:12,a=s3cr3t@127.0.0.1:1", "its user is another one"),
    ("url=nats://me:12,s3cr3t,x@127.0.0.1:1", "its user is another one"),
    ("url=nats://me:s3cr3t%zz@127.0.0.1:1", "%25"),
    ("url=nats://me:s3cr3t%0a@127.0.0.1:1", "control character"),
    ("url=nats://me:s3cr3t@127.0.0.1:port", "number 1: its port is no number"),
    ("url=nats://me:s3cr3t@a,you:s3cr3t2@b:1", "number 2: its user is another one"),
    ("url=me:s3cr3t@127.0.0.1:1,you@127.0.0.1:2,nokey=1", "number 2: its user is another one"),
    ("url=me:s3cr3t@127.0.0.1:1,nokey=1", "`-o nokey=1'"),
])
def test_what_is_refused_shows_no_secret(mount, options, words):
    m = mount(options)
    said = refused(m, words)
    assert "s3" not in said and "cr3t" not in said


# -- a file


def test_a_password_in_a_file(guarded, mount, tmp_path):
    server = guarded(user_only(PASSWORD))
    path = write_secret(tmp_path / "url", f"# the servers\n\n  nats://me:{ENCODED}@{server.address}\n127.0.0.1:1, 127.0.0.1:2\n")
    m = mount("url_file=" + path, "replicas=1").start()
    works(m)
    assert f"nats://{server.address},127.0.0.1:1" in read_file(m.mnt + "/status").decode()
    assert b"pa" not in read_file(m.mnt + "/status").splitlines()[0]
    assert ENCODED not in m.stderr() and PASSWORD not in m.stderr() and "command line" not in m.stderr()
    m.stop()
    other = mount("url_file=" + write_secret(tmp_path / "wrong", f"nats://me:{SECRET}@{server.address}\n"))
    refused(other, "the servers know another user, password, token or key")


def test_a_relative_name_and_a_token(guarded, mount, tmp_path, monkeypatch):
    server = guarded(f"authorization {{ token: {SECRET} }}\n")
    write_secret(tmp_path / "url", f"nats://{SECRET}@{server.address}")
    monkeypatch.chdir(tmp_path)
    m = mount("url_file=url")
    m.spawn([m.binary, "none", m.mnt, "-f", "-o", m.options])  # as fstab has it
    m.wait_mounted()
    works(m)


@pytest.mark.skipif(os.getuid() != 0, reason="owners are root's to change")
@pytest.mark.parametrize("mode,owner,words", [
    (0o600, 0, None),
    (0o440, 0, None),  # as systemd hands out credentials
    (0o640, 0, None),  # for a group that root chose
    (0o644, 0, "its mode is 0644, so that others can read it: chmod 600"),
    (0o604, 0, "so that others can read it"),
    (0o660, 0, "its mode is 0660, so that others can change it"),
    (0o602, 0, "so that others can change it"),
    (0o600, 12345, "it belongs to the user 12345"),
])
def test_whose_file_it_is(mount, tmp_path, mode, owner, words):
    path = write_secret(tmp_path / "url", f"nats://me:{SECRET}@127.0.0.1:1", mode)
    os.chown(path, owner, 0)
    refused(mount("url_file=" + path), words or "none of the NATS servers nats://127.0.0.1:1 could be used")


@pytest.mark.skipif(os.getuid() != 0, reason="other users are root's to be")
def test_the_file_of_another_user():
    """What root lets a group read is good for its members; a file of one's own is nobody else's."""
    with tempfile.TemporaryDirectory() as folder:  # which others can enter
        os.chmod(folder, 0o755)
        mnt = folder + "/mnt"
        os.mkdir(mnt)
        os.chown(mnt, 12345, 12345)
        check_files_of_another_user(folder, mnt)


def check_files_of_another_user(folder, mnt):
    def said(path):
        command = ["setpriv", "--reuid", "12345", "--regid", "12345", "--clear-groups", NARADFS, mnt, "-f", "-o",
                   "engine=jetstream,url_file=" + path]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=60, check=False)
        assert done.returncode == 1
        return done.stderr.decode()

    path = write_secret(folder + "/url", "nats://127.0.0.1:1", 0o640)
    assert "Permission denied" in said(path)
    os.chown(path, 0, 12345)
    assert "url_file" not in said(path)  # but no server, or no /dev/fuse for this user
    os.chown(path, 12345, 12345)
    assert "others can read it" in said(path)
    os.chmod(path, 0o600)
    assert "url_file" not in said(path)


def test_what_is_no_file(mount, tmp_path):
    refused(mount(f"url_file={tmp_path}/none"), "url_file=", "No such file or directory")
    refused(mount(f"url_file={tmp_path}"), "no regular file")
    os.mkfifo(tmp_path / "fifo")
    refused(mount(f"url_file={tmp_path}/fifo"), "no regular file")
    refused(mount("url_file=" + write_secret(tmp_path / "empty", "\n# nothing\n")), "it names no server")
    refused(mount("url_file=" + write_secret(tmp_path / "nul", b"nats://a\0b")), "no text")
    refused(mount("url_file=" + write_secret(tmp_path / "long", "#" * 65537)), "64 KiB")
    refused(mount("url_file=" + write_secret(tmp_path / "both", "nats://a:1"), "url=nats://b:1"), "take one of them")
    for name in ("tls_ca", "creds"):
        refused(mount("url=nats://127.0.0.1:1", f"{name}={tmp_path}/none"), f"option {name}=", "No such file")


# -- keys


def test_an_nkey(guarded, mount, tmp_path):
    key, other = (nkeys.NKey(tmp_path, name, nkeys.USER) for name in ("me", "other"))
    server = guarded(f"authorization {{ users: [ {{ nkey: {key.public} }} ] }}\n")
    url, seed = f"url=nats://{server.address}", write_secret(tmp_path / "seed", key.seed + "\n")
    m = mount(url, "nkey=" + key.public, "nkey_seed=" + seed).start()
    works(m)
    server.restart()  # and signs again
    wait_for(lambda: "again" in m.stderr(), "the connection")
    works(m, "again")
    wrong = write_secret(tmp_path / "wrong", other.seed)
    refused(mount(url, "nkey=" + key.public, "nkey_seed=" + wrong), "know another user, password, token or key")
    refused(mount(url, "nkey=" + key.public), "nkey= and nkey_seed= belong together")
    refused(mount(url, "nkey=" + key.seed, "nkey_seed=" + seed), "a user's public key is expected")
    said = refused(mount(url, "nkey=" + key.public, "nkey_seed=" + write_secret(tmp_path / "no", key.public)), "seed of a user")
    assert key.public not in said
    refused(mount(url, "nkey=" + key.public, "nkey_seed=" + write_secret(tmp_path / "open", key.seed, 0o644)), "chmod 600")
    refused(mount(f"url=nats://me:x@{server.address}", "nkey=" + key.public, "nkey_seed=" + seed), "take one of them")


def test_credentials(guarded, mount, tmp_path):
    config, text = nkeys.credentials(tmp_path)
    server = guarded(config)
    url, creds = f"url=nats://{server.address}", write_secret(tmp_path / "creds", text)
    m = mount(url, "creds=" + creds).start()
    works(m)
    refused(mount(url), "know another user, password, token or key")
    refused(mount(url, "creds=" + write_secret(tmp_path / "open", text, 0o640 if os.getuid() else 0o644)), "chmod 600")
    refused(mount(url, "creds=" + write_secret(tmp_path / "no", "x")), "none of NATS credentials")


# -- TLS


def tls(cert, key, more=""):
    return f'tls {{ cert_file: "{cert}", key_file: "{key}" {more} }}\n'


def test_tls(guarded, mount, authority, tmp_path):
    server = guarded(tls(*authority.issue("server")) + user_only(PASSWORD))
    path = write_secret(tmp_path / "url", f"tls://me:{ENCODED}@{server.address}\n")
    m = mount("url_file=" + path, "tls_ca=" + authority.cert).start()
    works(m)
    server.restart()
    wait_for(lambda: "again" in m.stderr(), "the connection")
    works(m, "again")
    m.stop()
    named = mount(f"url=nats://me:{ENCODED}@localhost:{server.server.port}", "tls_ca=" + authority.cert).start()
    assert log(named.part("t")) == b"a\n"


def test_whom_tls_trusts(guarded, mount, authority, tmp_path):
    server = guarded(tls(*authority.issue("server2")))
    other = nkeys.Authority(tmp_path, "other")
    url = f"url=nats://{server.address}"
    trust = "tls_ca= names the certificate of who has signed"
    refused(mount(url), "certificate", trust)  # TLS is what the server wants: nobody vouches for it
    refused(mount(url, "tls_ca=" + other.cert), "certificate", trust)
    refused(mount(url, "tls_ca=" + write_secret(tmp_path / "none", "no certificate")), "cannot be set up", "none")
    os.chmod(other.cert, 0o666)
    refused(mount(url, "tls_ca=" + other.cert), "so that others can change it: chmod go-w")


def test_a_certificate_that_has_expired(guarded, mount, authority):
    server = guarded(tls(*authority.issue("old", days=-1)))
    refused(mount(f"url=nats://{server.address}", "tls_ca=" + authority.cert), "certificate has expired", "has to be renewed")


def test_a_certificate_of_another_host(guarded, mount, authority):
    server = guarded(tls(*authority.issue("elsewhere", "DNS:elsewhere.example")))
    ca = "tls_ca=" + authority.cert
    for host in ("127.0.0.1", "localhost"):
        refused(mount(f"url=nats://{host}:{server.server.port}", ca), "mismatch", "tls_host=")
    refused(mount(f"url=nats://{server.address}", ca, "tls_host=other.example"), "mismatch", "tls_host=")
    works(mount(f"url=nats://{server.address}", ca, "tls_host=elsewhere.example").start())


def test_both_sides_show_a_certificate(guarded, mount, authority, tmp_path):
    server = guarded(tls(*authority.issue("server3"), f', ca_file: "{authority.cert}", verify: true'))
    cert, key = authority.issue("client", "DNS:client")
    url, ca = f"url=nats://{server.address}", "tls_ca=" + authority.cert
    works(mount(url, ca, "tls_cert=" + cert, "tls_key=" + key).start())
    refused(mount(url, ca), "tls_cert= and tls_key=")
    refused(mount(url, ca, "tls_cert=" + cert), "tls_cert= and tls_key= belong together")
    stranger = nkeys.Authority(tmp_path, "stranger").issue("stranger-client")
    refused(mount(url, ca, "tls_cert=" + stranger[0], "tls_key=" + stranger[1]), "tls_cert= and tls_key=")
    refused(mount(url, ca, "tls_cert=" + cert, "tls_key=" + stranger[1]), "cannot be set up")
    closed = tmp_path / "closed.key"
    nkeys.openssl("pkey", "-in", key, "-aes256", "-passout", "pass:" + SECRET, "-out", closed)
    os.chmod(closed, 0o600)
    refused(mount(url, ca, "tls_cert=" + cert, f"tls_key={closed}"), "the key has a passphrase")
    os.chmod(key, 0o644)
    refused(mount(url, ca, "tls_cert=" + cert, "tls_key=" + key), "option tls_key=", "chmod 600")


def test_a_server_without_tls(guarded, mount, authority):
    """The password is not told to one that speaks in the open."""
    server = guarded(user_only())
    for options in ([f"url=tls://me:{SECRET}@{server.address}"],
                    [f"url=nats://me:{SECRET}@{server.address}", "tls_ca=" + authority.cert]):
        refused(mount(*options), "it speaks without TLS: nothing was told to it")


# -- as a service


@pytest.mark.skipif(os.getuid() != 0 or SANITIZED, reason="root's name spaces, and more than sanitizers are allowed")
@pytest.mark.limit(180)
@pytest.mark.parametrize("form", ["file", "credential"])
def test_as_a_service(guarded, systemd, tmp_path, form):
    """With the two lines that the unit needs for a network; the mount is there for others, who see no password."""
    server = guarded(user_only(PASSWORD))
    path = write_secret(tmp_path / "url", f"nats://me:{ENCODED}@{server.address}\n")
    drop_in = "RestrictAddressFamilies=AF_INET AF_INET6\n"
    if form == "credential":
        drop_in += f"LoadCredential=url:{path}\n"
    service = Service(systemd, "jetstream" + form, tmp_path, drop_in)
    if form == "credential":
        path = f"/run/credentials/{service.unit}.service/url"
        systemd.run("mount --make-rshared /")  # as on a machine of its own: else credentials are mounted where nobody sees them
    systemd.write(f"conf/jetstream{form}.conf", f"DATA=none\nMNT={service.mnt}\nOPTIONS=engine=jetstream,url_file={path}\n")
    try:
        service.start()
        service.produce("x")
        assert service.log() == "x\n"
        shown = systemd.run(f"systemctl status {service.unit}; cat /proc/{service.show('MainPID')[0]}/cmdline; mount")[1]
        assert f"nats://{server.address}" in shown and "url_file=" + path in shown
        assert ENCODED not in shown and PASSWORD not in shown
    finally:
        systemd.run(f"systemctl stop {service.unit}; systemctl reset-failed {service.unit}", check=False)


# -- servers without JetStream


def test_a_server_without_jetstream(tmp_path, guarded, mount):
    """Told at the start, by what is to be done: not taken for one that is down."""
    server = guarded("")
    text = read_file(server.server.config).decode()
    with open(server.server.config, "w", encoding="utf-8") as file:
        file.write("".join(line for line in text.splitlines(True) if not line.startswith("jetstream")))
    server.restart()
    said = refused(mount(f"url=nats://{server.address}"), "run without JetStream: turn it on", "name servers that have it")
    assert "gave no answer" not in said


def test_an_account_without_jetstream(guarded, mount):
    server = guarded("accounts { with { jetstream: enabled, users: [ { user: you, password: you } ] }\n"
                     "  without { users: [ { user: me, password: me } ] } }\n")
    refused(mount(f"url=nats://me:me@{server.address}"), "not enabled for account: turn it on", "jetstream: enabled")


# -- servers that fall silent in the middle of a handshake


@pytest.fixture
def silent():
    """The address of something that wants TLS, and then says nothing; whether somebody has come."""
    listener = socket.create_server(("127.0.0.1", 0))
    come, kept = threading.Event(), []

    def serve():
        try:
            while True:
                connection, _ = listener.accept()
                kept.append(connection)
                connection.sendall(b'INFO {"server_id":"S","version":"2.9.10","max_payload":1048576,"headers":true,'
                                   b'"tls_required":true}\r\n')
                come.set()
        except OSError:
            pass  # its end

    threading.Thread(target=serve, daemon=True).start()
    yield f"127.0.0.1:{listener.getsockname()[1]}", come
    listener.shutdown(socket.SHUT_RDWR)
    for each in [listener, *kept]:
        each.close()


def test_a_start_gives_up_a_silent_handshake(silent, mount):
    refused(mount(f"url=tls://{silent[0]}"), "none of the NATS servers", "goes on with nothing: it hangs, or is no NATS server")


def test_a_start_in_a_silent_handshake_can_be_ended(silent, mount):
    m = mount(f"url=tls://{silent[0]}")
    os.makedirs(m.mnt, exist_ok=True)
    process = subprocess.Popen(m.command(), stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert silent[1].wait(30)
    process.send_signal(signal.SIGTERM)
    try:
        said = process.communicate(timeout=60)[1].decode()
    finally:
        process.kill()
    assert process.returncode == 1 and "told to end before a NATS server had answered" in said
