"""Every marked shell example of the README runs, as written, beside a mount at ./mnt."""

import os
import re

import pytest
from support import ROOT, shell


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
