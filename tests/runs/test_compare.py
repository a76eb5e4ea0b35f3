"""A comparison: which runs it needs, its rows, and its tables."""

import dataclasses
import io
import json
import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from tests.runs.logs import SESSION, expansion
from tests.runs.logs import solved as plain_solved
from tests.runs.runs import CONFIG, log_of, row_of, run_of, write_run

from tts.base.errors import RunDamaged, RunError
from tts.lab.bench.group_run import members_of
from tts.reports.figures.pairs import trees_figure
from tts.reports.terminal import tables
from tts.runs.checks import write_summary
from tts.runs.compare import Baseline, compare, differing_settings, pair_of, read_rows
from tts.runs.config import RunConfig
from tts.runs.events import LoggedAnswer, LoggedCompletion, LoggedThought
from tts.runs.folder import create_run
from tts.runs.groups import (
    GroupConfig,
    Member,
    create_group,
    runs_in,
    short_names,
    write_comparison,
)
from tts.runs.log import RunLog
from tts.runs.measures import Measures
from tts.runs.rows import (
    best_of,
    best_rival,
    in_order,
    joined_curves,
    label,
    pooled,
    rows_of,
    varying,
)
from tts.runs.run import Run
from tts.runs.statistics import gain_of, mcnemar, share_difference
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
        "correct": {"best": False, "weighted": False, "majority": True},
        "any_correct": True,
        "completions": tuple(map(LoggedCompletion, nodes, scores, group_of)),
        "groups": (LoggedAnswer("1", True), LoggedAnswer("2", False)),
    }
    return plain_solved(problem, 1.0, **(plain | fields))


def config_of(strategy, parameters):
    vote = STRATEGIES[strategy].vote
    own = {"strategy": strategy, "vote": vote, "parameters": parameters, "context": 320}
    return CONFIG | own | {"dataset": "/data/set.jsonl"}


@pytest.fixture
def row(tmp_path, tiny_deployment):
    """Makes the row of a strategy: of a run of two problems that is written for it."""

    def made(strategy, events=None, fitted_to=None, **given):
        parameters = configure(STRATEGIES[strategy], tiny_deployment, {"n": N, **given})
        config = config_of(strategy, parameters.model_dump(mode="json"))
        log = events or [SESSION, solved("a", 1), solved("b", 2)]
        folder = tmp_path / f"{strategy}-{len(list(tmp_path.iterdir()))}"
        (found,) = read_rows(write_run(folder, log, **config, fitted_to=fitted_to or {}))
        return found

    return made


def printed(rows):
    console = Console(width=200, file=io.StringIO())
    console.print(tables(rows))
    return console.file.getvalue()


def test_a_row_has_its_own_vote_interval_and_levels(row):
    best, majority = (row(name) for name in ("best-of-n", "majority-vote"))
    assert (best.accuracy, majority.accuracy) == (0.0, 1.0)
    assert best.interval_95[0] == 0.0
    assert majority.right == {"a": True, "b": True}
    assert best.accuracy_by_level["2"] == {"problems": 1, "accuracy": 0.0}
    assert [(p.n, p.accuracy) for p in best.curve] == [(1, 0.5), (2, 0.5), (4, 0.0)]
    assert best.no_curve is None
    data = json.loads(json.dumps(best.to_json()))
    assert data["curve"][0] == {"n": 1, "accuracy": 0.5, "pass_at_n": 0.5, "blocks": 4}
    assert "right" not in data


def test_a_strategy_of_subtrees_has_a_curve_that_starts_at_one(row, monkeypatch):
    trees = dataclasses.replace(STRATEGIES["beam-search"], independent="subtrees")
    monkeypatch.setitem(STRATEGIES, "beam-search", trees)
    points = row("beam-search", beam_width=2).curve
    assert [(p.n, p.accuracy, p.blocks) for p in points] == [(2, 0.5, 2), (4, 0.0, 1)]


def test_what_has_no_curve_shows_its_own_n_and_says_why(row):
    beam, chains = row("beam-search"), row("best-of-n")
    assert [point.n for point in beam.curve] == [N]
    assert (beam.no_curve, chains.no_curve) == ("dependent", None)
    text = printed([beam, chains])
    assert "beam-search: only where a run of that n was made." in text


