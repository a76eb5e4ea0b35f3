"""The limited process that tries a stranger's tokenizer.json.

Its library is native code, in which nothing can interrupt it: what it cannot handle it may answer
by ending the process, or by filling the memory. So a file is loaded and tried once in a process of
its own, whose limits on CPU time and memory catch what takes too much of either: `python -m` this
module (worker_process.py has the protocol). A request is the file's text, its answer {} or
{"error": what is wrong}.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator

from tokenizers import Tokenizer

from .input_files import Unreadable, parse_json
from .worker_process import serve

MOST_IDS = 100
"""The most ids that one character may become."""
MOST_TOKENS = 4_000_000
"""Ids: several times those of the largest vocabulary known."""
_TEXTS = ("1", "So 1 + 1 = 2.\n\nHence $x^2$ is \\frac{1}{2} \u00e9\u4e2d\U0001f600", " \n" * 40)


def _load() -> Callable[[str], Generator[str, None, dict[str, str]]]:
    return _answer


def _answer(text: str) -> Generator[str, None, dict[str, str]]:
    try:
        yield "reading it"
        parse_json(text)
        yield "loading it"
        tokenizer = Tokenizer.from_str(text)
        tokenizer.no_truncation()  # as the file is used
        tokenizer.no_padding()
        _require_ids(tokenizer)
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


def _require_ids(tokenizer: Tokenizer) -> None:
    """Refuse ids that no tensor can hold, and of which the library fills the gaps below."""
    for spelling, token in tokenizer.get_vocab(with_added_tokens=True).items():
        if token >= MOST_TOKENS:
            raise Unreadable(
                f"the id of {spelling!r:.100} is {token}; ids are 0 to {MOST_TOKENS - 1:,}"
            )


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
