"""The token ids of a run's requests, rebuilt from its log, are those that the engines were sent."""

from collections import Counter

import pytest
from examples.search_and_learn import BeamSearchConfig
from tests.driver.scripted_run import CONFIGS, Run

from tts.base.errors import RunError
from tts.prompting import Models
from tts.runs.events import VERSION, Cancelled, SessionBegan
from tts.runs.replay import logged_requests

SEMANTICS = BeamSearchConfig(n=4, beam_width=2, num_iterations=4)


def rebuilt(run):
    session = SessionBegan(t=0.0, time="2026-01-01T00:00:00+00:00", version=VERSION)
    found = logged_requests([session, *run.events], run.models)
    return [(request.engine, request.ids) for request in found]


@pytest.mark.parametrize("config", [*CONFIGS, SEMANTICS])
@pytest.mark.parametrize("schedule", ["lockstep", "decoupled"])
def test_every_request_that_was_sent_is_rebuilt(tiny_deployment, words, config, schedule):
    run = Run(tiny_deployment, words, config, schedule, jitter=3).go()
    found = rebuilt(run)
    for engine, sent in (
        ("generator", [ids for ids, _ in run.calls.generated]),
        ("verifier", run.calls.scored),
    ):
        prompts = Counter(request.prompt.tobytes() for name, request in found if name == engine)
        # a request that is cancelled before its task has begun is not sent, but logged
        early = prompts - Counter(sent)
        assert Counter(sent) <= prompts
        assert early.total() <= len(run.events_of(Cancelled))
    assert all(request.sent <= request.done for _, request in found)
    generated = sum(len(request.generated) for _, request in found)
    assert generated == sum(
        len(thought.ids) for event in run.events for thought in getattr(event, "thoughts", ())
    )


def test_requests_to_a_programs_own_reward_are_left_out_or_refused(tiny_deployment, words):
    run = Run(tiny_deployment, words, CONFIGS[0], "lockstep")
    run.models = Models.load(tiny_deployment, text_verifier=True)
    run.go()
    sent = Counter(ids for ids, _ in run.calls.generated)
    found = rebuilt(run)
    assert {engine for engine, _ in found} == {"generator"}
    assert Counter(request.prompt.tobytes() for _, request in found) == sent
    run.models = Models.load(tiny_deployment)
    with pytest.raises(RunError, match="the verifier's prompt for node") as refused:
        rebuilt(run)
    assert "own reward" in refused.value.hint
