"""The command line that asked for a run is kept in run.json; options that are given twice."""

import pytest
from typer.main import get_command
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


def commands_of(command, path=()):
    """Every command and group below one, with its path."""
    yield path, command
    for name, child in getattr(command, "commands", {}).items():
        yield from commands_of(child, (*path, name))


ONCE = {
    (path, max(parameter.opts, key=len)): parameter
    for path, command in commands_of(get_command(app))
    for parameter in command.params
    if parameter.opts[0].startswith("-") and not (parameter.multiple or parameter.is_eager)
}


@pytest.mark.parametrize(("path", "option"), ONCE, ids=" ".join)
def test_no_option_is_silently_overridden_by_its_second_value(path, option):
    words = [option, *([] if ONCE[path, option].is_flag else ["1"])]
    result = CliRunner().invoke(app, [*path, *words, *words])
    assert result.exit_code == 2
    said = " ".join(result.output.replace("│", " ").split())
    assert f"{option} is given more than once" in said


def test_both_spellings_of_an_option_are_one_option():
    result = CliRunner().invoke(app, ["solve", "-d", "demo", "--deployment=demo", "x"])
    assert "--deployment is given more than once" in result.output


def test_several_seeds_are_several_runs():
    result = CliRunner().invoke(app, ["bench", "demo", "--seed", "1", "--seed", "2"])
    assert "once for each seed" in " ".join(result.output.split())
