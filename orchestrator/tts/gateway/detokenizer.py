"""Text from token ids that come one after another. Pure.

What has been given never changes: bytes of a character that is not whole yet are held back. All
pieces together are what decoding all ids at once gives. The `DecodeStream` of tokenizers is not
used: it keeps what it holds back when an output ends within a character, and of byte-fallback
vocabularies it raises "Invalid prefix encountered" after bytes that are no UTF-8, as models do
write them (0.23).
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Sequence
from typing import Protocol

from tts.build.errors import CheckpointError
from tts.build.token_texts import token_texts
from tts.build.tokenizer import Tokenizer

REPLACEMENT = "�"
_MOST_BYTES_OF_A_CHARACTER = 4


class Detokenizer(Protocol):
    """The text of one output, growing."""

    def push(self, ids: Sequence[int]) -> str:
        """The text that further ids add."""

    def finish(self) -> str:
        """The text that was held back: of an output that ends within a character."""


def detokenizers(tokenizer: Tokenizer) -> Callable[[], Detokenizer]:
    """What makes the detokenizer of an output: by bytes where tokens are bytes, else by text."""
    decoder = tokenizer.specification.get("decoder") or {}
    if decoder.get("type") == "ByteLevel":
        try:
            texts = token_texts(tokenizer)
        except CheckpointError:
            return lambda: TextDetokenizer(tokenizer.decode)
        return lambda: ByteDetokenizer(texts)
    return lambda: TextDetokenizer(tokenizer.decode)


class ByteDetokenizer:
    """For byte-level vocabularies: a token is the same bytes wherever it stands."""

    def __init__(self, texts: Sequence[bytes]) -> None:
        """`texts` holds the bytes of every id."""
        self._texts = texts
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, ids: Sequence[int]) -> str:
        """See Detokenizer."""
        texts = self._texts
        return self._decoder.decode(b"".join([texts[i] for i in ids if i < len(texts)]))

    def finish(self) -> str:
        """See Detokenizer."""
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
        """Of the piece before: what is decoded begins here."""
        self._given = 0
        """Ids whose text has been given."""

    def push(self, ids: Sequence[int]) -> str:
        """See Detokenizer."""
        return "".join([self._push(token) for token in ids])

    def _push(self, token: int) -> str:
        self._ids.append(token)
        before = self._decode(self._ids[self._start : self._given])
        text = self._decode(self._ids[self._start :])
        waits = text.endswith(REPLACEMENT) and len(self._ids) - self._given < (
            _MOST_BYTES_OF_A_CHARACTER
        )
        if waits or len(text) <= len(before):
            return ""
        self._start, self._given = self._given, len(self._ids)
        return text[len(before) :]

    def finish(self) -> str:
        """See Detokenizer."""
        before = self._decode(self._ids[self._start : self._given])
        return self._decode(self._ids[self._start :])[len(before) :]
