"""Spellings of control tokens in texts of users and models, which must stay text.

A tokenizer takes `<|im_end|>` for the token wherever it stands. So a text that holds such a
spelling is marked before it is put into a prompt (`inert`): a noncharacter in front of each
character of the spelling, which no template can take for its own mark. A prompt with marks is
encoded by a second tokenizer, whose control tokens have random names; those that the template wrote
are given their names, the marked ones lose their marks. So the ids are exactly what the tokenizer
would give if it could tell the template's control tokens from the text's.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Collection
from itertools import groupby
from operator import itemgetter
from os.path import commonprefix

from tokenizers import AddedToken, Tokenizer, models

MARK = "\ufdd0"
"""Stands in front of a character that is text; no text should hold this noncharacter."""
_MAX_DEPTH = 20
_MARKED = f"(?:{MARK}.)+"
_IN_BRACKETS = re.compile(r"[^\w\s].*[^\W\d_].*[^\w\s]", re.DOTALL)


def is_control(token: AddedToken) -> bool:
    """Whether an added token may control a model; others are ordinary text: white space, words."""
    return token.special or bool(_IN_BRACKETS.fullmatch(token.content))


def any_of(texts: Collection[str], depth: int = 0) -> str:
    """A regular expression of any of these texts, the longest where several fit.

    Their common beginnings stand in it once: a text of nothing but `<` takes as long as any.
    """
    if depth == _MAX_DEPTH:
        return "|".join(map(re.escape, sorted(texts, key=len, reverse=True)))
    branches = []
    for _, group in groupby(sorted(filter(None, texts)), key=itemgetter(0)):
        same = [*group]
        begin = commonprefix(same)  # noqa: RUF071 (of texts, no paths)
        rests = {text.removeprefix(begin) for text in same}
        rest = any_of(rests, depth + 1)
        branches.append(re.escape(begin) + (f"(?:{rest})" + "?" * ("" in rests) if rest else ""))
    return "|".join(branches)


def inert(text: str, controls: re.Pattern[str], keep: Collection[str]) -> str:
    """A text whose spellings of controls are marked, unless they are to be kept."""

    def mark(spelling: re.Match[str]) -> str:
        if spelling[0] in keep:
            return spelling[0]
        return "".join(MARK + character for character in spelling[0])

    return controls.sub(mark, text)


def plain(text: str) -> str:
    """A text without the marks that `inert` has put there."""
    return (
        re.sub(_MARKED, lambda run: run[0][1::2], text, flags=re.DOTALL) if MARK in text else text
    )


class MarkedTexts:
    """Encodes texts with marks: a tokenizer whose control tokens have other names."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        """Share the model of `tokenizer`, whose size would make a copy slow."""
        added = sorted(tokenizer.get_added_tokens_decoder().items())
        controls = {token.content: number for number, token in added if is_control(token)}
        key = secrets.token_hex(8)  # or a text might hold a name
        self._names = {text: f"\ufdd2{key}{n:06}" for n, text in enumerate(controls)}
        tokens = [token for _, token in added]
        self._tokenizer = self._with(tokenizer, tokenizer.model, tokens)
        if any(n in self._tokenizer.encode(text).ids for text, n in controls.items()):
            # the model itself, as Unigram does, takes the spelling for the token
            self._tokenizer = self._with(tokenizer, self._renamed_model(tokenizer), tokens)
        to_id = self._tokenizer.token_to_id
        self._ids = {to_id(self._renamed(token.content)): number for number, token in added}
        """Ids as they were, by those of the renamed tokens and of ordinary added ones."""
        self._controls = frozenset(map(to_id, self._names.values()))
        parts = filter(None, (_MARKED, any_of(controls)))
        self._parts = re.compile("|".join(parts), re.DOTALL)

    def _renamed(self, text: str) -> str:
        return self._names.get(text, text)

    def _with(self, like: Tokenizer, model: models.Model, tokens: list[AddedToken]) -> Tokenizer:
        renamed = Tokenizer(model)
        if like.normalizer:
            renamed.normalizer = like.normalizer
        if like.pre_tokenizer:
            renamed.pre_tokenizer = like.pre_tokenizer
        renamed.add_tokens(
            [
                AddedToken(
                    self._renamed(token.content),
                    single_word=token.single_word,
                    lstrip=token.lstrip,
                    rstrip=token.rstrip,
                    normalized=token.normalized,
                )
                for token in tokens
            ]
        )
        return renamed

    def _renamed_model(self, tokenizer: Tokenizer) -> models.Model:
        """The model with the names of control tokens in its vocabulary."""
        specification = json.loads(tokenizer.to_str())
        model, vocabulary = specification["model"], specification["model"]["vocab"]
        if isinstance(vocabulary, dict):
            model["vocab"] = {self._renamed(text): number for text, number in vocabulary.items()}
        else:
            model["vocab"] = [[self._renamed(text), score] for text, score in vocabulary]
        specification["added_tokens"] = []
        renamed: models.Model = Tokenizer.from_str(json.dumps(specification)).model
        return renamed

    def encode(self, text: str) -> list[int]:
        """Token ids of a text, without the marks in it.

        A tokenizer may not take a spelling for the token everywhere: one that normalizes texts
        looks for some tokens behind a space alone. Where it does not, the spelling is text.
        """
        read_as_text = set[int]()
        while True:
            whole, names = self._with_names(text, read_as_text)
            (encoding,) = self._tokenizer.encode_batch_fast([whole], add_special_tokens=False)
            ids: list[int] = [self._ids.get(token, token) for token in encoding.ids]
            count = sum(token in self._controls for token in encoding.ids)
            if count == len(names):
                return ids
            encoding = self._tokenizer.encode(whole, add_special_tokens=False)
            places = {
                place
                for token, (start, end) in zip(encoding.ids, encoding.offsets, strict=True)
                for place in range(start, end)
                if token in self._controls
            }
            if places >= names.keys():
                return ids
            read_as_text |= {names[at] for at in names.keys() - places}

    def _with_names(self, text: str, read_as_text: set[int]) -> tuple[str, dict[int, int]]:
        """A text as it is encoded; where control tokens' names stand in it, and stood in `text`."""
        whole, end, names = "", 0, dict[int, int]()
        for part in self._parts.finditer(text):
            whole += text[end : part.start()]
            end = part.end()
            if part[0][0] == MARK:
                whole += part[0][1::2]
            elif part.start() in read_as_text:
                whole += part[0]
            else:
                names[len(whole)] = part.start()
                whole += self._names[part[0]]
        return whole + text[end:], names
