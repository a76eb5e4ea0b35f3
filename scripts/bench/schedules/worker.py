"""The process that measures: trials by lines of JSON, one after the other, on one kind of server.

Beside the bench's own checkout another one's environment may run it: then `tts` is that checkout's,
and the bench is this one's. So it works with checkouts whose insides are those that `runs` and
`plans` use.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from tts.build.errors import TtsError
from tts.session.event_loop import run_loop

from .plans import prepare
from .runs import Useful, run_saturated, run_search
from .trials import Measured, Settings, Trial


def main() -> None:
    """Read the settings, then trials; write what was measured, a line for each."""
    answers, sys.stdout = sys.stdout, sys.stderr  # whatever else is printed is no answer
    settings = _read()
    with tempfile.TemporaryDirectory() as folder:
        plans = prepare(Settings(**settings), Path(folder, "recorded"))
        useful: Useful | None = None
        measured: Measured = {}
        print(json.dumps(measured), file=answers, flush=True)
        while asked := _read():
            trial = Trial(**asked)
            plan = plans[trial.pair]
            if trial.what == "search":
                measured, answered = run_loop(run_search(plan, trial))
                useful = answered if trial.schedule == "decoupled" else useful
            else:
                assert useful is not None  # such a trial comes after its search
                measured = run_loop(run_saturated(plan, trial, useful))
            print(json.dumps(measured), file=answers, flush=True)


def _read() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(sys.stdin.readline() or "{}")
    return found


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
    except TtsError as error:
        sys.exit(f"error: {error}" + (f"\n{error.hint}" if error.hint else ""))
