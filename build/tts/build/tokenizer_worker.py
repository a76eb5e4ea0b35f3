"""The limited process that tries a stranger's tokenizer.json.

Its library is native code, in which nothing can interrupt it: what it cannot handle it may answer
by ending the process, or by filling the memory. So a file is loaded and tried once in a process of
its own, whose limits on CPU time and memory catch what takes too much of either: `python -m` this
module (worker_process.py has the protocol). A request is the file's text, its answer {} or
{"error": what is wrong}.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from itertools import pairwise
from typing import Any

from tokenizers import Tokenizer

from tts.base.input_files import Unreadable, parse_json
from tts.base.worker_process import serve

MAX_IDS = 100
"""The most ids that one character may become."""
MAX_TOKENS = 4_000_000
"""Ids: several times those of the largest vocabulary known."""
MAX_REPETITIONS = 1000
_COMMON = "aA1 .\n\u00e9\u4e2d"
_TEXTS = ("1", "So 1 + 1 = 2.\n\nHence $x^2$ is \\frac{1}{2} \u00e9\u4e2d\U0001f600", " \n" * 40)


def _load() -> Callable[[str], Generator[str, None, dict[str, str]]]:
    return _answer


def _answer(text: str) -> Generator[str, None, dict[str, str]]:
    try:
        yield "reading it"
        file = parse_json(text)
        yield "loading it"
        tokenizer = Tokenizer.from_str(text)
        tokenizer.no_truncation()  # as the file is used
        tokenizer.no_padding()
        _require_ids(tokenizer)
        yield "writing what was loaded"
        tokenizer.to_str()
        for sample in (*_TEXTS, *_repetitions("".join(_patterns(file)))):
            yield from _encode(tokenizer, sample)
    except Unreadable as error:
        return {"error": str(error)}
    except MemoryError:
        raise
    except BaseException as error:  # the library raises bare Exception; its panics are none
        return {"error": f"the library refuses it: {error}"}
    return {}


def _require_ids(tokenizer: Tokenizer) -> None:
    """Refuse ids that no tensor can hold, and of which the library fills the gaps below."""
    for spelling, token in tokenizer.get_vocab(with_added_tokens=True).items():
        if token >= MAX_TOKENS:
            raise Unreadable(
                f"the id of {spelling!r:.100} is {token}; ids are 0 to {MAX_TOKENS - 1:,}"
            )


def _patterns(part: Any) -> Iterator[str]:
    """The regular expressions in a part of the file."""
    if isinstance(part, dict) and isinstance(part.get("Regex"), str):
        yield part["Regex"]
    for each in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
        yield from _patterns(each)


def _repetitions(pattern: str) -> list[str]:
    """Texts at which a pattern that takes exponential time gives up: what it may repeat, what
    nothing matches, and what it may look for before it begins.
    """
    characters = dict.fromkeys([*_COMMON, *pattern])
    end = "\N{SNOWMAN}" + "".join(characters)[:200]
    repeated = dict.fromkeys([*characters, *map("".join, pairwise(pattern))])
    return [each * 40 + end for each in repeated][:MAX_REPETITIONS]


def _encode(tokenizer: Tokenizer, sample: str) -> Iterator[str]:
    yield f"encoding {sample[:30]!r} with it"
    ids = tokenizer.encode(sample, add_special_tokens=False).ids
    whole = tokenizer.encode(sample, add_special_tokens=True).ids
    for count in (len(ids), len(whole)):
        if count > MAX_IDS * len(sample):
            raise Unreadable(f"it makes {count:,} tokens of {sample[:30]!r}")
    yield f"decoding {len(ids)} tokens with it"
    tokenizer.decode(ids, skip_special_tokens=True)


if __name__ == "__main__":
    serve(_load)
