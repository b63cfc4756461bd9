"""The tests that run on both engines, and those that do not: why not is written down."""

import ast
import os
import re

import pytest

from conftest import BOTH, DISKS
from support import HERE, ROOT


def first_cells(path):
    """Of every table's rows, without their marks."""
    with open(path, encoding="utf-8") as file:
        rows = [line for line in file if line.startswith("|") and not line.startswith("|---")]
    return {row.split("|")[1].strip().replace("`", "") for row in rows}


def reasons(path):
    """What a test file's marks `local` say."""
    with open(path, encoding="utf-8") as file:
        calls = [node for node in ast.walk(ast.parse(file.read())) if isinstance(node, ast.Call)]
    marks = [call for call in calls if ast.unparse(call.func) == "pytest.mark.local"]
    assert all(len(mark.args) == 1 and isinstance(mark.args[0], ast.Constant) for mark in marks), path
    return {mark.args[0].value for mark in marks}


def used():
    return {DISKS}.union(*(reasons(f"{HERE}/{name}") for name in os.listdir(HERE) if re.fullmatch(r"test_\w+\.py", name)))


def test_each_reason_is_in_the_document():
    known = first_cells(f"{ROOT}/docs/scale-out.md")
    assert len(used()) > 5
    assert used() <= known, f"docs/scale-out.md has no row for: {used() - known}"


@pytest.mark.parametrize("name", BOTH)
def test_each_file_that_runs_on_both_is_there_and_is_named(name):
    assert os.path.exists(f"{HERE}/{name}")
    with open(f"{ROOT}/docs/scale-out.md", encoding="utf-8") as file:
        assert f"`{name[len('test_'):-len('.py')]}`" in file.read()
