"""OpenVINO GenAI's continuous-batching pipeline: opening it, handing it requests, reading their
output.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov
import openvino.opset15 as ops
import openvino_genai as ov_genai
from msgspec.structs import replace

from tts.build.manifest import EngineConfig
from tts.build.openvino.runtime import plugin_properties, require_precision
from tts.build.openvino.transformer import SCORE_LOGITS

from .generate_request import EngineLimits, GenerateRequest, StopWords, single_stops
from .responses import FinishReason, Response, unavailable
from .wire import EBNF

RUNNING = ov_genai.GenerationStatus.RUNNING.value
FINISHED = ov_genai.GenerationStatus.FINISHED.value
_BELOW_1 = float(np.nextafter(np.float32(1), np.float32(0)))
"""The library takes no 1 as min_p, with which only the likeliest may be drawn; as top_p it leaves
nothing out, but 1 would not sort."""
_SMALL_VOCABULARY = 4096
"""Up to so many tokens a draw hardly depends on their order."""
_NEVER_DRAWN = 1e-6
"""The least probability of a token that is drawn from more, relative to the likeliest."""
_FLOOR = -1e4  # finite stand-in for log 0, far below anything softmax can see


def open_pipeline(
    engine_dir: Path,
    config: EngineConfig,
    limits: EngineLimits,
    threads: int,
    tokenizer: Any | None = None,
) -> Any:
    """Load an engine into a new pipeline (about 0.1 s for a tiny model).

    `tokenizer` is that of `guide_tokenizer`, which an engine that takes guides needs.
    Raises ConfigError for a precision that this CPU cannot serve: it may have been built elsewhere.
    """
    require_precision(config.role, config.precision)
    scheduler = ov_genai.SchedulerConfig()
    scheduler.num_kv_blocks = limits.blocks
    scheduler.max_num_batched_tokens = limits.max_num_tokens
    scheduler.max_num_seqs = limits.max_active
    scheduler.dynamic_split_fuse = limits.chunked_context
    scheduler.enable_prefix_caching = limits.kv_reuse
    properties = plugin_properties(config.precision, threads)
    if tokenizer is None:
        return ov_genai.ContinuousBatchingPipeline(str(engine_dir), scheduler, "CPU", properties)
    return ov_genai.ContinuousBatchingPipeline(
        str(engine_dir), tokenizer, scheduler, "CPU", **properties
    )


def add_request(
    pipeline: Any, number: int, request: GenerateRequest, vocab_size: int, *, log_probs: bool
) -> Any:
    """Hand a validated request to the pipeline; returns its handle.

    `number` must be unique among live requests: a duplicate hangs the pipeline.
    """
    prompt = ov.Tensor(request.input_ids.reshape(1, -1))
    config = generation_config(request, log_probs=log_probs)
    if config.do_sample and vocab_size > _SMALL_VOCABULARY:
        _draw_by_probability(config)
    return pipeline.add_request(number, prompt, config)


def _draw_by_probability(config: ov_genai.GenerationConfig) -> None:
    """Let a draw go through the tokens from the likeliest on, not by their ids.

    A draw takes the token at which the summed probabilities pass a random number. Where the logits
    round differently, as those of a prefix that is computed in one piece, all sums shift, and in
    order of ids there are thousands of rare tokens whose place they then miss. Only a top_p below 1
    makes the library sort; without those that are left out it would take longer than the model.
    """
    config.top_p = min(config.top_p, _BELOW_1)
    config.min_p = max(config.min_p, _NEVER_DRAWN)


@dataclass(frozen=True)
class ScoreOutputs:
    """The two outputs of an engine's logits that a score is the softmax of."""

    first: int
    """The first one's column: 0, or behind the vocabulary."""
    tokens: tuple[int, int]
    """The labels that stand for them in an answer: the best, and the worst."""


