"""A stand-in of TensorRT-LLM's Python API whose engine is the host of OpenVINO engines.

Names and defaults of fields are taken from facts.json, beside it, and a test compares parameters.
What it does is what the facts' `behaviour` says, as far as the engine of target llmapi relies on
it.

TTS_STANDIN_ENGINES names the OpenVINO engine of each checkpoint, by the checkpoint's folder, as
JSON. TTS_STANDIN_MISBEHAVIOUR may name a file, JSON too:
    refuse_to_load  LLM raises this message
    refuse          generate_async raises it for a prompt that holds this token
    fail            the result raises it for a prompt that holds this token
    hold            after its first token, no result comes before it is aborted
    dead            the engine says that it is not healthy
"""

import asyncio
import json
import os
import sys
from dataclasses import dataclass, field, make_dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[4]
sys.path.append(str(ROOT))

from tests.engines.engine_host import EngineHost  # noqa: E402

from tts.build.manifest import read_engine_config  # noqa: E402
from tts.engines.generate_request import EngineLimits, GenerateRequest  # noqa: E402

__version__ = os.environ.get("TTS_STANDIN_VERSION", "1.3.0rc24")
FACTS = json.loads((Path(__file__).parents[1] / "facts.json").read_text())
FAR_BELOW = -1e4
"""The logit of a token that is no label."""


def misbehaviour() -> dict[str, Any]:
    file = os.environ.get("TTS_STANDIN_MISBEHAVIOUR")
    return json.loads(Path(file).read_text()) if file and Path(file).is_file() else {}


class KvCacheConfig:
    """As much of it as is asked: the names of its fields, which the 1.3 line has one more of."""

    model_fields = dict.fromkeys(
        [
            *FACTS["arguments"]["kv_cache_config"]["fields"],
            *(["use_kv_cache_manager_v2"] if __version__.startswith("1.3") else []),
        ]
    )


llmapi = SimpleNamespace(KvCacheConfig=KvCacheConfig)


class RequestError(RuntimeError):
    pass


class SamplingParams(
    make_dataclass(
        "Fields",
        [(name, Any, default) for name, default in FACTS["sampling_params"].items()],
        kw_only=True,
        slots=True,
    )
):
    def __post_init__(self) -> None:
        if self.pad_id is None:
            self.pad_id = self.end_id
        if self.top_p is not None and not 0 <= self.top_p <= 1:
            raise ValueError(f"require 0 <= top_p <= 1, got top_p={self.top_p}")
        if self.top_k is not None and self.top_k < 0:
            raise ValueError(f"require top_k >= 0, got top_k={self.top_k}")
        if self.temperature is not None and self.temperature < 0:
            raise ValueError(f"require temperature >= 0, got temperature={self.temperature}")


@dataclass(slots=True)
class Logprob:
    logprob: float
    rank: int | None = None


