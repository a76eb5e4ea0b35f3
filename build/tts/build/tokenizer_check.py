"""Whether a stranger's tokenizer.json can be used at all: tried once, in a process with limits.

Its library is native code, in which nothing can interrupt it: what it cannot handle it may answer
by ending the process, or by filling the memory. So a file is loaded and tried once in a process of
its own, `python -m` this module, whose limits catch what takes too much CPU time or memory. A
request is the file's text, its answer {} or {"error": what is wrong}. A file that has passed is
remembered by its content, the library and these rules: later checks by any process of this user
cost nothing.
"""

from __future__ import annotations

import hashlib
import signal
from collections.abc import Generator, Iterator
from itertools import pairwise
from typing import Any

import tokenizers
from tokenizers import Tokenizer

from tts.base.errors import WorkerUnavailable
from tts.base.input_files import Unreadable, as_text, parse_json
from tts.base.user_paths import is_marked, mark
from tts.base.worker_process import Loss, WorkerLost, WorkerProcess, serve

_CPU_S = 60.0
"""CPU time for all of it; tokenizers of the largest vocabularies take a few seconds."""
_MEMORY_GIB = 4
"""Address space of the whole process, several times of what those take."""
_RULES = 2
"""Raised where a check is added, so that files that passed before are tried again."""
_passed: set[str] = set()
MAX_IDS = 100
"""The most ids that one character may become."""
MAX_TOKENS = 4_000_000
"""Ids: several times those of the largest vocabulary known."""
MAX_REPETITIONS = 1000
_COMMON = "aA1 .\n\u00e9\u4e2d"
_TEXTS = ("1", "So 1 + 1 = 2.\n\nHence $x^2$ is \\frac{1}{2} \u00e9\u4e2d\U0001f600", " \n" * 40)


def require_loadable(data: bytes) -> None:
    """Raise Unreadable saying what is wrong with the content of a tokenizer.json."""
    name = f"{hashlib.sha256(data).hexdigest()} {tokenizers.__version__} {_RULES}"
    if name in _passed:
        return
    if not is_marked("tokenizers", name):
        _try(data)
        mark("tokenizers", name)
    _passed.add(name)


def _try(data: bytes) -> None:
    worker = WorkerProcess(
        "tts.build.tokenizer_check", "tries tokenizers", cpu_s=_CPU_S, memory_mb=_MEMORY_GIB << 10
    )
    memory = f"{_MEMORY_GIB} GiB of memory"
    try:
        wrong = worker.ask(as_text(data)).content.get("error")
    except WorkerUnavailable as error:
        raise Unreadable(f"no process could be started to try it in ({error.message})") from error
    except WorkerLost as error:
        doing = error.doing or "reading it"
        match error.loss:
            case Loss.CPU:
                wrong = f"{doing} took more than {_CPU_S:.0f} s"
            case Loss.MEMORY:
                wrong = f"it needs more than {memory}"
            case Loss.STALLED:
                wrong = f"{doing} did not come to an end"
            case Loss.CRASHED:
                how = (
                    f"by {signal.Signals(-error.status).name}"
                    if error.status < 0
                    else (f"with status {error.status}")
                )
                wrong = f"{doing} ended the process that did it {how}; it may use {memory}"
    finally:
        worker.reap()
    if wrong:
        raise Unreadable(wrong)


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
    serve(lambda: _answer)
