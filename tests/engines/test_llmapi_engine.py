"""The process of an engine of target llmapi, on the stand-in of TensorRT-LLM."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.engines.host_requests import prompt, sampled
from tests.engines.llmapi_standin import Misbehave, stand_in

from tts.build.builder import build_engines
from tts.build.errors import EngineError
from tts.build.spec import Deployment, Role
from tts.engines.engine_client import EngineClient
from tts.engines.engine_messages import Opening
from tts.engines.generate_request import GenerateRequest
from tts.engines.opening import llm_opening_of, opening_of
from tts.engines.responses import Response
from tts.engines.wire import Failure

PATIENCE_S = 30


@pytest.fixture(scope="module")
def llmapi_pair(pair: Deployment) -> Iterator[Deployment]:
    """The tiny pair for target llmapi, and the stand-in in TensorRT-LLM's place."""
    for_gpu: dict[str, Any] = pair.model_dump(exclude_none=True) | {
        "name": "tiny-llmapi",
        "target": "llmapi",
        "tensorrt": {"gpu": "h100"},
    }
    for role in pair.engines():
        for_gpu[role]["precision"] = "bf16"  # of which the stand-in knows nothing
    for_gpu["generator"]["tensorrt"] = {"gpus": [[3]]}
    deployment = Deployment.model_validate(for_gpu)
    build_engines(deployment, say=lambda line: None)
    with pytest.MonkeyPatch.context() as patch:
        stand_in(patch, pair)
        yield deployment


@pytest.fixture(scope="module")
def llmapi_one(llmapi_pair: Deployment, one_engine: Deployment) -> Deployment:
    """One engine in both roles, likewise."""
    data = llmapi_pair.model_dump(exclude_none=True, exclude={"verifier"})
    verifier = one_engine.verifier.model_dump(exclude_unset=True, exclude={"checkpoint"})
    deployment = Deployment.model_validate(data | {"name": "one-llmapi", "verifier": verifier})
    build_engines(deployment, say=lambda line: None)
    return deployment