def test_a_run_without_references_has_a_row_and_no_accuracy(row):
    unknown = row("best-of-n", [SESSION, solved("a", 1, correct=None, any_correct=None)])
    assert (unknown.accuracy, unknown.interval_95, unknown.curve) == (None, None, ())
    assert "best-of-n" in printed([unknown])


def test_a_label_names_what_is_special(row):
    special = row("beam-search", beam_width=2, sort_completed=True)
    assert label(special, ()) == "beam-search (beam_width=2, sort_completed)"
    plain, auto = row("beam-search"), row("auto", fitted_to={"budget_tokens": 700})
    assert [label(each, ()) for each in (plain, auto)] == ["beam-search", "auto"]
    assert auto.budget == {"budget_tokens": 700}
    summary = msgspec.structs.replace(plain.summary, schedule="lockstep")
    other = dataclasses.replace(plain, summary=summary)
    assert varying([plain, other]) == ("schedule",)
    assert label(other, varying([plain, other])) == "beam-search (schedule=lockstep)"
    assert label(plain, ("dataset",)) == "beam-search (dataset=set.jsonl)"


def test_rows_of_several_groups_are_in_order_and_join_their_curves(row):
    wide, narrow = (row("beam-search", n=n) for n in (8, 4))
    chains = row("best-of-n")
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


def test_a_group_is_read_from_its_folders_and_says_what_is_unfinished(tmp_path, tiny_deployment):
    names = ("best-of-n", "weighted-best-of-n", "beam-search")
    variants = [(n, {}, configure(STRATEGIES[n], tiny_deployment, {"n": N})) for n in names]
    members = members_of(variants, STRATEGIES)
    first = config_of("best-of-n", members[0].parameters)
    create_group(tmp_path, GroupConfig(RunConfig(**first), members).to_json())
    assert read_rows(tmp_path) == []
    assert compare([tmp_path]).unfinished == {str(tmp_path): list(names)}
    create_run(tmp_path / "best-of-n", first)
    with RunLog(tmp_path / "best-of-n") as log:
        log.write(solved("a", 1))
    assert read_rows(tmp_path) == []
    write_summary(
        tmp_path / "best-of-n",
        summarise(RunConfig(**first), Measures.of([solved("a", 1)])).to_json(),
    )
    rows = read_rows(tmp_path)
    assert [found.strategy for found in rows] == ["best-of-n", "weighted-best-of-n"]
    assert compare([tmp_path]).unfinished == {str(tmp_path): ["beam-search"]}
    write_comparison(tmp_path, {})
    with pytest.raises(RunDamaged, match="was complete, and now lacks the runs of beam-search"):
        compare([tmp_path])
    assert "best-of-n and weighted-best-of-n are one run under 2 votes." in printed(rows)
    assert [row.strategy for row in read_rows(tmp_path / "best-of-n")] == ["best-of-n"]


OUTCOMES = st.dictionaries(st.sampled_from("abcdefgh"), st.sampled_from((True, False, None)))


@given(OUTCOMES, OUTCOMES)
def test_disagreements_and_gain_are_those_of_the_common_problems(ours, theirs):
    runs = run_of(log_of(ours)), run_of(log_of(theirs), "other")
    common = ours.keys() & theirs.keys()
    if not common:
        with pytest.raises(RunError):
            pair_of(*runs)
        return
    pair = pair_of(*runs)
    judged = {name for name in common if None not in (ours[name], theirs[name])}
    assert set(pair.common) == common
    assert pair.judged == len(judged)
    assert set(pair.only_baseline) == {n for n in judged if ours[n] and not theirs[n]}
    assert set(pair.only_other) == {n for n in judged if theirs[n] and not ours[n]}
    assert pair.right == (sum(ours[n] for n in judged), sum(theirs[n] for n in judged))
    assert pair.p_value == mcnemar(len(pair.only_baseline), len(pair.only_other))
    if judged:
        gains = [theirs[name] - ours[name] for name in judged]
        low, high = pair.gain_95
        assert pair.gain == pytest.approx(sum(gains) / len(gains))
        assert -1 <= low <= pair.gain * len(gains) / (len(gains) + 2) <= high <= 1
    else:
        assert pair.gain is None is pair.gain_95


