"""The requests and answers of each kind of server: the one place to add a server. Pure.

A dialect writes requests in a server's form and reads its answers into one form. Everything that
draws a token is spelled out in each request, since servers have defaults of their own: llama.cpp's
for min_p, top_k and penalties, and vLLM's and SGLang's from the model's generation_config.json.

Sources: vLLM 0.32 and llama.cpp's server as they answered (tests/endpoints/openai/recordings);
SGLang's /generate and trtllm-serve's /v1/completions by their documentation and sources.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from tts.base.errors import EndpointError, EndpointUnavailable
from tts.engines.wire import EBNF, Guide

from . import answers

DialectName = Literal["vllm", "sglang", "llama.cpp", "trtllm-serve"]
LabelsBy = Literal["", "ids", "bias"]
"""How the probabilities of labels are read: of named ids, or of a draw that a bias confines to
them."""

Body = dict[str, Any]
LogProbs = dict[int | str, float]
"""Natural log-probabilities of tokens, by id, or by text where a server names no ids."""

MOST_TOP = 20
"""How many of the likeliest tokens are asked for; more than vLLM's --max-logprobs are refused."""
LIMITS = ("length", "limit")
"""Why an output ends that has as many tokens as were asked for."""
_BIAS = 100.0
"""It leaves nothing but the tokens that have it, and keeps the ratio of their probabilities."""


@dataclass(slots=True)  # frozen it would take three times as long to make
class Ask:
    """One sample, as every server knows it."""

    prompt: list[int]
    max_tokens: int
    seed: int = 0
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    """0: any token may be drawn."""
    stop: tuple[str, ...] = ()
    stop_ids: tuple[int, ...] = ()
    ignore_end: bool = False
    guide: Guide | None = None
    log_probs: bool = False
    stream: bool = False
    shaping: Mapping[str, Any] = field(default_factory=dict)
    """Changes to the distribution, by the names of `Shaping`; those of the dialect's `shapes`."""
    top: int = 0
    """How many of the likeliest tokens are given at each place, with the log-probabilities."""
    samples: int = 1
    """How many are drawn, with seeds that count up; of dialects with `siblings`, streamed."""


@dataclass
class Piece:
    """An answer, or one event of a streamed one."""

    ids: list[int] | None
    """None where the server gives no ids."""
    text: str = ""
    log_probs: list[float] = field(default_factory=list)
    top: list[LogProbs] = field(default_factory=list)
    """The likeliest at each place, and maybe others."""
    end: str = ""
    """Why the output ends here, in the server's words; empty: it goes on."""
    so_far: int | None = None
    """How many tokens the output has by now, where the server says so."""
    index: int = 0
    """Which of the samples, or of the prompts, of a request it belongs to."""


Labels = Sequence[int]
"""Token ids."""


@dataclass(frozen=True)
class LabelReading:
    """How the probabilities of labels after a prompt are read."""

    by: LabelsBy
    body: Callable[[str, list[int], Labels], Body]
    read: Callable[[Any], LogProbs]
    several: Callable[[str, list[list[int]], Labels], Body] | None = None
    """The request for those after several prompts, streamed: the `top` of a piece for each."""


@dataclass(frozen=True)
class Prompts:
    """How the log-probabilities of a prompt's tokens are read."""

    body: Callable[[str, list[int], int], Body]
    """The request for them, with those of so many of the likeliest tokens at each place."""
    read: Callable[[Any, Sequence[int]], list[LogProbs]]
    """At the place of each token but the first: its own, and the likeliest."""


@dataclass(frozen=True)
class Dialect:
    """How servers of a kind are asked for tokens and probabilities."""

    kind: DialectName
    title: str
    """The kind as people write it."""
    owner: str
    """The owner of its models in /v1/models."""
    version: tuple[str, str]
    """The path and the field that tell its version."""
    path: str
    seeds: int
    """Seeds are below it."""
    grammar: str
    """The field that takes a grammar; empty: there is none."""
    sample: Callable[[str, Ask], Body]
    """What asks a model for a sample."""
    piece: Callable[[Any], Piece]
    """What an answer, or an event of a stream, holds."""
    labels: LabelReading | None = None
    prompts: Prompts | None = None
    salt: str = ""
    """The field of a request that keeps its prefixes apart from requests with another value of it;
    empty: there is none."""
    siblings: bool = False
    """Whether one request draws several samples, each by the next seed (see `samples`)."""
    tops: bool = False
    """Whether it gives the ids of the likeliest tokens at each place."""
    streams: bool = True
    """Its streams give every token; else only its whole answers do."""
    stops_by_ids: bool = False
    """It looks for the tokens of a stop text, not for the text: every token that holds one is named
    to it."""
    shapes: frozenset[str] = frozenset()
    """Changes to the distribution that it can make, by the names of `Shaping`."""
    read_streamed: bool = False
    """A whole output is read from a stream, where that gives every token: what asks for an answer
    in one piece is not ended with its connection while others are answered. The server closes the
    connection with the stream."""


