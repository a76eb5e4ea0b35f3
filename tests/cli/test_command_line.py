"""The command line that asked for a run is kept in run.json, without secrets."""

import pytest
from typer.testing import CliRunner

from tts.cli import app
from tts.lab.bench import group_run, single_run


@pytest.fixture
def asked(monkeypatch):
    """What runs are asked to be; none is carried out."""
    configs = []

    class Asked(Exception):
        """The end of the test."""

    def ask(*arguments, **options):
        configs.extend(each for each in arguments if hasattr(each, "command"))
        raise Asked

    monkeypatch.setattr(single_run, "run_bench", ask)
    monkeypatch.setattr(single_run, "run_solve", ask)
    monkeypatch.setattr(group_run, "run_all", ask)

    def run(*words):
        CliRunner().invoke(app, list(words))
        (config,) = configs
        return config

    return run


@pytest.mark.parametrize(
    "words",
    [
        ("bench", "demo", "--limit", "3", "--set", "temperature=0.7"),
        ("bench", "demo", "--strategy", "all"),
        ("solve", "Compute 1 + 2.", "--n", "4"),
        ("solve", "--seed=3", "-d", "demo", "x"),
    ],
)
def test_the_words_are_those_that_were_typed(asked, words):
    assert asked(*words).command == ["tts", *words]


@pytest.mark.parametrize(
    ("word", "kept"),
    [
        ("https://me:hunter2@host/x", "https://[removed]@host/x"),
        ("hf_abcdefghijkl", "hf_[removed]"),
        ("api_key=hunter2", "api_key=[removed]"),
    ],
)
def test_secrets_are_not_kept(asked, word, kept):
    config = asked("solve", word)
    assert config.command == ["tts", "solve", kept]
