"""Which strategies and values share a run of a group, and a sweep over values."""

import pytest
from msgspec.structs import replace
from tests.lab.bench.runs import WANTED, Said

from tts.base.errors import ConfigError
from tts.lab.bench.group_run import members_of, resume_group, run_all
from tts.runs.compare import compare
from tts.runs.config import read_run_config
from tts.runs.groups import read_group
from tts.runs.rows import label
from tts.search import SampleSearchConfig
from tts.session.functions import source_of
from tts.strategies.catalog import STRATEGIES
from tts.strategies.parameters import configure_all


def runs_of(deployment):
    configs = configure_all(deployment, {"n": 8})
    return members_of([(name, {}, config) for name, config in configs.items()], STRATEGIES)


def test_the_same_search_under_several_votes_is_one_run(tiny_deployment):
    members = runs_of(tiny_deployment)
    assert sorted(name for member in members for name in member.votes) == sorted(STRATEGIES)
    (shared,) = [member for member in members if "best-of-n" in member.votes]
    assert shared.votes == {"best-of-n": "best", "weighted-best-of-n": "weighted"}
    assert shared.folder == "best-of-n"
    assert shared.parameters["n"] == 8
    blocks = {"weighted-best-of-n": {"temperature": 0.3}}
    apart = runs_of(tiny_deployment.model_copy(update={"strategies": blocks}))
    assert all(len(m.votes) == 1 for m in apart if "best-of-n" in m.votes)


def test_values_that_are_alike_as_folders_have_runs_of_their_own():
    forms = ["a-b", "a-b-3", "a b"]
    variants = [("best-of-n", {"form": f}, SampleSearchConfig(answer_regex=f)) for f in forms]
    members = members_of(variants, STRATEGIES)
    assert [member.parameters["answer_regex"] for member in members] == forms
    assert len({member.folder for member in members}) == 3


SWEEP = {"n": [1, 4], "temperature": [0.5, 0.8]}
NAMES = ("greedy", "beam-search", "best-of-n", "weighted-best-of-n")


@pytest.mark.usefixtures("engines")
def test_a_sweep_of_a_strategy_in_a_file_has_a_row_for_each_value(tmp_path):
    (tmp_path / "swept.py").write_text(
        "from tts.search import SampleSearchConfig\nfrom tts.strategies.strategy import Strategy\n"
        "MINE = Strategy('mine', '', SampleSearchConfig, 'majority')\n"
    )
    file = f"{tmp_path}/swept.py:MINE"
    wanted = replace(WANTED, parameters={"max_tokens": 16}, sources={"strategy": source_of(file)})
    names = (file, "majority-vote")
    folder = run_all(wanted, tmp_path / "sweep", Said(), names=names, sweep=SWEEP)
    labels = {f"{label(row, ())}, n={row.n}" for row in compare([folder]).rows}
    assert len(labels) == 8
    assert "mine (temperature=0.5), n=4" in labels


@pytest.mark.usefixtures("engines")
def test_a_sweep_is_every_combination_each_a_run_of_its_own_and_resumed_as_one(
    tmp_path, engines, monkeypatch
):
    """greedy has no n to set, and is not run twice; two votes share a run.

    Each row has a name that says its temperature, also where that is the default.
    """
    wanted, said = replace(WANTED, parameters={"max_tokens": 16}), Said()
    folder = run_all(wanted, tmp_path / "sweep", said, names=NAMES, sweep=SWEEP)
    _, members = read_group(folder)
    points = [f"n={n},temperature={t}" for n in (1, 4) for t in ("0.5", "0.8")]
    assert [member.folder for member in members] == [
        "greedy,temperature=0.5",
        "greedy,temperature=0.8",
        *(f"{name},{point}" for name in ("beam-search", "best-of-n") for point in points),
    ]
    assert members[-1].title == "best-of-n and weighted-best-of-n, n=4, temperature=0.8"
    for member in members:
        config = read_run_config(folder / member.folder)
        values = dict(part.split("=") for part in member.folder.split(",")[1:])
        assert {name: str(config.parameters[name]).removesuffix(".0") for name in values} == values
    rows = compare([folder]).rows
    assert len(rows) == 2 + 3 * 4
    beams = {(row.n, label(row, ())) for row in rows if row.strategy == "beam-search"}
    names = {name for _, name in beams}
    assert beams == {(n, name) for n in (1, 4) for name in names}, "one curve over n each"
    assert names == {f"beam-search (temperature={each}, max_tokens=16)" for each in (0.5, 0.8)}

    digests = [row.summary.tree_digest for row in rows]
    for member in members[3:5]:
        for file in (folder / member.folder).iterdir():
            file.unlink()
        (folder / member.folder).rmdir()
    (folder / "comparison.json").unlink()
    assert compare([folder]).unfinished[str(folder)] == [
        "beam-search, n=1, temperature=0.8",
        "beam-search, n=4, temperature=0.5",
    ]
    assert resume_group(folder, None, said) == folder
    assert [row.summary.tree_digest for row in compare([folder]).rows] == digests


def test_a_sweep_with_a_bad_value_is_refused_before_anything_starts(none, tmp_path):
    none()
    for sweep, complaint in (
        ({"n": [4, 10]}, "n is 10, which is not a multiple"),
        ({"n": [4, "many"]}, "n = 'many'"),
        ({"beams": [1, 2]}, "has a parameter 'beams'"),
    ):
        with pytest.raises(ConfigError, match=complaint):
            run_all(WANTED, tmp_path / "sweep", Said(), names=("beam-search",), sweep=sweep)
    assert not (tmp_path / "sweep").exists()