def _completion(model: str, ask: Ask) -> Body:
    """A request of OpenAI's form, with the fields that vLLM and trtllm-serve add to it."""
    body: Body = {
        "model": model,
        "prompt": ask.prompt,
        "max_tokens": ask.max_tokens,
        "temperature": ask.temperature,
        "top_p": ask.top_p,
        "top_k": ask.top_k,
        "seed": ask.seed,
        **_penalties(ask),
    }
    if ask.log_probs:
        body["logprobs"] = max(ask.top, 1)
    if ask.stop:
        body |= {"stop": list(ask.stop), "include_stop_str_in_output": True}
    if ask.stop_ids:
        body["stop_token_ids"] = list(ask.stop_ids)
    if ask.ignore_end:
        body["ignore_eos"] = True
    if ask.stream:
        body["stream"] = True
    return body


_PENALTIES = frozenset({"repetition_penalty", "presence_penalty", "frequency_penalty"})
_NO_PENALTIES = {
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "frequency_penalty": 0.0,
    "presence_penalty": 0.0,
}


def _penalties(ask: Ask) -> Body:
    """The changes to the distribution, as OpenAI's and vLLM's fields have them."""
    body = {**_NO_PENALTIES, **ask.shaping}
    if "logit_bias" in body:
        body["logit_bias"] = {str(token): value for token, value in body["logit_bias"]}
    return body


def _vllm_sample(model: str, ask: Ask) -> Body:
    body = _completion(model, ask) | {"return_token_ids": True}
    if ask.top:
        body["return_tokens_as_token_ids"] = True
    if ask.samples > 1:  # each is streamed in two events: its first token, and the rest at its end
        body |= {"n": ask.samples, "stream": True, "stream_interval": max(ask.max_tokens, 1)}
    if ask.guide:
        name = "grammar" if ask.guide.kind == EBNF else "json"
        body["structured_outputs"] = {name: _guide(ask.guide)}
    return body


def _trtllm_sample(model: str, ask: Ask) -> Body:
    body = _completion(model, ask) | {"detokenize": False}  # token ids come in place of text
    if ask.guide:
        kind, field = ("ebnf", "ebnf") if ask.guide.kind == EBNF else ("json", "schema")
        body["response_format"] = {"type": kind, field: _guide(ask.guide)}
    return body


def _guide(guide: Guide) -> Any:
    return guide.text if guide.kind == EBNF else json.loads(guide.text)


def _choice(answer: Any) -> dict[str, Any]:
    choices = answers.mapping(answer).get("choices")
    return answers.mapping(answers.only(choices, "one choice"), "a choice")


def _completion_piece(answer: Any) -> Piece:
    if answers.mapping(answer).get("choices") == []:  # the event that counts tokens
        return Piece([])
    choice = _choice(answer)
    ids, details = choice.get("token_ids"), choice.get("logprobs")
    log_probs: list[float] = []
    top: list[LogProbs] = []
    if details is not None:
        details = answers.mapping(details, "log-probabilities")
        values = answers.array(details.get("token_logprobs"), "log-probabilities")
        log_probs = [answers.log_probability(each) for each in values]
        rows = answers.array(details.get("top_logprobs") or [], "the likeliest tokens")
        top = [_likeliest(row or {}) for row in rows]
    return Piece(
        None if ids is None else answers.token_ids(ids),
        answers.text(choice.get("text") or ""),
        log_probs,
        top,
        _reason(choice.get("finish_reason")),
        index=answers.token_id(choice.get("index", 0)),
    )


def _reason(value: object) -> str:
    """Why an output ends; raises EndpointUnavailable if the server gave it up."""
    if value is None:
        return ""
    reason = answers.text(value, "a reason")
    if reason in ("abort", "error", "cancelled", "timeout"):
        raise EndpointUnavailable(f"The server gave a request up (finish_reason {reason!r}).")
    return reason or "stop"


