"""Runs compared problem by problem."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.runs.logs import SESSION, whole_logs
from tests.runs.runs import CONFIG, log_of, run_of, write_run

from tts.build.errors import RunError
from tts.runs.groups import Member, create_group, group_config
from tts.runs.measured_run import expand_groups
from tts.runs.paired_runs import compare_runs, differing_settings, short_names

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


def test_old_logs_without_questions_are_matched_by_dataset_and_seed():
    ours, theirs = (run_of(log_of({"a": True}, question="")) for _ in range(2))
    assert compare_runs([ours, theirs])[0].common == ("a",)
    with pytest.raises(RunError, match="other questions"):
        compare_runs([ours, run_of(log_of({"a": True}, question=""), seed=1)])


def test_what_differs_is_named_by_its_place_in_the_configuration():
    other = CONFIG | {"seed": 1, "parameters": {"n": 4, "width": 2}, "problem_ids": ["a"]}
    found = {each.name: each.values for each in differing_settings([CONFIG, other, CONFIG])}
    assert found == {
        "seed": (0, 1, 0),
        "parameters.temperature": (0.8, None, 0.8),
        "parameters.width": (None, 2, None),
    }
    assert differing_settings([CONFIG, CONFIG]) == []


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
