"""Limits on a stranger's tokenizer.json, and the limited process that tries it.

Its library is native code, in which nothing can interrupt it: what it cannot handle it may answer
by ending the process, or by filling the memory. So a file is loaded and tried once in a process of
its own: `python -m` this module (worker_process.py has the protocol). A request is the file's text,
its answer {} or {"error": what is wrong}.

Oniguruma, the library's regular expressions, gives up a single match after ten million steps. The
checks of this module refuse, before the library sees the file, what would reach that at once, what
would fill the memory, and ids that no tensor can hold.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator
from typing import Any

from tokenizers import Tokenizer

from .input_files import Unreadable, parse_json
from .worker_process import serve

MOST_IDS = 100
"""The most ids that one character may become."""
_TEXTS = ("1", "So 1 + 1 = 2.\n\nHence $x^2$ is \\frac{1}{2} \u00e9\u4e2d\U0001f600", " \n" * 40)
MOST_GROWTH = 100
"""Characters that may become of one, by all replacements one after the other."""
MOST_TOKENS = 4_000_000
"""Ids, and rules to merge tokens by: several times those of the largest vocabulary known."""
MOST_ADDED = 100_000
"""Tokens added to the vocabulary, each of which every text is searched for."""
LONGEST_PATTERN = 20_000
"""Characters of a regular expression, or of a text to be replaced."""
LONGEST_AFFIX = 100
"""Characters that the model puts before or behind every piece of a word."""
LONGEST_TEMPLATE = 1000
"""Pieces, and ids, that are put around a text other than a chat."""
_AFFIXES = ("continuing_subword_prefix", "end_of_word_suffix")
MANY = 10
"""Repetitions up to which a bounded one counts as none."""
# an escape, an escape's name in braces included; or any one character
_TOKEN = re.compile(
    r"\\[pPx]\{[^}]*\}|\\[gk](?:<[^>]*>|'[^']*')|\\.|\(\?#[^)]*\)|\{\d*(?:,\d*)?\}|.", re.DOTALL
)
_COUNT = re.compile(r"\{(\d*)(,?)(\d*)\}")


def require_bounded_file(file: Any) -> None:
    """Check what a whole tokenizer.json holds; raises Unreadable saying where."""
    if not isinstance(file, dict):
        raise Unreadable("it is no JSON object")
    model = file.get("model")
    if not isinstance(model, dict):
        raise Unreadable("model is no JSON object")
    _require_vocabulary(model)
    _require_added(file.get("added_tokens") or [])
    _require_template(file.get("post_processor"))
    for name in ("normalizer", "pre_tokenizer", "decoder"):
        try:
            require_bounded(file.get(name))
        except Unreadable as error:
            raise Unreadable(f"{name}: {error}") from error


def _require_vocabulary(model: dict[str, Any]) -> None:
    vocabulary, merges = model.get("vocab"), model.get("merges") or []
    if not isinstance(vocabulary, dict | list):
        raise Unreadable("model.vocab is neither an object nor a list")
    if not isinstance(merges, list):
        raise Unreadable("model.merges is no list")
    for what, items in (("model.vocab", vocabulary), ("model.merges", merges)):
        if len(items) > MOST_TOKENS:
            raise Unreadable(f"{what} has {len(items):,} entries; at most {MOST_TOKENS:,} are read")
    if isinstance(vocabulary, dict):
        for spelling, token in vocabulary.items():
            _require_id(token, f"model.vocab: the id of {spelling!r:.100}")
    for name in _AFFIXES:
        if len(str(model.get(name) or "")) > LONGEST_AFFIX:
            raise Unreadable(f"model.{name} has more than {LONGEST_AFFIX} characters")


def _require_added(added: Any) -> None:
    if not isinstance(added, list) or not all(isinstance(token, dict) for token in added):
        raise Unreadable("added_tokens is no list of objects")
    if len(added) > MOST_ADDED:
        raise Unreadable(
            f"added_tokens has {len(added):,} entries; at most {MOST_ADDED:,} are read"
        )
    for token in added:
        content = token.get("content")
        _require_id(token.get("id"), f"added_tokens: the id of {content!r:.100}")
        if len(str(content)) > LONGEST_PATTERN:
            raise Unreadable(f"added_tokens: one has more than {LONGEST_PATTERN:,} characters")


def _require_id(token: Any, what: str) -> None:
    if type(token) is not int or not 0 <= token < MOST_TOKENS:
        raise Unreadable(f"{what} is {token!r:.50}; ids are 0 to {MOST_TOKENS - 1:,}")


def _require_template(part: Any) -> None:
    for step in _objects(part):
        for name in ("single", "pair", "ids", "tokens"):
            pieces = step.get(name)
            if isinstance(pieces, list) and len(pieces) > LONGEST_TEMPLATE:
                raise Unreadable(
                    f"post_processor: {name} has {len(pieces):,} entries; at most "
                    f"{LONGEST_TEMPLATE:,} are put around a text"
                )


def require_bounded(part: Any) -> None:
    """Check a part of a tokenizer, such as its normalizer, as JSON; raises Unreadable."""
    growth = 1
    for step in _objects(part):
        pattern = step.get("pattern")
        given = pattern if isinstance(pattern, dict) else {}
        expression, literal = given.get("Regex"), given.get("String")
        for text in (expression, literal):
            if isinstance(text, str) and len(text) > LONGEST_PATTERN:
                raise Unreadable(
                    f"a pattern has {len(text):,} characters; at most {LONGEST_PATTERN:,} are read"
                )
        if isinstance(expression, str) and repeats_a_repetition(expression):
            raise Unreadable(
                f"its pattern {expression!r:.200} repeats what repeats already, which may take a "
                "time without bounds"
            )
        content, prepend = step.get("content"), step.get("prepend")
        if isinstance(content, str):
            replaced = len(literal) if isinstance(literal, str) else 0
            growth *= max(1, -(-len(content) // max(1, replaced)))
        if isinstance(prepend, str):
            growth *= 1 + len(prepend)  # in front of any text, also one of a single character
    if growth > MOST_GROWTH:
        raise Unreadable(
            f"its replacements make up to {growth:,} characters of one; at most {MOST_GROWTH} are "
            "sensible"
        )


def _objects(part: Any) -> Iterator[dict[str, Any]]:
    if isinstance(part, dict):
        yield part
        part = list(part.values())
    if isinstance(part, list):
        for inner in part:
            yield from _objects(inner)


def repeats_a_repetition(expression: str) -> bool:
    r"""Whether a group with a repetition in it is itself repeated, as in `(a+)+`, or calls itself.

    Such a pattern may try a text in exponentially many ways. Ones with bounds below MANY, as in
    `(\d{3})*`, do not count.
    """
    groups = [False]  # for each open group, whether it holds a repetition
    inner = False  # whether the last item does
    brackets = 0
    for match in _TOKEN.finditer(expression):
        token = match.group()
        if brackets or token == "[":
            brackets += (token == "[") - (token == "]")
            inner = False
        elif token == "(":
            groups.append(False)
        elif token == ")" and len(groups) > 1:
            inner = groups.pop()
            groups[-1] |= inner
        elif token.startswith("\\g"):
            return True
        elif _is_repetition(token):
            if inner:
                return True
            groups[-1] = True  # and `inner` stays: a second sign makes the first lazy or possessive
        elif token != "?":
            inner = False
    return False


def _is_repetition(token: str) -> bool:
    if token in ("*", "+"):
        return True
    count = _COUNT.fullmatch(token)
    if count is None:
        return False
    least, comma, most = count.groups()
    return int(most or least or 0) >= MANY if most or not comma else True


def _load() -> Callable[[str], Generator[str, None, dict[str, str]]]:
    return _answer


def _answer(text: str) -> Generator[str, None, dict[str, str]]:
    try:
        yield "reading it"
        require_bounded_file(parse_json(text))
        yield "loading it"
        tokenizer = Tokenizer.from_str(text)
        tokenizer.no_truncation()  # as the file is used
        tokenizer.no_padding()
        yield "writing what was loaded"
        tokenizer.to_str()
        for sample in _TEXTS:
            yield from _encode(tokenizer, sample)
    except Unreadable as error:
        return {"error": str(error)}
    except MemoryError:
        raise
    except BaseException as error:  # the library raises bare Exception; its panics are none
        return {"error": f"the library refuses it: {error}"}
    return {}


def _encode(tokenizer: Tokenizer, sample: str) -> Iterator[str]:
    yield f"encoding {sample[:30]!r} with it"
    ids = tokenizer.encode(sample, add_special_tokens=False).ids
    whole = tokenizer.encode(sample, add_special_tokens=True).ids
    for count in (len(ids), len(whole)):
        if count > MOST_IDS * len(sample):
            raise Unreadable(f"it makes {count:,} tokens of {sample[:30]!r}")
    yield f"decoding {len(ids)} tokens with it"
    tokenizer.decode(ids, skip_special_tokens=True)


if __name__ == "__main__":
    serve(_load)
