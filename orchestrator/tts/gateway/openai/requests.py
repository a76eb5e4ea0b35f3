"""The requests as typed structures, and the fields that cannot be honoured. Pure.

Half support is worse than none: a client that asks for tools and gets prose, or for scores of its
prompt and gets none, goes on with what is wrong. So such a field is refused unless it asks for what
happens anyway. Fields that nobody knows are ignored, and named to the client.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Annotated, Any, Literal, TypeVar, cast

import msgspec
from msgspec import Meta, Struct

from .errors import MOST_QUOTED, bad_request

MAX_CHOICES = 128
"""Samples of one request at most, over all its prompts."""
MAX_STOPS = 16
HONOURED_ONLY_AS: dict[str, tuple[Any, ...]] = {
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "parallel_tool_calls": (True, False),  # says nothing without tools
    "functions": ([],),
    "function_call": ("none", "auto"),
    "response_format": ({"type": "text"},),
    "logit_bias": ({},),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "repetition_penalty": (1,),
    "length_penalty": (1,),
    "use_beam_search": (False,),
    "min_p": (0,),
    "min_tokens": (0,),
    "top_logprobs": (0,),
    "prompt_logprobs": (),
    "suffix": ("",),
    "modalities": (["text"],),
    "audio": (),
    "prediction": (),
    "web_search_options": (),
    "store": (False,),
    "skip_special_tokens": (True,),
    "spaces_between_special_tokens": (True,),
    "bad_words": ([],),
    "allowed_token_ids": (),
    "truncate_prompt_tokens": (),
    "guided_json": (),
    "guided_regex": (),
    "guided_choice": (),
    "guided_grammar": (),
    "structured_outputs": (),
    "chat_template": (),
    "documents": (),
}
"""Fields of OpenAI's and vLLM's requests, and the values with which they change nothing."""
WITHOUT_EFFECT = frozenset({"user", "safety_identifier", "prompt_cache_key", "service_tier"})
"""Fields that need nothing of us: they tell a provider who asks, or what it may charge."""

Count = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(gt=0)]
Stop = Annotated[str, Meta(min_length=1)]
TokenId = Annotated[int, Meta(ge=0, lt=2**31)]
"""A token id as engines have it, int32."""


class StreamOptions(Struct):
    """What else a stream holds."""

    include_usage: bool = False


class SearchOptions(Struct, forbid_unknown_fields=True):
    """The field `tts`: which search, and how much of it. Without it the model's name says."""

    strategy: str | None = None
    n: Count | None = None
    budget: Count | None = None
    """Another name of `n`: what a budget means to other servers of test-time search."""
    budget_tokens: Count | None = None
    """Generated tokens that the tree may hold."""
    deadline_s: Seconds | None = None
    seed: int | None = None
    progress: Literal["steps", "reasoning", "none"] | None = None
    """What a stream holds before the answer: the tree's steps in a field `tts`, the text of the
    best chain so far as reasoning, or nothing."""
    report: bool = False
    """Keep the run's self-contained report; the answer's field `tts` says at which path."""
    parameters: dict[str, Any] = {}
    """Parameters of the strategy, by the names of docs/reference/strategies.md."""


class Request(Struct, kw_only=True):
    """What completions and chat have in common. Lengths are in tokens."""

    model: str
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
    stream: bool = False
    stream_options: StreamOptions = msgspec.field(default_factory=StreamOptions)
    tts: SearchOptions | None = None
    budget: Count | None = None
    return_response_only: bool = True
    """False: `metadata` says what the answer was chosen from, as its_hub's server does."""

    @property
    def limit(self) -> int | None:
        """Tokens to generate at most, by either of its two names."""
        return self.max_completion_tokens or self.max_tokens

    @property
    def stops(self) -> list[str]:
        """The stop strings."""
        return [self.stop] if isinstance(self.stop, str) else self.stop


