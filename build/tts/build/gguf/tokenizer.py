"""The tokenizer of a GGUF file as tokenizer.json and tokenizer_config.json.

transformers makes one from a GGUF file as well, and another than the model's: with the wrong rule
for cutting a text into words, which a GGUF file only names (`tokenizer.ggml.pre`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ..errors import CheckpointError
from .file import GgufFile

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_SUFFIXES = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_UPPER, _LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"


class _Words(NamedTuple):
    """How a text is cut into words before they are cut into tokens."""

    patterns: tuple[str, ...]
    """Regular expressions; each cuts what the one before it left."""
    whole: bool = False
    """A word that is in the vocabulary is one token, whatever the merges say."""
    composed: bool = False
    """Characters are composed first (NFC)."""
    bos: bool = False
    """A text begins with the beginning-of-sequence token, unless the file says otherwise."""


_LLAMA3 = _Words(
    (rf"{_SUFFIXES}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}|{_REST}",), whole=True, bos=True
)
_QWEN2 = _Words((rf"{_SUFFIXES}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}|{_REST}",), composed=True)
_TEKKEN = _Words(
    (
        rf"[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}]*[{_LOWER}]+|[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}]+[{_LOWER}]*"
        r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    ),
    whole=True,
    bos=True,
)
WORDS = {
    "smollm": _Words((r"\p{N}", _GPT2)),
    "llama-bpe": _LLAMA3,
    "llama3": _LLAMA3,
    "llama-v3": _LLAMA3,
    "qwen2": _QWEN2,
    "deepseek-r1-qwen": _QWEN2,
    "tekken": _TEKKEN,
    "gpt-2": _Words((_GPT2,)),
    "default": _Words((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", "[0-9][0-9][0-9]")),
}
"""By the names of `tokenizer.ggml.pre`; the expressions are those of the models' publishers, of
"default" llama.cpp's."""
_NORMAL, _UNKNOWN, _CONTROL, _USER, _UNUSED, _BYTE = range(1, 7)  # the format's kinds of tokens
_SPACE = "▁"


class _Vocabulary(NamedTuple):
    ids: dict[str, int]
    """Unused entries, which fill a vocabulary up to a round number, are left out."""
    kinds: Sequence[int]

    def added(self) -> list[dict[str, Any]]:
        """The tokens that are found in a text before it is cut."""
        plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
        return [
            {"id": token, "content": text, **plain, "special": self.kinds[token] != _USER}
            for text, token in self.ids.items()
            if self.kinds[token] in (_UNKNOWN, _CONTROL, _USER)
        ]


def tokenizer_json(file: GgufFile) -> dict[str, Any]:
    """What tokenizer.json of the model holds; raises CheckpointError for an unknown kind."""
    kind = file.text("tokenizer.ggml.model")
    vocabulary = _vocabulary(file)
    match kind:
        case "gpt2":
            parts, bos = _byte_level(file, vocabulary)
        case "llama":
            parts, bos = _sentencepiece(file, vocabulary)
        case _:
            file.refuse("tokenizer.ggml.model", "gpt2 (BPE), llama (SentencePiece)")
    if file.metadata.get("tokenizer.ggml.add_bos_token", bos) is True:
        parts["post_processor"] = _bos_first(file, vocabulary)
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": vocabulary.added(),
        "post_processor": None,
        **parts,
    }


def tokenizer_config(file: GgufFile) -> dict[str, Any]:
    """What tokenizer_config.json of the model holds: special tokens and the chat template."""
    texts = _texts(file, "tokenizer.ggml.tokens")
    config: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast"}
    for name, field in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding")):
        if (token := token_id(file, field)) is not None:
            config[f"{name}_token"] = texts[token]
    if "tokenizer.chat_template" in file.metadata:
        config["chat_template"] = file.text("tokenizer.chat_template")
    return config


def token_id(file: GgufFile, name: str) -> int | None:
    """The id of a special token that the file names; raises CheckpointError if there is none."""
    key = f"tokenizer.ggml.{name}_token_id"
    value = file.metadata.get(key)
    if value is None:
        return None
    if type(value) is not int or not 0 <= value < len(_texts(file, "tokenizer.ggml.tokens")):
        file.refuse(key, "the id of a token")
    return int(value)


def _vocabulary(file: GgufFile) -> _Vocabulary:
    texts = _texts(file, "tokenizer.ggml.tokens")
    kinds = _numbers(file, "tokenizer.ggml.token_type", len(texts)).tolist()
    used = [token for token, kind in enumerate(kinds) if kind != _UNUSED]
    ids = {texts[token]: token for token in used}
    if len(ids) < len(used):
        twice = next(texts[token] for token in used if ids[texts[token]] != token)
        raise CheckpointError(f"{file.path}: its vocabulary holds {twice!r:.100} twice.")
    return _Vocabulary(ids, kinds)


