"""The verifier behind a server: labels, likelihoods, heads."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing, suppress
from functools import cached_property, partial

import numpy as np

from tts.base.errors import EndpointError, RequestRefused, ServerError
from tts.build.model_config import read_model_config
from tts.build.spec import VerifierRole
from tts.build.tokenizer import Tokenizer
from tts.build.verifiers.dialogue import head_kind, label_ids
from tts.build.verifiers.untrained import last_step

from ..base import ScoreCall, VerifierResult
from . import answers
from .dialects import LogProbs, log_probs_of
from .server import OpenAIServer
from .shared_requests import SharedRequests, Waiting, label_rows


class OpenAIVerifier:
    """See endpoints.Verifier; sent again after a failure that may pass."""

    def __init__(
        self,
        server: OpenAIServer,
        tokenizer: Tokenizer,
        spec: VerifierRole,
        labels: Mapping[int, float] | None = None,
    ) -> None:
        """`spec` is the section of a deployment; `labels` are read in place of its own.

        Raises ServerError with the reason where the server is known not to score its format,
        CheckpointError where the tokenizer does not go with it.
        """
        self._server, self._http = server, server.http
        self._tokenizer, self._spec, self._weights = tokenizer, spec, dict(labels or {})
        self._label_texts: list[str] = []
        self._label_requests = SharedRequests(lambda calls: (calls,), self._read_together)
        if server.capabilities:
            self._score  # noqa: B018 - what cannot be scored is refused here

    async def score(self, call: ScoreCall) -> VerifierResult:
        """See endpoints.Verifier."""
        score, ids = self._score, call.input_ids.tolist()
        return VerifierResult(await self._http.patiently(lambda: score(ids)))

    @cached_property
    def _score(self) -> Callable[[list[int]], Awaitable[float]]:
        """How a dialogue in token ids is scored; raises ServerError."""
        server, abilities = self._server, self._server.abilities
        checkpoint, spec = self._tokenizer.checkpoint, self._spec
        head = head_kind(checkpoint, spec)
        if spec.facts.output == "likelihood":
            if not abilities.prompt_log_probs:
                raise ServerError(
                    f"{server} gives no log-probabilities of a prompt, which verifier format "
                    "likelihood is made of.",
                    hint="vLLM and SGLang give them; with others ask for a judgement: format "
                    "prompted.",
                )
            return partial(self._likelihood, read_model_config(checkpoint).vocab_size)
        if head != "labels":
            if not abilities.pooling:
                raise ServerError(
                    f"{server} gives no scores of a head; {checkpoint} judges with a {head} head.",
                    hint="vLLM serves it with --runner pooling.",
                )
            return self._head
        if not abilities.labels:
            raise ServerError(
                f"{server} gives no log-probabilities of labels, which verifier format "
                f"{spec.format} is scored by.",
                hint="vLLM, SGLang, llama.cpp's llama-server and trtllm-serve give them.",
            )
        if not self._weights:
            tokens = label_ids(self._tokenizer, spec.labels)
            self._weights = dict(zip(tokens, spec.labels.values(), strict=True))
        self._label_texts = [self._tokenizer.decode([label]) for label in self._weights]
        return self._graded

    async def _graded(self, ids: list[int]) -> float:
        """The mean of the labels' weights; a label that is left out is read as a prompt's token."""
        abilities, reading = self._server.abilities, self._server.dialect.labels
        assert reading is not None  # the capabilities say so
        labels, texts = tuple(self._weights), self._label_texts
        rows = await self._label_requests.answer(ids) if abilities.several_labels else None
        if rows is None:
            body = reading.body(abilities.model, ids, labels)
            rows = reading.read(await self._http.post(self._server.dialect.path, body))
        log_probs = log_probs_of(rows, labels, texts)
        if None in log_probs:
            if not abilities.prompt_log_probs:
                missing = [
                    text for text, each in zip(texts, log_probs, strict=True) if each is None
                ]
                least = math.exp(min(rows.values(), default=0.0))
                raise RequestRefused(
                    f"The server gives the {len(rows)} likeliest tokens alone, and not among "
                    f"them: label {' and '.join(map(repr, missing))}. All that follows is a "
                    f"probability of at most {least:.1g}.",
                    _OTHER_SERVERS,
                )
            prompts = await asyncio.gather(*(self._prompt([*ids, label]) for label in labels))
            log_probs = [prompt[-1] for prompt in prompts]
        present = [each for each in log_probs if each is not None]
        return answers.mean_weight(present, tuple(self._weights.values()))

    async def _read_together(self, calls: Waiting[list[int], LogProbs]) -> None:
        """Answer each dialogue with the probabilities of the labels after it, as they come."""
        server, prompts, labels = self._server, [ids for ids, _ in calls], tuple(self._weights)
        several = label_rows(self._http, server.dialect, server.abilities.model, prompts, labels)
        with suppress(EndpointError):  # a request of its own says it again, or is patient
            async with aclosing(several):
                async for place, rows in several:
                    if not calls[place][1].done():
                        calls[place][1].set_result(rows)

    async def _likelihood(self, vocabulary: int, ids: list[int]) -> float:
        """The geometric mean of the probabilities of the last step's tokens."""
        tokens, places = last_step(np.asarray(ids), vocabulary)
        log_probs = await self._prompt(tokens.tolist())
        of_step = [each for each in (log_probs[place] for place in places) if each is not None]
        if not of_step:
            raise RequestRefused("A dialogue without a step has no likelihood.")
        return math.exp(math.fsum(of_step) / len(of_step))

    async def _head(self, ids: list[int]) -> float:
        """What a head says of the dialogue's last place: vLLM's /pooling."""
        body = {"model": self._server.abilities.model, "input": [ids], "use_activation": False}
        return head_score(await self._http.post("/pooling", body))

    async def _prompt(self, ids: list[int]) -> list[float | None]:
        """The log-probabilities of a prompt's tokens, None for the first."""
        dialect = self._server.dialect
        assert dialect.prompts is not None  # the capabilities say so
        body = dialect.prompts.body(self._server.abilities.model, ids, 0)
        rows = dialect.prompts.read(await self._http.post(dialect.path, body), ids)
        return [None, *(row[token] for token, row in zip(ids[1:], rows, strict=True))]


_OTHER_SERVERS = (
    "Is verifier.format that of this model? vLLM 0.32, SGLang and llama.cpp's llama-server give "
    "the probability of any label."
)


def head_score(answer: object) -> float:
    """The probability of a right step, from the logits at the last place that was scored."""
    rows = answers.array(answers.mapping(answer).get("data"), "the scores of one dialogue")
    about = answers.mapping(answers.only(rows, "the scores of one dialogue"))
    places = answers.array(about.get("data"), "scores of a head")
    if places and not isinstance(places[0], list):
        places = [places]  # a classifier of sequences has one row, of its last token
    if not places:
        raise EndpointError(
            "The server scored no place of the dialogue: it looks for a token that ends a step.",
            hint="Tell vLLM which one it is: --pooler-config "
            '\'{"step_tag_id": ID, "returned_token_ids": null}\'.',
        )
    row = [answers.number(each, "a logit") for each in answers.array(places[-1], "logits")]
    if len(row) == 1:
        return answers.mean_weight((row[0], 0.0), (1.0, 0.0))
    if len(row) == 2:  # of the published heads the second class is a right step
        return answers.mean_weight((row[1], row[0]), (1.0, 0.0))
    raise answers.bad("one or two logits", row)
