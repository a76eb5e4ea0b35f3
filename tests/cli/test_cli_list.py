"""`tts list`: the names that other commands take, as tables and as JSON."""

import json

import pytest
from typer.testing import CliRunner

from tts.build.spec import bundled_deployments
from tts.cli import app
from tts.datasets.known import KNOWN
from tts.strategies.catalog import strategy_names


def listed(kind):
    done = CliRunner().invoke(app, ["list", kind, "--json"])
    assert done.exit_code == 0, done.output
    return {row["name"]: row for row in json.loads(done.stdout)}


def test_every_deployment_is_there_with_what_it_is():
    rows = listed("deployments")
    assert list(rows) == bundled_deployments()
    assert (rows["demo"]["target"], rows["demo"]["gpu"]) == ("openvino", None)
    assert rows["llama-1b-prm-8b-h100-bf16"]["gpu"] == "h100"
    assert rows["demo"]["built"] in (True, False)
    assert rows["vllm-openai"]["built"] is None, "nothing is built for a server that runs already"
    assert all(10 < len(row["about"]) < 250 for row in rows.values())


def test_every_strategy_is_there_with_its_parameters():
    rows = listed("strategies")
    assert list(rows) == strategy_names()
    assert rows["beam-search"]["parameters"]["beam_width"] == 4
    assert "n" not in rows["greedy"]["parameters"], "it is fixed"


def test_every_dataset_is_there(tmp_path, monkeypatch):
    monkeypatch.setenv("TTS_HOME", str(tmp_path))
    rows = listed("datasets")
    assert set(rows) == {"demo", *KNOWN, "OWNER/NAME", "FILE"}
    assert (rows["gsm8k"]["problems"], rows["gsm8k"]["here"]) == (1319, False)


@pytest.mark.parametrize("kind", ["deployments", "strategies", "datasets"])
def test_a_table_names_all_of_them(kind):
    done = CliRunner().invoke(app, ["list", kind])
    assert done.exit_code == 0, done.output
    for name in listed(kind):
        assert name in done.stdout


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (["plan", "dmeo"], "demo"),
        (["bench", "demo", "--strategy", "beem-search"], "beam-search"),
        (["bench", "demo", "--set", "beam_widht=2"], "beam_width"),
        (["bench", "demo", "--dataset", "math-50"], "math-500"),
    ],
)
def test_what_was_probably_meant_is_asked(arguments, meant):
    done = CliRunner().invoke(app, arguments)
    assert f"Did you mean {meant}?" in str(done.exception)