def score_outputs(config: EngineConfig) -> ScoreOutputs | None:
    """The score outputs of an engine; None if it gives no scores."""
    labels = config.label_token_ids
    if not labels:
        return None
    return ScoreOutputs(config.output_vocab_size - SCORE_LOGITS, (labels[0], labels[-1]))


def asking_for_score(request: GenerateRequest, vocab_size: int) -> GenerateRequest:
    """A request for a score as an engine that writes as well is asked; see ScoreColumns."""
    ids = request.input_ids.copy()
    ids[-1] += vocab_size
    return replace(request, input_ids=ids)


def label_logits(row: int, log_prob: float) -> tuple[float, float]:
    """Both logits of a score, from the log-probability of the one that was drawn.

    They are normalised (their exponentials sum to 1), so softmax over them gives the engine's
    probabilities; the unnormalised ones never leave the pipeline.
    """
    # the clamp keeps log(1 - p) finite when the chosen row's probability rounds to 1
    other = math.log(-math.expm1(log_prob)) if log_prob < 0 else _FLOOR
    return (log_prob, other) if row == 0 else (other, log_prob)


def generation_config(request: GenerateRequest, *, log_probs: bool) -> ov_genai.GenerationConfig:
    """A request as the pipeline has it."""
    config = ov_genai.GenerationConfig()
    config.max_new_tokens = request.max_new_tokens
    stops = single_stops(request)
    # The pipeline requires an end id even where nothing ends the output, and it must be a stop.
    config.ignore_eos = not stops
    config.stop_token_ids = stops or {0}
    config.eos_token_id = next(iter(stops), 0)
    if log_probs:
        config.logprobs = 1
    if request.min_tokens:
        config.min_new_tokens = request.min_tokens
    if request.repetition_penalty != 1:
        config.repetition_penalty = request.repetition_penalty
    if request.presence_penalty:
        config.presence_penalty = request.presence_penalty
    if request.frequency_penalty:
        config.frequency_penalty = request.frequency_penalty
    if request.guide is not None:
        option = "grammar" if request.guide.kind == EBNF else "json_schema"
        config.structured_output_config = ov_genai.StructuredOutputConfig(
            **{option: request.guide.text}
        )
    if not request.greedy:
        config.do_sample = True
        config.rng_seed = fold_seed(request.seed)
        config.temperature = request.temperature
        if request.top_p > 0:
            config.top_p = request.top_p
        if request.top_k > 0:
            config.top_k = request.top_k
        if request.min_p > 0:
            config.min_p = min(request.min_p, _BELOW_1)
    return config


def fold_seed(seed: int) -> int:
    """32 bits that depend on all 64 of the seed (the finaliser of splitmix64).

    The pipeline's random generator drops the upper half, so hashes that differ only there would
    give the same sample.
    """
    mask = 2**64 - 1
    seed = ((seed ^ (seed >> 30)) * 0xBF58476D1CE4E5B9) & mask
    seed = ((seed ^ (seed >> 27)) * 0x94D049BB133111EB) & mask
    return (seed ^ (seed >> 31)) >> 32


def guide_tokenizer(texts: Sequence[bytes], vocab_size: int, end_id: int) -> Any:
    """A tokenizer of these texts, by id; ids beyond them, up to `vocab_size`, have none."""
    # here, because importing it changes what openvino.Core loads
    from openvino_tokenizers.tokenizer_pipeline import FuseStep, VocabDecoderStep

    padded = [*texts, *[b""] * (vocab_size - len(texts))]
    ids = ops.parameter(ov.PartialShape(["?", "?"]), ov.Type.i64)
    # a list of skipped tokens that is empty gives a graph that does not compile (2026.4)
    decoded = VocabDecoderStep(padded, [end_id]).get_ov_subgraph(ops.convert(ids, "i32").outputs())
    packed = ops.string_tensor_pack(*FuseStep().get_ov_subgraph(decoded))
    model = ov.Model(packed.outputs(), [ids], "detokenizer")
    model.output().tensor.add_names({"string_output"})
    with tempfile.TemporaryDirectory() as folder:
        ov.save_model(model, Path(folder, "openvino_detokenizer.xml"), compress_to_fp16=False)
        Path(folder, "config.json").write_text(json.dumps({"eos_token_id": end_id}))
        return ov_genai.Tokenizer(folder)


