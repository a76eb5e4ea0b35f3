"""Verifiers that were never trained to judge, searched with on embedded engines."""

import asyncio

import numpy as np
import pytest
from tests.end_to_end.commands import built_alone, grown_under_every_schedule

from tts.datasets.load import load_problems
from tts.endpoints.base import ScoreCall
from tts.prompting import Models
from tts.session import AsyncSession

pytestmark = pytest.mark.xdist_group("test_untrained")  # they share the engines

SAYS = {"demo-prompted": "judges with a prompt: a language head, read at the labels"}
SMALL = {"n": 4, "beam_width": 2, "num_iterations": 3}
QUESTION = "Compute 37 + 58 - 20."
STEPS = ("## Step 1: 37 + 58 = 95", "## Step 2: 95 - 20 = 75")


@pytest.fixture(scope="module", params=SAYS)
def untrained(request, tmp_path_factory):
    """A deployment whose engines are built in a home of its own."""
    said = f"verifier: {SAYS[request.param]}"
    with built_alone(request.param, tmp_path_factory.mktemp(request.param), said) as deployment:
        yield deployment


@pytest.mark.slow
def test_every_schedule_grows_the_same_trees_without_a_trained_verifier(untrained, tmp_path):
    name = untrained.name
    problems = load_problems("demo", limit=3)
    assert len(problems) == 3
    digests, scores = grown_under_every_schedule(name, problems, SMALL, tmp_path)
    assert len(digests) == 1
    assert np.ptp(scores) > 0.1, "a verifier that tells nothing would agree with itself, too"


@pytest.mark.parametrize(
    "kind",
    ["embedded", pytest.param("triton", marks=[pytest.mark.slow, pytest.mark.server])],
)
def test_scores_do_not_depend_on_what_is_cached(untrained, kind):
    form = Models.load(untrained).verifier
    first = form.first(QUESTION, STEPS[0])
    paths = [first, form.extend(first, STEPS[1]), form.extend(first, "## Step 2: 95 - 20 = 65")]

    async def scores():
        async with AsyncSession(untrained.name, server=kind) as session:
            _, verifier = session.endpoints
            calls = [ScoreCall(ids, QUESTION, ()) for ids in (*paths, *paths[::-1])]
            return [(await verifier.score(call)).score for call in calls]

    found = asyncio.run(scores())
    cold, warm = found[:3], found[:2:-1]
    assert cold == pytest.approx(warm, abs=1e-4)
    assert abs(cold[1] - cold[2]) > 1e-3, "a right step and a wrong one"