def test_costs_are_means_over_the_common_problems():
    ours = log_of({"a": True, "b": True, "only ours": True}, tokens=10)
    theirs = log_of({"b": True, "a": True}, tokens=30)
    pair = pair_of(run_of(ours), run_of(theirs))
    tokens, verifier, seconds = pair.costs  # no compute: the models' sizes are not known
    assert (tokens.baseline, tokens.other, tokens.difference) == (10, 30, 20)
    assert tokens.difference_95 == (20, 20)
    assert (tokens.ratio_95, verifier.ratio_95) == ((3, 3), None)
    assert pair.p_value == 1.0
    assert (verifier.baseline, verifier.other) == (0, 0)
    assert seconds.difference == pytest.approx(0.0)


def test_every_table_counts_the_same_tokens_without_speculation_in_vain():
    events = log_of({"a": True}, tokens=10)
    ahead = expansion([1], 0.1, 0.5, "speculative", tokens=7, problem="a")
    run = run_of([*events[:2], ahead, *events[2:]])
    (row,) = rows_of(run, {"best-of-n": "best"}, answers=True)
    (answer,) = row.answers
    assert (row.tokens_per_problem, answer.tokens, pair_of(run, run).costs[0].other) == (10, 10, 10)


def test_runs_asked_for_the_same_tell_where_their_trees_part(tmp_path):
    def run(name, digest="d", ids=(1, 2, 3), **config):
        *events, end = log_of({"a": True, "b": True})
        step = LoggedThought(ids, "", Stop.LENGTH)
        grown = expansion([0, 1], 1.5, 1.6, problem="b", thoughts=(step,))
        log = [*events, grown, msgspec.structs.replace(end, tree_digest=digest)]
        return Run.load(write_run(tmp_path / name, log, **config))

    one = run("one")
    for other, differ, first in (
        (run("same", schedule="lockstep"), (), None),
        (run("score", digest="e"), ("b",), "in a score, by rounding"),
        (run("shorter", "e", (1, 2)), ("b",), "token 2: 3 in one, the end in x"),
        (run("token", "e", (1, 5, 3)), ("b",), "token 1: 2 in one, 5 in x"),
    ):
        pair = pair_of(one, other)
        figure = trees_figure({"x": pair}, "one")
        (drawn,) = figure.rows
        assert pair.trees.differ == differ
        told = "1 of 2 trees of x differ" if differ else "the trees of x are the same"
        assert figure.reading == f"Asked for the same as one: {told}."
        assert (drawn["trees"], drawn["differ"]) == (2, len(differ))
        where = "at problem b, step 0.1, " if pair.trees.first else ""
        assert drawn["first difference"] == (first and where + first)
    remote = {"url": ["http://127.0.0.1:1"], "reproducible": False}
    assert pair_of(one, run("seed", seed=1)).trees is None
    for name, value in (("limits", {"deadline_s": 1.0}), ("remotes", {"generator": remote})):
        timed = run(name, **{name: value})
        assert pair_of(timed, timed).trees is None


def test_a_run_of_other_problems_is_refused_with_what_they_share():
    ours = run_of(log_of({"a": True, "b": True}), "runs/ours")
    for theirs, said in (
        (log_of({"a": True}, question="another"), "1 ids are in both, but they name other"),
        (log_of({"c": True}, question="question of a"), "1 questions are in both, but under other"),
        (log_of({"c": True}), "no id and no question is in both"),
    ):
        with pytest.raises(RunError, match=said) as refused:
            pair_of(ours, run_of(theirs, "runs/theirs", dataset="math", seed=3))
        assert "runs/theirs has solved 1 of dataset math (seed 3)" in str(refused.value)
    with pytest.raises(RunError, match="runs/empty has not solved any problem yet"):
        pair_of(ours, run_of([SESSION], "runs/empty"))


