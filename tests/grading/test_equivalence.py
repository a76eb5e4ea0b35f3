"""The grader against labelled answer pairs, and against hostile inputs."""

import psutil
import pytest
from tests.grading.sync import SyncGrader

from tts.grading import Outcome, extract_answer

# Measured with math-verify 0.9.0: 280 of 287. What remains are mostly matters of taste: does a list
# have an order (g0331, g0337), is 0.0304 another spelling of 3.04 (g0353, g0354), how far may
# decimals be rounded (g0398, g0399). In g0675 an equation is taken for its right-hand side.
AGREEMENT_FLOOR = 0.975
# Of the labelled completions those with a box apply: nothing is guessed from free text.
# Measured: 38 of 44. The others spread their answer over several boxes; the last one counts.
EXTRACTION_FLOOR = 0.86


def is_plain(case):
    """Whether the label was made with default options (which kind of match is sought aside)."""
    config = case.get("config") or {}
    kinds = config.get("match_types", config.get("match_type", []))
    return config.keys() <= {"match_types", "match_type"} and "NativeLetters" not in kinds


def pair(case):
    return case["prediction"], case["reference"]


def boxed(case):
    prediction, reference = pair(case)
    return extract_answer(prediction), extract_answer(reference) or reference


@pytest.mark.parametrize(
    ("kind", "answers", "floor"),
    [("answer_pair", pair, AGREEMENT_FLOOR), ("extract", boxed, EXTRACTION_FLOOR)],
)
def test_agreement_on_answer_pairs_and_on_completions_with_a_box(
    shared_lines, grader, kind, answers, floor
):
    cases = shared_lines("grader_cases_dev.jsonl")
    cases = [case for case in cases if case["kind"] == kind and is_plain(case)]
    cases = [case for case in cases if answers(case)[0] is not None]
    wrong = [c["id"] for c in cases if grader.equal_sync(*answers(c)).equal != c["equal"]]
    agreement = 1 - len(wrong) / len(cases)
    print(f"{kind}: {agreement:.2%} of {len(cases)}, not {wrong}")
    assert agreement >= floor


def build(line, field):
    """The text of a field; very long ones are written as a Python expression of the data set."""
    return line[field] if field in line else eval(line[f"{field}_py"])  # the data set is ours


@pytest.mark.slow
def test_hostile_inputs(shared_lines):
    with SyncGrader(cpu_s=1) as grader:
        for line in shared_lines("hostile_inputs.jsonl"):
            prediction, reference = build(line, "prediction"), build(line, "reference")
            verdict = grader.equal_sync(extract_answer(prediction) or prediction, reference)
            assert verdict.outcome in Outcome
            if line["expect"] != "any":
                assert verdict.equal == (line["expect"] == "true"), line["name"]
        assert grader.equal_sync("1/2", "0.5").equal
        pids = grader.worker_pids()
        assert len(pids) == 1
    assert not any(psutil.pid_exists(pid) for pid in pids)


HOSTILE = [
    "(9)^{(9)^{9}}",  # slips through the screen: one long C call
    r"\int_0^{1} \frac{\ln(1+x)\ln(1-x)}{x^2+1} dx",
    "(x+y+z+w)^{30}-(x+y)^{29}",
    "((((" * 50 + "1" + "))))" * 50,
    r"\sqrt{" * 200 + "2" + "}" * 200,
    "{" * 1000,
    "}" * 1000,
    "\0\ud800\\",
    "__import__('os').system('exit')",
    r"\frac{1}{0}",
    "7" * 1_000_000,
]


@pytest.mark.slow
def test_hostile_inputs_of_our_own():
    with SyncGrader(cpu_s=0.5) as grader:
        assert not any(grader.equal_sync(answer, r"\sqrt{5}").equal for answer in HOSTILE)
