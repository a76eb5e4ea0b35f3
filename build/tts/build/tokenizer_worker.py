"""Loads and tries an untrusted tokenizer.json in a process with limits. Run as a script.

The tokenizer's library is native code: what it cannot handle it may answer by ending the process,
or by filling the memory. Here it can end only this process.

Reads the file from the standard input. Prints a line before each thing that it does, so that the
last one says what ended it, and at the end one JSON object: {} or {"error": what is wrong}.
"""

from __future__ import annotations

import json
import resource
import signal
import sys

from tokenizers import Tokenizer

from tts.build.input_files import Unreadable, as_text, parse_json
from tts.build.tokenizer_bounds import require_bounded_file
from tts.build.worker import limit

CPU_S = 60
"""CPU time for all of it; tokenizers of the largest vocabularies take a few seconds."""
MEMORY_BYTES = 4 << 30
"""Address space of the whole process, several times of what those take."""
MOST_IDS = 100
"""Ids that a character may become: more is no token of it."""
_TEXTS = ("1", "So 1 + 1 = 2.\n\nHence $x^2$ is \\frac{1}{2} \u00e9\u4e2d\U0001f600", " \n" * 40)


def main() -> None:
    """Read, load, try, answer."""
    limit(resource.RLIMIT_AS, MEMORY_BYTES)
    limit(resource.RLIMIT_CORE, 0)
    signal.setitimer(signal.ITIMER_PROF, CPU_S)  # SIGPROF ends it, also within the library
    _say(json.dumps(_answer(sys.stdin.buffer.read())))


def _answer(data: bytes) -> dict[str, str]:
    try:
        _say("reading it")
        text = as_text(data)
        require_bounded_file(parse_json(text))
        _say("loading it")
        tokenizer = Tokenizer.from_str(text)
        tokenizer.no_truncation()  # as the file is used
        tokenizer.no_padding()
        _say("writing what was loaded")
        tokenizer.to_str()
        for sample in _TEXTS:
            _try(tokenizer, sample)
    except Unreadable as error:
        return {"error": str(error)}
    except MemoryError:
        return {"error": f"it needs more than {MEMORY_BYTES >> 30} GiB of memory"}
    except BaseException as error:  # the library raises bare Exception; its panics are none
        return {"error": f"the library refuses it: {error}"}
    return {}


def _try(tokenizer: Tokenizer, sample: str) -> None:
    _say(f"encoding {sample[:30]!r} with it")
    ids = tokenizer.encode(sample, add_special_tokens=False).ids
    whole = tokenizer.encode(sample, add_special_tokens=True).ids
    for count in (len(ids), len(whole)):
        if count > MOST_IDS * len(sample):
            raise Unreadable(f"it makes {count:,} tokens of {sample[:30]!r}")
    _say(f"decoding {len(ids)} tokens with it")
    tokenizer.decode(ids, skip_special_tokens=True)


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
