"""Delivery with the programs that people use: workers in plain sh, xargs, GNU parallel, rsyslog and nginx. Each program
is the one of the distribution (scripts/deps installs them) and runs as it does elsewhere, with a configuration, a
socket and a pid file of its own."""

import itertools
import os
import shutil
import signal
import subprocess
import tempfile
import time

import pytest
from support import (PYTHON, Background, Failed, configure, lines, log, number, produce, read_file, shell, wait_for)


def hwm(part):
    return number(part, "hwm")


def program(name):
    """Its path; a program that is missing is a failure, not a skip."""
    path = shutil.which(name, path=os.environ["PATH"] + ":/usr/sbin")
    if not path:
        raise Failed(f"{name} is not installed: run scripts/deps test")
    return path


def rows(path):
    try:
        with open(path, "rb") as file:
            data = file.read()
    except FileNotFoundError:
        return []
    return data[:data.rfind(b"\n") + 1].splitlines()


class Running:
    """A program in the background; its output in a file."""

    def __init__(self, base, name, *command, **options):
        self.name = name
        self.errors = f"{base}/{name}.err"
        with open(self.errors, "wb") as err:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=err, stderr=err,
                                            start_new_session=True, **options)

    def said(self):
        with open(self.errors, encoding="utf-8", errors="replace") as file:
            return file.read()

    def alive(self):
        if self.process.poll() is not None:
            raise Failed(f"{self.name} ended with {self.process.returncode}: {self.said()[-2000:]}")
        return True

    def send(self, number_):
        self.process.send_signal(number_)

    def end(self, number_=signal.SIGTERM):
        """Ends it and what it started."""
        if self.process.poll() is None:
            self.process.send_signal(number_)
        try:
            return self.process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            raise Failed(f"{self.name} did not end: {self.said()[-2000:]}") from None

    def kill(self):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(20)


@pytest.fixture
def run(tmp_path):
    """Starts programs, and ends those that still run after the test."""
    started = []

    def start(name, *command, **options):
        started.append(Running(tmp_path, name, *command, **options))
        return started[-1]

    yield start
    for running in reversed(started):
        running.kill()


# -- workers in sh

# $1: its number. One that meets the job `hang` stops in the middle of it, without a child that shares its descriptor.
WORKER = """
exec 3<> "$QUEUE"
while read -r job <&3; do
    case $job in
    *hang*) if [ ! -e "$OUT/let-go" ]; then echo "$1" > "$OUT/hanging"; read -r _ < "$OUT/fifo"; fi ;;
    *again*) if mkdir "$OUT/seen-$job" 2> /dev/null; then echo nack >&3; continue; fi ;;
    esac
    echo "$job" >> "$OUT/done.$1"
    echo ack >&3 || exit 7
done
"""


@pytest.mark.limit(120)
@pytest.mark.parametrize("sh", ["dash", "bash", "mksh",
                                "busybox"])
@pytest.mark.parametrize("where", ["partition", "topic"])
def test_workers_in_sh(m, tmp_path, run, sh, where):
    """Several in parallel, one of them killed in the middle of a job, some jobs refused at first: each is done once."""
    m.make("jobs", partitions=2)
    folder = m.part("jobs") if where == "partition" else m.topic("jobs")
    parts = [m.part("jobs")] if where == "partition" else [m.part("jobs", n) for n in range(2)]
    os.mkfifo(tmp_path / "fifo")
    env = {**os.environ, "QUEUE": folder + "/consume", "OUT": str(tmp_path)}
    shell_ = [program(sh)] + ["sh"] * (sh == "busybox")
    workers = {n: run(f"worker{n}", *shell_, "-c", WORKER, sh, str(n), env=env) for n in range(4)}
    jobs = [f"job-{n}" + ("-again" if n % 7 == 0 else "") for n in range(120)]
    for n, job in enumerate(jobs):
        produce(parts[n % len(parts)], job)
        if n == 40:
            produce(parts[0], "hang")
    wait_for(lambda: rows(tmp_path / "hanging"), "the worker that hangs")
    (victim,) = rows(tmp_path / "hanging")
    (tmp_path / "let-go").touch()
    workers[int(victim)].kill()

    def done():
        return [job.decode() for n in range(4) for job in rows(tmp_path / f"done.{n}")]

    wait_for(lambda: len(done()) >= len(jobs) + 1 and sum(number(part, "lag") for part in parts) == 0, "all jobs", 60)
    assert sorted(done()) == sorted(jobs + ["hang"])
    assert all(worker.alive() for n, worker in workers.items() if n != int(victim))
    assert b"hang" not in rows(tmp_path / f"done.{victim.decode()}")