@pytest.fixture
def misbehave(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Misbehave:
    """Tell the stand-in what to do wrong."""
    file = tmp_path / "misbehaviour.json"

    def tell(**how: Any) -> None:
        new = file.with_suffix(".new")
        new.write_text(json.dumps(how))
        new.replace(file)

    monkeypatch.setenv("TTS_STANDIN_MISBEHAVIOUR", str(file))
    return tell


class Engine:
    """One engine, open, and how it ended."""

    def __init__(self) -> None:
        self.client: EngineClient
        self.died: asyncio.Future[tuple[str, str | None]] = (
            asyncio.get_running_loop().create_future()
        )

    async def answers(self, *requests: GenerateRequest) -> list[Response]:
        """The final responses to requests that are sent together."""
        return await asyncio.gather(*map(self._answer, requests))

    async def _answer(self, request: GenerateRequest) -> Response:
        *_, last = [response async for response in self.stream(request)]
        return last

    async def stream(self, request: GenerateRequest) -> AsyncIterator[Response]:
        come: asyncio.Queue[Response] = asyncio.Queue()
        self.ticket = self.client.submit(request, come.put_nowait)
        final = False
        while not final:
            response = await asyncio.wait_for(come.get(), PATIENCE_S)
            final = response.final
            yield response


@asynccontextmanager
async def opened(opening: Opening) -> AsyncIterator[Engine]:
    engine = Engine()
    engine.client = await EngineClient.open(
        opening, on_death=lambda how, said: engine.died.set_result((how, said))
    )
    try:
        yield engine
    finally:
        await engine.client.aclose()


REQUESTS: dict[Role, list[GenerateRequest]] = {
    "generator": [
        GenerateRequest(prompt(1), 12),
        GenerateRequest(prompt(2), 12, return_log_probs=True),
        sampled(3, temperature=0.7),
        sampled(4, n=40, end_id=7),
        sampled(5, n=40, stop_words=((11,), (12,), (13,))),
        sampled(6, n=200, stop_words=tuple((a, b) for a in range(5, 60) for b in range(5, 60))),
    ],
    "verifier": [
        GenerateRequest(prompt(seed), 1, return_generation_logits=True) for seed in range(4)
    ],
}


@pytest.mark.parametrize("role", ["generator", "verifier"])
async def test_it_answers_as_an_engine_of_target_openvino_does(
    pair: Deployment, llmapi_pair: Deployment, role: Role
):
    def plain(response: Response) -> Response:
        """But for the last bits of numbers: other requests are in the batch."""
        logits, probs = response.label_logits, response.log_probs
        return replace(
            response,
            label_logits=logits and tuple(pytest.approx(each, abs=1e-4) for each in logits),
            log_probs=probs and [pytest.approx(each, abs=1e-4) for each in probs],
        )

    async with opened(opening_of(pair, role)) as engine:
        expected = await engine.answers(*REQUESTS[role])
    async with opened(llm_opening_of(llmapi_pair, role)) as engine:
        found = await engine.answers(*REQUESTS[role])
    assert all(response.error is None for response in found)
    assert found == [plain(response) for response in expected]


async def test_one_engine_writes_and_scores_by_graded_labels(
    one_engine: Deployment, llmapi_one: Deployment, monkeypatch: pytest.MonkeyPatch
):
    requests = REQUESTS["generator"] + REQUESTS["verifier"]
    async with opened(opening_of(one_engine, "generator")) as engine:
        expected = await engine.answers(*requests)
    stand_in(monkeypatch, one_engine)
    async with opened(llm_opening_of(llmapi_one, "generator")) as engine:
        found = await engine.answers(*requests)
    for ours, theirs in zip(expected, found, strict=True):
        assert theirs.error is None
        if ours.label_logits is None:
            assert theirs.token_ids == ours.token_ids
        else:
            assert theirs.label_logits == pytest.approx(ours.label_logits, abs=1e-4)


async def test_a_stream_brings_its_tokens_and_is_aborted_when_it_is_cancelled(
    llmapi_pair: Deployment, misbehave: Misbehave
):
    async with opened(llm_opening_of(llmapi_pair, "generator")) as engine:
        (whole,) = await engine.answers(sampled(1, n=30))
        come = [each async for each in engine.stream(sampled(1, n=30, streaming=True))]
        assert len(come) > 1
        assert [token for each in come for token in each.token_ids] == whole.token_ids
        misbehave(hold=True)
        reasons = []
        async for response in engine.stream(sampled(1, n=200, streaming=True)):
            engine.client.cancel(engine.ticket)
            reasons.append(response.finish_reason)
        assert reasons[-1] == "cancelled"


@pytest.mark.parametrize("how", ["refuse", "fail"])
async def test_a_request_that_the_engine_refuses_fails_alone(
    llmapi_pair: Deployment, misbehave: Misbehave, how: str
):
    misbehave(**{how: 3})  # no token of the other prompts
    bad = GenerateRequest(prompt(1) * 0 + 3, 4)
    async with opened(llm_opening_of(llmapi_pair, "generator")) as engine:
        refused, *others = await engine.answers(bad, sampled(1), sampled(2))
    assert refused.failure == Failure.UNAVAILABLE
    assert how in str(refused.error)
    assert all(response.error is None for response in others)


@pytest.mark.parametrize(
    ("version", "role", "seeded"),
    [("1.2.1", "generator", True), ("1.2.1", "verifier", False), ("1.3.0rc26", "generator", False)],
)
async def test_an_engine_that_dies_ends_its_process_which_says_what_it_was_opened_with(
    llmapi_pair: Deployment,
    misbehave: Misbehave,
    monkeypatch: pytest.MonkeyPatch,
    version: str,
    role: Role,
    seeded: bool,
):
    """Only a generator may ask for the sampler that keeps seeds: a verifier would lose logits."""
    monkeypatch.setenv("TTS_STANDIN_VERSION", version)
    async with opened(llm_opening_of(llmapi_pair, role)) as engine:
        misbehave(dead=True)
        how, said = await asyncio.wait_for(engine.died, PATIENCE_S)
    assert how == "ended with exit status 1"
    assert said is not None
    assert "The engine has died." in said
    assert f"stand-in on GPUs {3 if role == 'generator' else 0}:" in said
    assert ("'sampler_type': 'TRTLLMSampler'" in said) == seeded


@pytest.mark.parametrize(
    ("how", "version", "said"),
    [
        ({"refuse_to_load": "CUDA out of memory"}, "1.3.0rc24", "CUDA out of memory"),
        ({}, "1.1.0", r"TensorRT-LLM 1\.1\.0 is older than 1\.2\.0"),
        ({}, None, "runs inside NVIDIA's image"),  # where it is not installed
    ],
)
async def test_an_engine_that_cannot_be_opened_says_why(
    llmapi_pair: Deployment,
    misbehave: Misbehave,
    monkeypatch: pytest.MonkeyPatch,
    how: dict[str, str],
    version: str | None,
    said: str,
):
    misbehave(**how)
    if version:
        monkeypatch.setenv("TTS_STANDIN_VERSION", version)
    else:
        monkeypatch.setattr(sys, "path", [each for each in sys.path if "standin" not in each])
    with pytest.raises(EngineError, match=said):
        await EngineClient.open(llm_opening_of(llmapi_pair, "generator"))
