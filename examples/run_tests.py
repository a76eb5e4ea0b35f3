"""A verifier that is a program: runs the tests of a candidate, and writes the share that pass.

`verifier: {command: [python, run_tests.py]}` in a deployment file starts it for each candidate, in
a sandbox. It gets JSON on its standard input; `extra` is what the problem has beside its question,
here the tests that the question shows.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import sys


def main() -> None:
    """Read a candidate, write its score."""
    candidate = json.load(sys.stdin)
    blocks = re.findall(r"^```\w*\n(.*?)^```", candidate["text"], re.DOTALL | re.MULTILINE)
    code = blocks[-1] if blocks else candidate["text"]
    tests = candidate["extra"]["test_list"]
    passed = 0
    with contextlib.redirect_stdout(io.StringIO()):  # the score is all that may be written
        for test in tests:
            with contextlib.suppress(Exception):
                exec(f"{code}\n{test}", {})
                passed += 1
    print(passed / len(tests))


if __name__ == "__main__":
    main()