def _top_labels(answer: Any) -> LogProbs:
    """The likeliest first tokens."""
    details = answers.mapping(_choice(answer).get("logprobs"), "log-probabilities")
    first = answers.array(details.get("top_logprobs"), "the likeliest tokens")[:1]
    return _likeliest(answers.only(first, "the likeliest tokens"))


def _likeliest(row: object) -> LogProbs:
    """The likeliest tokens of a place: `token_id:7` where the server can name ids, else texts."""
    log_probs: LogProbs = {}
    for name, value in answers.mapping(row).items():
        marked, _, number = name.partition("token_id:")
        key = int(number) if not marked and number.isdecimal() and len(number) < 11 else name
        log_probs[key] = answers.log_probability(value)
    return log_probs


def _one_token(model: str, ids: list[int]) -> Body:
    return {"model": model, "prompt": ids, "max_tokens": 1, "temperature": 0.0, "seed": 0}


def _vllm_labels(model: str, ids: list[int], labels: Labels) -> Body:
    # of an older version, which knows no logprob_token_ids, the likeliest tokens
    fields = {"logprob_token_ids": list(labels), "return_tokens_as_token_ids": True}
    return _one_token(model, ids) | {"logprobs": MOST_TOP} | fields


def _vllm_several_labels(model: str, prompts: list[list[int]], labels: Labels) -> Body:
    return _vllm_labels(model, [], labels) | {"prompt": prompts, "stream": True}


def _biased_labels(model: str, ids: list[int], labels: Labels) -> Body:
    # as many tokens as labels: rows are named by text, and another token's may be a label's
    bias = {"logit_bias": {str(label): _BIAS for label in labels}}
    return _one_token(model, ids) | {"logprobs": len(labels)} | bias


def _vllm_prompt_body(model: str, ids: list[int], top: int) -> Body:
    return _one_token(model, ids) | {"prompt_logprobs": top}


def _vllm_prompt(answer: Any, ids: Sequence[int]) -> list[LogProbs]:
    places = answers.array(_choice(answer).get("prompt_logprobs"), "log-probabilities of a prompt")
    if len(places) != len(ids):
        raise answers.bad(f"log-probabilities of {len(ids)} tokens", places)
    rows = [answers.mapping(entries) for entries in places[1:]]
    for token, row in zip(ids[1:], rows, strict=True):
        answers.mapping(row.get(str(token)), f"token {token}")
    return [
        _likeliest({f"token_id:{t}": answers.mapping(e).get("logprob") for t, e in row.items()})
        for row in rows
    ]


def _sglang_sample(model: str, ask: Ask) -> Body:
    sampling: Body = {
        "max_new_tokens": ask.max_tokens,
        "temperature": ask.temperature,
        "top_p": ask.top_p,
        "top_k": ask.top_k or -1,
        "sampling_seed": ask.seed,
        "stop": list(ask.stop),
        "stop_token_ids": list(ask.stop_ids),
        "no_stop_trim": True,
        "ignore_eos": ask.ignore_end,
        **_penalties(ask),
    }
    if "min_tokens" in sampling:
        sampling["min_new_tokens"] = sampling.pop("min_tokens")
    if ask.guide:  # the text of a schema, too
        sampling["ebnf" if ask.guide.kind == EBNF else "json_schema"] = ask.guide.text
    body: Body = {"input_ids": ask.prompt, "sampling_params": sampling}
    body |= {"stream": ask.stream, "return_logprob": ask.log_probs}
    return body | ({"top_logprobs_num": ask.top} if ask.top else {})


def _sglang_piece(answer: Any) -> Piece:
    fields = answers.mapping(answer)
    about = answers.mapping(fields.get("meta_info"), "meta_info")
    ids, count = fields.get("output_ids"), about.get("completion_tokens")
    end = about.get("finish_reason")
    if isinstance(end, dict) and end.get("type") == "abort":
        words = str(end.get("message") or "no reason given")[:200]
        raise EndpointUnavailable(f"The server gave a request up: {words}")
    top = answers.array(about.get("output_top_logprobs") or [], "the likeliest tokens")
    return Piece(
        None if ids is None else answers.token_ids(ids),
        answers.text(fields.get("text") or ""),
        [lp for lp, _ in _triples(about.get("output_token_logprobs") or [])],
        [_by_id(row or []) for row in top],
        _reason(answers.mapping(end, "a reason").get("type")) if end is not None else "",
        answers.count(count),
    )


