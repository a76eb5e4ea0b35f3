"""The child process that runs math-verify: `python -m tts.grading.worker MB SECONDS`.

A request is `["read", answer]` or `["compare", prediction, reference]`, its answer
`[kind, content]`: a sketch of the answer, or a verdict. `tts.base.worker_process` has the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import to_builtins

from tts.base.worker_process import serve


def main() -> None:
    """Serve requests until the input ends."""
    serve(_load)


def _load() -> Callable[[list[str]], tuple[str, Any]]:
    from . import equivalence

    def answer(request: list[str]) -> tuple[str, Any]:
        task, *answers = request
        if task == "compare":
            return "verdict", to_builtins(equivalence.compare(*answers))
        return "parsed", to_builtins(equivalence.read(*answers))

    return answer


if __name__ == "__main__":
    main()
