"""The bytes of every token of a vocabulary, for matching grammars against tokens.

Decoded alone, a token that holds part of a character gives a replacement character; its bytes are
in its spelling. Pure.
"""

from __future__ import annotations

import json
import re
from typing import Any

from tts.base.errors import CheckpointError

from .tokenizer import Tokenizer

NEWLINE = b"\n"
_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_UNNEEDED = (0x7F, 0xC0, 0xC1, 0xF1, 0xF2)
_NEEDED = [*NEWLINE, *(byte for byte in range(0x20, 0xF5) if byte not in _UNNEEDED)]
"""The bytes that answers and the text around them are made of, in UTF-8.

Control characters are in no answer, and with F1 and F2 begin those of planes 4 to 11, which hold
none yet: published vocabularies do without them (SmolLM2's).
"""
_SPACE = "\N{LOWER ONE EIGHTH BLOCK}"  # SentencePiece's


def token_texts(tokenizer: Tokenizer) -> list[bytes]:
    """The bytes of every id, special ones empty; raises CheckpointError for an unknown kind."""
    kinds = set(_kinds(tokenizer.specification.get("decoder")))
    spelled, plain = tokenizer.spellings, tokenizer.added_ids
    if "ByteLevel" in kinds:
        table = _byte_level()
        try:
            texts = [
                spelling.encode() if token in plain else bytes(table[char] for char in spelling)
                for token, spelling in enumerate(spelled)
            ]
        except KeyError as error:
            raise CheckpointError(
                f"The tokenizer of {tokenizer.checkpoint} is byte-level, but an entry of its "
                f"vocabulary holds {error.args[0]!r}, which stands for no byte."
            ) from None
    elif kinds & {"ByteFallback", "Metaspace"}:
        texts = [
            bytes([int(byte[1], 16)])
            if (byte := _BYTE.fullmatch(spelling))
            else spelling.replace(_SPACE, " ").encode()
            for spelling in spelled
        ]
    else:
        raise CheckpointError(
            f"The tokenizer of {tokenizer.checkpoint} decodes by "
            f"{', '.join(sorted(kinds)) or 'nothing'}; the texts of its tokens are not known.",
            hint="Guided decoding needs a byte-level or a SentencePiece tokenizer; set "
            "generator.guided_decoding to false.",
        )
    special = tokenizer.special_texts
    return [b"" if token in special else text for token, text in enumerate(texts)]


def guide_texts(tokenizer: Tokenizer) -> list[bytes]:
    """The bytes of every id for an engine that allows one token at a grammar's end, the first eos.

    Another token that ends a sequence is spelled as a line break: where text is free it is allowed,
    in an answer, which is one line, it is not. Raises CheckpointError.
    """
    texts = token_texts(tokenizer)
    _require_spellable(tokenizer, texts)
    for token in tokenizer.eos_ids[1:]:
        texts[token] = NEWLINE
    return texts


def _require_spellable(tokenizer: Tokenizer, texts: list[bytes]) -> None:
    """Refuse a vocabulary without a byte of answers: a grammar might lead where nothing follows.

    An engine that finds every token forbidden takes one of them all the same.
    """
    spelled = set(texts)
    missing = [byte for byte in _NEEDED if bytes([byte]) not in spelled]
    if missing:
        raise CheckpointError(
            f"The vocabulary of {tokenizer.checkpoint} has no token for the byte "
            f"0x{missing[0]:02x} by itself, so that it cannot spell every answer.",
            hint="Guided decoding needs that; set generator.guided_decoding to false.",
        )


def _kinds(decoder: Any) -> list[str]:
    """The types of a decoder and of its parts, as tokenizer.json names them."""
    if not isinstance(decoder, dict):
        return []
    parts = [kind for part in decoder.get("decoders", ()) for kind in _kinds(part)]
    return [str(decoder.get("type")), *parts]


def _byte_level() -> dict[str, int]:
    """The byte that each character of a byte-level vocabulary stands for.

    Printable bytes of Latin-1 stand for themselves, the others in their order for the characters
    from U+0100 on (GPT-2's bytes_to_unicode).
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    table = {chr(byte): byte for byte in printable}
    return table | {chr(0x100 + place): byte for place, byte in enumerate(others)}


def grammar_tokenizer(tokenizer: Tokenizer) -> str:
    """What TensorRT-LLM's backend reads as `xgrammar_tokenizer_info_path`, as JSON text.

    The fields are those of examples/generate_xgrammar_tokenizer_info.py (its 1.0 to 1.2 line), with
    two differences: every id that ends a sequence may end a guided output, where that script names
    the tokenizer's one; and other special tokens are spelled empty, so that no guided output holds
    any. Raises CheckpointError for a vocabulary that no grammar can be matched with.
    """
    _require_spellable(tokenizer, token_texts(tokenizer))
    special, spelled = tokenizer.special_texts, enumerate(tokenizer.spellings)
    return json.dumps(
        {
            "encoded_vocab": ["" if token in special else text for token, text in spelled],
            "tokenizer_str": json.dumps(tokenizer.specification),
            "stop_token_ids": list(tokenizer.eos_ids),
        }
    )
