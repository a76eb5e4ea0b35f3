"""Find out a server's capabilities by asking it for a few completions of a few tokens."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from tts.base.errors import EndpointError, EndpointTimeout, EndpointUnavailable, ServerError
from tts.engines.wire import EBNF, Guide

from .dialects import DIALECTS, VLLM, Ask, Dialect, DialectName, LabelsBy, Piece
from .http_client import Http
from .shared_requests import label_rows, samples


@dataclass(frozen=True)
class Capabilities:
    """A server and its capabilities, by its answers to probes."""

    kind: DialectName
    model: str
    """The model that is asked."""
    version: str = ""
    context: int | None = None
    """Tokens of a prompt and its output together; None where the server does not say."""
    generates: bool = True
    streams: bool = False
    """Tokens can be had one by one; else an output comes in one piece."""
    seeds: bool = False
    """Whether a seed gave the same tokens twice, one request after the other."""
    seeds_beside_others: bool = False
    """Whether it did so while others were in flight, too."""
    siblings: bool = False
    """Several samples of one request were those of requests with the next seeds."""
    log_probs: bool = False
    """Log-probabilities of generated tokens."""
    prompt_log_probs: bool = False
    """Log-probabilities of a prompt's tokens, which verifier format likelihood needs."""
    labels: LabelsBy = ""
    """How a verifier's labels are read; empty: they are not."""
    several_labels: bool = False
    """One request read the labels of several prompts."""
    grammar: str = ""
    """The field that takes a grammar; empty: guides are refused."""
    pooling: bool = False
    """It serves a model with a head, which verifiers with a head need."""

    def describe(self) -> str:
        """The server and its capabilities in one line."""
        name = " ".join(filter(None, (DIALECTS[self.kind].title, self.version)))
        says = [f"context {self.context:,}"] if self.context else []
        if self.generates:
            says.append(self._seeds())
            read = [
                *(["tokens"] if self.log_probs else []),
                *(["prompts"] if self.prompt_log_probs else []),
                *(["labels"] if self.labels else []),
            ]
            says.append(f"log-probabilities of {', '.join(read)}" if read else "no probabilities")
            says.append(f"grammars ({self.grammar})" if self.grammar else "no grammars")
        if self.pooling:
            says.append("scores of a head")
        return f"{name} serving {self.model}: " + "; ".join(says)

    def _seeds(self) -> str:
        if self.seeds and not self.seeds_beside_others:
            return "seeds honoured one at a time, NOT with several in flight"
        if self.siblings:
            return "seeds honoured, several samples a request"
        return "seeds honoured" if self.seeds else "seeds NOT honoured"


T = TypeVar("T")
_AWAY = EndpointUnavailable, EndpointTimeout
"""Errors of a server that does not answer, which says nothing of what it can do."""
_IDS = [10, 11, 12, 13]
"""A prompt in any vocabulary."""
_BESIDE = 4
"""How many equal samples are asked for at once, beside as many others."""
_LABELS = (14, 15)
_GRAMMAR = Guide(EBNF, 'root ::= "7" "7"')


@dataclass(frozen=True)
class Served:
    """A line of /v1/models."""

    name: str
    owner: str = ""
    context: int | None = None


async def probe(http: Http, model: str | None) -> tuple[Capabilities, Dialect]:
    """A server's capabilities and dialect; raises ServerError, or EndpointError: no answer."""
    served = _chosen(await _models(http), model, http.address)
    hint = next((each.kind for each in DIALECTS.values() if each.owner == served.owner), None)
    dialect, refusal = await _dialect(http, served.name, hint)
    kind = hint or (dialect or VLLM).kind  # no other kind gives nothing but scores
    generates = dialect is not None
    capabilities = Capabilities(kind, served.name, context=served.context, generates=generates)
    capabilities = await _about(http, capabilities)
    if dialect is None:
        if not await _can(http, "/pooling", {"model": served.name, "input": [_IDS]}):
            raise ServerError(
                f"The server at {http.address} does not return token ids, which a search needs, "
                f"nor scores: {refusal}",
                hint="Hosted APIs and Ollama do not return token ids. vLLM, "
                "SGLang, llama.cpp's llama-server and trtllm-serve complete them; vLLM's /pooling "
                "gives the scores of a verifier with a head.",
            )
        return replace(capabilities, pooling=True), VLLM
    capabilities = replace(capabilities, streams=dialect.streams)
    return await _measured(http, dialect, capabilities), dialect


async def _models(http: Http) -> list[Served]:
    try:
        answer = await http.get("/v1/models")
    except _AWAY:
        raise
    except EndpointError as error:
        raise ServerError(error.message, error.hint) from None
    rows = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(rows, list):
        raise ServerError(
            f"The server at {http.address} answers /v1/models with no list of models.",
            hint="Only servers with OpenAI's interface can be used; is the url right?",
        )
    return [
        Served(row["id"], str(row.get("owned_by")), _positive(row.get("max_model_len")))
        for row in rows
        if isinstance(row, dict) and isinstance(row.get("id"), str)
    ]


def _chosen(served: list[Served], model: str | None, address: str) -> Served:
    names = ", ".join(each.name for each in served[:20]) or "none"
    if model is None:
        if len(served) == 1:
            return served[0]
        raise ServerError(
            f"The server at {address} serves {len(served)} models: {names}.",
            hint="Say which one with model.",
        )
    for each in served:
        if each.name == model:
            return each
    raise ServerError(
        f"The server at {address} does not serve {model!r}; it serves: {names}.",
        hint="Set model to one of these, or leave it out where there is only one.",
    )


