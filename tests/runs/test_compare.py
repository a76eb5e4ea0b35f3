"""A comparison: which runs it needs, its rows, and its tables."""

import dataclasses
import io
import json
import math

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from tests.runs.logs import SESSION, expansion, whole_logs
from tests.runs.logs import solved as plain_solved
from tests.runs.runs import CONFIG, log_of, run_of, write_run

from tts.build.errors import RunError
from tts.lab.bench.group_run import members_of
from tts.reports.comparison import comparison_tables, paired_report
from tts.runs.checks import write_summary
from tts.runs.compare import (
    Agreement,
    compare_runs,
    correct_by_problem,
    differing_settings,
    in_order,
    joined_curves,
    label,
    make_row,
    read_rows,
    short_names,
    varying,
)
from tts.runs.config import Limits, RunConfig
from tts.runs.events import LoggedAnswer, LoggedCompletion, LoggedThought
from tts.runs.folder import create_run
from tts.runs.groups import Member, create_group, group_config
from tts.runs.log import RunLog
from tts.runs.measured_run import MeasuredRun, expand_groups
from tts.runs.summary import summarise
from tts.search import Stop
from tts.strategies.catalog import STRATEGIES
from tts.strategies.parameters import configure

N = 4


def solved(problem, level, **fields):
    """Four completions, the first and the third right; the second has the best score."""
    scores = (0.4, 0.9, 0.4, 0.2)
    group_of = (0, 1, 0, -1)
    nodes = [(i,) for i in range(4)]
    plain = {
        "level": level,
        "reference": "1",
        "answers": {"best": "2", "weighted": "2", "majority": "1"},
        "correct": {"best": False, "weighted": False, "majority": True},
        "any_correct": True,
        "completions": tuple(map(LoggedCompletion, nodes, scores, group_of)),
        "groups": (LoggedAnswer("1", True), LoggedAnswer("2", False)),
        "nodes": 4,
    }
    return plain_solved(problem, 1.0, **(plain | fields))


def run_config(strategy, parameters):
    return {
        "deployment": "tiny",
        "deployment_source": "tiny.yaml",
        "deployment_digest": "d",
        "dataset": "/data/set.jsonl",
        "limit": None,
        "prompting": {},
        "speculation": "auto",
        "in_flight": None,
        "problem_ids": [],
        "schedule": "decoupled",
        "seed": 0,
        "strategy": strategy,
        "vote": STRATEGIES[strategy].vote,
        "parameters": parameters,
        "context": 320,
    }


def row(strategy, deployment, **given):
    parameters = configure(STRATEGIES[strategy], deployment, {"n": N, **given})
    config = run_config(strategy, parameters.model_dump(mode="json"))
    events = [solved("a", 1), solved("b", 2)]
    summary = summarise(RunConfig(**config), [SESSION, *events])
    return make_row(summary, events, f"/runs/{strategy}-{given}", strategy, config["vote"])


def printed(rows, width=100):
    console = Console(width=width, file=io.StringIO())
    console.print(comparison_tables(rows))
    text = console.file.getvalue()
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    return text


def test_a_row_has_its_own_vote_interval_and_levels(tiny_deployment):
    best, majority = (row(name, tiny_deployment) for name in ("best-of-n", "majority-vote"))
    assert (best.accuracy, majority.accuracy) == (0.0, 1.0)
    assert best.interval_95[0] == 0.0
    assert majority.right == {"a": True, "b": True}
    assert best.accuracy_by_level["2"] == {"problems": 1, "accuracy": 0.0}
    assert [(p.n, p.accuracy) for p in best.curve] == [(1, 0.5), (2, 0.5), (4, 0.0)]
    assert best.no_curve is None
    data = json.loads(json.dumps(best.to_json()))
    assert data["curve"][0] == {"n": 1, "accuracy": 0.5, "pass_at_n": 0.5, "blocks": 4}
    assert "right" not in data


def test_a_strategy_of_subtrees_has_a_curve_that_starts_at_one(tiny_deployment, monkeypatch):
    trees = dataclasses.replace(STRATEGIES["beam-search"], independent="subtrees")
    monkeypatch.setitem(STRATEGIES, "beam-search", trees)
    points = row("beam-search", tiny_deployment, beam_width=2).curve
    assert [(p.n, p.accuracy, p.blocks) for p in points] == [(2, 0.5, 2), (4, 0.0, 1)]


