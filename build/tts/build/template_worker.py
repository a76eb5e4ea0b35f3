"""Renders chat templates in a process of its own, with limits. Run as a script by chat_template.

A template is a program from a checkpoint: the sandbox keeps it from the interpreter, but not from
looping for ever or building a text of any length. Here it can end only this process.

Reads one JSON object per line, {source, variables}, and answers each with one line, {text} or
{error, kind}; `kind` is "invalid" for a template that does not compile, else "failed".
"""

from __future__ import annotations

import json
import resource
import signal
import sys
from functools import cache
from typing import Any

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

from tts.build.limited_process import limit

CPU_S = 2.0
"""CPU time for one rendering; ordinary templates take less than a millisecond."""
MEMORY_BYTES = 512 << 20
"""Address space of the whole process."""
LONGEST_TEXT = 4_000_000
"""Characters of a rendered chat, far beyond the context of any model."""


def main() -> None:
    """Answer until the standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent
    limit(resource.RLIMIT_AS, MEMORY_BYTES)
    limit(resource.RLIMIT_CORE, 0)
    for line in sys.stdin:
        # SIGPROF ends the process, also within a long operation in C; time asleep does not count
        signal.setitimer(signal.ITIMER_PROF, CPU_S)
        answer = _answer(**json.loads(line))
        signal.setitimer(signal.ITIMER_PROF, 0)
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def _answer(source: str, variables: dict[str, Any]) -> dict[str, str]:
    kind = "invalid"
    try:
        template = _compiled(source)
        kind = "failed"
        text = template.render(**variables)
        if len(text) > LONGEST_TEXT:
            return {"error": f"it makes a text of {len(text)} characters", "kind": kind}
    except MemoryError:
        return {"error": f"it needs more than {MEMORY_BYTES >> 20} MiB of memory", "kind": kind}
    except RecursionError:
        return {"error": "it is nested too deeply", "kind": kind}
    except Exception as error:  # a template can raise whatever an expression can
        return {"error": str(error) or type(error).__name__, "kind": kind}
    return {"text": text}


@cache
def _compiled(source: str) -> jinja2.Template:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.globals["raise_exception"] = _raise_exception
    return environment.from_string(source)


def _raise_exception(message: str) -> None:
    raise jinja2.TemplateError(message)


if __name__ == "__main__":
    main()