def test_draws_that_only_overlap_are_not_compared_but_a_part_is_with_its_whole():
    asked = [{"a": True, "b": True}, {"b": False, "c": True}, {"a": False}]
    one, overlapping, part = (
        run_of(log_of(each), f"runs/{place}", problem_ids=list(each), dataset_seed=place)
        for place, each in enumerate(asked)
    )
    said = "runs/0 2 of dataset demo .seed 0., runs/1 2 of dataset demo .seed 1., and 1 are in both"
    for pair in ((one, overlapping), (overlapping, one)):
        with pytest.raises(RunError, match=said if pair[0] is one else "and 1 are in both"):
            pair_of(*pair)
    assert [pair_of(*pair).judged for pair in ((one, part), (part, one))] == [1, 1]


def test_rows_are_ranked_with_those_of_the_same_questions_and_budget():
    budget = {"budget_tokens": 500}
    fitted = judged("dvts", 6, budget=budget)
    limited = judged("auto", 8, limits=budget, limited={}, unanswered=0)
    richer = judged("dvts", 9, budget={"budget_tokens": 1000})
    other = judged("mcts", 10, budget=budget, asked="other")
    rows = [fitted, limited, richer, other, row_of("dvts", 400, None, right={})]
    assert [best_rival(row, rows) for row in rows] == [limited, limited, None, None, None]
    text = printed([fitted, other, limited])
    assert text.count("deployment demo, dataset demo: 10 problems") == 2


def test_costs_are_about_the_problems_that_accuracies_are_about(tmp_path):
    answers = {"a": True, "b": None, "c": False}
    (found,) = read_rows(write_run(tmp_path / "some", log_of(answers, tokens=5)))
    assert (found.problems, found.tokens_per_problem) == (2, 5)
    log = [*log_of(answers, tokens=5), expansion([1], 9.0, 9.5, tokens=95, problem="later")]
    (unfinished,) = read_rows(write_run(tmp_path / "unfinished", log))
    assert unfinished.tokens_per_problem == 5, "what is not solved has no part in it"
    (none,) = read_rows(write_run(tmp_path / "none", log_of({"b": None}, tokens=7)))
    assert (none.problems, none.tokens_per_problem) == (0, 7)
    pair = pair_of(run_of(log_of(answers)), run_of(log_of(answers), "other"))
    assert [cost.problems for cost in pair.costs] == [2, 2, 2]


def test_a_baseline_goes_first_by_its_name_and_must_have_problems_in_common(tmp_path):
    answers = {"a": True, "b": False}
    small, other = (write_run(tmp_path / name, log_of(answers)) for name in ("small", "other"))
    sizes = {"model_parameters": {"generator": 7}, "deployment": "large"}
    large = write_run(tmp_path / "large", log_of({"a": True, "b": True}), **sizes)
    for name, called in (("", "large"), ("Qwen 72B", "Qwen 72B")):
        found = compare([small, other], Baseline(large, name))
        assert found.names == [called, "small", "other"]
        assert [label(row, varying(found.rows)) for row in found.rows] == [
            called,
            "best-of-n",
            "best-of-n",
        ]
        assert [pair.baseline for pair in found.pairs] == [str(large)] * 2
        assert [row.compute_per_problem for row in found.rows] == [2 * 7 * 5, None, None]
        assert [bool(row.no_compute) for row in found.rows] == [False, True, True]
    elsewhere = write_run(tmp_path / "elsewhere", log_of({"c": True}))
    with pytest.raises(RunError, match="no id and no question is in both"):
        compare([small], Baseline(elsewhere))


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


def test_a_group_stands_for_its_begun_runs(tmp_path):
    members = [Member(name, {name: "best"}, {}) for name in ("beam", "mcts", "later")]
    create_group(tmp_path / "group", GroupConfig(RunConfig(**CONFIG), members).to_json())
    for name in ("beam", "mcts"):
        write_run(tmp_path / "group" / name, [SESSION], strategy=name, parameters={})
    single = write_run(tmp_path / "single", [SESSION])
    assert runs_in(single) == [(single, {})]
    assert runs_in(tmp_path / "nowhere") == [(tmp_path / "nowhere", {})]
    begun = [(tmp_path / "group" / name, {name: "best"}) for name in ("beam", "mcts")]
    assert runs_in(tmp_path / "group") == begun
    assert runs_in(tmp_path) == [*begun, (single, {})], "a folder of runs stands for all of them"
    assert [run.folder for run in compare([tmp_path / "group", single]).runs[-1:]] == [single]
    assert short_names([tmp_path / name for name in ("a/beam", "b/beam", "b/mcts")]) == [
        "a/beam",
        "b/beam",
        "b/mcts",
    ]
    assert short_names([tmp_path / "b/beam", tmp_path / "b/mcts"]) == ["beam", "mcts"]
    assert short_names([single, single]) == ["single", "single"]


