"""The checked-in corpora; see scripts/fuzz."""

import os
import shutil
import subprocess

import runner

# Of what runs have found so much is checked in at most, the smallest inputs first; seeds always.
FOUND_MAX_BYTES = 24 * 1024


def make_seeds():
    build = os.path.join(runner.ROOT, os.environ.get("NARADFS_BUILD", "build"))
    done = subprocess.run(["ninja", "-C", build, "tests/fuzz/make_seeds"], cwd=runner.ROOT, check=False,
                          stdout=subprocess.PIPE)
    if done.returncode != 0:
        print(done.stdout.decode(errors="replace")[-2000:])
        print(f"{build} has to be a build folder with tests (CC=gcc meson setup build)")
        return 2
    return subprocess.run([os.path.join(build, "tests", "fuzz", "make_seeds"), runner.CORPUS], check=False).returncode


def merge_one(name):
    """Inputs that cover what all inputs do, seeds first."""
    kept, merged = os.path.join(runner.CORPUS, name), os.path.join(runner.BUILD, "merged", name)
    seeds = os.path.join(runner.BUILD, "merged", name + "-seeds")
    for folder in (merged, seeds):
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
    for file in os.listdir(kept):
        if file.startswith("seed-"):
            shutil.copy(os.path.join(kept, file), seeds)
    shutil.copytree(seeds, merged, dirs_exist_ok=True)
    program = os.path.join(runner.BUILD, "tests", "fuzz", f"fuzz_{name}")
    command = [program, "-merge=1", f"-max_len={runner.MAX_BYTES.get(name, runner.MAX_BYTES_ELSE)}", merged, kept,
               os.path.join(runner.FOUND, name)]
    done = subprocess.run([part for part in command if not os.path.isabs(part) or os.path.exists(part)],
                          env=runner.environment(), stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT, check=False)
    if done.returncode != 0:
        return False
    found = sorted((os.path.getsize(os.path.join(merged, file)), file) for file in os.listdir(merged)
                   if not file.startswith("seed-"))
    for file in os.listdir(kept):
        if not file.startswith("seed-"):
            os.unlink(os.path.join(kept, file))
    total = 0
    for size, file in found:
        total += size
        if total > FOUND_MAX_BYTES:
            break
        shutil.copy(os.path.join(merged, file), kept)
    return True


def merge(names):
    failed = [name for name in names if not merge_one(name)]
    for name in names:
        folder = os.path.join(runner.CORPUS, name)
        sizes = [os.path.getsize(os.path.join(folder, file)) for file in os.listdir(folder)]
        print(f"{name:14} {len(sizes):5} inputs {sum(sizes):8,} bytes")
    for name in failed:
        print(f"{name}: the merge failed")
    return 1 if failed else 0