class Generation:
    """The output of one request, growing with each step of the pipeline."""

    __slots__ = (
        "_handle",
        "_log_probs",
        "_request",
        "_scores",
        "_sent",
        "_single_stops",
        "_stop_words",
        "_tokens",
        "ended_early",
        "generated",
        "started",
        "stopped",
    )

    def __init__(self, request: GenerateRequest, handle: Any, scores: ScoreOutputs | None) -> None:
        self.started = False
        """Whether its prompt has been computed, so that it generates."""
        self.generated: list[int] = []
        """Every token that the pipeline gave, also those that the client does not get."""
        self.ended_early = False
        """Whether the host ended it, so that it holds its blocks until `has_left`."""
        self.stopped = False
        """Whether the pipeline was told so, which takes effect in the next step."""
        self._request = request
        self._handle = handle
        self._scores = scores
        self._tokens: list[int] = []
        self._log_probs: list[float] = []
        self._sent = 0
        self._single_stops = single_stops(request)
        self._stop_words = StopWords(request.stop_words)

    def advance(self) -> Response | None:
        """Take in the last step; returns a response if one is to be sent now."""
        before = len(self._tokens)
        self._read()
        if len(self._tokens) > before:
            self.started = True
            end = self._stop_words.end(self._tokens, before)
            if end is not None:
                if self._handle.get_status().value == RUNNING:
                    self._end()
                del self._tokens[end:]  # never hand out what came after the stop word
                del self._log_probs[end:]
                return self._response("stop")
        if self._handle.get_status().value != RUNNING:
            return self._finish()
        if self._request.streaming and len(self._tokens) > self._sent:
            return self._response(None)
        return None

    def cancel(self) -> Response:
        """End the request now, with the tokens it has so far."""
        self._read()
        self._end()
        return self._response("cancelled")

    def has_left(self) -> bool:
        """Whether a request that ended early has freed its blocks. Ask once after every step."""
        if self.stopped or self._handle.get_status().value != RUNNING:
            return True
        if self._handle.can_read():
            self._end()
        return False

    def _finish(self) -> Response:
        if self._handle.get_status().value != FINISHED:
            return unavailable("the pipeline dropped the request; its KV cache was full")
        last = self._tokens[-1]
        if last == self._request.end_id:
            self._tokens.pop()
            del self._log_probs[len(self._tokens) :]
            return self._response("end_id")
        return self._response("stop" if last in self._single_stops else "length")

    def _end(self) -> None:
        # NOTE: a prompt that is stopped half computed stays in the prefix cache as if it were
        # whole (openvino-genai 2026.4), and the next request with the same prefix gets a wrong
        # answer. So a prompt is always computed to its end, which its first token shows.
        self.ended_early = True
        if self._tokens or self._handle.can_read():
            self._handle.stop()
            self.stopped = True

    def _read(self) -> None:
        while self._handle.can_read():
            self._take(self._handle.read().values())

    def _take(self, outputs: Iterable[Any]) -> None:
        (output,) = outputs  # one sequence per request
        self.generated += output.generated_ids
        self._tokens += output.generated_ids
        if self._request.return_log_probs or self._scores:
            self._log_probs += output.generated_log_probs

    def _response(self, reason: FinishReason | None) -> Response:
        new = self._tokens[self._sent :]
        if self._request.streaming:
            self._sent = len(self._tokens)
        logits = None
        if self._scores and new:
            rows = [token - self._scores.first for token in new]
            if self._request.return_generation_logits:
                logits = label_logits(rows[0], self._log_probs[0])
            new = [self._scores.tokens[row] for row in rows]
        return Response(
            token_ids=new,
            log_probs=list(self._log_probs) if self._request.return_log_probs else None,
            label_logits=logits,
            finish_reason=reason,
        )
