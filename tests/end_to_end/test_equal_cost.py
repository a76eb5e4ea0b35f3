"""A comparison at one mean cost per problem, on the engines of the demo pair."""

import json

import pytest

from tts.base.errors import RunError
from tts.lab.bench.group_run import resume_group, run_all
from tts.lab.observer import Observer
from tts.reports.terminal import print_report
from tts.runs.compare import compare as runs_compared
from tts.runs.compare import read_rows
from tts.runs.config import Limits, RunConfig
from tts.runs.folder import read_config

COMPARED = ("greedy", "best-of-n")


class Heard(Observer):
    def __init__(self):
        self.said = []

    def say(self, line):
        self.said.append(line)


TOKENS = Limits(budget_tokens=400)


def asked(limits=TOKENS, **more):
    return RunConfig(
        deployment_source="demo",
        dataset="demo",
        limit=2,
        strategy="all",
        server="embedded",
        limits=limits,
        **more,
    )


def test_n_is_fitted_to_the_mean_and_no_search_is_cut_off(tts, tmp_path, capsys):
    heard = Heard()
    folder = run_all(asked(), tmp_path / "all", heard, names=COMPARED)
    rows = read_rows(folder)
    by_name = {row.strategy: row for row in rows}
    assert by_name["greedy"].n == 1
    chains = by_name["best-of-n"]
    assert 4 <= chains.n <= 16
    for row in rows:
        assert row.budget == {"budget_tokens": 400}
        assert read_config(folder / row.run.rpartition("/")[2])["parameters"]["n"] == row.n
        assert row.tokens_per_problem < 1.3 * 400, "that of the pilot's samples, or nearly"
        assert row.seconds_per_problem > 0
    assert any(line.startswith(f"best-of-n: n={chains.n} takes") for line in heard.said)
    summary = json.loads((folder / "best-of-n" / "summary.json").read_text())
    assert summary["fitted_to"] == {"budget_tokens": 400}
    assert "limited" not in summary
    print_report(runs_compared([folder]))
    assert "400 tokens" in capsys.readouterr().out

    with pytest.raises(RunError):
        run_all(asked(), folder, Heard(), names=COMPARED)
    again = Heard()
    assert resume_group(folder, None, again) == folder
    assert not any("takes" in line for line in again.said), "n is that of group.json"


def test_a_mean_of_seconds_is_a_budget_of_tokens_to_auto(tts, tmp_path):
    names, limits = ("greedy", "auto"), Limits(400, 60.0)
    folder = run_all(asked(limits), tmp_path / "all", Heard(), names=names)
    assert read_config(folder / "greedy")["limits"] == {"deadline_s": 60.0}
    assert read_config(folder / "auto")["limits"] == {"budget_tokens": 400, "deadline_s": 60.0}
    assert {row.budget["budget_tokens"] for row in read_rows(folder)} == {400}
    assert resume_group(folder, None, Heard()) == folder