def _triples(value: object) -> list[tuple[float, int]]:
    """Log-probabilities and ids from [log-probability, id, text] each."""
    rows = [answers.array(each) for each in answers.array(value, "log-probabilities")]
    if any(len(row) < 2 for row in rows):
        raise answers.bad("log-probabilities with token ids", value)
    return [(answers.log_probability(row[0]), answers.token_id(row[1])) for row in rows]


def _by_id(row: object) -> LogProbs:
    return {token: lp for lp, token in _triples(row)}


def _sglang_draw(ids: list[int], **flags: Any) -> Body:
    """A request for one token with log-probabilities."""
    sampling = {"max_new_tokens": 1, "temperature": 1.0, **_NO_PENALTIES}
    return {"input_ids": ids, "sampling_params": sampling, "return_logprob": True, **flags}


def _sglang_labels(model: str, ids: list[int], labels: Labels) -> Body:
    return _sglang_draw(ids, token_ids_logprob=list(labels))


def _sglang_label_probs(answer: Any) -> LogProbs:
    about = answers.mapping(answers.mapping(answer).get("meta_info"), "meta_info")
    rows = answers.array(about.get("output_token_ids_logprobs"), "log-probabilities of labels")
    return _by_id(answers.only(rows, "one generated token"))


def _sglang_prompt_body(model: str, ids: list[int], top: int) -> Body:
    body = _sglang_draw(ids, logprob_start_len=0)
    return body | ({"top_logprobs_num": top} if top else {})


def _sglang_prompt(answer: Any, ids: Sequence[int]) -> list[LogProbs]:
    about = answers.mapping(answers.mapping(answer).get("meta_info"), "meta_info")
    rows = answers.array(about.get("input_token_logprobs"), "log-probabilities of a prompt")
    if len(rows) != len(ids):
        raise answers.bad(f"log-probabilities of {len(ids)} tokens", rows)
    own_tokens = _triples(rows[1:])
    if [token for _, token in own_tokens] != list(ids[1:]):
        raise answers.bad("log-probabilities of the prompt's own tokens", rows)
    likeliest = answers.array(about.get("input_top_logprobs") or [], "the likeliest tokens")
    tops = [_by_id(row or []) for row in likeliest[1:]] or [{} for _ in own_tokens]
    if len(tops) != len(own_tokens):
        raise answers.bad(f"the likeliest tokens at {len(rows)} places", likeliest)
    return [{**top, token: own} for top, (own, token) in zip(tops, own_tokens, strict=True)]


_LLAMA_CHAIN: Body = {
    # temperature first, as other servers have it
    "samplers": ["temperature", "top_k", "top_p"],
    "min_p": 0.0,
    "repeat_penalty": 1.0,
    "frequency_penalty": 0.0,
    "presence_penalty": 0.0,
}


def _llama_penalties(ask: Ask) -> Body:
    if not ask.shaping:
        return {}
    body = {**ask.shaping}
    if "repetition_penalty" in body:
        body["repeat_penalty"] = body.pop("repetition_penalty")
    if "logit_bias" in body:
        body["logit_bias"] = [list(each) for each in body["logit_bias"]]
    chain = ["penalties", *_LLAMA_CHAIN["samplers"], "min_p"]
    # all of the prompt and the output; some versions refuse -1, which would say so
    return body | {"samplers": chain, "repeat_last_n": len(ask.prompt) + ask.max_tokens}


def _llama_sample(model: str, ask: Ask) -> Body:
    body: Body = {
        "model": model,
        "prompt": ask.prompt,
        "n_predict": ask.max_tokens,
        "temperature": ask.temperature,
        "top_p": ask.top_p,
        "top_k": ask.top_k,
        "seed": ask.seed,
        "return_tokens": True,
        "ignore_eos": ask.ignore_end,
        **_LLAMA_CHAIN,
        **_llama_penalties(ask),
    }
    if ask.guide:
        body["grammar" if ask.guide.kind == EBNF else "json_schema"] = _guide(ask.guide)
    if ask.stream:
        body["stream"] = True
    if ask.log_probs:
        body["n_probs"] = 1  # of a stop text's tokens it gives none: the client looks for it alone
    elif ask.stop:
        body["stop"] = list(ask.stop)
    return body


def _llama_piece(answer: Any) -> Piece:
    fields = answers.mapping(answer)
    ids, probs = fields.get("tokens"), fields.get("completion_probabilities") or []
    entries = [answers.mapping(each) for each in answers.array(probs, "log-probabilities")]
    return Piece(
        None if ids is None else answers.token_ids(ids),
        answers.text(fields.get("content") or ""),
        [answers.log_probability(entry.get("logprob")) for entry in entries],
        [],
        _reason(fields.get("stop_type")) if fields.get("stop") else "",
        answers.count(fields.get("tokens_predicted")),
    )


