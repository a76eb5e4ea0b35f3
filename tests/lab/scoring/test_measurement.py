"""Measurements of verifiers whose faults are known, and the sentences that name them."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.lab.scoring.worlds import VERIFIERS, good, scored_chains

from tts.lab.scoring.chains import Chain, ScoredChain
from tts.lab.scoring.findings import findings_of
from tts.lab.scoring.measurement import compare_aggregations, measure
from tts.runs.verdicts import VERDICTS, alarms, judge, verdict_of
from tts.search.thought import aggregate

DATA = Path(__file__).resolve().parents[4] / "shared" / "data" / "traces_dev.jsonl"


def names_of(measurement):
    return {finding.name for finding in findings_of(measurement)}


def relabelled(chains, change):
    return [replace(each, chain=replace(each.chain, **change(each.chain))) for each in chains]


@pytest.mark.parametrize(
    ("verifier", "there", "not_there"),
    [
        ("good", {"usable", "picks"}, {"saturated", "coarse", "depends on length"}),
        ("weak", {"weak"}, {"depends on length", "tells problems apart"}),
        ("worthless", {"worthless"}, {"usable"}),
        ("inverted", {"inverted"}, {"best aggregation", "no better than length"}),
        ("constant", {"worthless", "constant"}, {"saturated"}),
        ("saturated", {"usable", "saturated"}, {"constant"}),
        ("long", {"usable", "depends on length"}, {"depends on depth"}),
        ("easy", {"worthless", "tells problems apart"}, {"usable"}),
        ("squeezed", {"usable", "uncalibrated"}, {"worthless"}),
    ],
)
def test_a_fault_is_named(verifier, there, not_there):
    names = names_of(measure(scored_chains(VERIFIERS[verifier], 150)))
    assert there <= names
    assert not not_there & names


def test_few_labels_are_unclear_and_never_worthless():
    for verifier in VERIFIERS.values():
        names = names_of(measure(scored_chains(verifier, 4, n=2, seed=3)))
        assert not {"worthless", "weak", "usable", "inverted"} & names


def test_a_product_that_tells_the_number_of_steps_is_called_so():
    (best,) = [
        finding
        for finding in findings_of(measure(scored_chains(VERIFIERS["worthless"], 150)))
        if finding.name == "best aggregation"
    ]
    assert "no better than the number of steps alone" in best.text


def test_answers_are_judged_by_each_aggregation_of_their_steps():
    chains = scored_chains(good, 40)
    measured = measure(chains)
    for how, kind in measured.answers.items():
        expected = [aggregate(each.scores, how) for each in chains]
        assert kind.these.scores.tolist() == expected
        assert kind.these.right.tolist() == [each.chain.right for each in chains]
    assert measured.inner.these.scores.tolist() == [
        score for each in chains for score in each.scores[:-1]
    ]
    best, differences = compare_aggregations(measured.answers)
    assert {best, *differences} == {"last", "min", "prod", "mean"}


def test_groups_part_the_observations():
    measured = measure(scored_chains(good, 60, labelled="both"))
    for kind in (measured.steps, measured.final, measured.inner):
        for by in ("depth", "length", "level"):
            groups = [group for group in kind.groups if group.by == by]
            assert len(groups) > 1
            assert sum(group.right for group in groups) == kind.right
            assert sum(group.wrong for group in groups) == kind.wrong


@given(st.integers(1, 5), st.integers(0, 10**6))
def test_picks_are_means_over_problems(n, seed):
    chains = scored_chains(lambda f: round(good(f), 1), 12, n=n, seed=seed)
    picks = measure(chains).final.picks
    assert (picks is None) == (n == 1)
    if picks is None:
        return
    by_problem = {}
    for each in chains:
        by_problem.setdefault(each.chain.problem, []).append((each.scores[-1], each.chain.right))
    best = [
        sum(right for score, right in rows if score == max(rows)[0])
        / sum(score == max(rows)[0] for score, _ in rows)
        for rows in by_problem.values()
    ]
    assert picks.best.value == pytest.approx(sum(best) / 12)
    assert picks.any.value == pytest.approx(
        sum(any(right for _, right in rows) for rows in by_problem.values()) / 12
    )


def test_labels_of_one_kind_have_no_roc():
    for right, kind in ((True, "right"), (False, "wrong")):
        chains = relabelled(scored_chains(good, 20), lambda chain, r=right: {"right": r})
        measured = measure(chains)
        assert measured.main.auroc is None
        (finding,) = [f for f in findings_of(measured) if f.name == "no ROC"]
        assert f"All 160 labelled answers are {kind}" in finding.text
    bare = relabelled(scored_chains(good, 20), lambda chain: {"right": None})
    assert "no labels" in names_of(measure(bare))
    assert "no labels" in names_of(measure([]))


def test_scores_that_are_no_numbers_are_named_and_left_out():
    chains = scored_chains(good, 20)
    spoilt = [replace(chains[0], scores=(math.nan, *chains[0].scores[1:])), *chains[1:]]
    spoilt[1] = replace(spoilt[1], scores=(*spoilt[1].scores[:-1], math.inf))
    measured = measure(spoilt)
    assert measured.not_numbers[0] == "set.jsonl, line 1, step 1: nan"
    assert (len(measured.not_numbers), measured.unscored) == (2, 2)
    assert measured.final.right + measured.final.wrong == len(chains) - 2
    texts = " ".join(finding.text for finding in findings_of(measured))
    assert "2 scores are no numbers and were left out, the first: set.jsonl, line 1" in texts


def test_a_verifier_of_whole_answers_has_one_aggregation():
    chains = scored_chains(good, 40, labelled="both")
    alone = [
        replace(each, scores=(*[None] * (len(each.scores) - 1), each.scores[-1])) for each in chains
    ]
    measured = measure(alone)
    assert list(measured.answers) == ["last"]
    assert measured.inner is None
    assert measured.first_error is None
    assert measured.final.auroc.value == measure(chains).final.auroc.value


def test_an_answer_without_a_label_is_right_if_all_its_steps_are():
    chains = scored_chains(good, 30, labelled="both")
    bare = relabelled(chains, lambda chain: {"right": None})
    assert measure(bare).final.auroc.value == measure(chains).final.auroc.value
    partial = relabelled(
        chains, lambda chain: {"right": None, "right_steps": (None, *chain.right_steps[1:])}
    )
    assert measure(partial).final is None


def test_each_interval_has_its_verdict():
    class Area:
        def __init__(self, *ends):
            self.interval = ends

    ends = {
        (0.1, 0.49): "inverted",
        (0.4, 0.5): "worthless",
        (0.45, 0.59): "worthless",
        (0.45, 0.61): "unclear",
        (0.51, 0.69): "weak",
        (0.51, 0.71): "unclear",
        (0.7, 0.9): "usable",
        (0.2, 0.9): "unclear",
    }
    assert {each: verdict_of(Area(*each)).name for each in ends} == ends
    assert verdict_of(None).name == "unclear"
    assert len({verdict.name for verdict in VERDICTS}) == len(VERDICTS)


def test_real_traces_with_scores_of_a_published_verifier():
    """A Llama of 1B on five problems: too few to judge, though most pairs are in order."""
    if not DATA.is_file():
        pytest.skip(f"{DATA} is not here")
    chains = []
    for line in DATA.read_text().splitlines():
        row = json.loads(line)
        if "RLHFlow" in row.get("prm", "") and "correct" in row:
            scores = tuple(row["step_scores"])
            steps = tuple(f"Step {n}" for n, _ in enumerate(scores))
            chain = Chain(row["problem_id"], row["trace_id"], "Q?", steps, right=row["correct"])
            chains.append(ScoredChain(chain, scores, (1,) * len(scores)))
    measured = measure(chains)
    assert (len(chains), measured.problems) == (300, 5)
    assert 0.85 < measured.final.auroc.value < 0.95
    assert "usable" in names_of(measured)


def test_the_guide_has_the_rules():
    guide = Path(__file__).resolve().parents[3] / "docs" / "guides" / "know-your-verifier.md"
    text = guide.read_text(encoding="utf-8")
    for verdict in VERDICTS:
        assert f"| {verdict.name} | {verdict.rule} |" in text


def test_scores_of_a_run_are_judged_alike():
    measured = measure(scored_chains(VERIFIERS["saturated"], 150))
    assert [finding.name for finding in judge(measured.final.these, "chain")] == [
        "usable",
        "saturated",
    ]
    worthless = measure(scored_chains(VERIFIERS["constant"], 150)).final.these
    verdict, constant = judge(worthless, "completion")
    assert verdict.text.startswith("Worthless: a right completion is scored above a wrong one")
    assert constant.text.startswith(
        "Constant: all 1,200 scores of completions are 0.5. A completion"
    )
    assert alarms(worthless, "completion") == [constant.text], "steps may still be told apart"
    assert judge(worthless.where(worthless.scores > 1), "completion") == []