async def _dialect(http: Http, model: str, hint: DialectName | None) -> tuple[Dialect | None, str]:
    """The first dialect in which the server answers; else what it said to the first attempt."""
    refusals = []
    for dialect in sorted(DIALECTS.values(), key=lambda each: each.kind != hint):
        piece = await _sample(http, dialect, model, Ask(_IDS, 2, ignore_end=True))
        if isinstance(piece, Piece) and piece.ids:
            return dialect, ""
        refusals.append(piece if isinstance(piece, str) else "an answer holds no token ids")
    return None, refusals[0]


async def _measured(http: Http, dialect: Dialect, capabilities: Capabilities) -> Capabilities:
    model = capabilities.model
    wild = Ask(_IDS, 16, seed=7, temperature=1.5, log_probs=True, ignore_end=True)
    others = [
        replace(wild, seed=wild.seed + at, max_tokens=12 + at) for at in range(1, _BESIDE + 1)
    ]
    alone = [await _sample(http, dialect, model, wild) for _ in range(2)]
    together, *beside = await asyncio.gather(
        _siblings(http, dialect, model, replace(wild, samples=1 + len(others), log_probs=False)),
        *(_sample(http, dialect, model, each) for each in (*[wild] * _BESIDE, *others)),
        return_exceptions=True,  # of a server that takes fewer at a time
    )
    first, second, *several = (
        each if isinstance(each, Piece) else Piece(None) for each in (*alone, *beside)
    )
    next_ones = [first.ids, *(each.ids for each in several[_BESIDE:])]
    same = bool(first.ids) and first.ids == second.ids
    guided = await _sample(http, dialect, model, Ask(_IDS, 2, guide=_GRAMMAR))
    free = await _sample(http, dialect, model, Ask(_IDS, 2))
    grammar = isinstance(guided, Piece) and isinstance(free, Piece) and guided.ids != free.ids
    labels, prompts = dialect.labels, dialect.prompts
    label_body = labels.body(model, _IDS, _LABELS) if labels else None
    reads_labels = labels and await _can(http, dialect.path, label_body, labels.read)
    prompt_body = prompts.body(model, _IDS, 0) if prompts else None
    return replace(
        capabilities,
        seeds=same,
        seeds_beside_others=same and all(each.ids == first.ids for each in several[:_BESIDE]),
        siblings=same and isinstance(together, list) and _agree(next_ones, together),
        log_probs=bool(first.ids) and len(first.log_probs) == len(first.ids or ()),
        labels=labels.by if labels and reads_labels else "",
        several_labels=bool(reads_labels) and await _several_labels(http, dialect, model),
        prompt_log_probs=prompts is not None
        and await _can(http, dialect.path, prompt_body, lambda answer: prompts.read(answer, _IDS)),
        grammar=dialect.grammar if grammar else "",
    )


async def _siblings(http: Http, dialect: Dialect, model: str, ask: Ask) -> list[list[int]] | None:
    """Samples that one request draws; None where it does not."""
    if not dialect.siblings:
        return None
    outputs = {piece.index: piece.ids or [] async for piece in samples(http, dialect, model, ask)}
    return [outputs.get(at, []) for at in range(ask.samples)]


async def _several_labels(http: Http, dialect: Dialect, model: str) -> bool:
    """Whether one request reads the labels of each of its prompts."""
    if dialect.labels is None or dialect.labels.several is None:
        return False
    prompts = [_IDS, _IDS[1:]]
    try:
        rows = [row async for row in label_rows(http, dialect, model, prompts, _LABELS)]
    except EndpointError:
        return False
    return {place for place, _ in rows} == set(range(len(prompts)))


def _agree(alone: Sequence[list[int] | None], together: Sequence[list[int]]) -> bool:
    """Whether samples are as each was alone, as far as both go."""
    return all(
        one and other[: len(one)] == one[: len(other)]
        for one, other in zip(alone, together, strict=True)
    )


async def _sample(http: Http, dialect: Dialect, model: str, ask: Ask) -> Piece | str:
    """A sample, or why there is none; EndpointUnavailable and EndpointTimeout are raised."""
    return await _tried(http, dialect.path, dialect.sample(model, ask), dialect.piece)


async def _can(
    http: Http,
    path: str,
    body: dict[str, Any] | None,
    read: Callable[[Any], object] = lambda answer: None,
) -> bool:
    """Whether a request is answered, and in a form that can be read."""
    return not isinstance(await _tried(http, path, body, read), str)


async def _tried(
    http: Http, path: str, body: dict[str, Any] | None, read: Callable[[Any], T]
) -> T | str:
    """What `read` makes of the answer to a request; else the words of the error."""
    try:
        return read(await http.post(path, body))
    except _AWAY:
        raise
    except EndpointError as error:
        return error.message


async def _about(http: Http, capabilities: Capabilities) -> Capabilities:
    """With its version, and its context where it states one of its own."""
    path, name = DIALECTS[capabilities.kind].version
    try:
        answer = await http.get(path)
    except EndpointError:
        return capabilities
    if not isinstance(answer, dict):
        return capabilities
    version = answer.get(name)
    context = capabilities.context or _context(answer)
    return replace(
        capabilities, version=version if isinstance(version, str) else "", context=context
    )


def _context(answer: dict[str, Any]) -> int | None:
    """The context in tokens: llama.cpp states that of a slot, SGLang that of prompts."""
    settings = answer.get("default_generation_settings")
    slot = settings.get("n_ctx") if isinstance(settings, dict) else None
    return _positive(slot) or _positive(answer.get("context_length"))


def _positive(value: object) -> int | None:
    return value if type(value) is int and value > 0 else None