def test_what_has_no_curve_shows_its_own_n_and_says_why(tiny_deployment):
    beam = row("beam-search", tiny_deployment)
    assert [point.n for point in beam.curve] == [N]
    assert beam.no_curve == "dependent"
    assert "beam-search: at its own n only, since no part of its search is a smaller" in printed(
        [beam]
    )


def test_a_run_without_references_has_a_row_and_no_accuracy(tiny_deployment):
    event = solved("a", 1, correct=None, any_correct=None)
    config = run_config("best-of-n", {"n": N})
    summary = summarise(RunConfig(**config), [event])
    unknown = make_row(summary, [event], "/run", "best-of-n", "best")
    assert (unknown.accuracy, unknown.interval_95, unknown.curve) == (None, None, ())
    assert "best-of-n" in printed([unknown])


def test_a_label_names_what_is_special(tiny_deployment):
    special = row("beam-search", tiny_deployment, beam_width=2, sort_completed=True)
    assert label(special, ()) == "beam-search (beam_width=2, sort_completed)"
    plain = row("beam-search", tiny_deployment)
    assert label(plain, ()) == "beam-search"
    assert label(row("auto", tiny_deployment), ()) == "auto"
    other = dataclasses.replace(plain, schedule="lockstep")
    assert varying([plain, other]) == ("schedule",)
    assert label(other, varying([plain, other])) == "beam-search (schedule=lockstep)"
    assert label(plain, ("dataset",)) == "beam-search (dataset=set.jsonl)"


def test_rows_of_several_groups_are_in_order_and_join_their_curves(tiny_deployment):
    wide, narrow = (row("beam-search", tiny_deployment, n=n) for n in (8, 4))
    chains = row("best-of-n", tiny_deployment)
    rows = in_order([wide, narrow, chains, chains])
    assert len(rows) == 3, "one search is one row, however many groups ran it"
    assert [(r.strategy, r.n) for r in rows] == [
        ("best-of-n", 4),
        ("beam-search", 4),
        ("beam-search", 8),
    ]
    joined = joined_curves([label(r, ()) for r in rows], rows)
    assert list(joined["beam-search"]) == [4, 8]
    text = printed(rows)
    assert "beam-search, n=8" in text


@pytest.mark.parametrize("width", [80, 100])
def test_tables_fit_with_many_sizes_levels_and_long_names(tiny_deployment, width):
    rows = [
        dataclasses.replace(
            row(name, tiny_deployment, temperature=0.5, top_p=0.9, agg_strategy="prod"),
            samples=12_345_678,
            generated_tokens=123_456_789,
            verifier_calls=12_345_678,
            wall_s=123_456.7,
            accuracy_by_level={str(i): {"problems": 10, "accuracy": 1.0} for i in range(1, 21)},
        )
        for name in STRATEGIES
        if "n" not in STRATEGIES[name].fixed
    ]
    text = printed(rows, width)
    assert "123,456,789" in text
    assert "123,456.7" in text


def test_a_group_is_read_from_its_folders_and_says_what_is_unfinished(tmp_path, tiny_deployment):
    configs = {
        name: configure(STRATEGIES[name], tiny_deployment, {"n": N})
        for name in ("best-of-n", "weighted-best-of-n", "beam-search")
    }
    members = members_of(configs)
    first = run_config("best-of-n", members[0].parameters)
    create_group(tmp_path, group_config(first, members))
    assert read_rows(tmp_path) == ([], ["best-of-n", "weighted-best-of-n", "beam-search"])
    create_run(tmp_path / "best-of-n", first)
    with RunLog(tmp_path / "best-of-n") as log:
        log.write(solved("a", 1))
    assert read_rows(tmp_path)[0] == []
    write_summary(tmp_path / "best-of-n", summarise(RunConfig(**first), [solved("a", 1)]).to_json())
    rows, unfinished = read_rows(tmp_path)
    assert [found.strategy for found in rows] == ["best-of-n", "weighted-best-of-n"]
    assert unfinished == ["beam-search"]
    assert "best-of-n and weighted-best-of-n are one run under 2 votes." in printed(rows)
    assert correct_by_problem(tmp_path / "best-of-n", "majority") == {"a": True}
    (single,), nothing = read_rows(tmp_path / "best-of-n")
    assert (single.strategy, nothing) == ("best-of-n", [])


OUTCOMES = st.dictionaries(st.sampled_from("abcdefgh"), st.sampled_from((True, False, None)))


