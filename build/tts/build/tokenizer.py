"""A checkpoint's tokenizer and chat template, without transformers.

Only `tokenizer.json`, `tokenizer_config.json` and `config.json` are read; the chat template runs in
a process with limits, and nothing from the checkpoint is executed otherwise.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from datetime import datetime
from functools import cache, cached_property, lru_cache, partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer as _Tokenizer

from tts.base.errors import CheckpointError, did_you_mean
from tts.base.input_files import Unreadable, as_text, is_file, read_bytes, read_text

from .chat_template import TemplateFailed, render, variables_of
from .checkpoint_files import read_json_object, refuse_gguf
from .control_tokens import MARK, MarkedTexts, any_of, inert, is_control
from .tokenizer_check import require_loadable

Message = Mapping[str, str]
Ids = npt.NDArray[np.int32]
LONG = 4096
"""Characters, or ids, beyond which a text is a batch of one for the library: that is several times
faster, and other threads run meanwhile, as it lets go of the interpreter lock for batches only. A
shorter text takes about a millisecond."""
EOS_FILES = ("generation_config.json", "config.json")
"""Files of a checkpoint that may name the ids which end a sequence; the first that does counts."""


class TooManyTokens(Exception):
    """A text has more tokens than its reader takes."""

    def __init__(self, count: int) -> None:
        super().__init__(f"{count} tokens")
        self.count = count


class Tokenizer:
    """Token ids of one checkpoint. Encoding never adds special tokens by itself."""

    def __init__(
        self,
        checkpoint: Path,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        chat_template: str | None = None,
    ) -> None:
        """Read a checkpoint's tokenizer, with another chat template; raises CheckpointError."""
        self.checkpoint = checkpoint
        file = checkpoint / "tokenizer.json"
        if not is_file(file):
            refuse_gguf(checkpoint)
            raise CheckpointError(
                f"{checkpoint} has no tokenizer.json.",
                hint="Only fast tokenizers are supported: save the tokenizer with transformers.",
            )
        self._tokenizer = _load(file)
        self._config = _read_json(checkpoint / "tokenizer_config.json")
        self._given_template = chat_template
        self.template_kwargs = dict(chat_template_kwargs or {})
        if self.template_kwargs:
            self._require_read(self.template_kwargs)
        self._encode_again = lru_cache(maxsize=16)(self.encode)
        self._controls = lru_cache(maxsize=16)(self._find_controls)
        self._marked_encoder = cache(partial(MarkedTexts, self._tokenizer))

    def with_template_kwargs(self, kwargs: Mapping[str, Any]) -> Tokenizer:
        """A copy with further variables for its chat template; raises CheckpointError."""
        self._require_read(kwargs)
        other = copy(self)
        other.template_kwargs = {**self.template_kwargs, **kwargs}
        return other

    @cached_property
    def vocab_size(self) -> int:
        """One more than the highest token id, added tokens included; ids between may be unused."""
        return 1 + max(self._tokenizer.get_vocab(with_added_tokens=True).values(), default=-1)

    def encode(self, text: str, most: int | None = None) -> list[int]:
        """Token ids of `text`; special tokens written in it are recognised, none are added.

        What `inert` has marked is text. Otherwise raises TooManyTokens for more than `most`, which
        are only counted: a list of a million ids takes 20 ms, in which no other thread runs.
        """
        with self._refusals("encode a text"):
            if MARK in text:
                return self._marked_encoder().encode(text)
            (encoding,) = self._tokenizer.encode_batch_fast([text], add_special_tokens=False)
            if most is None or len(encoding) <= most:
                ids: list[int] = encoding.ids
                return ids
        raise TooManyTokens(len(encoding))

    def encode_all(self, texts: Sequence[str], most: int) -> list[list[int]]:
        """Token ids of several texts, which the library reads side by side; see `encode`."""
        if any(MARK in text for text in texts):
            return [self.encode(text, most) for text in texts]
        with self._refusals("encode texts"):
            encodings = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        if (longest := max(map(len, encodings))) > most:
            raise TooManyTokens(longest)
        return [encoding.ids for encoding in encodings]

    def encode_after(self, before: str, text: str) -> list[int]:
        """Token ids of `text` as it is encoded where it follows `before`.

        Encoded alone it may get other ids: SentencePiece puts a space in front of any text. So both
        are encoded together and the ids of `before` removed. Where a token spans the two there are
        no such ids, and `text` is encoded alone.
        """
        first, both = self._encode_again(before), self.encode(before + text)
        return both[len(first) :] if both[: len(first)] == first else self.encode(text)

    def inert(self, text: str, around: str = "", keep: Collection[str] = ()) -> str:
        """A text of a user or a model, to be put into a prompt: no control token is read in it.

        Control tokens are the special tokens and what else the vocabulary has for marks that the
        chat template, or the text `around` it, writes. `keep` names those that count.
        """
        controls, folded = self._controls(around, frozenset(keep))
        marked = inert(text, controls, keep)
        if folded and marked == text:
            normalized = self._tokenizer.normalizer.normalize_str(text)
            if controls.search(normalized):  # one mark, and all of the prompt is encoded with care
                return re.sub(r"\S", MARK + r"\g<0>", text, count=1)
        return marked

    def _find_controls(self, around: str, keep: frozenset[str]) -> tuple[re.Pattern[str], bool]:
        """What `inert` marks, and whether the normalizer may make it of other texts."""
        template = around
        with suppress(CheckpointError):
            template += self.chat_template
        tokens = [
            token
            for token in self._tokenizer.get_added_tokens_decoder().values()
            if token.special or (is_control(token) and token.content in template)
        ]
        folded = bool(self._tokenizer.normalizer) and any(token.normalized for token in tokens)
        texts = {MARK, *keep, *(token.content for token in tokens)}
        return re.compile(any_of(texts)), folded

    def decode(self, ids: Sequence[int]) -> str:
        """Text of `ids` without special tokens."""
        try:
            if len(ids) > LONG:
                (text,) = self._tokenizer.decode_batch([list(ids)], skip_special_tokens=True)
            else:
                text = self._tokenizer.decode(list(ids), skip_special_tokens=True)
        except BaseException:  # the block is entered only now: it takes as long as to decode a step
            with self._refusals("decode tokens"):
                raise
        return str(text)

    def spelled(self, ids: Sequence[int]) -> str:
        """Text of `ids` with special tokens as they are written in a prompt."""
        text, run = "", list[int]()
        for token in ids:
            if token in self.added_ids:
                text += self.decode(run) + (self._tokenizer.id_to_token(token) or "")
                run = []
            else:
                run.append(token)
        return text + self.decode(run)

    @cached_property
    def token_texts(self) -> list[str]:
        """The text of every id decoded alone, by id; special tokens are empty."""
        return [self.decode([token]) for token in range(self.vocab_size)]

    @cached_property
    def longest_token(self) -> int:
        """An upper bound for the characters of a token: the longest spelling in the vocabulary."""
        return max(map(len, self.spellings))

    @cached_property
    def specification(self) -> dict[str, Any]:
        """The content of tokenizer.json, as the tokenizer has read it."""
        specification: dict[str, Any] = json.loads(self._tokenizer.to_str())
        return specification

    @property
    def spellings(self) -> list[str]:
        """The vocabulary's entries as tokenizer.json spells them, by id; "" for an id without."""
        return [self._tokenizer.id_to_token(token) or "" for token in range(self.vocab_size)]

    @cached_property
    def added_ids(self) -> frozenset[int]:
        """Ids that no ordinary text has: added to the vocabulary, special tokens above all."""
        return frozenset(self._tokenizer.get_added_tokens_decoder())

    @cached_property
    def special_texts(self) -> dict[int, str]:
        """How special tokens, which no decoded text holds, are written in a prompt, by id."""
        added = self.specification["added_tokens"]
        return {each["id"]: each["content"] for each in added if each["special"]}

    @cached_property
    def eos_ids(self) -> tuple[int, ...]:
        """Ids that end a sequence, from generation_config.json, config.json or the tokenizer."""
        for name in EOS_FILES:
            if ids := self.eos_ids_in(name):
                return ids
        if not (eos := self.special_ids("eos_token")):
            raise CheckpointError(f"{self.checkpoint} names no end-of-sequence token.")
        return eos

    def eos_ids_in(self, name: str) -> tuple[int, ...]:
        """The eos_token_id of one of the EOS_FILES; empty if it names none."""
        value = _read_json(self.checkpoint / name).get("eos_token_id")
        ids = value if isinstance(value, list) else [] if value is None else [value]
        if not all(type(item) is int and 0 <= item < 2**31 for item in ids):
            raise CheckpointError(
                f"{self.checkpoint / name}: eos_token_id is {value!r:.200}; it must be a "
                "token's id or a list of them."
            )
        return tuple(ids)

    def special_ids(self, name: str) -> tuple[int, ...]:
        """The one id of a named special token such as "bos_token"; empty if there is none."""
        token = self._tokenizer.token_to_id(self.special(name))
        return () if token is None else (int(token),)

    @cached_property
    def adds_bos(self) -> bool:
        """Whether tokenizer.json puts bos_token in front of a text that is no chat."""
        with self._refusals("encode a text"):
            ids = self._tokenizer.encode("1", add_special_tokens=True).ids
        return tuple(ids[:1]) == self.special_ids("bos_token")

    def special(self, name: str) -> str:
        """Text of a named special token such as "bos_token"; empty if there is none."""
        value = self._config.get(name)
        if isinstance(value, dict):
            value = value.get("content")
        return value if isinstance(value, str) else ""

    def chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        generation_prompt: bool,
        tools: Sequence[Mapping[str, Any]] = (),
        variables: Mapping[str, Any] = MappingProxyType({}),
    ) -> str:
        """Render a conversation with the checkpoint's chat template; raises CheckpointError.

        `tools` are shown to a template that knows of tools; messages may then hold calls.
        `variables` go before the deployment's.
        """
        (text,) = self.chats(
            [messages], generation_prompt=generation_prompt, tools=tools, variables=variables
        )
        return text

    def chats(
        self,
        chats: Sequence[Sequence[Mapping[str, Any]]],
        *,
        generation_prompt: bool,
        tools: Sequence[Mapping[str, Any]] = (),
        variables: Mapping[str, Any] = MappingProxyType({}),
    ) -> list[str]:
        """Render several conversations in the time of one; raises as `chat` if it would for one."""
        shared: dict[str, Any] = {
            **self.template_kwargs,
            **variables,
            "add_generation_prompt": generation_prompt,
            "bos_token": self.special("bos_token"),
            "eos_token": self.special("eos_token"),
            **({"tools": list(tools)} if tools else {}),
        }
        values = [{**shared, "messages": list(map(dict, messages))} for messages in chats]
        try:
            return render(self.chat_template, *values)
        except TemplateFailed as error:
            what = "is not valid" if error.kind == "invalid" else "failed"
            raise CheckpointError(
                f"The chat template of {self.checkpoint} {what}: {error}."
            ) from error

    @cached_property
    def chat_variables(self) -> frozenset[str]:
        """What the chat template reads beyond what every chat has; raises CheckpointError."""
        try:
            return variables_of(self.chat_template)
        except TemplateFailed as error:
            raise CheckpointError(
                f"The chat template of {self.checkpoint} is not valid: {error}."
            ) from error

    def _require_read(self, kwargs: Mapping[str, Any]) -> None:
        """Refuse variables that the chat template does not read: it would ignore a typo."""
        variables = self.chat_variables
        if "strftime_now" in kwargs and not _is_date(kwargs["strftime_now"]):
            raise CheckpointError(
                f"chat_template_kwargs.strftime_now is {kwargs['strftime_now']!r:.100}.",
                hint='Give the date that the template is to read, such as "2026-01-31".',
            )
        for name in kwargs:
            if name not in variables:
                raise CheckpointError(
                    f"chat_template_kwargs has {name!r}, which the chat template of "
                    f"{self.checkpoint} does not read.",
                    hint=did_you_mean(name, variables)
                    + f"It reads: {', '.join(sorted(variables)) or 'none'}.",
                )

    @contextmanager
    def _refusals(self, what: str) -> Iterator[None]:
        try:
            yield
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # a panic of the library is no Exception
            raise CheckpointError(
                f"The tokenizer of {self.checkpoint} cannot {what}: {error}"
            ) from error

    @cached_property
    def chat_template(self) -> str:
        """The template's source; raises CheckpointError if there is none."""
        if self._given_template is not None:
            return self._given_template
        source = self._config.get("chat_template")
        file = self.checkpoint / "chat_template.jinja"
        if file.is_file():
            try:
                source = read_text(file)
            except (OSError, Unreadable) as error:
                raise CheckpointError(f"{file} cannot be read: {error}") from error
        if not isinstance(source, str):
            raise CheckpointError(f"{self.checkpoint} has no chat template.")
        return source


