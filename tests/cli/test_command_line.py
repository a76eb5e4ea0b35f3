"""The command line that asked for a run is kept in run.json; options that are given twice."""

import pytest
from tests.cli.runner import asked_runs, commands, tts


@pytest.mark.parametrize(
    "words",
    [
        ("bench", "demo", "--limit", "3", "--set", "temperature=0.7"),
        ("bench", "demo", "--strategy", "all"),
        ("solve", "Compute 1 + 2.", "--n", "4"),
        ("solve", "--seed=3", "-d", "demo", "x"),
    ],
)
def test_the_words_are_those_that_were_typed(monkeypatch, words):
    asked = asked_runs(monkeypatch)
    tts(*words)
    assert [config.command for config in asked] == [["tts", *words]]


def test_strategies_of_python_files_are_compared_with_others(monkeypatch, tmp_path):
    (tmp_path / "own.py").touch()
    asked, one, other = asked_runs(monkeypatch), *(f"{tmp_path}/own.py:{name}" for name in "AB")
    tts("bench", "demo", "--strategy", one, "--strategy", "greedy", "--strategy", other)
    (config,) = asked
    assert config.strategy == "all"
    names = {role: source.name for role, source in config.sources.items()}
    assert names == {"strategy": "A", "strategy-2": "B"}


@pytest.mark.parametrize(
    ("words", "parameters", "sweep"),
    [
        (["--n", "4"], {"n": 4}, None),
        (["--n", "1, 4", "--set", "top_p=0.9"], {"top_p": 0.9}, {"n": [1, 4]}),
        (["--set", "agg_strategy=last,min"], {}, {"agg_strategy": ["last", "min"]}),
        (["--set", "temperature=0.5,1", "--n", "2"], {"n": 2}, {"temperature": [0.5, 1]}),
        (["--set", "label='a,b'"], {"label": "a,b"}, None),
        (["--set", "ends=[a, b]"], {"ends": ["a", "b"]}, None),
        (["--set", "ends=[a, b],[c]"], {}, {"ends": [["a", "b"], ["c"]]}),
        (["--set", r"answer_regex=\d{1,3}"], {"answer_regex": r"\d{1,3}"}, None),
        (["--set", 'answer_schema={"a": 1, "b": 2}'], {"answer_schema": '{"a": 1, "b": 2}'}, None),
    ],
)
def test_values_between_commas_are_a_sweep(monkeypatch, words, parameters, sweep):
    options = []
    asked = asked_runs(monkeypatch, options)
    tts("bench", "demo", *words)
    assert asked[0].parameters == parameters
    assert options[0].get("sweep") == sweep
    assert options[0].get("names") == (("beam-search",) if sweep else None)


@pytest.mark.parametrize(
    ("word", "kept"),
    [
        ("https://me:hunter2@host/x", "https://[removed]@host/x"),
        ("hf_abcdefghijkl", "hf_[removed]"),
        ("api_key=hunter2", "api_key=[removed]"),
    ],
)
def test_secrets_are_not_kept(monkeypatch, word, kept):
    asked = asked_runs(monkeypatch)
    tts("solve", word)
    assert asked[0].command == ["tts", "solve", kept]


def test_no_option_is_silently_overridden_by_its_second_value():
    once = [
        (path, parameter)
        for path, command in commands()
        for parameter in command.params
        if parameter.opts[0].startswith("-") and not (parameter.multiple or parameter.is_eager)
    ]
    assert len(once) > 100
    for path, parameter in once:
        option = max(parameter.opts, key=len)
        words = [option, *([] if parameter.is_flag else ["1"])]
        done = tts(*path, *words, *words)
        assert (done.code, f"{option} is given more than once" in done.said) == (2, True), path


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["solve", "-d", "demo", "--deployment=demo", "x"], "--deployment is given more than once"),
        (["bench", "demo", "--seed", "1", "--seed", "2"], "once for each seed"),
    ],
)
def test_two_spellings_are_one_option_and_several_seeds_several_runs(words, said):
    done = tts(*words)
    assert (done.code, said in done.said) == (2, True)
