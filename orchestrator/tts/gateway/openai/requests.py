"""The requests as typed structures, and how they are read. Pure.

Half support is worse than none: a client that asks for scores of its prompt and gets none goes on
with what is wrong. So a field that nothing here can honour is refused unless it asks for what
happens anyway. Fields that nobody knows are ignored, and named to the client.
"""

from __future__ import annotations

import re
from contextlib import suppress
from functools import cache
from typing import Annotated, Any, Literal, TypeVar, cast

import msgspec
from msgspec import Meta, Struct

from tts.endpoints.shaping import Shaping

from .errors import MAX_QUOTE, bad_request, quoted
from .messages import ChatMessage, NamedTool, Tool

PLAIN = Shaping()
TOKEN_ID = re.compile("[0-9]{1,10}")
MAX_CHOICES = 128
"""Samples of one request at most, over all its prompts."""
MAX_STOPS = 16
MAX_TOOLS = 128
MAX_BIASES = 1024
MAX_SCORES = 1024
"""Scores of one request at most: each is a request to the verifier."""

Count = Annotated[int, Meta(ge=1)]
SearchTokens = Annotated[int, Meta(ge=2)]
"""Tokens of a search: one of an answer, and its end; no search finds anything in less."""
SearchSeconds = Annotated[float, Meta(ge=0.01)]
"""Seconds of a search: about what the fastest engine needs for a token, at least."""
Penalty = Annotated[float, Meta(ge=-2, le=2)]
Bias = Annotated[float, Meta(ge=-100, le=100)]
ThinkingTokens = Annotated[int, Meta(ge=0)]
"""Tokens of the thinking before an answer; 0: there is to be none."""
TopLogProbs = Annotated[int, Meta(ge=0, le=20)]
"""How many of the likeliest tokens each place reports."""
Stop = Annotated[str, Meta(min_length=1)]
TokenId = Annotated[int, Meta(ge=0, lt=2**31)]
"""A token id as engines have it, int32."""

NEUTRAL_VALUES: dict[str, tuple[Any, ...]] = {
    "tools": ([],),  # of texts; chats have tools
    "tool_choice": ("none", "auto"),
    "parallel_tool_calls": (True, False),  # says nothing without tools
    "functions": ([],),
    "function_call": ("none", "auto"),
    "length_penalty": (1,),
    "use_beam_search": (False,),
    "prompt_logprobs": (),
    "echo": (False,),
    "suffix": ("",),
    "modalities": (["text"],),
    "audio": (),
    "prediction": (),
    "web_search_options": (),
    "skip_special_tokens": (True,),
    "spaces_between_special_tokens": (True,),
    "bad_words": ([],),
    "allowed_token_ids": (),
    "truncate_prompt_tokens": (),
    "guided_grammar": (),
    "chat_template": (),
    "documents": (),
}
"""Fields of OpenAI's and vLLM's requests, and the values with which they change nothing."""
WITHOUT_EFFECT = frozenset(
    {
        "store",
        "metadata",
        "user",
        "safety_identifier",
        "prompt_cache_key",
        "prompt_cache_retention",
        "service_tier",
        "max_tool_calls",  # of tools that a provider runs
    }
)
"""Fields that need nothing of us: they tell a provider who asks, or what it may charge."""


class StreamOptions(Struct):
    """What else a stream holds."""

    include_usage: bool = False


class SearchOptions(Struct, forbid_unknown_fields=True):
    """The field `tts`: which search, and how much of it. Without it the model's name says."""

    strategy: str | None = None
    n: Count | None = None
    budget: Count | None = None
    """Another name of `n`: what a budget means to other servers of test-time search."""
    budget_tokens: SearchTokens | None = None
    deadline_s: SearchSeconds | None = None
    seed: int | None = None
    progress: Literal["steps", "reasoning", "none"] | None = None
    """Content of a stream before the answer: the tree's steps in a field `tts`, the text of the
    best chain so far as reasoning, or nothing."""
    parameters: dict[str, Any] = {}
    """Parameters of the strategy, by the names of docs/reference/strategies.md."""


class JsonSchema(Struct):
    """A schema by OpenAI's name for it."""

    schema: dict[str, Any] | bool | None = None
    name: str = ""
    strict: bool | None = None
    """Whether the answer must obey all of it, or what of it can be held to."""


class ResponseFormat(Struct):
    """OpenAI's `response_format`."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None
    schema: dict[str, Any] | bool | None = None
    """The schema of a json_object, as llama.cpp's server takes it."""


class StructuredOutputs(Struct, forbid_unknown_fields=True):
    """vLLM's `structured_outputs`: one of three."""

    json: dict[str, Any] | bool | str | None = None
    regex: str | None = None
    choice: Annotated[list[str], Meta(min_length=1)] | None = None


class ModelRequest(Struct, kw_only=True):
    """The field of all requests to a model of `/v1/models`."""

    model: str


