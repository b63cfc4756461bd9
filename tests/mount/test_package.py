"""What debian/ says, against the rest of the tree. The package itself is built and tried by scripts/package."""

import glob
import os
import re
import shutil
import subprocess

from support import NARADFS, ROOT, read_file

NARADCTL = os.path.join(os.path.dirname(os.path.dirname(NARADFS)), "ctl", "naradctl")


def text(path):
    return read_file(f"{ROOT}/{path}").decode()


def field(name):
    """The packages of a field of debian/control, or words of it."""
    body = re.search(rf"^{name}:(.*\n(?: .*\n)*)", text("debian/control"), re.M).group(1)
    return {re.split(r"[ (<]", item.strip())[0] for item in body.split(",") if item.strip()}


def needs(purpose):
    done = subprocess.run([ROOT + "/scripts/deps", "--list", purpose], check=True, stdout=subprocess.PIPE, timeout=30)
    return set(done.stdout.decode().split())


def test_what_the_build_needs_is_said():
    implied = {"gcc", "libc6-dev", "ninja-build"}  # build-essential, and a dependency of meson
    assert needs("build") - implied <= field("Build-Depends")
    assert field("Build-Depends") - needs("package") == {"debhelper-compat"}
    assert "fuse3" in field("Depends")


def version_of(tree):
    done = subprocess.run([tree + "/scripts/version"], check=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=30)
    assert done.stderr == b""
    return done.stdout.decode().strip()


def test_one_version():
    assert text("debian/changelog").startswith(f"naradfs ({text('VERSION').strip()}) ")
    assert "version: files('VERSION')" in text("meson.build")
    said = version_of(ROOT)
    assert said.startswith(text("VERSION").strip())
    for binary in (NARADFS, NARADCTL):
        for option in ("-V", "--version"):
            line = subprocess.run([binary, option], check=True, stdout=subprocess.PIPE).stdout.decode()
            name, version = line.split()  # of the last build, which may be a commit behind
            assert name == os.path.basename(binary)
            assert re.fullmatch(r"[0-9]+(\.[0-9]+)*(~[a-z0-9.]+)?(\+[a-z0-9.]+)?", version), version
            assert version.split("+")[0] == said.split("+")[0]


def test_the_version_follows_the_tags(tmp_path):
    """In a checkout with tags, without any, without git, and inside somebody else's repository."""
    tree = str(tmp_path / "tree")
    os.makedirs(tree + "/scripts")
    shutil.copy(ROOT + "/scripts/version", tree + "/scripts/")

    def git(*arguments, where=tree):
        subprocess.run(["git", "-C", where, "-c", "user.name=t", "-c", "user.email=t@example.org", *arguments], check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=30)

    def write(name, what):
        with open(f"{tree}/{name}", "w", encoding="utf-8") as file:
            file.write(what + "\n")

    write("VERSION", "3.1")
    assert version_of(tree) == "3.1"
    git("init", "-q", where=str(tmp_path))  # around it: not its own
    git("add", ".", where=str(tmp_path))
    git("commit", "-qm", "other", where=str(tmp_path))
    git("tag", "v99", where=str(tmp_path))
    assert version_of(tree) == "3.1"
    git("init", "-q")
    assert version_of(tree) == "3.1"  # no commit yet
    git("add", ".")
    git("commit", "-qm", "one")
    assert re.fullmatch(r"3\.1\+g[0-9a-f]{7,}", version_of(tree))
    git("tag", "other")
    assert re.fullmatch(r"3\.1\+g[0-9a-f]{7,}", version_of(tree))
    git("tag", "-a", "-m", "release", "v3.2")
    assert version_of(tree) == "3.2"
    write("new", "x")
    git("add", ".")
    assert version_of(tree) == "3.2+dirty"
    git("commit", "-qm", "two")
    assert re.fullmatch(r"3\.2\+1\.g[0-9a-f]{7,}", version_of(tree))
    write("new", "y")
    assert re.fullmatch(r"3\.2\+1\.g[0-9a-f]{7,}\.dirty", version_of(tree))
    git("commit", "-qam", "three")
    git("tag", "v3.3-rc1")
    assert version_of(tree) == "3.3~rc1"
    shutil.rmtree(tree + "/.git")
    assert version_of(tree) == "3.1"


def test_the_license():
    assert re.search(r"license: '(.*)'", text("meson.build")).group(1) == "Apache-2.0"
    assert set(re.findall(r"^License: (.*)$", text("debian/copyright"), re.M)) == {"Apache-2.0"}
    assert re.search(r"Apache License\s+Version 2\.0, January 2004", text("LICENSE"))


def test_what_is_shipped_is_there():
    for name in ("docs", "examples"):
        for pattern in text("debian/naradfs." + name).split():
            assert glob.glob(f"{ROOT}/{pattern}"), pattern
    for script in ("debian/rules", "debian/tests/smoke", "scripts/package"):
        assert os.access(f"{ROOT}/{script}", os.X_OK), script


def test_every_folder_is_named():
    """docs/architecture.md says what each folder is for; parts that are named after their script or target go with it."""
    done = subprocess.run(["git", "ls-files"], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    if done.returncode != 0:
        return  # no checkout
    folders = {os.path.dirname(path) for path in done.stdout.decode().splitlines() if "/" in path}
    page = text("docs/architecture.md")
    for folder in sorted(folders):
        name = os.path.basename(folder)
        if folder.startswith(("tests/fuzz/", "tests/unit/", "tests/fixtures/", "debian/")) or name.endswith(".d") or folder == ".ci":
            continue
        if folder == "ctl/completion":
            continue
        assert re.search(rf"(?<![\w-]){re.escape(name)}/", page), folder