def _byte_level(file: GgufFile, vocabulary: _Vocabulary) -> tuple[dict[str, Any], bool]:
    """BPE over bytes, each written as a character: GPT-2 and its descendants."""
    name = file.text("tokenizer.ggml.pre", "")
    if name not in WORDS:
        file.refuse("tokenizer.ggml.pre", ", ".join(WORDS))
    words = WORDS[name]
    merges = [merge.split(" ") for merge in _texts(file, "tokenizer.ggml.merges")]
    for merge in merges:
        if len(merge) != 2 or not {*merge, "".join(merge)} <= vocabulary.ids.keys():
            said = " ".join(merge)
            raise CheckpointError(f"{file.path}: {said!r:.100} merges no tokens of its vocabulary.")
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    cuts = [
        {"type": "Split", "pattern": {"Regex": each}, "behavior": "Isolated", "invert": False}
        for each in words.patterns
    ]
    parts = {
        "normalizer": {"type": "NFC"} if words.composed else None,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [*cuts, byte_level | {"use_regex": False}],
        },
        "decoder": byte_level | {"use_regex": True},
        "model": _bpe(vocabulary, merges, ignore_merges=words.whole),
    }
    return parts, words.bos


def _sentencepiece(file: GgufFile, vocabulary: _Vocabulary) -> tuple[dict[str, Any], bool]:
    """SentencePiece's BPE, as Llama 2 and Mistral have it: bytes where a character is unknown."""
    scores = _numbers(file, "tokenizer.ggml.scores", len(vocabulary.kinds)).tolist()
    spaced = file.metadata.get("tokenizer.ggml.add_space_prefix", True) is True
    before = [{"type": "Prepend", "prepend": _SPACE}] if spaced else []
    after = [{"type": "Strip", "content": " ", "start": 1, "stop": 0}] if spaced else []
    replaced = {"type": "Replace", "pattern": {"String": " "}, "content": _SPACE}
    restored = {"type": "Replace", "pattern": {"String": _SPACE}, "content": " "}
    unknown = next((t for t, i in vocabulary.ids.items() if vocabulary.kinds[i] == _UNKNOWN), None)
    whole = any(kind == _BYTE for kind in vocabulary.kinds)
    parts = {
        "normalizer": {"type": "Sequence", "normalizers": [*before, replaced]},
        "pre_tokenizer": None,
        "decoder": {
            "type": "Sequence",
            "decoders": [restored, {"type": "ByteFallback"}, {"type": "Fuse"}, *after],
        },
        "model": _bpe(
            vocabulary,
            _merges(vocabulary, scores),
            unk_token=unknown,
            fuse_unk=True,
            byte_fallback=whole,
        ),
    }
    return parts, True


def _merges(vocabulary: _Vocabulary, scores: Sequence[float]) -> list[list[str]]:
    """The merges that SentencePiece's scores stand for: the best piece first, however made."""
    ids, kinds = vocabulary
    normal = [text for text, token in ids.items() if kinds[token] == _NORMAL]
    found = []
    for text in normal:
        pairs = ((text[:cut], text[cut:]) for cut in range(1, len(text)))
        known = [(left, right) for left, right in pairs if left in ids and right in ids]
        known.sort(key=lambda pair: (ids[pair[0]], ids[pair[1]]))
        found += [(scores[ids[text]], left, right) for left, right in known]
    found.sort(key=lambda merge: merge[0], reverse=True)
    return [[left, right] for _, left, right in found]


def _bpe(vocabulary: _Vocabulary, merges: list[list[str]], **changed: Any) -> dict[str, Any]:
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": False,
        **changed,
        "vocab": vocabulary.ids,
        "merges": merges,
    }


def _bos_first(file: GgufFile, vocabulary: _Vocabulary) -> dict[str, Any]:
    if (token := token_id(file, "bos")) is None:
        file.refuse("tokenizer.ggml.bos_token_id", "a token, as every text begins with it")
    text = file.metadata["tokenizer.ggml.tokens"][token]
    first = {"SpecialToken": {"id": text, "type_id": 0}}
    return {
        "type": "TemplateProcessing",
        "single": [first, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [
            first,
            {"Sequence": {"id": "A", "type_id": 0}},
            {"SpecialToken": {"id": text, "type_id": 1}},
            {"Sequence": {"id": "B", "type_id": 1}},
        ],
        "special_tokens": {text: {"id": text, "ids": [token], "tokens": [text]}},
    }


def _texts(file: GgufFile, key: str) -> list[str]:
    value = file.metadata.get(key)
    if not isinstance(value, list):
        file.refuse(key, "a list of texts")
    return value


def _numbers(file: GgufFile, key: str, count: int) -> Any:
    value = file.metadata.get(key)
    if not isinstance(value, np.ndarray) or len(value) != count:
        file.refuse(key, f"a number for each of the {count:,} tokens")
    return value
