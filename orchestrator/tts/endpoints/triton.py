"""The generator and the verifier behind a Triton server, over asyncio gRPC.

`triton_requests` encodes requests from templates, `triton_stream` carries those of the generator,
a decoupled model that takes no others, and `triton_transport` sends them again after failures.
"""

from __future__ import annotations

import struct
from collections.abc import AsyncGenerator, Callable, Sequence
from functools import lru_cache, partial

from tts.base.errors import EndpointError, RequestError
from tts.build.spec import ANSWER_TIMEOUT_S, Role
from tts.engines import wire
from tts.engines.responses import first_probability

from .base import GenerateCall, ScoreCall, VerifierResult
from .shaping import refuse_top, shaped
from .streaming import NewTokens, StopWordSets, StreamingGenerator
from .triton_requests import (
    HOST_SHAPING,
    WIRE_SHAPING,
    Draw,
    RequestRow,
    RequestTemplate,
    generate_template,
    score_template,
)
from .triton_stream import Sample
from .triton_transport import ScoreRows, Transport, output_of


class TritonConnection(Transport):
    """What connects to one server, shared by both endpoints; an async context manager."""

    def __init__(
        self,
        address: str,
        comes_back: Callable[[], bool] = lambda: False,
        *,
        most_rows: int = 1,
        host: bool = False,
        answer_timeout_s: float = ANSWER_TIMEOUT_S,
        verifier_model: str = wire.PRM,
        verifier_writes: bool = False,
        scorer: str | None = None,
    ) -> None:
        """`address`, `comes_back`, `most_rows` and `answer_timeout_s` are those of Transport.

        TensorRT-LLM takes one row. `host`: the models are those of our engine host (target
        openvino), which can do more than TensorRT-LLM. `verifier_writes`: the model that is the
        verifier has the generator's tensors. `scorer` is the model that makes scores of its logits;
        None: itself does.
        """
        super().__init__(
            address, comes_back, most_rows=most_rows, answer_timeout_s=answer_timeout_s
        )
        self.host = host
        self._models: dict[Role, str] = {"generator": wire.GENERATOR, "verifier": verifier_model}
        self._verifier_writes = verifier_writes
        self._scorer = scorer
        self._score_rows = ScoreRows(self, most_rows) if most_rows > 1 else None

    def generator(
        self,
        role: Role = "generator",
        *,
        end_id: int,
        step_stop_words: Sequence[tuple[int, ...]] = (),
        end_stop_words: Sequence[tuple[int, ...]] = (),
    ) -> TritonGenerator:
        """The generator, or a verifier that writes; see endpoints.Connection."""
        stop_words = tuple(step_stop_words), tuple(end_stop_words)
        return TritonGenerator(self, self._models[role], end_id, *stop_words)

    def verifier(self) -> TritonVerifier:
        """The verifier."""
        model = self._scorer or self._models["verifier"]
        writes = self._verifier_writes and not self._scorer
        return TritonVerifier(self, score_template(model, writes=writes))

    async def reset_prefix_caches(self) -> bool:
        """Leave the engines of target openvino as they were when the server was ready.

        False if one of them holds requests. Raises EndpointError.
        """
        scoring = set() if self._verifier_writes else {self._models["verifier"]}
        return await self.reset_caches({*self._models.values()} - scoring, scoring)

    async def score_once(self, row: RequestRow) -> float:
        """The verifier's score of a chain, once. Raises EndpointError."""
        if self._verifier_writes:
            start = partial(self.start, row, scores=True)
            values = (await self.sample_once(row.template.model, start)).log_probs
            try:
                return values[0] if self._scorer else first_probability(values)
            except RequestError as error:
                raise EndpointError(f"Model {row.template.model}: {error.message}.") from None
        if self._score_rows:
            return await self._score_rows.score(row)
        answer = await self.infer_once(wire.PRM, row.encode(""))  # the name of all that only score
        return float(struct.unpack("<f", output_of(answer, "score"))[0])

    def start(self, row: RequestRow, *, scores: bool = False) -> Sample:
        """Send a request by stream; `scores`: it is a score that the verifier writes."""
        model = self._models["verifier"] if scores else row.template.model
        streams = self.whole.streams(model, scores=scores)  # what stops a request names their model
        return streams.start_row(row) if self._score_rows else streams.start(row.encode, whole=True)


