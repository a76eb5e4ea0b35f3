"""Hostile files for every reader: a short form of scripts/fuzz, and that it sees what it must."""

import importlib
import random
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture
def part(monkeypatch):
    """Modules of scripts/file_fuzz, by name."""
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    return lambda name: importlib.import_module(f"file_fuzz.{name}")


def test_some_hundred_hostile_files_are_read_or_refused_in_a_sentence():
    command = [sys.executable, ROOT / "scripts" / "fuzz", "--files", "40", "--seed", "7"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 22
    assert all(", 0 failed; " in line for line in lines)


def test_every_valid_file_is_read(part, tmp_path):
    campaign, readers = part("campaign"), part("readers")
    for name, reader in readers.readers(ROOT / "tests" / "runlog" / "v1_run").items():
        folder = tmp_path / name
        folder.mkdir()
        for beside in reader.beside:
            (folder / beside.name).symlink_to(beside)
        (folder / reader.file).write_bytes(campaign._file(reader, reader.valid))
        reader.read(folder)


def run_one(part, read, **options):
    reader = part("readers").Reader("file", b'{"a": [1, 2]}', read)
    return part("campaign").fuzz(reader, 3, 0, **options)


def test_a_traceback_is_a_failure(part):
    outcome = run_one(part, lambda folder: {}["missing"])
    assert [failure.number for failure in outcome.failures] == [0, 1, 2]
    assert "KeyError: 'missing'" in outcome.failures[0].error


def test_a_file_without_end_is_a_failure(part):
    def read(folder):
        while True:
            pass

    outcome = run_one(part, read, cpu_s=0.05, keep=1)
    assert [failure.error for failure in outcome.failures] == ["more than 0.05 s of CPU time"]


def test_a_file_that_eats_memory_is_a_failure(part):
    if not Path("/proc/self/statm").exists():
        pytest.skip("memory is bounded on Linux only")
    with part("campaign").memory_at_most(2**28):
        outcome = run_one(part, lambda folder: bytearray(2**30), keep=1)
    assert "MemoryError" in outcome.failures[0].error


def test_the_same_seed_gives_the_same_files(part):
    mutated = part("mutate").mutated
    valid = b'{"a": [1, 2], "b": {"c": "d"}}\n{"e": null}\n'
    files = [
        [mutated(valid, random.Random(f"{seed}/{n}")) for n in range(50)] for seed in (1, 1, 2)
    ]
    assert files[0] == files[1] != files[2]
    assert len(set(files[0])) > 40
