"""Datasets that other packages bring."""

import pytest
from tests.strategies.installed import install

from tts.base.errors import ConfigError, DatasetError
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


def test_an_installed_dataset_gives_its_problems_by_name_unless_a_file_has_that_name(
    installed, tmp_path, monkeypatch
):
    installed(GOOD, sums="mine:sums")
    problems = load_problems("sums", limit=3, seed=4)
    assert [(p.id, p.answer) for p in problems] == [("sum-0", "4"), ("sum-1", "5"), ("sum-2", "6")]
    with pytest.raises(DatasetError, match="no dataset 'sumz'") as caught:
        load_problems("sumz")
    assert "Known names: demo, math-500, gsm8k, aime-2024, sums." in caught.value.hint
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sums").write_text('{"problem": "1 + 1?", "answer": "2"}\n')
    assert [problem.question for problem in load_problems("sums")] == ["1 + 1?"]


GIVES = "def sums(limit, seed): return "
TWICE = f"from tts.problem import Problem as P\n{GIVES}[P('a', 'b')] * 2"


@pytest.mark.parametrize(
    ("source", "kind", "complaint"),
    [
        ("import nothing_of_this_name", ConfigError, "cannot be loaded: ModuleNotFoundError"),
        (
            "def sums(limit, seed): raise KeyError('x')",
            ConfigError,
            "cannot be loaded: KeyError: 'x",
        ),
        ("sums = 3", ConfigError, "cannot be loaded: TypeError"),
        (f"{GIVES}[]", DatasetError, "must give problems, not 'none'"),
        (f"{GIVES}['1 + 1?']", DatasetError, "must give problems, not '1 + 1?'"),
        (TWICE, DatasetError, "gives several problems the id 'a'"),
    ],
)
def test_one_that_is_broken_or_gives_something_else_is_named(installed, source, kind, complaint):
    installed(source, sums="mine:sums")
    with pytest.raises(kind) as caught:
        load_problems("sums")
    assert f"The dataset 'sums' of package mine (mine:sums) {complaint}" in str(caught.value)
    assert kind is DatasetError or caught.value.hint == "Fix or uninstall mine."
