"""Recorded chains as a script for any search, in made-up text."""

import random
from dataclasses import replace as replaced
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import write_tokenizer
from tests.driver.scripted_run import PROBLEMS
from tests.driver.test_driver import CONFIGS, same_scores
from tests.runs.replay.recordings import FEW, replay
from tokenizers import Tokenizer as RawTokenizer
from tokenizers import decoders, models, pre_tokenizers, trainers

from tts.build.spec import load_deployment
from tts.endpoints.base import GenerateCall
from tts.prompting import Context, Models
from tts.runs.replay import (
    Chain,
    TraceScript,
)
from tts.scheduling import ScheduleName
from tts.search import Stop

SCHEDULES = get_args(ScheduleName)


scores = st.floats(0, 1).map(lambda score: round(score, 4))
chains = st.lists(
    st.lists(st.tuples(st.integers(2, 90), scores), min_size=1, max_size=6).map(
        lambda steps: Chain(tuple(t for t, _ in steps), tuple(s for _, s in steps))
    ),
    min_size=1,
    max_size=60,
)


def wordy(folder):
    """A tokenizer with whole words in its vocabulary, as those of real models have."""
    write_tokenizer(folder)
    rng = random.Random(0)
    vocabulary = ["".join(rng.choices("abcdefghijklmnop", k=5)) for _ in range(150)]
    tokenizer = RawTokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=2000,
        special_tokens=["<|begin_of_text|>", "<|pad|>", "<|user|>", "<|assistant|>", "<|eot_id|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([" ".join(vocabulary)] * 5, trainer)
    tokenizer.save(str(folder / "tokenizer.json"))


@pytest.fixture(scope="module")
def wordy_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wordy")
    wordy(folder)
    return folder


@pytest.fixture(params=["letters", "words", "demo-prompted", "demo-likelihood"])
def written(request, tiny_deployment, wordy_folder):
    """The models of a deployment: made-up text of letters or words, verifiers of other kinds."""
    if request.param == "letters":
        return Models.load(tiny_deployment)
    if request.param.startswith("demo-"):
        return Models.load(load_deployment(request.param))
    engines = {
        role: engine.model_copy(update={"checkpoint": wordy_folder})
        for role, engine in tiny_deployment.engines().items()
    }
    return Models.load(tiny_deployment.model_copy(update=engines))


@FEW
@given(chains=chains, seed=st.integers(0, 2**63 - 1))
def test_made_up_steps_have_the_length_end_and_score_of_a_recorded_one(written, chains, seed):
    script, other = TraceScript(written, chains), TraceScript(written, chains)
    context = Context.of(written, PROBLEMS[0])
    path, going = (), True
    while going:
        depth = len(path)
        prompt = context.generator_ids(path)
        call = GenerateCall(prompt, 300, seed + depth, 0.8, 1.0, stop_at_step=True)
        ids = script.generate(call)
        assert ids == other.generate(call)
        (thought,) = written.thoughts(ids, truncated=False, whole=False)
        assert list(thought.token_ids) == ids, "the delimiter ends the step and nothing else"
        path = (*path, 0)
        context.add(path, thought)
        score = script.score(context.verifier_ids(path))
        assert score == other.score(context.verifier_ids(path))
        going = thought.stop is Stop.STEP
        assert script.ended(call, ids) is not going
        candidates = {
            (chain.scores[depth], not going)
            for chain in chains
            if len(chain.lengths) > depth
            and (len(chain.lengths) > depth + 1) is going
            and (chain.lengths[depth] == len(ids) or chain.lengths[depth] < 6)
        }
        assert (score, not going) in candidates
    assert depth < max(len(chain.lengths) for chain in chains)


def test_made_up_text_is_as_long_for_the_verifier_and_differs_at_once(written):
    script = TraceScript(written, [Chain((60, 60, 60), (0.1, 0.2, 0.3))])
    context = Context.of(written, PROBLEMS[0])
    steps = []
    for seed in range(40):
        call = GenerateCall(context.prompt, 300, seed, 0.8, 1.0, stop_at_step=True)
        steps.append(script.generate(call))
        again = written.verifier.tokenizer.encode(written.generator.decode(steps[-1]))
        assert abs(len(again) - 60) <= 6
    assert len({tuple(ids[:3]) for ids in steps}) == 40


def test_a_vocabulary_of_words_is_written_in_words(wordy_folder, tiny_deployment):
    engines = {
        role: engine.model_copy(update={"checkpoint": wordy_folder})
        for role, engine in tiny_deployment.engines().items()
    }
    models = Models.load(tiny_deployment.model_copy(update=engines))
    script = TraceScript(models, [Chain((40,), (0.5,))])
    call = GenerateCall(np.asarray([1], dtype=np.int32), 300, 1, 0.8, 1.0, stop_at_step=True)
    text = models.generator.decode(script.generate(call))
    assert len(text.split()) == 39


@pytest.mark.parametrize("config", CONFIGS)
def test_recorded_chains_drive_every_search_alike_under_every_schedule(
    tiny_deployment, words, config
):
    rng = random.Random(3)
    chains = []
    for _ in range(40):
        steps = rng.randint(1, 6)
        chains.append(
            Chain(
                tuple(rng.randint(2, 30) for _ in range(steps)),
                tuple(rng.choice((0.2, 0.5, 0.9, 1.0)) for _ in range(steps)),
            )
        )
    script = TraceScript(Models.load(tiny_deployment), chains)
    plain, _ = replay(tiny_deployment, words, config, "lockstep", script)
    assert sum(len(search.tree) for search in plain.searches.values()) > len(PROBLEMS)
    for schedule in SCHEDULES:
        other, engine = replay(tiny_deployment, words, config, schedule, script, jitter=5)
        assert other.digests == plain.digests
        same_scores(other, plain)
        assert max(engine.asked) <= config.max_tokens


def test_a_greedy_step_depends_on_its_prompt_alone(tiny_deployment):
    script = TraceScript(
        Models.load(tiny_deployment), [Chain((30, 40), (0.5, 0.6)), Chain((50,), (0.7,))]
    )
    prompt = np.asarray([1, 2, 3], dtype=np.int32)
    call = GenerateCall(prompt, 300, 1, 0.0, 1.0, stop_at_step=True)
    assert script.generate(call) == script.generate(replaced(call, seed=2))
    assert script.generate(call) != script.generate(replaced(call, input_ids=prompt + 1))