C_WORKER = """
#include <stdio.h>
int main(int argc, char **argv)
{
    FILE *file = fopen(argv[1], "r+");
    char job[4096];
    while (file && fgets(job, sizeof job, file)) {
        printf("%s", job);
        if (fprintf(file, "ack\\n") < 0 || fflush(file) != 0)
            return 3;
    }
    return !file || fflush(stdout) != 0;
}
"""
PERL_WORKER = """
use IO::Handle;
open(my $file, "+<", $ARGV[0]) or die;
while (my $job = <$file>) { print $job; print $file "ack\\n" or die; $file->flush or die; }
"""
PYTHON_WORKER = """
import sys
file = open(sys.argv[1], "r+b", 0)
while job := file.readline():
    sys.stdout.buffer.write(job)
    file.write(b"ack\\n")
"""


@pytest.mark.parametrize("language", ["C", "perl", "python"])
def test_workers_with_one_file_for_reading_and_writing(m, tmp_path, language):
    """The buffered files of languages, which seek between reading and writing where they can."""
    part = m.make("t", consume_wait_ms=0)
    jobs = [f"job {n}" for n in range(50)]
    produce(part, *jobs)
    if language == "C":
        (tmp_path / "worker.c").write_text(C_WORKER)
        subprocess.run(["gcc", "-o", tmp_path / "worker", tmp_path / "worker.c"], check=True)
    command = {"C": [tmp_path / "worker"], "perl": [program("perl"), "-e", PERL_WORKER],
               "python": [PYTHON, "-c", PYTHON_WORKER]}[language]
    done = subprocess.run([*command, part + "/consume"], stdout=subprocess.PIPE, check=True, timeout=40)
    assert done.stdout == lines(*jobs)
    assert (number(part, "frontier"), number(part, "lag")) == (50, 0)


@pytest.mark.parametrize("sh", ["mksh", "busybox"])
def test_a_read_with_a_time_limit(m, sh):
    """`read -t` ends when nothing comes. (bash ignores -t on what is not a terminal or a pipe: consume_wait_ms then.)"""
    part = m.make("t")
    produce(part, "a", "b")
    shell_ = [program(sh)] + ["sh"] * (sh == "busybox")
    done = subprocess.run([*shell_, "-c", "exec 3<> $1; while read -r -t 1 job <&3; do echo $job; echo ack >&3; done; echo end",
                           "sh", part + "/consume"], stdout=subprocess.PIPE, check=True, timeout=40)
    assert done.stdout == b"a\nb\nend\n"
    assert number(part, "lag") == 0


def test_xargs(m, tmp_path):
    part, results = m.make("jobs"), m.make("results")
    produce(part, *range(60))
    shell(f"xargs -P 3 -n 4 sh -c 'for job; do echo \"did $job\"; done >> {results}/produce' sh < {part}/drain")
    wait_for(lambda: hwm(results) == 60, "the results")
    assert sorted(log(results).splitlines()) == sorted(b"did %d" % n for n in range(60))
    assert number(part, "lag") == 0
    configure(m.topic("jobs"), consume_wait_ms=0)
    produce(part, *range(20))
    shell(f"cat {part}/consume | xargs -I{{}} -P 2 sh -c 'echo {{}} > {results}/produce@w{{}}'")
    wait_for(lambda: hwm(results) == 80, "the results")
    assert sorted(log(results).splitlines()[60:]) == sorted(b"%d" % n for n in range(20))


@pytest.mark.parametrize("reader", ["cat {0}/consume", "cat {0}/.streams/consume", "stdbuf -o0 tail -n +1 -f {0}/consume",
                                    "dd if={0}/consume bs=64k status=none", "stdbuf -oL cat {0}/consume",
                                    "sed -u '' {0}/consume", "grep --line-buffered '' {0}/consume",
                                    "mawk -W interactive '{{ print; fflush() }}' {0}/consume", "tee {1}/tee < {0}/consume"])
