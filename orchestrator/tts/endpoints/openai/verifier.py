"""The verifier behind a server: labels, likelihoods, heads."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable

import numpy as np

from tts.build.errors import EndpointError, RequestRefused, ServerError
from tts.build.model_config import read_model_config
from tts.build.spec import VerifierRole
from tts.build.tokenizer import Tokenizer
from tts.build.verifiers.dialogue import head_kind, label_ids
from tts.build.verifiers.likelihood import last_step

from ..base import ScoreCall, VerifierResult
from . import answers
from .capabilities import NAMES, Capabilities
from .dialects import Dialect, LogProbs, Prompts, label_score
from .http_client import Http

Score = Callable[[list[int]], Awaitable[float]]
"""The score of a dialogue in token ids, asked for once."""


class OpenAIVerifier:
    """See endpoints.Verifier; sent again after a failure that may pass."""

    def __init__(self, http: Http, score: Score) -> None:
        self._http, self._score = http, score

    async def score(self, call: ScoreCall) -> VerifierResult:
        """See endpoints.Verifier."""
        ids = call.input_ids.tolist()
        score = await self._http.patiently(lambda: self._score(ids))
        return VerifierResult(score)


def verifier_of(
    http: Http,
    dialect: Dialect,
    capabilities: Capabilities,
    *,
    tokenizer: Tokenizer,
    spec: VerifierRole,
) -> OpenAIVerifier:
    """The verifier that a section describes; raises ServerError where the server cannot be it."""
    name = f"The server at {http.address} ({NAMES[capabilities.kind]})"
    head = head_kind(tokenizer.checkpoint, spec)
    score: Score
    if spec.facts.output == "likelihood":
        if not (capabilities.prompt_log_probs and dialect.prompts):
            raise ServerError(
                f"{name} gives no log-probabilities of a prompt, which verifier format likelihood "
                "is made of.",
                hint="vLLM and SGLang give them; with others ask for a judgement: format prompted.",
            )
        vocabulary = read_model_config(tokenizer.checkpoint).vocab_size
        prompts = _PromptLogProbs(http, dialect.path, dialect.prompts, capabilities.model)
        score = _Likelihood(prompts, vocabulary)
    elif head != "labels":
        if not capabilities.pooling:
            raise ServerError(
                f"{name} gives no scores of a head; {tokenizer.checkpoint} judges with a {head} "
                "head.",
                hint="vLLM serves it with --runner pooling.",
            )
        score = _Head(http, capabilities.model)
    else:
        if not (capabilities.labels and dialect.labels):
            raise ServerError(
                f"{name} gives no log-probabilities of labels, which verifier format {spec.format} "
                "is scored by.",
                hint="vLLM, SGLang, llama.cpp's llama-server and trtllm-serve give them.",
            )
        prompts = None
        if capabilities.prompt_log_probs and dialect.prompts:
            prompts = _PromptLogProbs(http, dialect.path, dialect.prompts, capabilities.model)
        labels = label_ids(tokenizer, spec.labels)
        positive, negative = (tokenizer.token_texts[label] for label in labels)
        score = _LabelShare(
            http, dialect, capabilities.model, labels, (positive, negative), prompts
        )
    return OpenAIVerifier(http, score)


class _PromptLogProbs:
    """The log-probabilities of a prompt's tokens."""

    def __init__(self, http: Http, path: str, prompts: Prompts, model: str) -> None:
        self._http, self._path, self._prompts, self._model = http, path, prompts, model

    async def __call__(self, ids: list[int]) -> list[float | None]:
        answer = await self._http.post(self._path, self._prompts.body(self._model, ids))
        return self._prompts.read(answer, ids)

    async def last(self, ids: list[int]) -> float:
        """That of the last one, which has others before it."""
        last = (await self(ids))[-1]
        assert last is not None
        return last


class _LabelShare:
    """The first label's share of the probability of both after the dialogue."""

    def __init__(
        self,
        http: Http,
        dialect: Dialect,
        model: str,
        labels: tuple[int, int],
        texts: tuple[str, str],
        prompts: _PromptLogProbs | None,
    ) -> None:
        """`prompts` tells the labels' where an answer leaves one of them out."""
        assert dialect.labels is not None  # the capabilities say so
        self._http, self._path, self._reading, self._model = (
            http,
            dialect.path,
            dialect.labels,
            model,
        )
        self._labels, self._texts, self._prompts = labels, texts, prompts

    async def __call__(self, ids: list[int]) -> float:
        body = self._reading.body(self._model, ids, self._labels)
        found = self._reading.read(await self._http.post(self._path, body))
        score = label_score(found, self._labels, self._texts)
        if score is not None:
            return score
        if self._prompts is None:
            raise RequestRefused(_not_among(found, self._labels, self._texts), _OTHER_SERVERS)
        after = (self._prompts.last([*ids, label]) for label in self._labels)
        return answers.share(*await asyncio.gather(*after))


_OTHER_SERVERS = (
    "Is verifier.format that of this model? vLLM 0.32, SGLang and llama.cpp's llama-server give "
    "the probability of any label."
)


def _not_among(found: LogProbs, labels: tuple[int, int], texts: tuple[str, str]) -> str:
    """That labels are missing, and what follows of them."""
    pairs = zip(labels, texts, strict=True)
    missing = [text for label, text in pairs if label not in found and text not in found]
    least = math.exp(min(found.values(), default=0.0))
    return (
        f"The server gives the {len(found)} likeliest tokens alone, and not among them: label "
        f"{' and '.join(map(repr, missing))}. All that follows is a probability of at most "
        f"{least:.1g}."
    )


class _Likelihood:
    """The geometric mean of the probabilities of the last step's tokens."""

    def __init__(self, prompts: _PromptLogProbs, vocabulary: int) -> None:
        self._prompts, self._vocabulary = prompts, vocabulary

    async def __call__(self, ids: list[int]) -> float:
        tokens, places = last_step(np.asarray(ids), self._vocabulary)
        found = await self._prompts(tokens.tolist())
        known = [each for each in (found[place] for place in places) if each is not None]
        if not known:
            raise RequestRefused("A dialogue without a step has no likelihood.")
        return math.exp(math.fsum(known) / len(known))


class _Head:
    """What a head says of the dialogue's last place: vLLM's /pooling."""

    def __init__(self, http: Http, model: str) -> None:
        self._http, self._model = http, model

    async def __call__(self, ids: list[int]) -> float:
        asked = {"model": self._model, "input": [ids], "task": "token_classify"}
        answer = await self._http.post("/pooling", asked | {"use_activation": False})
        return head_score(answer)


def head_score(answer: object) -> float:
    """The probability of a right step, from the logits at the last place that was scored."""
    rows = answers.array(answers.mapping(answer).get("data"), "the scores of one dialogue")
    about = answers.mapping(answers.only(rows, "the scores of one dialogue"))
    places = answers.array(about.get("data"), "scores of a head")
    if not places:
        raise EndpointError(
            "The server scored no place of the dialogue: it looks for a token that ends a step.",
            hint="Tell vLLM which one it is: --pooler-config "
            '\'{"step_tag_id": ID, "returned_token_ids": null}\'.',
        )
    row = [answers.number(each, "a logit") for each in answers.array(places[-1], "logits")]
    if len(row) == 1:
        return answers.share(row[0], 0.0)
    if len(row) == 2:  # of the published heads the second class is a right step
        return answers.share(row[1], row[0])
    raise answers.bad("one or two logits", row)
