"""The bundled verifier that writes, on embedded engines: what it says, under every schedule."""

import pytest
from scripts.training.solutions import first_wrong_step
from tests.end_to_end.commands import built_alone, events, grown_under_every_schedule, summary

from tts.datasets.demo import read_question
from tts.datasets.load import load_problems


@pytest.fixture(scope="module")
def critique(tmp_path_factory):
    """The deployment, its engines built in a home of its own."""
    with built_alone("demo-critique", tmp_path_factory.mktemp("critique"), "") as deployment:
        yield deployment


@pytest.mark.parametrize(
    "parameters",
    [
        {"n": 4, "beam_width": 2, "num_iterations": 4, "agg_strategy": "min"},
        pytest.param({"n": 8, "beam_width": 4, "agg_strategy": "min"}, marks=pytest.mark.slow),
    ],
)
def test_every_schedule_grows_the_same_trees(critique, tmp_path, parameters):
    problems = load_problems("demo", limit=2)
    digests, scores = grown_under_every_schedule(critique.name, problems, parameters, tmp_path)
    assert len(digests) == 1
    assert set(scores) == {0.0, 1.0}
    verdicts = judged(tmp_path / "decoupled", {p.id: read_question(p.question) for p in problems})
    assert sum(says == right for says, right in verdicts) > 0.9 * len(verdicts)
    assert "no_verdict" not in summary(tmp_path / "decoupled"), "each has one"


def judged(folder, chains):
    """What a run's critiques say of steps behind right ones, and whether these are right."""
    log, texts, found = events(folder), {}, []
    for event in log:
        for place, thought in enumerate(event.get("thoughts", ())):
            node = (*event["node"], *[0] * place)
            texts[event["problem"], node] = thought["text"]
    for event in log:
        if "critique" in event:
            node = tuple(event["node"])
            paths = [(event["problem"], node[:end]) for end in range(1, len(node) + 1)]
            wrong = first_wrong_step(chains[event["problem"]], [texts[path] for path in paths])
            if wrong is None or wrong == len(node) - 1:
                assert event["critique"].endswith(("wrong", "right")[round(event["score"])])
                found.append((event["score"] == 1.0, wrong is None))
    return found
