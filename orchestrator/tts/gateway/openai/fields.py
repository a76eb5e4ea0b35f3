"""Fields of a request that are read, ignored, or refused as nothing here can honour them. Pure.

Half support is worse than none: a client that asks for scores of its prompt and gets none goes on
with what is wrong. So such a field is refused unless it asks for what happens anyway. Fields that
nobody knows are ignored, and named to the client.
"""

from __future__ import annotations

from typing import Any

from .errors import bad_request

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


def split_fields(fields: dict[str, Any], known: frozenset[str]) -> tuple[dict[str, Any], list[str]]:
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
        elif name in NEUTRAL_VALUES:
            _require_neutral(name, value)
        elif name not in WITHOUT_EFFECT:
            ignored.append(name)
    return said, ignored


def _require_neutral(name: str, value: Any) -> None:
    neutral = NEUTRAL_VALUES[name]
    if value in neutral:
        return
    allowed = f"; it may only be {' or '.join(map(repr, neutral))}" if neutral else ""
    raise bad_request(
        f"{name} is not supported here{allowed}. Leave it out.", name, "unsupported_parameter"
    )
