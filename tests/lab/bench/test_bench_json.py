"""`tts solve --json` and `tts bench --json`, on scripted engines."""

from pathlib import Path

import pytest
from tests.cli.documents import document
from typer.testing import CliRunner

from tts.cli import app


@pytest.fixture
def tts(engines, tmp_path, monkeypatch):
    monkeypatch.setenv("TTS_HOME", str(tmp_path))

    def run(command, *words):
        done = CliRunner().invoke(app, [command, *words, "--json"])
        assert done.exit_code == 0, done.output
        return document(f"tts {command}", done.stdout)

    return run


def test_a_question(tts):
    found = tts("solve", "demo", "Compute 1 + 2.", "--n", "4", "--set", "max_tokens=16")
    assert found["question"] == "Compute 1 + 2."
    assert found["answer"] == found["answers"][found["vote"]]
    assert len(found["completions"]) == 4
    assert found["usage"]["generator_calls"] > 0
    (listed,) = tts_runs(Path(found["run"]).parent)
    assert (listed["folder"], listed["state"]) == (found["run"], "finished")


def test_a_benchmark(tts, tmp_path):
    words = ("demo", "--limit", "3", "--n", "4", "--set", "max_tokens=16")
    found = tts("bench", *words, "--out", str(tmp_path / "run"))
    (row,) = found["rows"]
    assert found["folder"] == row["run"] == str(tmp_path / "run")
    assert row["command"] == ["tts", "bench", *words, "--out", str(tmp_path / "run"), "--json"]
    assert row["summary"]["problems"] == 3
    again = tts("bench", "--resume", str(tmp_path / "run"))
    assert again["rows"] == found["rows"], "the command is the one that began it"


def test_a_comparison(tts, tmp_path):
    words = ("--limit", "2", "--n", "4", "--set", "max_tokens=16", "--out", str(tmp_path / "all"))
    found = tts("bench", "demo", "--strategy", "all", *words)
    assert found["unfinished"] == {found["folder"]: []}
    assert len(found["rows"]) > len({row["run"] for row in found["rows"]}) > 5


def tts_runs(folder):
    done = CliRunner().invoke(app, ["runs", "list", str(folder), "--json"])
    return document("tts runs list", done.stdout)