def test_readers_of_a_pipeline(m, tmp_path, run, reader):
    """What a reader has been given comes out at once, in order, while it waits for more."""
    part = m.make("t")
    run("reader", "sh", "-c", f"exec {reader.format(part, tmp_path)} > {tmp_path}/out")
    for n in range(25):
        produce(part, n)
        if n % 5 == 4:
            wait_for(lambda: rows(tmp_path / "out") == [b"%d" % i for i in range(n + 1)], f"record {n}")


def test_followers_of_the_log(m, tmp_path, run):
    part = m.make("t")
    produce(part, "before")
    for name, command in (("tail-f", f"tail -n +1 -s 0.05 -f {part}/log"), ("tail-F", f"tail -n +1 -s 0.05 -F {part}/log"),
                          ("tail-s", f"tail -n +1 --follow=name -s 0.05 {part}/log")):
        run(name, "sh", "-c", f"exec {command} > {tmp_path}/{name}")
    for n in range(5):
        produce(part, n)
        expected = [b"before"] + [b"%d" % i for i in range(n + 1)]
        for name in ("tail-f", "tail-F", "tail-s"):
            wait_for(lambda: rows(tmp_path / name) == expected, f"record {n} in {name}")


@pytest.mark.parametrize("append", [">", ">>"])
def test_a_pipeline_from_topic_to_topic(m, run, append):
    """A stage of a pipeline: the reader's leases are settled by nobody, so drain, which settles what has gone on."""
    part, other = m.make("t"), m.make("u")
    produce(part, *range(500))
    shell(f"sed 's/^/got /' {part}/drain {append} {other}/produce")
    assert log(other) == lines(*[f"got {n}" for n in range(500)])
    assert number(part, "lag") == 0


# -- GNU parallel


@pytest.mark.limit(120)
@pytest.mark.parametrize("feed", ["cat {0}/consume", "stdbuf -o0 tail -n +1 -f {0}/consume"])
def test_parallel(m, tmp_path, run, feed):
    """Jobs from a topic, results into another, both ways of writing them."""
    part, results, own = m.make("jobs"), m.make("results"), m.make("own")
    parallel = program("parallel")
    env = {**os.environ, "HOME": str(tmp_path), "PARALLEL_HOME": str(tmp_path)}
    (tmp_path / "will-cite").touch()
    run("parallel", "bash", "-c", f"{feed.format(part)} | {parallel} --will-cite -j 3 "
        f"'echo did {{}}; echo own {{}} >> {own}/produce' >> {results}/produce", env=env)
    produce(part, *range(30))
    numbers = itertools.count()

    def has_all():
        # it starts a job when it has read the one after it, and may tell of one that ends then only with the next line
        produce(part, f"more {next(numbers)}")
        time.sleep(0.2)
        told = {int(row.split()[1]) for row in log(results).splitlines() if len(row.split()) == 2}
        return hwm(own) >= 30 and set(range(30)) <= told

    wait_for(has_all, "the results", 60)
    for records, word in ((log(results).splitlines(), b"did"), (log(own).splitlines(), b"own")):
        assert len(set(records)) == len(records)
        assert all(record.startswith(word + b" ") for record in records)


def test_parallel_with_an_end(m, tmp_path):
    part, results = m.make("jobs"), m.make("results")
    produce(part, *[f"job {n}" for n in range(40)])
    shell(f"{program('parallel')} --will-cite -j 4 -a {part}/drain 'echo did {{}}' >> {results}/produce", limit_s=50,
          env={**os.environ, "HOME": str(tmp_path)})
    assert sorted(log(results).splitlines()) == sorted(b"did job %d" % n for n in range(40))
    assert number(part, "lag") == 0


# -- rsyslog