class TritonGenerator(StreamingGenerator):
    """A model that writes; see endpoints.StreamingGenerator."""

    def __init__(
        self,
        connection: TritonConnection,
        model: str,
        end_id: int,
        step_stop_words: tuple[tuple[int, ...], ...],
        end_stop_words: tuple[tuple[int, ...], ...],
    ) -> None:
        """`step_stop_words` end a step, `end_stop_words` end a sequence as `end_id` does."""
        self._connection = connection
        self._model = model
        self._end_id = end_id
        self._stop_words = StopWordSets(step_stop_words, end_stop_words)
        self._template = lru_cache(maxsize=256)(self._new_template)

    async def generate(self, call: GenerateCall) -> list[int]:
        """The new token ids; retried. See endpoints.Generator."""
        row = self._row(call, None)
        start = partial(self._connection.start, row)
        return (await self._connection.sample(row.template.model, start)).ids

    def stream(self, call: GenerateCall) -> AsyncGenerator[NewTokens, None]:
        """The new token ids as they come. See endpoints.StreamingGenerator."""
        row = self._row(call, (call.streaming, call.log_probs))
        return self._connection.stream(row, call.on_rest)

    def _row(self, call: GenerateCall, flags: tuple[bool, bool] | None) -> RequestRow:
        """The request for it; without flags it is answered once."""
        guide, ids = call.guide, call.input_ids
        scalars: list[float] = [len(ids), call.max_new_tokens]
        draw: Draw = "greedy" if call.temperature == 0 else "top_k" if call.top_k else "all"
        if draw != "greedy":
            scalars += (call.temperature, call.top_p, call.seed)
        if draw == "top_k":
            scalars.append(call.top_k)
        shaping: tuple[tuple[str, float], ...] = ()
        host = self._connection.host
        engine = "the OpenVINO engine" if host else "TensorRT-LLM's model"
        refuse_top(call.top_log_probs, engine)
        if call.shaping:
            possible = HOST_SHAPING if host else WIRE_SHAPING
            shaping = tuple(shaped(call.shaping, possible, engine).items())
        ends = call.stop_at_step, call.stop_words, call.ignore_end
        template = self._template(*ends, draw, guide is not None, flags, shaping)
        return RequestRow(template, ids, scalars, guide or ())

    def _new_template(
        self,
        at_step: bool,
        stop_words: tuple[tuple[int, ...], ...],
        ignore_end: bool,
        draw: Draw,
        guided: bool,
        flags: tuple[bool, bool] | None,
        shaping: tuple[tuple[str, float], ...],
    ) -> RequestTemplate:
        end_id = wire.NO_END_ID if ignore_end else self._end_id
        words = self._stop_words.of(at_step, stop_words, ignore_end)
        return generate_template(
            end_id, words, draw, guided=guided, flags=flags, shaping=shaping, model=self._model
        )


class TritonVerifier:
    """A model that scores; see endpoints.Verifier."""

    def __init__(self, connection: TritonConnection, template: RequestTemplate) -> None:
        self._connection, self._template = connection, template

    async def score(self, call: ScoreCall) -> VerifierResult:
        """The score of a chain; retried. See endpoints.Verifier."""
        ids = call.input_ids
        row = RequestRow(self._template, ids, [len(ids)])
        score = await self._connection.retried(partial(self._connection.score_once, row))
        if not -1e-6 <= score <= 1 + 1e-6:  # NaN included
            raise EndpointError(f"The verifier answered {score}, which is no probability.")
        return VerifierResult(min(max(score, 0.0), 1.0))
