"""Every marked shell example of the README runs, as written, beside a mount at ./mnt."""

import glob
import os
import re
import subprocess

import pytest
from support import NARADFS, ROOT, shell

# What stands in the documents between fences and is run by no test of theirs: its first word, and why.
NOT_RUN = {
    "docs/performance.md": {"what": "a table of figures"},
    "README.md": {"scripts/run": "run by scripts/test", "/srv/naradfs/orders": "a line of fstab: test_service.py",
                  "mnt/": "a tree", "naradctl": "a list of verbs: see below"},
    "docs/architecture.md": {"mount/": "a tree", "write(2)": "a table", "fsync(2)": "a table", "commit": "a table",
                             "engine": "the order of locks"},
    "docs/delivery.md": {"read": "a drawing"},
    "docs/internals.md": {"DATA/": "a tree"},
    "docs/operations.md": {"scripts/package": "run by scripts/test, with and without apt",
                           "meson": "scripts/run and the package build so", "DATA=/srv/naradfs/orders": "test_service.py",
                           "/srv/naradfs/orders": "a line of fstab: test_service.py", "location": "test_operations.py",
                           "scrape_configs:": "test_operations.py"},
    "docs/scale-out.md": {"naradfs": "test_jetstream.py", "naradctl": "test_jetstream_copy.py",
                          "nats://a:4222,b:4222,c:4222": "a line of fstab: test_jetstream.py",
                          "none": "likewise: test_jetstream_secrets.py", "scripts/test": "how tests are run",
                          "umount": "a backup, and its way back: test_jetstream_copy.py"},
    "docs/reliability.md": {"scripts/sweep": "scripts/test runs its slice"},
}


def examples():
    with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as file:
        return re.findall(r"^```sh\n# test\n(.*?)^```$", file.read(), re.S | re.M)


def test_there_are_examples():
    assert len(examples()) >= 5
    with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as file:
        assert file.read().count("```sh\n") == len(examples()), "an example that nobody runs"


@pytest.mark.parametrize("number", range(len(examples())))
def test_example(m, number):
    done = shell("set -eu\n" + examples()[number], cwd=m.base)
    assert done.stdout


def test_examples_follow_one_another(m):
    for example in examples():
        shell("set -eu\n" + example, cwd=m.base)


def pages():
    return ["README.md"] + sorted(os.path.relpath(path, ROOT) for path in glob.glob(ROOT + "/docs/*.md"))


@pytest.mark.parametrize("page", pages())
def test_no_shell_example_escapes(page):
    """Every block is marked for a test, or is known to be none; so is every line set off that begins like a command."""
    with open(os.path.join(ROOT, page), encoding="utf-8") as file:
        text = file.read()
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.S | re.M)
    assert text.count("```") == 2 * len(blocks)
    marked = [body for language, body in blocks if language == "sh" and body.startswith("# test")]
    assert not marked or page in ("README.md", "docs/operations.md"), "whose test reads this page?"
    rest = {body.split()[0] for language, body in blocks if body not in marked}
    assert rest == set(NOT_RUN.get(page, {}))
    outside = re.sub(r"^```.*?^```$", "", text, flags=re.S | re.M)
    commands = {line.split()[0] for line in re.findall(r"^(?: {4}|\t)(.*\S.*)$", outside, re.M)}
    assert commands <= {"docs/delivery.md": {"chmod"}}.get(page, set()), "run it, as test_framings.py does with chmod"


def test_the_verbs_of_naradctl_are_listed():
    with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as file:
        listed = re.search(r"^```\n((?:naradctl .*\n)+)```$", file.read(), re.M).group(1)
    naradctl = os.path.join(os.path.dirname(os.path.dirname(NARADFS)), "ctl", "naradctl")
    said = subprocess.run([naradctl, "--help"], check=True, stdout=subprocess.PIPE, timeout=30).stdout.decode()
    verbs = {verb for line in listed.splitlines() for verb in line.split()[1].split("|")}
    assert verbs == set(re.findall(r"^  (\w+) ", said, re.M))