class TokenRequest(Struct, kw_only=True):
    """The field of requests for texts and token ids, which are the same for all models."""

    model: str | None = None


class Request(ModelRequest, kw_only=True):
    """Fields that completions and chat share. Lengths are in tokens."""

    n: Annotated[int, Meta(ge=1, le=MAX_CHOICES)] = 1
    max_tokens: Count | None = None
    max_completion_tokens: Count | None = None
    temperature: Annotated[float, Meta(ge=0, le=10)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    top_k: Annotated[int, Meta(ge=-1, le=1024)] | None = None
    """0 and -1: any token may be drawn."""
    seed: int | None = None
    stop: Stop | Annotated[list[Stop], Meta(max_length=MAX_STOPS)] = []
    stop_token_ids: Annotated[list[TokenId], Meta(max_length=MAX_STOPS)] = []
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    min_tokens: Annotated[int, Meta(ge=0)] = 0
    presence_penalty: Penalty = 0.0
    frequency_penalty: Penalty = 0.0
    repetition_penalty: Annotated[float, Meta(gt=0, le=10)] = 1.0
    min_p: Annotated[float, Meta(ge=0, le=1)] = 0.0
    logit_bias: Annotated[dict[str, Bias], Meta(max_length=MAX_BIASES)] = {}
    """Added to the logits of tokens, by the token id as a text."""
    stream: bool = False
    stream_options: StreamOptions = msgspec.field(default_factory=StreamOptions)
    tts: SearchOptions | None = None
    budget: Count | None = None
    response_format: ResponseFormat | None = None
    guided_json: dict[str, Any] | bool | str | None = None
    """A schema, or its JSON text. This and the three below are vLLM's names."""
    guided_regex: str | None = None
    guided_choice: Annotated[list[str], Meta(min_length=1)] | None = None
    structured_outputs: StructuredOutputs | None = None
    return_response_only: bool = True
    """False: `metadata` says what the answer was chosen from, as its_hub's server does."""

    @property
    def limit(self) -> int | None:
        """Tokens to generate at most, by either of its two names."""
        return self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens

    @property
    def shaping(self) -> Shaping | None:
        """Its change of the distribution that tokens are drawn from, if any; raises ApiError."""
        if wrong := [token for token in self.logit_bias if not TOKEN_ID.fullmatch(token)]:
            raise bad_request(
                f"logit_bias names {quoted(wrong[0])}, which is no token id.", "logit_bias"
            )
        shaping = Shaping(
            self.min_tokens,
            self.repetition_penalty,
            self.presence_penalty,
            self.frequency_penalty,
            self.min_p,
            tuple((int(token), bias) for token, bias in self.logit_bias.items()),
        )
        return shaping if shaping != PLAIN else None

    @property
    def stops(self) -> list[str]:
        """The stop strings."""
        return [self.stop] if isinstance(self.stop, str) else self.stop

    def asks_search(self, strategy: str | None) -> bool:
        """Whether it asks for a search, by its model's `strategy` or a field; or ApiError."""
        options = self.tts or SearchOptions()
        if strategy or self.budget or options.strategy or options.n or options.budget:
            return True
        for name in ("budget_tokens", "deadline_s", "parameters"):
            if getattr(options, name):
                raise bad_request(
                    f"tts.{name} is for searches, and this request asks for none. Name a strategy "
                    "in the model (MODEL:auto) or in tts.strategy.",
                    f"tts.{name}",
                )
        return False


class CompletionRequest(Request, kw_only=True):
    """`/v1/completions`."""

    prompt: str | Annotated[list[str | TokenId | list[TokenId]], Meta(min_length=1)]
    """A text, token ids, or a list of either: all of its members are of one kind."""
    max_tokens: Annotated[int, Meta(ge=0)] | None = None
    """0, for a prompt alone that is given back."""
    echo: bool = False
    logprobs: TopLogProbs | None = None
    best_of: Count | None = None
    add_special_tokens: bool = True

    @property
    def prompts(self) -> list[str | list[int]]:
        """The prompts, one or several; raises ApiError for a list of several kinds."""
        prompt = self.prompt
        if isinstance(prompt, str):
            return [prompt]
        kinds = set(map(type, prompt))
        if kinds == {int}:
            return [cast(list[int], prompt)]
        if len(kinds) > 1:
            raise bad_request("prompt mixes texts, token ids and lists of them.", "prompt")
        return cast(list[str | list[int]], prompt)


class TemplatedRequest(Request, kw_only=True):
    """Fields of what a chat template renders."""

    chat_template_kwargs: dict[str, Any] = {}
    enable_thinking: bool | None = None
    reasoning_effort: str | None = None
    thinking_token_budget: ThinkingTokens | None = None


class ChatRequest(TemplatedRequest, kw_only=True):
    """`/v1/chat/completions`."""

    messages: Annotated[list[ChatMessage], Meta(min_length=1)]
    tools: Annotated[list[Tool], Meta(max_length=MAX_TOOLS)] = []
    tool_choice: Literal["none", "auto", "required"] | NamedTool | None = None
    parallel_tool_calls: bool = True
    logprobs: bool = False
    top_logprobs: TopLogProbs = 0
    add_generation_prompt: bool = True
    continue_final_message: bool = False

    @property
    def asks_tools(self) -> bool:
        """Whether tools are offered or asked for, or were called in the conversation."""
        return (
            bool(self.tools)
            or self.tool_choice not in (None, "none", "auto")
            or any(message.of_tools for message in self.messages)
        )


class PoolingRequest(ModelRequest, kw_only=True):
    """`/pooling`: the steps of the last message are scored."""

    messages: Annotated[list[ChatMessage], Meta(min_length=1)]


class RerankDocument(Struct, kw_only=True):
    """An answer, as clients wrap it."""

    text: str


class RerankRequest(ModelRequest, kw_only=True):
    """`/v1/rerank`: answers to a question are ordered by their scores."""

    query: str
    documents: Annotated[list[str | RerankDocument], Meta(min_length=1, max_length=MAX_SCORES)]
    top_n: Annotated[int, Meta(ge=1)] | None = None
    return_documents: bool = True


class TokenizeRequest(TokenRequest, kw_only=True):
    """`/tokenize`: a text, or a chat."""

    prompt: str | None = None
    messages: Annotated[list[ChatMessage], Meta(min_length=1)] | None = None
    add_special_tokens: bool = True
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    chat_template_kwargs: dict[str, Any] = {}
    enable_thinking: bool | None = None
    reasoning_effort: str | None = None
    thinking_token_budget: ThinkingTokens | None = None


class DetokenizeRequest(TokenRequest, kw_only=True):
    """`/detokenize`."""

    tokens: list[TokenId]


T = TypeVar("T", bound=Struct)


def read_request(kind: type[T], body: bytes) -> tuple[T, list[str]]:
    """A request from its body, and the names of the fields that are ignored; raises ApiError."""
    with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        if msgspec.json.decode(body, type=dict[str, msgspec.Raw]).keys() <= _fields(kind):
            return msgspec.json.decode(body, type=kind), []
    try:
        fields = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise bad_request(f"The body is not JSON: {error}.") from None
    if not isinstance(fields, dict):
        raise bad_request("The body is no JSON object.")
    values, ignored = _split_fields(fields, _fields(kind))
    try:
        return msgspec.convert(values, kind), ignored
    except msgspec.ValidationError:
        pass
    try:
        return msgspec.convert(_with_integers(values), kind), ignored
    except msgspec.ValidationError as error:
        message = str(error)
        place = _PLACE.search(message)
        param = place[1][:MAX_QUOTE] or None if place else None
        raise bad_request(f"The request is not valid: {message}.", param) from None
    except RecursionError:
        raise bad_request("The request is not valid: it is nested too deeply.") from None


def _split_fields(
    fields: dict[str, Any], names: frozenset[str]
) -> tuple[dict[str, Any], list[str]]:
    """The fields of a request that has these names, and the names of those that are ignored.

    A literal `extra_body`, which belongs into OpenAI's Python client and is sent as it stands by
    others, is read as part of the request. Raises ApiError for a field that cannot be honoured.
    """
    extra = fields.get("extra_body")
    if isinstance(extra, dict):
        fields = {**fields, **extra}
    values: dict[str, Any] = {}
    ignored = []
    for name, value in fields.items():
        if value is None or name == "extra_body":
            continue
        if name in names:
            values[name] = value
        elif name in NEUTRAL_VALUES:
            _require_neutral(name, value)
        elif name not in WITHOUT_EFFECT:
            ignored.append(name)
    return values, ignored


def _require_neutral(name: str, value: Any) -> None:
    neutral = NEUTRAL_VALUES[name]
    if value in neutral:
        return
    allowed = f"; it may only be {' or '.join(map(repr, neutral))}" if neutral else ""
    raise bad_request(
        f"{name} is not supported here{allowed}. Leave it out.", name, "unsupported_parameter"
    )


def _with_integers(value: Any) -> Any:
    """A value of JSON in which 1.0 is the integer 1, as JSON Schema has it."""
    if isinstance(value, dict):
        return {name: _with_integers(each) for name, each in value.items()}
    if isinstance(value, list):
        return list(map(_with_integers, value))
    whole = isinstance(value, float) and value.is_integer() and abs(value) < 2**53
    return int(value) if whole else value


_PLACE = re.compile(r"- at `\$\.?(.*)`$")


@cache
def _fields(kind: type[Struct]) -> frozenset[str]:
    return frozenset(kind.__struct_fields__)
