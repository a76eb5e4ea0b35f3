"""Runs of the demo pair on a real server that are stopped, killed or refused, and what is saved."""

import json
import os
import shutil
import signal
import socket
import subprocess
import time

import pytest
from tests.end_to_end.commands import (
    events,
    summary,
    wait_for_events,
    written_demo,
)

from tts.strategies.catalog import STRATEGIES

pytestmark = pytest.mark.server

LONG = ("--limit", "200", "--n", "16")  # long enough to be stopped in the middle


@pytest.mark.slow  # a server that dies: test_runs_server.py
def test_a_server_stopped_in_the_middle_ends_the_run_with_what_is_saved(tts, tmp_path):
    folder = tmp_path / "run"
    process = tts.start("bench", "demo", *LONG, "--out", folder)
    wait_for_events(process, folder, "generated", 50)
    assert tts.run("serve", "demo", "--stop")[0] == 0
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "Traceback" not in err
    assert "was stopped by another process" in err
    assert "problems are solved and saved in" in err
    assert f"tts bench --resume {folder}" in err
    assert tts.leftovers() == []


@pytest.mark.parametrize("presses", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_ctrl_c_stops_in_order_however_often_it_is_pressed(tts, tmp_path, presses):
    folder = tmp_path / "run"
    process = tts.start("bench", "demo", *LONG, "--out", folder)
    wait_for_events(process, folder, "generated", 50)
    for _ in range(presses):
        process.send_signal(signal.SIGINT)
        time.sleep(0.1)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert "This is a bug" not in err
    assert f"tts bench --resume {folder}" in err
    assert tts.leftovers() == []
    assert len(events(folder)) > 50


@pytest.mark.slow  # of one run: test_embedded.py
def test_a_comparison_of_all_strategies_is_stopped_continued_and_reported(served, tmp_path):
    folder = tmp_path / "group"
    arguments = ("--strategy", "all", "--limit", 2, "--n", 4, "--out", folder)
    process = served.start("bench", "demo", *arguments)
    wait_for_events(process, folder / "majority-vote", "generated", 1)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert f"tts bench --resume {folder}\n" in err
    assert " runs are finished" in err
    code, out, _ = served.run("report", folder)
    assert code == 0
    assert "not finished: " in out
    done = {run: (run / "events.jsonl").read_bytes() for run in finished_runs(folder)}
    assert done
    out, err = served.done("bench", "--resume", folder)
    assert "Traceback" not in err
    assert "This is a bug" not in err
    for run, log in done.items():
        assert (run / "events.jsonl").read_bytes() == log, "a finished run was touched"
    rows = json.loads((folder / "comparison.json").read_text())["rows"]
    assert [row["strategy"] for row in rows] == list(STRATEGIES)
    for row in rows:
        run = summary(folder / row["run"])
        assert row["accuracy"] == run["accuracy_by_rule"][row["vote"]]
        assert row["pass_at_n"] == run["pass_at_n"]
        assert (row["n"], row["samples"]) == (run["n"], run["generator_calls"])
        assert row["n"] == (1 if row["strategy"] == "greedy" else 4)
        assert row["curve"][-1]["accuracy"] == row["accuracy"]
        start = [row["strategy"], str(row["n"])]
        line = next(line for line in out.splitlines() if line.split()[:2] == start)
        assert f"{row['generated_tokens']:,}" in line
        assert f"{100 * row['accuracy']:.1f}%" in line
    by_name = {row["strategy"]: row for row in rows}
    assert by_name["best-of-n"]["run"] == by_name["weighted-best-of-n"]["run"]
    assert [point["n"] for point in by_name["best-of-n"]["curve"]] == [1, 2, 4]
    code, again, _ = served.run("report", folder)
    assert code == 0
    assert again == out
    code, out, _ = served.run("report", folder / "best-of-n")
    assert code == 0
    assert "best score (the answer)" in out


def finished_runs(folder):
    return [file.parent for file in folder.glob("*/summary.json")]


def test_a_problem_too_long_for_the_engine_is_refused_before_any_work(served, tmp_path):
    file = tmp_path / "set.jsonl"
    file.write_text(json.dumps({"problem": "7 " * 400, "answer": "1", "id": "long"}) + "\n")
    code, _, err = served.run("bench", "demo", "--dataset", file, "--out", tmp_path / "run")
    assert code == 2
    assert "Problem long is" in err
    assert not (tmp_path / "run").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_run_folder_without_permission(tts, tmp_path):
    (tmp_path / "locked").mkdir(mode=0o500)
    code, _, err = tts.run("bench", "demo", "--limit", 1, "--out", tmp_path / "locked" / "run")
    assert code == 1
    assert "cannot be written: Permission denied" in err


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 64 KiB, where one may be mounted."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("no file system may be mounted here")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_ends_the_run_with_what_is_saved(served, small_disk):
    folder = small_disk / "run"
    code, _, err = served.run("bench", "demo", *LONG, "--out", folder)
    assert code == 1
    assert "cannot be written: No space left on device" in err
    assert "problems are solved and saved in" in err
    assert f"tts bench --resume {folder}" in err
    assert len(events(folder)) > 20


def test_a_port_in_use_is_named(tts, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, _, err = tts.run(
            "serve", written_demo(tmp_path / "own.yaml", server={"http_port": port})
        )
    assert code == 1
    assert str(port) in err
    assert "in use" in err