RSYSLOG = """
global(workDirectory="{folder}")
module(load="imuxsock" SysSock.Use="off")
input(type="imuxsock" Socket="{socket}" RateLimit.Interval="0" UseSpecialParser="on")
template(name="plain" type="string" string="%msg:2:$%\\n")
template(name="perprogram" type="string" string="{topics}/%programname%/produce")
if $programname startswith "auto" then {{
    action(type="omfile" dynaFile="perprogram" template="plain" createDirs="on" dirCreateMode="0750"
           fileCreateMode="0640" flushOnTXEnd="on")
    stop
}}
action(type="omfile" file="{file}" template="plain" fileCreateMode="0604" dirCreateMode="0750" fileOwnerNum="{uid}"
       fileGroupNum="{gid}" failOnChownFailure="on" {options})
action(type="omfile" file="{folder}/witness" template="plain" flushOnTXEnd="on")
"""


class Rsyslog:
    def __init__(self, m, run, folder, file, options):
        self.folder = folder
        self.socket = folder + "/log.sock"
        conf = folder + "/rsyslog.conf"
        with open(conf, "w", encoding="utf-8") as out:
            out.write(RSYSLOG.format(folder=folder, socket=self.socket, topics=m.mnt + "/topics", file=file,
                                     uid=os.getuid(), gid=os.getgid(), options=options))
        # a copy: where AppArmor is on, the profile of the installed one allows the system's own files only
        binary = shutil.copy(program("rsyslogd"), folder + "/rsyslogd")
        self.running = run("rsyslogd", binary, "-n", "-f", conf, "-i", folder + "/rsyslog.pid")
        wait_for(lambda: self.running.alive() and os.path.exists(self.socket), "rsyslogd")

    def log(self, tag, messages):
        """One message a line, in order."""
        subprocess.run([program("logger"), "--socket", self.socket, "--socket-errors=on", "--tag", tag],
                       input=lines(*messages), check=True, timeout=30)

    def wait_taken(self, message):
        """Until it has given the message to its actions: what it has not read yet is lost when it ends."""
        wait_for(lambda: message.encode() in rows(self.folder + "/witness"), f"{message} in rsyslogd", 30)


@pytest.fixture
def short_folder():
    """A place for sockets, whose paths must be short."""
    with tempfile.TemporaryDirectory(prefix="nrd") as folder:
        yield folder


@pytest.mark.parametrize("where", ["t/p00000/produce", "t/produce", "t/p00000/produce@rsyslog"])
@pytest.mark.parametrize("options", ['flushOnTXEnd="on"', 'flushOnTXEnd="off" ioBufferSize="1k"',
                                     'asyncWriting="on" flushInterval="1"', 'sync="on"'])
def test_rsyslog(m, run, short_folder, where, options):
    """All lines once and in order, over a reopening by HUP and over a restart of rsyslogd."""
    part = m.make("t")
    rsyslog = Rsyslog(m, run, short_folder, f"{m.mnt}/topics/{where}", options)
    sent = [f"message {n}" for n in range(150)]
    rsyslog.log("app", sent[:100])
    rsyslog.running.send(signal.SIGHUP)
    rsyslog.log("app", sent[100:])
    if "off" not in options:  # without a thread of its own it writes when its buffer is full, and at the end
        wait_for(lambda: hwm(part) >= len(sent), "all messages", 30)
    rsyslog.wait_taken(sent[-1])
    assert rsyslog.running.end() == 0
    wait_for(lambda: hwm(part) >= len(sent), "all messages", 30)
    assert log(part) == lines(*sent)
    rsyslog = Rsyslog(m, run, short_folder, f"{m.mnt}/topics/{where}", options)
    rsyslog.log("app", ["after"])
    rsyslog.wait_taken("after")
    rsyslog.running.end()
    wait_for(lambda: hwm(part) == len(sent) + 1, "the last message")
    assert log(part) == lines(*sent, "after")


