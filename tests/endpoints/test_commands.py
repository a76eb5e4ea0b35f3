"""A program as a verifier: what it is told, and what each of its answers comes to."""

import asyncio
import sys

import numpy as np
import pytest
from tests.build.sandboxes import OPEN, sandbox

from tts.base.errors import ConfigError
from tts.endpoints.base import ScoreCall, VerifierResult
from tts.endpoints.commands import CommandVerifier

CALL = ScoreCall(
    np.empty(0, np.int32), "Why?", ("a", "b"), "a\n\n  b", {"test_list": ["assert True"]}
)
FAILED = VerifierResult(0.0, no_verdict=1)


def scored(code, *, calls=1, **limits):
    verifier = CommandVerifier(sandbox(OPEN, **limits), ["python", "-c", code])

    async def scoring():
        return await asyncio.gather(*(verifier.score(CALL) for _ in range(calls)))

    return asyncio.run(scoring())


@pytest.mark.parametrize(
    ("code", "result"),
    [
        ("print(0.5)", VerifierResult(0.5)),
        ("print('{\"score\": 1}')", VerifierResult(1.0)),
        ("", FAILED),
        ("print('NaN')", FAILED),
        ("print('{\"score\": NaN}')", FAILED),
        ("print(1.01)", FAILED),
        ("print('true')", FAILED),
        ("print('[' * 50_000)", FAILED),
        ("print('fine'), print(1)", FAILED),
        ("print(1); raise SystemExit(1)", FAILED),
        ("print(1, flush=True); import time; time.sleep(1000)", FAILED),
    ],
)
def test_only_one_number_is_a_score_and_all_else_is_a_counted_zero(code, result):
    assert scored(code, wall_s=60 if "sleep" not in code else 0.5) == [result]


def test_it_is_told_the_candidate():
    told = (
        "import json, sys; told = json.load(sys.stdin); "
        "assert told == {'question': 'Why?', 'steps': ['a', 'b'], 'text': 'a\\n\\n  b', "
        "'extra': {'test_list': ['assert True']}}; print(1)"
    )
    assert scored(told) == [VerifierResult(1.0)]


def test_several_run_at_a_time(tmp_path):
    meets = (
        "import os, pathlib, time\n"
        f"here = pathlib.Path({str(tmp_path)!r})\n"
        "(here / str(os.getpid())).write_text('')\n"
        "while len(list(here.iterdir())) < 2: time.sleep(0.01)\n"
        "print(1)"
    )
    assert scored(meets, calls=2, at_a_time=2) == [VerifierResult(1.0)] * 2


def test_a_program_that_is_not_there_is_refused():
    with pytest.raises(ConfigError, match="no_such_program"):
        CommandVerifier(sandbox(OPEN), ["no_such_program", sys.executable])
