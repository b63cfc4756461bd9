"""What debian/ says, against the rest of the tree. The package itself is built and tried by scripts/package."""

import glob
import os
import re
import subprocess

from support import ROOT, read_file


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


def test_one_version():
    version = re.search(r"^  version: '(.*)',$", text("meson.build"), re.M).group(1)
    assert text("debian/changelog").startswith(f"naradfs ({version}) ")


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