def _llama_labels(model: str, ids: list[int], labels: Labels) -> Body:
    return {
        "model": model,
        "prompt": ids,
        "n_predict": 1,
        "seed": 0,
        "temperature": 1.0,
        "top_k": len(labels),
        "top_p": 1.0,
        **_LLAMA_CHAIN,
        "logit_bias": [[label, _BIAS] for label in labels],
        "n_probs": len(labels),
        "post_sampling_probs": True,  # of the draw itself, which the bias confines to the labels
    }


def _llama_label_probs(answer: Any) -> LogProbs:
    rows = answers.array(
        answers.mapping(answer).get("completion_probabilities"), "probabilities of labels"
    )
    row = answers.mapping(answers.only(rows, "one generated token"))
    log_probs: LogProbs = {}
    for each in answers.array(row.get("top_probs"), "probabilities of labels"):
        entry = answers.mapping(each)
        log_probs[answers.token_id(entry.get("id"))] = answers.log_of(entry.get("prob"))
    return log_probs


VLLM = Dialect(
    "vllm",
    "vLLM",
    "vllm",
    ("/version", "version"),
    "/v1/completions",
    2**63,
    "structured_outputs",
    _vllm_sample,
    _completion_piece,
    LabelReading("ids", _vllm_labels, _top_labels, _vllm_several_labels),
    Prompts(_vllm_prompt_body, _vllm_prompt),
    salt="cache_salt",
    siblings=True,
    tops=True,
    shapes=_PENALTIES | {"min_p", "min_tokens", "logit_bias"},
)
SGLANG = Dialect(
    "sglang",
    "SGLang",
    "sglang",
    ("/get_server_info", "version"),
    "/generate",
    2**31,
    "ebnf",
    _sglang_sample,
    _sglang_piece,
    LabelReading("ids", _sglang_labels, _sglang_label_probs),
    Prompts(_sglang_prompt_body, _sglang_prompt),
    tops=True,
    shapes=_PENALTIES | {"min_p", "min_tokens", "logit_bias"},
)
LLAMA = Dialect(
    "llama.cpp",
    "llama.cpp",
    "llamacpp",
    ("/props", "build_info"),
    "/completion",
    2**32 - 1,  # the last one means any
    "grammar",
    _llama_sample,
    _llama_piece,
    LabelReading("bias", _llama_labels, _llama_label_probs),
    shapes=_PENALTIES | {"min_p", "logit_bias"},
    streams=False,  # they leave out a token that ends within a character
    # an answer in one piece looks for its client after a second without the answer to any request
    read_streamed=True,
)
TRTLLM = Dialect(
    "trtllm-serve",
    "trtllm-serve",
    "tensorrt_llm",
    ("/version", "version"),
    "/v1/completions",
    2**63,
    "response_format",
    _trtllm_sample,
    _completion_piece,
    # exact from 1.3.0rc22 on: TorchSampler adds the bias to the float32 logits in place, and makes
    # its log-probabilities of them; earlier servers make it too short for most models (#13518)
    LabelReading("bias", _biased_labels, _top_labels),
    # it takes penalties, and its sampler ignores them (TensorRT-LLM #9442, mended in #16485)
    shapes=frozenset(),
    stops_by_ids=True,
)
DIALECTS: dict[DialectName, Dialect] = {each.kind: each for each in (VLLM, LLAMA, SGLANG, TRTLLM)}
"""Dialects by kind, in the order in which an unknown server is asked."""


def log_probs_of(row: LogProbs, labels: Labels, texts: Sequence[str]) -> list[float | None]:
    """The log-probability of each label, by its id or its text; None where it is not there."""
    return [row.get(label, row.get(text)) for label, text in zip(labels, texts, strict=True)]


def require_ids(piece: Piece, vocabulary: int) -> list[int]:
    """The ids of an answer, all of them in the vocabulary; raises EndpointError."""
    if piece.ids is None:
        raise EndpointError(
            "The server's answer holds no token ids, as it did when it was asked first.",
            hint="Is it behind a proxy that leads to several servers?",
        )
    if (most := max(piece.ids, default=0)) >= vocabulary:
        raise EndpointError(
            f"The server answered token {most}; the tokenizer has ids up to {vocabulary - 1}.",
            hint="Set generator.tokenizer to the tokenizer of the model that the server runs.",
        )
    return piece.ids