def test_rsyslog_survives_the_end_of_its_topic(m, run, short_folder):
    """Deleted and made again: what is logged after a reopening stands in the new topic, and nothing of before."""
    part = m.make("t")
    rsyslog = Rsyslog(m, run, short_folder, part + "/produce", 'action.resumeInterval="1" action.resumeRetryCount="-1"')
    rsyslog.log("app", ["old"])
    wait_for(lambda: hwm(part) == 1, "the first message")
    ident = os.getxattr(m.topic("t"), "user.narad.incarnation").decode()
    with open(m.topic("t") + "/ctl", "w", encoding="utf-8") as file:
        file.write(f"delete {ident}\n")
    rsyslog.log("app", ["between"])
    wait_for(lambda: "Identifier removed" in rsyslog.running.said() or "43" in rsyslog.running.said(), "its complaint")
    m.make("t")
    rsyslog.running.send(signal.SIGHUP)

    def arrived():
        rsyslog.log("app", ["new"])
        return hwm(m.part("t")) > 0 and b"new" in log(m.part("t"))

    wait_for(arrived, "the topic of that name", 30, 0.2)
    assert b"old" not in log(m.part("t"))
    assert rsyslog.running.end() == 0


def test_rsyslog_makes_topics(m, run, short_folder):
    """A file for each program, with the folder made when it is missing: a topic for each program."""
    m.make("t")
    rsyslog = Rsyslog(m, run, short_folder, m.part("t") + "/produce", "")
    for turn in range(3):
        for name in ("auto-a", "auto-b"):
            rsyslog.log(name, [f"{name} {turn} {n}" for n in range(20)])
    for name in ("auto-a", "auto-b"):
        wait_for(lambda: os.path.exists(m.part(name)) and hwm(m.part(name)) >= 60, f"the records of {name}", 30)
        assert log(m.part(name)) == lines(*[f"{name} {turn} {n}" for turn in range(3) for n in range(20)])
        assert os.stat(m.topic(name)).st_mode & 0o777 == 0o750
    assert rsyslog.running.end() == 0
    assert hwm(m.part("t")) == 0


# -- nginx


NGINX = """
daemon off;
{user}
worker_processes 3;
pid {folder}/nginx.pid;
error_log {folder}/error.log notice;
events {{ worker_connections 64; }}
http {{
    client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
    log_format plain escape=none '$arg_n';
    server {{
        listen unix:{folder}/http.sock;
        access_log {file} plain {options};
        location / {{ return 204; }}
    }}
}}
"""


class Nginx:
    def __init__(self, run, folder, file, options):
        self.folder = folder
        conf = folder + "/nginx.conf"
        with open(conf, "w", encoding="utf-8") as out:
            out.write(NGINX.format(folder=folder, file=file, options=options,
                                   user="user root;" if os.getuid() == 0 else ""))
        self.running = run("nginx", program("nginx"), "-p", folder, "-c", conf, "-e", folder + "/error.log")
        wait_for(lambda: self.running.alive() and os.path.exists(folder + "/nginx.pid") and self.get("http://x/", "-f"),
                 "nginx")

    def get(self, url, *options):
        done = subprocess.run([program("curl"), "--silent", "--output", "/dev/null", "--unix-socket",
                               self.folder + "/http.sock", *options, url], check=False, timeout=40)
        return done.returncode == 0

    def errors(self):
        with open(self.folder + "/error.log", encoding="utf-8") as file:
            return file.read()


@pytest.mark.limit(120)
@pytest.mark.parametrize("where", ["t/p00000/produce", "t/produce"])
@pytest.mark.parametrize("options", ["", "buffer=4k flush=50ms", "buffer=64k flush=1s"])
def test_nginx(m, run, short_folder, where, options):
    """Access logs of several workers, over a reopening by USR1 and the end: every request has its line once."""
    part = m.make("t")
    nginx = Nginx(run, short_folder, f"{m.mnt}/topics/{where}", options)
    clients = [Background(nginx.get, f"http://x/?n=c{client}-[1-60]") for client in range(4)]
    assert all(client.join(40) for client in clients)
    nginx.running.send(signal.SIGUSR1)
    wait_for(lambda: "reopening logs" in nginx.errors(), "the reopening")
    clients = [Background(nginx.get, f"http://x/?n=d{client}-[1-60]") for client in range(4)]
    assert all(client.join(40) for client in clients)
    wanted = sorted([b""] + [b"%c%d-%d" % (ord(letter), client, n) for letter in "cd" for client in range(4)
                             for n in range(1, 61)])
    if "buffer" in options:  # it flushes by itself
        wait_for(lambda: hwm(part) >= len(wanted), "the buffers", 30)
    assert nginx.running.end(signal.SIGQUIT) == 0
    wait_for(lambda: hwm(part) >= len(wanted), "every request", 30)
    seen = log(part).splitlines()
    assert sorted(row for row in seen if row) == wanted[1:]
    for word in ("[alert]", "[crit]", "[emerg]", "[error]"):
        assert word not in nginx.errors(), nginx.errors()