@given(OUTCOMES, OUTCOMES)
def test_disagreements_and_gain_are_those_of_the_common_problems(ours, theirs):
    runs = run_of(log_of(ours)), run_of(log_of(theirs), "other")
    common = ours.keys() & theirs.keys()
    if not common:
        with pytest.raises(RunError):
            compare_runs(runs)
        return
    (pair,) = compare_runs(runs)
    judged = {name for name in common if None not in (ours[name], theirs[name])}
    assert set(pair.common) == common
    assert pair.judged == len(judged)
    assert set(pair.only_baseline) == {n for n in judged if ours[n] and not theirs[n]}
    assert set(pair.only_other) == {n for n in judged if theirs[n] and not ours[n]}
    if judged:
        gains = [theirs[name] - ours[name] for name in judged]
        low, high = pair.gain_95
        assert pair.gain == pytest.approx(sum(gains) / len(gains))
        assert -1 <= low <= pair.gain * len(gains) / (len(gains) + 2) <= high <= 1
    else:
        assert pair.gain is None is pair.gain_95


@settings(max_examples=30)
@given(whole_logs(), whole_logs())
def test_turned_round_a_comparison_is_its_mirror_image(one, other):
    runs = run_of(one), run_of(other)
    if not one[1:] or not other[1:]:
        return
    (there,), (back,) = compare_runs(runs), compare_runs(runs[::-1])
    assert there.only_other == pytest.approx(tuple(sorted(back.only_baseline)))
    assert there.p_value == back.p_value
    for cost, mirrored in zip(there.costs, back.costs, strict=True):
        assert cost.name == mirrored.name
        assert (cost.baseline, cost.other) == pytest.approx((mirrored.other, mirrored.baseline))
        low, high = cost.difference.interval_95
        assert mirrored.difference.interval_95 == pytest.approx((-high, -low))
    if there.gain_95 is not None:
        low, high = there.gain_95
        assert back.gain_95 == pytest.approx((-high, -low))


def test_costs_are_means_over_the_common_problems():
    ours = log_of({"a": True, "b": True, "only ours": True}, tokens=10)
    theirs = log_of({"b": True, "a": True}, tokens=30)
    (pair,) = compare_runs([run_of(ours), run_of(theirs)])
    tokens, verifier, seconds = pair.costs
    assert (tokens.baseline, tokens.other, tokens.difference.mean) == (10, 30, 20)
    assert tokens.difference.interval_95 == (20, 20)
    assert (verifier.baseline, verifier.other) == (0, 0)
    assert seconds.difference.mean == pytest.approx(0.0)


def test_runs_asked_for_the_same_tell_where_their_trees_part(tmp_path):
    def run(name, seed=0, digest="d", ids=(1, 2, 3), **config):
        events = log_of({"a": True, "b": True})
        grown = expansion([0, 1], 1.5, 1.6, problem="b")
        thought = LoggedThought(ids, "", Stop.LENGTH)
        grown = msgspec.structs.replace(grown, thoughts=(thought,), tokens=len(ids))
        end = msgspec.structs.replace(events[-1], tree_digest=digest)
        log = [*events[:-1], grown, end]
        return MeasuredRun.load(write_run(tmp_path / name, log, seed=seed, **config))

    one = run("one")
    for other, differ, first in (
        (run("same", schedule="lockstep"), (), None),
        (run("token", digest="e", ids=(1, 5, 3)), ("b",), ((0, 1), 1, (2, 5))),
        (run("shorter", digest="e", ids=(1, 2)), ("b",), ((0, 1), 2, (3, None))),
        (run("score", digest="e"), ("b",), None),
    ):
        (pair,) = compare_runs([one, other])
        assert pair.trees.differ == differ
        found = pair.trees.first
        assert (found and (found.node, found.token, found.ids)) == first
    (pair,) = compare_runs([one, run("seed", seed=1, digest="e", ids=(4,))])
    assert pair.trees is None
    (pair,) = compare_runs([one, MeasuredRun.load(tmp_path / "token")])
    console = Console(file=io.StringIO(), width=120)
    console.print(paired_report(pair, "one", "token"))
    said = console.file.getvalue()
    assert "trees that differ, 1 of 2: b" in said
    assert "by rounding at problem b, step 0.1, token 1: 2 in one, 5 in token." in said


