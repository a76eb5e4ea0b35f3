"""Renders chat templates in a process of its own, with limits: `python -m` this module.

A template is a program from a checkpoint: the sandbox keeps it from the interpreter, but not from
looping for ever or building a text of any length. Here it can end only this process.

A request is {source, variables}, its answer {text} or {error, kind}; `kind` is "invalid" for a
template that does not compile, else "failed" (the rest is said in `worker`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

from .worker import serve

LONGEST_TEXT = 4_000_000
"""Characters of a rendered chat, far beyond the context of any model."""


def _load() -> Callable[[dict[str, Any]], dict[str, str]]:
    return lambda request: _answer(**request)


def _answer(source: str, variables: dict[str, Any]) -> dict[str, str]:
    kind = "invalid"
    try:
        template = _compiled(source)
        kind = "failed"
        text = template.render(**variables)
        if len(text) > LONGEST_TEXT:
            return {"error": f"it makes a text of {len(text)} characters", "kind": kind}
    except MemoryError:
        raise
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
    serve(_load)