def test_a_gain_is_over_common_problems_and_of_means_where_seeds_are_several():
    better = {"a": 1.0, "b": 1.0, "c": 0.0, "only here": 1.0}
    worse = {"a": 1.0, "b": 0.0, "c": 0.0, "only there": 1.0}
    gain = gain_of(better, worse)
    assert gain.mean == pytest.approx(1 / 3)
    assert gain[1:] == (*share_difference(1, 0, 3), mcnemar(1, 0))
    assert gain_of({"x": 1.0}, better) is None
    found = gain_of({"a": 0.5, "b": 1.0}, {"a": 0.0, "b": 0.0})
    error = math.sqrt(0.125 / 2)  # the variance of 0.5 and 1 is 0.125
    p_value = math.erfc(0.75 / error / math.sqrt(2))
    assert found == pytest.approx((0.75, 0.75 - 1.96 * error, 0.75 + 1.96 * error, p_value))


def test_what_a_problem_takes_stands_beside_what_it_is_worth(row):
    best, majority = (row(name) for name in ("best-of-n", "majority-vote"))
    rows = [
        dataclasses.replace(best, budget={"budget_tokens": 1000}, tokens_per_problem=960.4),
        dataclasses.replace(majority, budget={"budget_tokens": 1000}, tokens_per_problem=970.0),
    ]
    first, second = (line.split() for line in printed(rows).splitlines()[6:8])
    assert first[:7] == ["best-of-n", "4", "1,000", "tokens", "0.0%", "[0.0,", "65.8]"]
    assert first[10:13] == ["0.500", "960", "0"]
    assert second[:7] == ["majority-vote", "4", "1,000", "tokens", "100.0%", "[34.2,", "100.0]"]


BUDGET = {"budget_tokens": 500}


def judged(strategy, right, tokens=400.0, **fields):
    return row_of(strategy, tokens, right / 10, **fields)


def test_seeds_are_one_and_a_fitted_n_may_differ():
    rows = [
        judged("mcts", 4, budget=BUDGET, n=3, tokens=300),
        judged("mcts", 6, budget=BUDGET, n=5, seed=1, tokens=500),
        judged("dvts", 9, budget=BUDGET, n=8),
        judged("dvts", 9, budget={"budget_tokens": 1000}, n=16),
    ]
    found = pooled(rows)
    (mcts,) = found["mcts"]
    assert [row.n for row in found["dvts"]] == [8, 16]
    assert (mcts.n, mcts.tokens_per_problem, mcts.accuracy) == (4, 400, 0.5)
    assert (mcts.right["4"], mcts.right["0"]) == (0.5, 1.0)
    assert pooled([row_of("dvts", 1, None, right={})]) == {}

    unfitted = pooled([judged("dvts", 9, n=16), judged("dvts", 5), judged("dvts", 7, seed=1)])
    assert [(row.n, row.accuracy) for row in unfitted["dvts"]] == [(16, 0.9), (4, 0.6)]


def test_a_problem_counts_once_however_many_seeds_there_are():
    rows = [judged("dvts", 8, seed=seed) for seed in range(50)]
    rows += [judged("mcts", 4 + seed % 2, tokens=390, seed=seed) for seed in range(50)]
    found = pooled(rows)
    (best,), (other,) = found["dvts"], found["mcts"]
    assert best_of([other, best]) is best
    assert best_of([best, dataclasses.replace(other, accuracy=best.accuracy)]) is not best
    gain = other.gain_over(best)
    assert gain.mean == pytest.approx(-0.35)
    squares = 6 * 0.35**2 + 0.15**2 + 3 * 0.65**2  # of six times 0, -0.5 once, three times -1
    assert gain.high - gain.mean == pytest.approx(1.96 * (squares / 90) ** 0.5)