def end_of(text: str, ids: Sequence[int], decode: Callable[[Sequence[int]], str]) -> int | None:
    """The least number of ids whose decoded text holds `text`; None if all of them do not."""
    if text not in decode(ids):
        return None
    low, high = 1, len(ids)
    while low < high:
        middle = (low + high) // 2
        if text in decode(ids[:middle]):
            high = middle
        else:
            low = middle + 1
    return high


def _load(file: Path) -> _Tokenizer:
    """The one place where a tokenizer.json becomes a tokenizer; raises CheckpointError.

    Published files carry how their texts were cut and filled up in training, and tokens left
    unmerged at random: a prompt must be all of its text, and the same ids each time.
    """
    try:
        data = read_bytes(file)
        require_loadable(data)
        tokenizer = _Tokenizer.from_str(as_text(data))
    except Unreadable as error:
        raise CheckpointError(
            f"{file} cannot be used: {error}.",
            hint="Take the file from the checkpoint's publisher again.",
        ) from error
    except Exception as error:  # the library raises bare Exception
        raise CheckpointError(f"{file} is not a valid tokenizer: {error}") from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    if getattr(tokenizer.model, "dropout", None):
        tokenizer.model.dropout = None
    return tokenizer


def _is_date(value: object) -> bool:
    try:
        return isinstance(value, str) and bool(datetime.fromisoformat(value))
    except ValueError:
        return False


def _read_json(file: Path) -> dict[str, Any]:
    return read_json_object(file) if file.exists() else {}