class CompletionRequest(Request, kw_only=True):
    """`/v1/completions`."""

    prompt: str | Annotated[list[str | TokenId | list[TokenId]], Meta(min_length=1)]
    """A text, token ids, or a list of either: all of its members are of one kind."""
    echo: bool = False
    logprobs: Annotated[int, Meta(ge=0)] | None = None
    best_of: Count | None = None
    add_special_tokens: bool = True

    @property
    def prompts(self) -> list[str | list[int]]:
        """The prompts, one or several; raises ApiError for a list of several kinds."""
        prompt = self.prompt
        if isinstance(prompt, str):
            return [prompt]
        ids = [item for item in prompt if isinstance(item, int)]
        if len(ids) == len(prompt):
            return [ids]
        kind = type(prompt[0])
        if ids or not all(isinstance(item, kind) for item in prompt):
            raise bad_request("prompt mixes texts, token ids and lists of them.", "prompt")
        return cast(list[str | list[int]], prompt)


class TextPart(Struct, tag_field="type", tag="text"):
    """A part of a message's content; there is no other kind."""

    text: str


class ChatMessage(Struct):
    """One message; other fields of it (name, tool_calls) are refused by `chat`."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[TextPart] | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None

    @property
    def text(self) -> str:
        """The content as one text."""
        if isinstance(self.content, list):
            return "".join(part.text for part in self.content)
        return self.content or ""

    def plain(self) -> dict[str, str]:
        """The message as chat templates take it."""
        return {
            "role": "system" if self.role == "developer" else self.role,
            "content": self.text,
        }


class ChatRequest(Request, kw_only=True):
    """`/v1/chat/completions`."""

    messages: Annotated[list[ChatMessage], Meta(min_length=1)]
    logprobs: bool = False
    add_generation_prompt: bool = True
    continue_final_message: bool = False


class PoolingRequest(Struct, kw_only=True):
    """`/pooling`: the steps of the last message are scored."""

    model: str
    messages: Annotated[list[ChatMessage], Meta(min_length=1)]


class TokenizeRequest(Struct, kw_only=True):
    """`/tokenize`: a text, or a chat."""

    model: str | None = None
    prompt: str | None = None
    messages: Annotated[list[ChatMessage], Meta(min_length=1)] | None = None
    add_special_tokens: bool = True
    add_generation_prompt: bool = True
    continue_final_message: bool = False


class DetokenizeRequest(Struct, kw_only=True):
    """`/detokenize`."""

    model: str | None = None
    tokens: list[TokenId]


T = TypeVar("T", bound=Struct)


def read_request(kind: type[T], body: bytes) -> tuple[T, list[str]]:
    """A request from its body, and the names of the fields that are ignored; raises ApiError."""
    try:
        fields = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise bad_request(f"The body is not JSON: {error}.") from None
    if not isinstance(fields, dict):
        raise bad_request("The body is no JSON object.")
    said, ignored = settled(fields, _fields(kind))
    try:
        return msgspec.convert(said, kind), ignored
    except msgspec.ValidationError as error:
        message = str(error)
        place = _PLACE.search(message)
        param = place[1][:MOST_QUOTED] or None if place else None
        raise bad_request(f"The request is not valid: {message}.", param) from None


_PLACE = re.compile(r"- at `\$\.?(.*)`$")


@cache
def _fields(kind: type[Struct]) -> frozenset[str]:
    return frozenset(kind.__struct_fields__)


def settled(fields: dict[str, Any], known: frozenset[str]) -> tuple[dict[str, Any], list[str]]:
    """The fields that say something, and the names of those that are ignored.

    A literal `extra_body`, which belongs into OpenAI's Python client and is sent as it stands by
    others, is read as part of the request. Raises ApiError for a field that cannot be honoured.
    """
    extra = fields.get("extra_body")
    if isinstance(extra, dict):
        fields = {**fields, **extra}
    said: dict[str, Any] = {}
    ignored = []
    for name, value in fields.items():
        if value is None or name == "extra_body":
            continue
        if name in known:
            said[name] = value
        elif name in HONOURED_ONLY_AS:
            _require_neutral(name, value)
        elif name not in WITHOUT_EFFECT:
            ignored.append(name)
    return said, ignored


def _require_neutral(name: str, value: Any) -> None:
    neutral = HONOURED_ONLY_AS[name]
    if value in neutral:
        return
    allowed = f"; it may only be {' or '.join(map(repr, neutral))}" if neutral else ""
    raise bad_request(
        f"{name} is not supported here{allowed}. Leave it out.", name, "unsupported_parameter"
    )
