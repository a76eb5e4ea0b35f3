"""What is sent: the requests of a run, as they were and with other dialogues of the same shape."""

import asyncio
from itertools import islice, pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tests.endpoints.scripted import Calls, ScriptedGenerator, ScriptedVerifier

from tts.build.spec import VerifierSpec, load_deployment
from tts.lab.tuning.measure import SaturationPoint, propose
from tts.lab.tuning.recorded_requests import (
    SALT_TOKENS,
    doubling,
    loadable_generator,
    loadable_verifier,
    salted,
)
from tts.runs.events import StepGenerated


def test_the_requests_of_a_run_are_those_that_the_engines_were_sent(run, recorded):
    sent = [(call.input_ids.tobytes(), call.seed) for call in recorded.generations]
    assert sorted(sent) == sorted(run.calls.generated)
    assert sorted(s.ids.tobytes() for s in recorded.scorings) == sorted(run.calls.scored)
    lengths = [event.tokens for event in run.events_of(StepGenerated)]
    assert sorted(call.max_new_tokens for call in recorded.generations) == sorted(lengths)
    assert all(0 < scoring.cached < len(scoring.ids) for scoring in recorded.scorings)
    dialogues = {scoring.ids.tobytes() for scoring in recorded.scorings}
    parents = [s for s in recorded.scorings if s.ids[: s.cached].tobytes() in dialogues]
    assert parents, "no dialogue extends another"


def test_siblings_stay_together(recorded):
    prompts = [call.input_ids.tobytes() for call in recorded.generations]
    changes = sum(a != b for a, b in pairwise(prompts))
    assert changes < len(set(prompts)) + 4  # a prompt may be two nodes': steps may be equal
    assert len(set(prompts)) < len(prompts)


def test_replaying_sends_the_same_generations_and_new_dialogues_of_the_same_shape(run, recorded):
    calls = Calls()
    spec = run.models.deployment
    generator = loadable_generator(ScriptedGenerator(*run.words, calls=calls), recorded, spec)
    verifier = loadable_verifier(ScriptedVerifier(calls=calls), recorded, spec)

    async def send(requests):
        return [await request.send() for request in requests]

    assert generator.loads == (1, 2, 4, 8, 16)  # until well beyond a batch of 8
    assert (generator.mean_cost, generator.full_batch) == (1.0, 8)
    longest = max(len(scoring.ids) for scoring in recorded.scorings)
    assert longest <= verifier.loads[0] < 2 * longest
    mean = sum(len(scoring.ids) for scoring in recorded.scorings) / len(recorded.scorings)
    assert (verifier.mean_cost, verifier.full_batch) == (mean, 8 * mean)
    assert next(verifier.requests(0)).cost == len(recorded.scorings[0].ids)
    prompts = {call.input_ids.tobytes() for call in recorded.generations[:9]}
    assert len(generator.warm_up(0, 9)) == len(prompts) < 9
    count = len(recorded.generations)
    done = asyncio.run(send(islice(generator.requests(0), count)))
    assert done == [call.max_new_tokens for call in recorded.generations]
    assert sorted(calls.generated) == sorted(run.calls.generated)
    count = len(recorded.scorings)
    asyncio.run(send(islice(verifier.requests(3), 2 * count)))
    assert len(set(calls.scored)) == 2 * len({s.ids.tobytes() for s in recorded.scorings})
    tails = [ids[4 * SALT_TOKENS :] for ids in calls.scored]
    assert tails[:count] == tails[count:]
    assert tails[:count] == [s.ids[SALT_TOKENS:].tobytes() for s in recorded.scorings]
    whole = set(calls.scored)
    calls.scored.clear()
    asyncio.run(send(verifier.warm_up(3, count)))
    assert calls.scored
    for parent in calls.scored:
        assert any(ids.startswith(parent) for ids in whole), "a parent that nothing extends"


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(1, 12))
def test_a_salt_is_its_own(first, second, length):
    ids, alphabet = np.arange(100, 100 + length, dtype=np.int32), np.arange(50, dtype=np.int32)
    one, other = (salted(ids, salt, alphabet) for salt in (first, second))
    assert len(one) == length
    assert list(one[SALT_TOKENS:]) == list(ids[SALT_TOKENS:])
    if length >= SALT_TOKENS:
        assert (list(one) == list(other)) == (first == second)
    assert ids[0] == 100


@given(st.integers(1, 100), st.floats(1, 1e6))
def test_loads_double_until_beyond(first, at_least):
    loads = doubling(first, at_least)
    assert loads[0] == first
    assert loads[-1] >= at_least or loads == (first,)
    assert all(load < at_least for load in loads[:-1])
    assert all(after == 2 * before for before, after in pairwise(loads))


def test_a_verifier_that_writes_is_loaded_with_critiques_up_to_what_its_cache_takes(recorded):
    plain = load_deployment("demo")
    update = {"format": "critique", "critique": {"samples": 2, "max_tokens": 500}}
    update |= {"in_flight_tokens": None, "in_flight_requests": 64, "kv_cache": {"tokens": 8192}}
    given = plain.verifier.model_dump(exclude={"labels"}) | update
    spec = plain.model_copy(update={"verifier": VerifierSpec.model_validate(given)})
    calls = Calls()
    verifier = loadable_verifier(ScriptedVerifier(calls=calls), recorded, spec)
    prompt = sum(len(scoring.ids) for scoring in recorded.scorings) / len(recorded.scorings)
    assert verifier.full_batch == min(spec.verifier.max_batch_size, 8192 / (prompt + 500))
    assert verifier.loads[:2] == (2, 4)
    assert verifier.loads[-1] >= verifier.full_batch
    (request,) = islice(verifier.requests(0), 1)
    asyncio.run(request.send())
    assert (request.cost, calls.scored) == (2, [recorded.scorings[0].ids.tobytes()])
    nothing = SaturationPoint(None, None, None)
    proposal = propose("verifier", nothing, verifier.full_batch, spec)
    assert proposal.field == ("verifier", "in_flight_requests")
    assert (proposal.present, proposal.value) == (64, int(verifier.full_batch))