def test_nginx_says_when_it_cannot_log(m, run, short_folder):
    """A deleted topic is an error in nginx's log, and the server goes on."""
    m.make("t")
    nginx = Nginx(run, short_folder, m.part("t") + "/produce", "")
    ident = os.getxattr(m.topic("t"), "user.narad.incarnation").decode()
    with open(m.topic("t") + "/ctl", "w", encoding="utf-8") as file:
        file.write(f"delete {ident}\n")
    assert nginx.get("http://x/?n=1", "-f")
    wait_for(lambda: "Identifier removed" in nginx.errors(), "its complaint")
    m.make("t")
    assert nginx.get("http://x/?n=2", "-f")
    assert hwm(m.part("t")) == 0  # the old file's writer reaches the new topic only by opening it
    nginx.running.send(signal.SIGUSR1)
    wait_for(lambda: nginx.get("http://x/?n=3", "-f") and hwm(m.part("t")) >= 1, "the topic of that name")
    assert set(log(m.part("t")).splitlines()) == {b"3"}
    assert nginx.running.end(signal.SIGQUIT) == 0


# -- others


def test_logger_and_others_append(m, tmp_path):
    part = m.make("t")
    shell(f"sh -c 'echo app: message >&2' 2>> {part}/produce; printf 'a\\nb' >> {part}/produce; "
          f"date -u +at-%s >> {part}/produce; seq 3 | while read -r n; do echo loop $n; done >> {part}/produce; "
          f"{{ echo 1; echo 2 >&2; }} >> {part}/produce 2>&1; nohup echo nohup >> {part}/produce 2> /dev/null; "
          f"env -i sh -c 'echo env' >> {part}/produce; ls /nonexistent 2>> {part}/produce || true")
    wait_for(lambda: hwm(part) == 12, "the records")
    seen = log(part).decode().splitlines()
    assert "app: message" in seen[0] and seen[1:3] == ["a", "b"] and seen[3].startswith("at-")
    assert seen[4:11] == ["loop 1", "loop 2", "loop 3", "1", "2", "nohup", "env"] and "nonexistent" in seen[11]


def test_tee_into_several_topics(m, tmp_path):
    parts = [m.make(name) for name in ("a", "b", "c")]
    shell(f"seq 3000 | tee -a {parts[0]}/produce {parts[1]}/produce {m.topic('c')}/produce > {tmp_path}/copy")
    wait_for(lambda: [hwm(part) for part in parts] == [3000] * 3, "the records")
    for part in parts:
        assert log(part) == read_file(tmp_path / "copy")


def test_asynchronous_python(m):
    """asyncio, which watches descriptors with epoll: a reader and a writer in one loop."""
    part, other = m.make("t"), m.make("u")
    script = f"""
import asyncio, os
async def main():
    loop = asyncio.get_running_loop()
    fd = os.open({part + '/consume'!r}, os.O_RDWR | os.O_NONBLOCK)
    out = os.open({other + '/produce'!r}, os.O_WRONLY)
    done, count = loop.create_future(), 0
    def readable():
        nonlocal count
        try:
            record = os.read(fd, 65536)
        except BlockingIOError:
            return
        os.write(out, b"got " + record)
        os.write(fd, b"ack\\n")
        count += 1
        if count == 50:
            done.set_result(None)
    loop.add_reader(fd, readable)
    await done
    await loop.run_in_executor(None, os.fsync, out)
    await loop.run_in_executor(None, os.fsync, fd)
asyncio.run(main())
"""
    process = subprocess.Popen([PYTHON, "-c", script])
    for n in range(50):
        produce(part, n)
    assert process.wait(40) == 0
    assert log(other) == lines(*[f"got {n}" for n in range(50)])
    assert number(part, "frontier") == 50