class Tensor:
    """As much of a torch.Tensor as is used of one: nothing of it is an array before it is asked."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array

    def __getitem__(self, index: int) -> "Tensor":
        return Tensor(self._array[index])

    def float(self) -> "Tensor":
        return self

    def cpu(self) -> "Tensor":
        return self

    def numpy(self) -> np.ndarray:
        return self._array


CompletionOutput = make_dataclass(
    "CompletionOutput",
    [
        (name, Any, field(default_factory=list) if name in ("token_ids", "logprobs") else None)
        for name in FACTS["completion_output"]
    ],
    slots=True,
)


class RequestOutput:
    """What `generate_async` returns: itself the iterator of what comes."""

    def __init__(self, llm: "LLM", prompt: list[int], params: SamplingParams, streaming: bool):
        self.request_id = llm._next_id()
        self.prompt = None
        self.prompt_token_ids = prompt
        self.outputs = [CompletionOutput(0)]
        self.context_logits = None
        self.finished = False
        self._llm = llm
        self._params = params
        self._aborted = False
        self._loop = asyncio.get_running_loop()  # raises where there is none, as the real one fails
        self._queue: asyncio.Queue[Any] = asyncio.Queue()
        self._ticket = llm._host.submit(
            _request(prompt, params, streaming),
            lambda response: self._loop.call_soon_threadsafe(self._queue.put_nowait, response),
        )

    def abort(self) -> None:
        self._aborted = True
        self._llm._host.stop(self._ticket)

    def aborted(self) -> bool:
        return self._aborted

    def result(self, timeout: float | None = None) -> "RequestOutput":
        raise NotImplementedError("results are awaited")

    async def aresult(self) -> "RequestOutput":
        async for _ in self:
            pass
        return self

    def __aiter__(self) -> "RequestOutput":
        return self

    async def __anext__(self) -> "RequestOutput":
        if self.finished:
            raise StopAsyncIteration
        while self.outputs[0].token_ids and misbehaviour().get("hold") and not self._aborted:
            await asyncio.sleep(0.001)
        response = await self._queue.get()
        if (token := misbehaviour().get("fail")) in self.prompt_token_ids:
            raise RequestError(f"the executor fails at token {token}")
        if response.error:
            raise RequestError(response.error)
        self.finished = response.final
        completion = self.outputs[0]
        completion.token_ids.extend(response.token_ids)
        if response.log_probs is not None:
            completion.logprobs = [
                {token: Logprob(value)}
                for token, value in zip(completion.token_ids, response.log_probs, strict=False)
            ]
        if response.label_logits is not None:
            row = np.full((1, self._llm._vocab_size), FAR_BELOW, np.float32)
            row[0, list(self._llm._labels)] = response.label_logits
            completion.generation_logits = Tensor(row)
        if response.finish_reason:
            reasons = {"end_id": "stop"}
            completion.finish_reason = reasons.get(response.finish_reason, response.finish_reason)
        if response.finish_reason == "stop" and not self._params.include_stop_str_in_output:
            del completion.token_ids[-1:]
        return self


class LLM:
    def __init__(
        self,
        model: str,
        tokenizer: Any = None,
        tokenizer_mode: str = "auto",
        skip_tokenizer_init: bool = False,
        trust_remote_code: bool = False,
        tensor_parallel_size: int = 1,
        dtype: str = "auto",
        revision: str | None = None,
        tokenizer_revision: str | None = None,
        **kwargs: Any,
    ) -> None:
        if message := misbehaviour().get("refuse_to_load"):
            raise RuntimeError(message)
        for name in kwargs:
            if name not in FACTS["arguments"] and name != "sampler_type":
                raise ValueError(f"LLM got invalid argument: {name}")
        sys.stderr.write(f"stand-in on GPUs {os.environ['CUDA_VISIBLE_DEVICES']}: {kwargs}\n")
        self._tokenizer = not skip_tokenizer_init
        self._ids = 0
        folder = Path(json.loads(os.environ["TTS_STANDIN_ENGINES"])[model])
        config = read_engine_config(folder)
        weighed = zip(config.label_token_ids or (), config.label_weights or (), strict=True)
        # the engine gives two logits, which are those of the best and of the worst label
        self._labels = [label for label, weight in weighed if weight in (0, 1)]
        self._vocab_size = config.vocab_size
        cache = kwargs["kv_cache_config"]
        if cache.keys() != KvCacheConfig.model_fields.keys():
            raise ValueError(f"kv_cache_config has the fields {sorted(cache)}")
        limits = EngineLimits(
            vocab_size=config.vocab_size,
            max_seq_len=kwargs["max_seq_len"],
            max_num_tokens=kwargs["max_num_tokens"],
            block_size=cache["tokens_per_block"],
            blocks=cache["max_tokens"] // cache["tokens_per_block"],
            max_active=kwargs["max_batch_size"],
            chunked_context=kwargs["enable_chunked_prefill"],
            kv_reuse=cache["enable_block_reuse"],
            labels=len(self._labels),
            writes=config.output_vocab_size >= config.vocab_size,
        )
        self._host = EngineHost(folder, config, limits)

    def generate_async(
        self,
        inputs: Any,
        sampling_params: SamplingParams | None = None,
        lora_request: Any = None,
        prompt_adapter_request: Any = None,
        streaming: bool = False,
        kv_cache_retention_config: Any = None,
        disaggregated_params: Any = None,
        _postproc_params: Any = None,
        scheduling_params: Any = None,
        cache_salt: str | None = None,
    ) -> RequestOutput:
        params = sampling_params or SamplingParams()
        if params.end_id is None and not self._tokenizer:
            raise ValueError("tokenizer is required to reset end_id if it is None")
        if not isinstance(inputs, list) or not all(type(token) is int for token in inputs):
            raise TypeError(f"The inputs must be type str or list of int, not {type(inputs)}")
        if (token := misbehaviour().get("refuse")) in inputs:
            raise RequestError(f"the executor refuses token {token}")
        return RequestOutput(self, inputs, params, streaming)

    def shutdown(self) -> None:
        self._host.close()

    def _check_health(self) -> bool:
        return not misbehaviour().get("dead")

    def _next_id(self) -> int:
        self._ids += 1
        return self._ids


def _request(prompt: list[int], params: SamplingParams, streaming: bool) -> GenerateRequest:
    greedy = params.temperature is None and params.top_k is None and params.top_p is None
    only_temperature = params.top_k is None and params.top_p is None
    return GenerateRequest(
        input_ids=np.array(prompt, np.int64),
        max_new_tokens=params.max_tokens,
        end_id=None if params.ignore_eos or params.end_id == -1 else params.end_id,
        stop_words=()
        if params.ignore_eos
        else tuple((token,) for token in params.stop_token_ids or ()),
        temperature=1.0 if params.temperature is None else params.temperature,
        top_p=0.0 if greedy else (1.0 if only_temperature else params.top_p or 0.0),
        top_k=params.top_k or 0,
        seed=params.seed or 0,
        return_log_probs=params.logprobs is not None,
        return_generation_logits=params.return_generation_logits,
        streaming=streaming,
    )
