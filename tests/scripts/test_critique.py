"""What the bundled verifier that writes was taught, and what its deployment asks it with."""

import importlib
import random

import pytest
from scripts.training.solutions import first_wrong_step, render_final, render_step
from tests.programs import ROOT

from tts.datasets.demo import Chain

CHAIN = Chain(37, (("+", 58), ("/", 5), ("*", 4)))
FIRST, SECOND = render_step(1, "+", 37, 58, 95, "words"), render_step(2, "/", 95, 5, 19)


@pytest.fixture
def critique(torch):
    """The program, which imports PyTorch: other processes than that of such tests do without."""
    return importlib.import_module("scripts.training.critique")


@pytest.mark.parametrize(
    ("steps", "should"),
    [
        ([FIRST], "Step 1 should be 37 + 58: 87 + 8 = 95."),
        ([render_step(1, "+", 37, 58, 85)], "Step 1 should be 37 + 58: 87 + 8 = 95."),
        ([FIRST, render_step(2, "*", 95, 4, 380, "terse")], "Step 2 should be 95 / 5: 5 * 19 ="),
        ([FIRST, SECOND, render_final(19)], "Step 3 should be 19 * 4: 40 + 36 = 76."),
        ([FIRST, SECOND, render_step(3, "*", 19, 4, 76), render_final(76)], "should be 76."),
        ([FIRST, SECOND, render_step(3, "*", 19, 4, 76), render_final(67)], "should be 76."),
    ],
)
def test_a_critique_works_out_what_the_last_step_should_be(critique, steps, should):
    said = critique.critique(CHAIN, len(steps) - 1, steps[-1])
    assert should in said
    right = first_wrong_step(CHAIN, steps) is None
    assert said.splitlines()[-2:] == ["Verdict:", "right" if right else "wrong"]


def test_it_is_asked_as_it_was_taught(critique):
    """The prompt's places filled as `verifiers.critique` does; half of the attempts are wrong."""
    prompt = (ROOT / "engines/deployments/prompts/demo-critique.txt").read_text().strip()
    rng, verdicts = random.Random(5), []
    for _ in range(200):
        trace = critique.made_up(rng)
        *before, last = trace.steps[: trace.first_wrong() + 1]
        places = {"question": trace.question, "steps": "\n\n".join(before), "step": last}
        asked = critique.user_turn(trace.question, [*before, last])
        assert asked == prompt.format(**places)
        verdicts.append(critique.judged(rng, trace)[1].rpartition("\n")[2])
    assert 0.25 < verdicts.count("wrong") / len(verdicts) < 0.75
