"""A likelihood verifier in the engine host: its scores depend on the path alone."""

from collections.abc import Iterator

import numpy as np
import pytest
from tests.engines.conftest import Runner
from tests.engines.engine_host import EngineHost
from tests.engines.numpy_llama import llama_logits, softmax

from tts.build import paths
from tts.build.builder import build_engines
from tts.build.manifest import read_engine_config
from tts.build.spec import Deployment, load_deployment
from tts.build.tokenizer import Ids, Tokenizer
from tts.build.verifiers.dialogue import verifier_dialogue
from tts.build.verifiers.likelihood import Continuation
from tts.engines.generate_request import GenerateRequest, Limits

QUESTION = "Compute (37 + 58 - 20) / 3 * 2 - 41 + 12 * 3."
STEPS = ("## Step 1: 37 + 58 = 95", "## Step 2: 95 - 20 = 75", "## Step 3: 75 / 3 = 25")
WRONG = ("## Step 1: 37 + 58 = 85", "## Step 2: 95 - 20 = 76", "## Step 3: 75 / 3 = 35")


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """The demo's generator judged by itself, with a built verifier."""
    bundled = load_deployment("demo")
    judge = bundled.verifier.model_copy(
        update={"checkpoint": bundled.generator.checkpoint, "format": "likelihood"}
    )
    deployment = bundled.model_copy(update={"name": "likelihood", "verifier": judge})
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TTS_HOME", str(tmp_path_factory.mktemp("home")))
        build_engines(deployment, roles=["verifier"], verify=False, say=lambda line: None)
        yield deployment


@pytest.fixture(scope="module")
def form(deployment: Deployment) -> Continuation:
    spec = deployment.verifier
    form = verifier_dialogue(Tokenizer(spec.checkpoint), spec)
    assert isinstance(form, Continuation)
    return form


@pytest.fixture(scope="module")
def dialogues(form: Continuation) -> list[Ids]:
    """Paths that share beginnings, some of them whole prefixes of others."""
    right = [form.first(QUESTION, STEPS[0])]
    for step in STEPS[1:]:
        right.append(form.extend(right[-1], step))
    wrong = [form.first(QUESTION, WRONG[0])]
    wrong += [form.extend(above, step) for above, step in zip(right, WRONG[1:], strict=False)]
    return [*right, *wrong, form.add_turn(right[-1], "")]


@pytest.fixture(scope="module")
def expected(form: Continuation, dialogues: list[Ids]) -> list[float]:
    """By the checkpoint: the geometric mean of the probabilities of a step's tokens."""

    def score(ids: Ids) -> float:
        tokens, codes = ids % form.vocab_size, ids // form.vocab_size
        log_probs = np.log(softmax(llama_logits(form.tokenizer.checkpoint, tokens)))
        chosen = log_probs[np.arange(len(ids) - 1), tokens[1:]]
        return float(np.exp(chosen[codes[1:] == codes[-1] | 1].mean()))

    return [score(ids) for ids in dialogues]


def opened(deployment: Deployment, **limits: object) -> EngineHost:
    folder = paths.engine_dir(deployment.name, "verifier")
    config = read_engine_config(folder)
    base = {
        "vocab_size": config.vocab_size,
        "max_seq_len": 512,
        "max_num_tokens": 512,
        "block_size": 32,
        "blocks": 200,
        "max_active": 16,
        "labels": 2,
    }
    return EngineHost(folder, config, Limits(**(base | limits)), statistics_s=0.02)


def scores(host: EngineHost, dialogues: list[Ids], *, together: bool) -> list[float]:
    requests = [
        GenerateRequest(ids.astype(np.int64), 1, return_generation_logits=True) for ids in dialogues
    ]
    runner = Runner(host)
    if together:
        answers = runner.run(*requests)
    else:
        answers = [answer for request in requests for answer in runner.run(request)]
    pairs = np.array([answer.label_logits for answer in answers])
    return (np.exp(pairs[:, 0]) / np.exp(pairs).sum(axis=1)).tolist()


@pytest.mark.parametrize(
    "limits",
    [
        {"kv_reuse": False},
        {"kv_reuse": True},
        {"kv_reuse": True, "max_num_tokens": 7},
    ],
    ids=["no reuse", "reuse", "small chunks"],
)
def test_scores_are_those_of_the_checkpoint_however_they_are_cached_batched_and_cut(
    deployment: Deployment, dialogues: list[Ids], expected: list[float], limits: dict[str, object]
) -> None:
    assert max(expected) > 0.8
    assert min(expected) < 0.5
    host = opened(deployment, **limits)
    try:
        for together in (True, False):
            found = scores(host, dialogues, together=together)
            assert found == pytest.approx(expected, abs=1e-5)
        assert scores(host, dialogues[::-1], together=True) == pytest.approx(
            expected[::-1], abs=1e-5
        )
    finally:
        host.close()


def test_a_right_step_is_likelier_than_a_wrong_one(expected: list[float]) -> None:
    assert all(right > wrong for right, wrong in zip(expected[:3], expected[3:6], strict=True))
