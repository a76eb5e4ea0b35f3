"""Text from the tokens of a sample as they come: what may be sent, and where it ends. Pure.

Given text never changes: bytes of a character that is not whole yet are held back, and so is the
possible beginning of a stop string. All pieces together are what decoding all ids at once
gives. The `DecodeStream` of tokenizers is not used: it keeps what it holds back when an output ends
within a character, and of byte-fallback vocabularies it raises "Invalid prefix encountered" after
bytes that are no UTF-8, as models do write them (0.23).
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Literal

from tts.base.errors import CheckpointError
from tts.build.token_texts import token_texts
from tts.build.tokenizer import Tokenizer
from tts.endpoints.streaming import NewTokens
from tts.endpoints.thinking import ThinkingWriter

from ..safety.filters import TextStream

Finish = Literal["stop", "length", "tool_calls"]
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_MAX_BYTES_OF_A_CHARACTER = 4


class SampleText:
    """Text, tokens and the reason to end of one sample."""

    def __init__(
        self,
        index: int,
        detokenizer: Detokenizer,
        stops: StopStrings,
        limit: int,
        ends: frozenset[int] = frozenset(),
        text_filter: TextStream | None = None,
        thinking: SampleThinking | None = None,
    ) -> None:
        """`limit` is the most tokens it may have; `ends` end it and are no part of its text.

        `thinking` comes first, and white space behind it is no part of the text either.
        """
        self.index = index
        self.thinking = thinking
        self.blank = thinking is not None
        """Whether nothing but white space has followed the thinking so far."""
        self.tokens = 0
        self.finish: Finish | None = None
        self._detokenizer = detokenizer
        self._stops = stops
        self._limit = limit
        self._ends = ends
        self._filter = text_filter

    def count_rest(self, tokens: int) -> None:
        """Count tokens that the engine has written when it is given up; none behind its end."""
        if self.finish is None:
            self.tokens += tokens

    @property
    def thinks(self) -> bool:
        """Whether it is, or has ended, inside its thinking."""
        return self.thinking is not None and not self.thinking.writer.closed

    @property
    def thought_tokens(self) -> int:
        """Tokens of its thinking."""
        return len(self.thinking.writer.ids) if self.thinking else 0

    def think(self, new: NewTokens) -> tuple[str, NewTokens]:
        """The text that new tokens add to the thinking, and those of them that are behind it."""
        thinking = self.thinking
        if thinking is None or thinking.writer.closed:
            return "", new
        writer = thinking.writer
        at_end = new.final and bool(new.ids) and new.ids[-1] in thinking.ends
        text, own = thinking.take(new.ids[:-1] if at_end else new.ids)
        if new.final and not writer.closed:
            cut = len(writer.ids) >= writer.limit and not at_end
            if cut and writer.closes:
                text += thinking.close()
            else:
                text += thinking.finish()
                self.finish = "length" if cut else "stop"
        self.tokens = len(writer.ids) + (at_end and self.finish is not None)
        return text, NewTokens(new.ids[own:], new.log_probs[own:], new.final, new.top[own:])

    def take(self, new: NewTokens) -> str:
        """The text that new tokens add, as far as it may be sent."""
        ids = new.ids
        self.tokens += len(ids)
        at_end = new.final and bool(ids) and ids[-1] in self._ends
        text = self._detokenizer.push(ids[:-1] if at_end else ids)
        if new.final:
            text += self._detokenizer.finish()
        if self.blank:
            text = text.lstrip()
            self.blank = not text
        text = self._stops.push(text)
        if self._stops.stopped is not None:
            self.finish = "stop"
        elif new.final:
            text += self._stops.finish()
            self.finish = "length" if self.tokens >= self._limit and not at_end else "stop"
        if self._filter:
            text = self._filter.feed(text)
            if self.finish:
                text += self._filter.end()
        return text


class SampleThinking:
    """The thinking of one sample: its tokens, and their text without the mark that closes it."""

    def __init__(
        self,
        writer: ThinkingWriter,
        new: Callable[[], Detokenizer],
        *,
        apart: bool,
        ends: frozenset[int] = frozenset(),
        lead: Sequence[int] = (),
        text_filter: TextStream | None = None,
    ) -> None:
        """`apart`: the answer behind it is another request, whose prompt ends with `lead`.

        `ends` end it, and with it the sample.
        """
        self.writer = writer
        self.apart = apart
        self.ends = ends
        self.lead = lead
        thinking = writer.thinking
        self._one_token = thinking.closes_by_token
        texts = thinking.tokenizer.special_texts
        closing = {token for word in thinking.stop_words for token in word}
        spellings = {token: texts.get(token) for token in closing}
        marks = {token: text for token, text in spellings.items() if text}
        self._detokenizer = new() if self._one_token else MarkingDetokenizer(new, marks)
        self._mark = StopStrings(() if self._one_token else thinking.marks.closings)
        self._filter = text_filter

    def take(self, ids: Sequence[int]) -> tuple[str, int]:
        """The text that new tokens add, and how many of them it has: those up to the mark."""
        own = self.writer.take(ids)
        return self._text(ids[:own]), own

    def close(self) -> str:
        """Close it as where its budget ends; the text that this adds."""
        self.writer.finish(truncated=True)
        ids = self.writer.thinking.closing_ids
        return self._text(ids[: self.writer.thinking.end(ids)])

    def _text(self, ids: Sequence[int]) -> str:
        closed = self.writer.closed
        text = self._detokenizer.push(ids[:-1] if closed and self._one_token else ids)
        return self.finish(text) if closed else self._passed(text)

    def finish(self, text: str = "") -> str:
        """The last text, with what was held back."""
        text = self._passed(text + self._detokenizer.finish())
        if self._mark.stopped is None:
            rest = self._mark.finish()
            text += self._filter.feed(rest) if self._filter else rest
        return text + (self._filter.end() if self._filter else "")

    def _passed(self, text: str) -> str:
        text = self._mark.push(text)
        return self._filter.feed(text) if self._filter else text


class StopStrings:
    """Passes a text on up to the stop string that ends first; the earlier one of two."""

    def __init__(self, stops: Sequence[str], *, include: bool = False) -> None:
        """`include`: the stop string is passed on, too. Stop strings are not empty."""
        self._stops = tuple(stops)
        self._include = include
        self._held = ""
        """The end of the text so far that may be the beginning of a stop string."""
        self.stopped: str | None = None
        """The stop string that has ended the text."""

    def push(self, text: str) -> str:
        """The text that may be passed on by now; none once it has ended."""
        if not self._stops:
            return text
        if self.stopped is not None:
            return ""
        text = self._held + text
        end, begin, stop = min(
            (
                (place + len(stop), place, stop)
                for stop in self._stops
                if (place := text.find(stop)) >= 0
            ),
            default=(-1, -1, ""),
        )
        if end >= 0:
            self.stopped, self._held = stop, ""
            return text[: end if self._include else begin]
        cut = len(text) - self._may_begin(text)
        self._held = text[cut:]
        return text[:cut]

    def finish(self) -> str:
        """Held-back text that is no stop string, as the text ends here."""
        rest, self._held = self._held, ""
        return rest

    def _may_begin(self, text: str) -> int:
        """Length of the longest end of `text` that is the beginning of a stop string."""
        longest = min(max(map(len, self._stops)) - 1, len(text))
        for length in range(longest, 0, -1):
            end = text[len(text) - length :]
            if any(stop.startswith(end) for stop in self._stops):
                return length
        return 0


class ByteDetokenizer:
    """For byte-level vocabularies: a token is the same bytes wherever it stands."""

    def __init__(self, texts: Sequence[bytes]) -> None:
        """`texts` holds the bytes of every id."""
        self._texts = texts
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, ids: Sequence[int]) -> str:
        """The text that further ids add."""
        texts = self._texts
        return self._decoder.decode(b"".join([texts[i] for i in ids if i < len(texts)]))

    def finish(self) -> str:
        """The text that was held back: of an output that ends within a character."""
        return self._decoder.decode(b"", final=True)


class TextDetokenizer:
    """For any vocabulary: what a token adds is the difference of two texts.

    Only the ids since the last two pieces are decoded, for how a text begins may differ from how
    it goes on (SentencePiece drops the space in front of it).
    """

    def __init__(self, decode: Callable[[Sequence[int]], str]) -> None:
        self._decode = decode
        self._ids: list[int] = []
        self._start = 0
        """Where the piece before begins, and with it what is decoded."""
        self._given = 0
        """Ids whose text has been given."""

    def push(self, ids: Sequence[int]) -> str:
        """The text that further ids add."""
        return "".join([self._push(token) for token in ids])

    def _push(self, token: int) -> str:
        self._ids.append(token)
        before = self._decode(self._ids[self._start : self._given])
        text = self._decode(self._ids[self._start :])
        waits = text.endswith(REPLACEMENT) and len(self._ids) - self._given < (
            _MAX_BYTES_OF_A_CHARACTER
        )
        if waits or len(text) <= len(before):
            return ""
        self._start, self._given = self._given, len(self._ids)
        return text[len(before) :]

    def finish(self) -> str:
        """The text that was held back: of an output that ends within a character."""
        before = self._decode(self._ids[self._start : self._given])
        return self._decode(self._ids[self._start :])[len(before) :]


class MarkingDetokenizer:
    """Spells some special tokens, which are in no text otherwise: those that begin a call."""

    def __init__(self, new: Callable[[], Detokenizer], marks: Mapping[int, str]) -> None:
        """`new` makes what reads the text between the marks."""
        self._new = new
        self._marks = marks
        self._between = new()

    def push(self, ids: Sequence[int]) -> str:
        """The text that further ids add."""
        text, run = "", list[int]()
        for token in ids:
            mark = self._marks.get(token)
            if mark is None:
                run.append(token)
                continue
            text += self._between.push(run) + self._between.finish() + mark
            self._between, run = self._new(), []
        return text + self._between.push(run)

    def finish(self) -> str:
        """The text that was held back: of an output that ends within a character."""
        return self._between.finish()


Detokenizer = ByteDetokenizer | TextDetokenizer | MarkingDetokenizer


def detokenizers(tokenizer: Tokenizer) -> Callable[[], Detokenizer]:
    """Makes the detokenizer of an output: by bytes where tokens are bytes, else by text."""
    decoder = tokenizer.specification.get("decoder") or {}
    if decoder.get("type") == "ByteLevel":
        with suppress(CheckpointError):  # not all of its tokens are bytes
            texts = token_texts(tokenizer)
            return lambda: ByteDetokenizer(texts)
    return lambda: TextDetokenizer(tokenizer.decode)
