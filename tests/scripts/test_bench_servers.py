"""Servers measured side by side."""

import json
import subprocess
import sys
from pathlib import Path

from tests.programs import ROOT, command

ENDING = f"""
import os, sys
sys.path.insert(0, {str(ROOT)!r})
from scripts.bench.servers import instant
events = instant.events
count = 0
def until_the_end(*request):
    global count
    count += 1
    if count > 3:
        print("out of memory", flush=True)
        os._exit(3)
    return events(*request)
instant.events = until_the_end
import asyncio
asyncio.run(instant.main())
"""


def test_a_server_that_ends_is_asked_no_more_and_what_was_measured_stays(
    tmp_path: Path, tokenizer_folder: Path
) -> None:
    (tmp_path / "ending.py").write_text(ENDING)
    rows = tmp_path / "rows.jsonl"
    words = ["--tokenizer", tokenizer_folder, "--cells", "8x1", "--rounds", "3", "--tokens", "2"]
    systems = [f"ending={sys.executable} {tmp_path / 'ending.py'} {{port}}", "other=instant"]
    outcome = subprocess.run(
        [*command("bench.servers"), *words, "--json", rows, *systems],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert outcome.returncode == 1, outcome.stderr
    assert "ending ended in 8x1, and was asked no more:\nout of memory\n" in outcome.stderr
    assert "Traceback" not in outcome.stderr
    systems_of_rows = [json.loads(line)["system"] for line in rows.read_text().splitlines()]
    assert sorted(systems_of_rows) == ["ending", "other", "other", "other"]
    assert "Servers" in outcome.stdout
    assert "ending" in outcome.stdout
