"""A recorded run as a script: the same trees, and nothing that does not fit it."""

from dataclasses import replace as replaced
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.driver.scripted_run import CONFIGS, PROBLEMS, Run, same_scores
from tests.runs.logs import log_bytes
from tests.runs.replay.recordings import FEW, load, record, replay
from tests.runs.replay.test_token_requests import SEMANTICS

from tts.base.errors import RunError
from tts.endpoints.base import GenerateCall
from tts.lab.simulation.fleet import simulated_deployment
from tts.lab.simulation.scenario import Scenario, digest_of, simulate
from tts.prompting import Models
from tts.runs.events import Cancelled, StepGenerated, StepScored
from tts.runs.folder import EVENTS
from tts.runs.log import read_events
from tts.runs.replay import open_recording, read_recording
from tts.scheduling import ScheduleName
from tts.search import BeamSearchConfig, Stop

SCHEDULES = get_args(ScheduleName)


@pytest.mark.parametrize("config", [*CONFIGS, SEMANTICS])
@FEW
@given(jitter=st.integers(0, 10**6))
def test_a_replay_grows_the_recorded_trees(
    tiny_deployment, words, tmp_path_factory, config, jitter
):
    run = Run(tiny_deployment, words, config, "decoupled", jitter=jitter).go()
    folder = record(tmp_path_factory.mktemp("run"), run, tiny_deployment)
    script = load(folder, tiny_deployment)
    for schedule in SCHEDULES:
        again, _ = replay(tiny_deployment, words, config, schedule, script, jitter)
        assert again.digests == run.digests
        same_scores(again, run)


@pytest.mark.parametrize("config", CONFIGS)
def test_the_engines_do_work_of_the_recorded_size(tiny_deployment, words, tmp_path, config):
    run = Run(tiny_deployment, words, config, "lockstep").go()
    script = load(record(tmp_path / "run", run, tiny_deployment), tiny_deployment)
    again, engine = replay(tiny_deployment, words, config, "decoupled", script, speculation="off")
    wanted = [
        e.tokens + (e.thoughts[-1].stop is Stop.END)
        for e in run.events
        if isinstance(e, StepGenerated)
    ]
    assert sorted(engine.asked) == sorted(wanted)
    # which outranked steps were scored before they were pruned depends on the schedule
    fresh = [e for e in again.events if isinstance(e, StepScored) and not e.cached]
    cancelled = [e for e in again.events if isinstance(e, Cancelled) and e.work == "score"]
    # ... and what is cancelled may not have reached the engine
    assert len(fresh) <= engine.scored <= len(fresh) + len(cancelled)


def test_what_was_never_asked_gets_an_answer_that_was_recorded(tiny_deployment, recorded):
    run, folder = recorded
    first, second = load(folder, tiny_deployment), load(folder, tiny_deployment)
    prompt = np.asarray([1, 2, 3], dtype=np.int32)
    steps = {t.ids for e in run.events if isinstance(e, StepGenerated) for t in e.thoughts}
    scores = {node.score for search in run.searches.values() for node in search.tree}
    drawn = set()
    for seed in range(50):
        call = GenerateCall(prompt, 300, seed, 0.8, 1.0, stop_at_step=True)
        ids = first.generate(call)
        assert ids == second.generate(call)
        assert first.generate(replaced(call, max_new_tokens=2)) == ids[:2]
        drawn.add(tuple(ids))
        dialogue = prompt + seed
        assert first.score(dialogue) == second.score(dialogue)
        assert first.score(dialogue) in scores
    assert drawn <= steps
    assert len(drawn) > 5


def test_a_recording_keeps_the_context_that_cut_its_chains(tiny_deployment, words, tmp_path):
    def with_context(tokens):
        generator = tiny_deployment.generator.model_copy(update={"max_seq_len": tokens})
        return tiny_deployment.model_copy(update={"generator": generator})

    config = BeamSearchConfig(n=4, beam_width=2)
    run = Run(with_context(48), words, config, "lockstep")
    run.generator.end = 0.0
    run.go()
    stops = {node.thought.stop for search in run.searches.values() for node in search.tree}
    assert Stop.LENGTH in stops
    folder, asked = open_recording(record(tmp_path / "run", run, with_context(48)))
    script = read_recording(folder, asked, Models.load(with_context(320)))
    again, _ = replay(script.models.deployment, words, config, "decoupled", script)
    assert again.digests == run.digests
    with pytest.raises(RunError, match=r"context of 48 tokens; generator.max_seq_len .* is 40"):
        read_recording(folder, asked, Models.load(with_context(40)))


def changed_events(folder, change):
    """Rewrite a log, every event as `change` has it."""
    events = [change(event) for event in read_events(folder)]
    (folder / EVENTS).write_bytes(log_bytes(*events))


def test_another_tokenizer_is_refused_by_name(tiny_deployment, recorded):
    def longer(event):
        fresh = isinstance(event, StepScored) and not event.cached
        return replace(event, prompt_tokens=event.prompt_tokens + 1) if fresh else event

    def other_text(event):
        if not isinstance(event, StepGenerated):
            return event
        thoughts = tuple(replace(thought, text=thought.text + "!") for thought in event.thoughts)
        return replace(event, thoughts=thoughts)

    _, folder = recorded
    changed_events(folder, longer)
    with pytest.raises(RunError, match=r"the verifier's prompt .* tokens and had"):
        load(folder, tiny_deployment)
    changed_events(folder, other_text)
    with pytest.raises(RunError, match=r"for node \d.* was answered with other text"):
        load(folder, tiny_deployment)


def test_a_recording_is_simulated_with_its_own_trees(tiny_deployment, recorded):
    run, folder = recorded
    script = load(folder, tiny_deployment)
    scenario = Scenario(
        simulated_deployment("h100", 2),
        "time-sliced",
        script,
        run.config,
        problems=len(PROBLEMS),
        in_flight=2,
        seed=1,
        speculation="off",
    )
    for schedule in SCHEDULES:
        outcome = simulate(scenario, schedule)
        assert outcome.digest == digest_of(run.digests)
        generated = [event for event in run.events if isinstance(event, StepGenerated)]
        tokens = sum(event.tokens for event in generated)
        ends = sum(event.thoughts[-1].stop is Stop.END for event in generated)
        prefetched = len(PROBLEMS) if schedule == "decoupled" else 0  # a token for each prompt
        assert outcome.generator.generated_tokens == tokens + ends + prefetched


def test_what_does_not_fit_the_recording_is_refused_by_name(tiny_deployment, recorded, tmp_path):
    _, folder = recorded
    verifier = tiny_deployment.verifier.model_copy(update={"max_seq_len": 30})
    with pytest.raises(RunError, match=r"scored a dialogue of \d+ .* verifier.max_seq_len"):
        load(folder, tiny_deployment.model_copy(update={"verifier": verifier}))
    generator = tiny_deployment.generator.model_copy(update={"system_prompt": "Think."})
    with pytest.raises(RunError, match=r"its generator.system_prompt was .* is 'Think.' here"):
        load(folder, tiny_deployment.model_copy(update={"generator": generator}))
    with pytest.raises(RunError, match="holds no run"):
        open_recording(tmp_path)
    (folder / "summary.json").unlink()
    with pytest.raises(RunError, match="has not finished"):
        open_recording(folder)
