"""Rendering a checkpoint's chat template, which may be hostile, in a process with limits.

One worker process serves all templates of this process and stays until it ends: a rendering costs
one exchange of a line each way. A worker that a template has ended is replaced for the next.

A template is a program from a checkpoint: the sandbox keeps it from the interpreter, but not from
looping for ever or building a text of any length. In the worker, `python -m` this module, it can
end only the worker. A request is {source, chats}, variables for each text; its answer is {texts} or
{error, kind}: `kind` is "invalid" for a template that does not compile, else "failed".
"""

from __future__ import annotations

import atexit
import json
from collections.abc import Mapping
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from tts.base.worker_process import Loss, WorkerLost, WorkerProcess, serve

if TYPE_CHECKING:  # only the worker needs jinja2
    from jinja2 import Template
    from jinja2.nodes import Node
    from jinja2.parser import Parser

_CPU_S = 2.0  # for one rendering; ordinary templates take less than a millisecond
_MEMORY_MB = 512  # of address space, the whole process
LONGEST_TEXT = 4_000_000
"""Characters of a rendered chat, far beyond the context of any model."""
TEMPLATE_DATE = datetime(2024, 7, 26)
"""What `strftime_now` formats unless it is given as another ISO date; never the clock: prompts must
repeat. Llama's templates have this date where there is no such function."""
_NAMES = {" names": True}
"""Instead of variables, which have no such name: asks for the names that a template reads."""
_OF_EVERY_CHAT = {"messages", "tools", "add_generation_prompt", "bos_token", "eos_token"}
_WHY = {
    Loss.CPU: f"it took more than {_CPU_S:.0f} s",
    Loss.MEMORY: f"it took more than {_MEMORY_MB} MiB of memory",
    Loss.CRASHED: f"it took more than {_MEMORY_MB} MiB of memory, or crashed its process",
    Loss.STALLED: "its process got no processor time",
}


class TemplateFailed(Exception):
    """A template could not be rendered; the message says why, in the middle of a sentence."""

    def __init__(self, why: str, kind: Literal["invalid", "failed"]) -> None:
        super().__init__(why)
        self.kind = kind


_WORKER = WorkerProcess(
    "tts.build.chat_template", "renders chat templates", cpu_s=_CPU_S, memory_mb=_MEMORY_MB
)
atexit.register(_WORKER.reap)


def render(source: str, *chats: Mapping[str, Any]) -> list[str]:
    """The text of a template for each of some variables, all in one exchange.

    Raises TemplateFailed for the first that has none, or WorkerUnavailable.
    """
    try:
        reply = _WORKER.ask({"source": source, "chats": list(map(dict, chats))}).content
    except WorkerLost as error:
        raise TemplateFailed(_WHY[error.loss], "failed") from error
    if "error" in reply:
        raise TemplateFailed(reply["error"], reply["kind"])
    texts: list[str] = reply["texts"]
    return texts


def variables_of(source: str) -> frozenset[str]:
    """The variables that a template reads beyond those of every chat; raises as `render` does."""
    return frozenset(render(source, _NAMES)) - _OF_EVERY_CHAT


def _answer(source: str, chats: list[dict[str, Any]]) -> dict[str, Any]:
    kind = "invalid"
    try:
        template = _compiled(source)
        if chats == [_NAMES]:
            return {"texts": _names(source, template)}
        kind = "failed"
        return {"texts": [_text(template, variables) for variables in chats]}
    except MemoryError:
        raise
    except RecursionError:
        return {"error": "it is nested too deeply", "kind": kind}
    except Exception as error:  # a template can raise whatever an expression can
        return {"error": str(error) or type(error).__name__, "kind": kind}


def _text(template: Template, variables: dict[str, Any]) -> str:
    if date := variables.get("strftime_now"):
        variables["strftime_now"] = datetime.fromisoformat(date).strftime
    text = template.render(**variables)
    if len(text) > LONGEST_TEXT:
        raise ValueError(f"it makes a text of {len(text)} characters")
    return text


def _names(source: str, template: Template) -> list[str]:
    from jinja2.meta import find_undeclared_variables

    variables = find_undeclared_variables(template.environment.parse(source))  # without globals
    return sorted(variables | {"strftime_now"} if "strftime_now" in source else variables)


@cache
def _compiled(source: str) -> Template:
    from jinja2.ext import Extension
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """What stands in `generation` tags, which say what to train on, as if they were not."""

        tags = {"generation"}  # noqa: RUF012 (as jinja2 declares it)

        def parse(self, parser: Parser) -> list[Node]:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", Generation]
    )
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = TEMPLATE_DATE.strftime
    environment.filters["tojson"] = _as_json
    return environment.from_string(source)


def _as_json(value: Any, ensure_ascii: bool = False, **form: Any) -> str:
    """JSON as templates are written for: Jinja's own filter escapes what HTML does not hold."""
    return json.dumps(value, ensure_ascii=ensure_ascii, **form)


def _raise_exception(message: str) -> None:
    import jinja2

    raise jinja2.TemplateError(message)


if __name__ == "__main__":
    serve(lambda: lambda request: _answer(**request))
