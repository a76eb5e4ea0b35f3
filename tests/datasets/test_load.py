"""Datasets that other packages bring."""

import pytest
from tests.strategies.installed import install

from tts.build.errors import ConfigError, DatasetError
from tts.datasets.load import load_problems

GOOD = """
from tts.problem import Problem

def sums(limit, seed):
    number = 0
    while True:
        yield Problem(f"sum-{number}", f"Compute {number} + {seed}.", str(number + seed))
        number += 1
"""


@pytest.fixture
def installed(monkeypatch, tmp_path):
    def put(source, package="mine", **entry_points):
        folder = tmp_path / package
        install(monkeypatch, folder, package, package, source, entry_points, "tts.datasets")

    return put


def test_an_installed_dataset_gives_its_problems_by_name(installed):
    installed(GOOD, sums="mine:sums")
    problems = load_problems("sums", limit=3, seed=4)
    assert [(p.id, p.answer) for p in problems] == [("sum-0", "4"), ("sum-1", "5"), ("sum-2", "6")]


def test_a_file_of_that_name_goes_first(installed, tmp_path, monkeypatch):
    installed(GOOD, sums="mine:sums")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sums").write_text('{"problem": "1 + 1?", "answer": "2"}\n')
    assert [problem.question for problem in load_problems("sums")] == ["1 + 1?"]


def test_an_unknown_name_lists_the_installed_ones(installed):
    installed(GOOD, sums="mine:sums")
    with pytest.raises(DatasetError, match="no dataset 'sumz'") as caught:
        load_problems("sumz")
    assert "Known names: demo, math-500, gsm8k, aime-2024, sums." in caught.value.hint


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("import nothing_of_this_name", "cannot be loaded: ModuleNotFoundError"),
        ("def sums(limit, seed): raise KeyError('x')", "cannot be loaded: KeyError: 'x'"),
        ("sums = 3", "cannot be loaded: TypeError"),
    ],
)
def test_a_broken_one_is_named(installed, source, complaint):
    installed(source, sums="mine:sums")
    with pytest.raises(ConfigError) as caught:
        load_problems("sums")
    assert f"The dataset 'sums' of package mine (mine:sums) {complaint}" in str(caught.value)
    assert caught.value.hint == "Fix or uninstall mine."


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("def sums(limit, seed): return []", "must give problems, not 'none'"),
        ("def sums(limit, seed): return ['1 + 1?']", "must give problems, not '1 + 1?'"),
        (
            "from tts.problem import Problem as P\ndef sums(limit, seed): return [P('a', 'b')] * 2",
            "gives several problems the id 'a'",
        ),
    ],
)
def test_one_that_gives_something_else_is_named(installed, source, complaint):
    installed(source, sums="mine:sums")
    with pytest.raises(DatasetError) as caught:
        load_problems("sums")
    assert f"The dataset 'sums' of package mine (mine:sums) {complaint}" in str(caught.value)