def test_a_run_of_other_problems_is_refused_with_what_they_share():
    ours = run_of(log_of({"a": True, "b": True}), "runs/ours")
    for theirs, said in (
        (log_of({"a": True}, question="another"), "1 ids are in both, but they name other"),
        (log_of({"c": True}, question="question of a"), "1 questions are in both, but under other"),
        (log_of({"c": True}), "no id and no question is in both"),
    ):
        with pytest.raises(RunError, match=said) as refused:
            compare_runs([ours, run_of(theirs, "runs/theirs", dataset="math", seed=3)])
        assert "runs/theirs has solved 1 of dataset math (seed 3)" in str(refused.value)
    with pytest.raises(RunError, match="runs/empty has not solved any problem yet"):
        compare_runs([ours, run_of([SESSION], "runs/empty")])


def test_what_differs_is_named_by_its_place_in_the_configuration():
    changes = {"seed": 1, "parameters": {"n": 4, "width": 2}, "problem_ids": ["a"]}
    one, other = RunConfig(**CONFIG), RunConfig(**CONFIG | changes)
    found = {each.name: each.values for each in differing_settings([one, other, one])}
    assert found == {
        "seed": (0, 1, 0),
        "parameters.temperature": (0.8, None, 0.8),
        "parameters.width": (None, 2, None),
    }
    assert differing_settings([one, one]) == []


def test_names_are_as_short_as_tells_runs_apart(tmp_path):
    folders = [tmp_path / name for name in ("a/beam", "b/beam", "b/mcts")]
    assert short_names(folders) == ["a/beam", "b/beam", "b/mcts"]
    assert short_names(folders[1:]) == ["beam", "mcts"]
    assert short_names([folders[0], folders[0]]) == ["beam", "beam"]


def test_a_group_stands_for_its_begun_runs(tmp_path):
    members = [Member(name, {name: "best"}, {}) for name in ("beam", "mcts", "later")]
    create_group(tmp_path / "group", group_config(CONFIG, members))
    for name in ("beam", "mcts"):
        write_run(tmp_path / "group" / name, [SESSION], strategy=name, parameters={})
    single = write_run(tmp_path / "single", [SESSION])
    names = [folder.name for folder in expand_groups([tmp_path / "group", single])]
    assert names == ["beam", "mcts", "single"]


def test_the_difference_is_over_common_problems_with_its_own_error():
    better = {"a": True, "b": True, "c": False, "d": True, "only here": True}
    worse = {"a": True, "b": False, "c": False, "d": None, "only there": True}
    found = Agreement.of(worse, better).difference
    assert (found.mean, found.count) == (0.5, 4)
    assert found.error == pytest.approx(math.sqrt(1 / 3 / 4))  # variance of 0, 1, 0, 1 is 1/3
    assert Agreement.of({"x": True}, better).difference is None
    same = Agreement.of(better, better).difference
    assert (same.mean, same.error) == (0.0, 0.0)


def test_what_a_problem_takes_stands_beside_what_it_is_worth(tiny_deployment):
    best, majority = (row(name, tiny_deployment) for name in ("best-of-n", "majority-vote"))
    rows = [
        dataclasses.replace(best, budget={"budget_tokens": 1000}, tokens_per_problem=960.4),
        dataclasses.replace(majority, budget={"budget_tokens": 1000}, tokens_per_problem=970.0),
    ]
    lines = printed(rows).splitlines()
    shown = lines[lines.index("per problem") :]
    (first,) = [line for line in shown if line.startswith("majority-vote")][:1]
    assert first.split()[1:4] == ["4", "1,000", "tokens"]
    assert first.endswith("best")
    (second,) = [line for line in shown if line.startswith("best-of-n")][:1]
    assert "960" in second
    assert "-100.0 (" in second


def test_a_run_says_to_which_cost_its_n_was_fitted(tiny_deployment):
    parameters = configure(STRATEGIES["dvts"], tiny_deployment, {"n": N})
    config = run_config("dvts", parameters.model_dump(mode="json"))
    asked = RunConfig(**config, fitted_to=Limits(budget_tokens=700))
    assert asked.to_json()["fitted_to"] == {"budget_tokens": 700}
    events = [solved("a", 1), solved("b", 2)]
    summary = summarise(asked, [SESSION, *events])
    found = make_row(summary, events, "/run", "dvts", "weighted")
    assert found.budget == {"budget_tokens": 700}
    assert label(found, ()) == "dvts"
