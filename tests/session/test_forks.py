"""A fork of a program with an open session: it is told so at once, and harms nothing."""

import asyncio
import os
import subprocess
import sys

import pytest
from tests.forks import said_in_a_fork
from tests.grading.sync import SyncGrader

from tts.base.errors import ForkError
from tts.base.owner import Owner, require_unforked
from tts.endpoints.triton import TritonConnection

QUESTION = "Compute 2 + 2."
SAID = "This session was opened in process"


def refused(function):
    """What a fork is told where it calls a function."""

    def call():
        with pytest.raises(ForkError) as error:
            function()
        return error.value

    return said_in_a_fork(call)


@pytest.mark.parametrize(
    "call",
    [
        lambda session: session.solve(QUESTION, n=4),
        lambda session: next(iter(session.solve_many([QUESTION], n=4))),
        lambda session: session.generate(QUESTION),
        lambda session: session.score(QUESTION, ["one"]),
    ],
    ids=["solve", "solve_many", "generate", "score"],
)
def test_a_session_says_in_a_fork_what_to_do(session, call):
    before = session.solve(QUESTION, n=4, seed=1).tree_digest
    said = refused(lambda: call(session))
    assert f"{SAID} {os.getpid()}, and cannot be used in process" in said
    assert 'multiprocessing.get_context("spawn")' in said
    assert session.solve(QUESTION, n=4, seed=1).tree_digest == before


def test_leaving_the_block_in_a_fork_leaves_the_parent_s_session_open(session):
    assert said_in_a_fork(session.close) == "None"
    assert session.solve(QUESTION, n=4).completions


def test_a_search_that_a_fork_inherits_half_way_is_the_parent_s(session):
    results = iter(session.solve_many([QUESTION, "Compute 3 + 3."], n=4))
    next(results)
    assert SAID in refused(lambda: next(results))
    assert len(list(results)) == 1


def test_a_fork_may_open_a_session_of_its_own(session, opened):
    expected = session.solve(QUESTION, n=4, seed=1).tree_digest

    def solve():
        with opened() as own:
            return own.solve(QUESTION, n=4, seed=1).tree_digest

    assert said_in_a_fork(solve) == expected


def test_an_asynchronous_session_says_so_too(opened_async):
    async def main():
        async with opened_async() as session:
            solving = session.solve(QUESTION, n=4)
            said = refused(lambda: solving.send(None))
            solving.close()
            leaving = session.__aexit__(None, None, None)
            left = said_in_a_fork(lambda: _ended(leaving))
            leaving.close()
            return said, left, await session.solve(QUESTION, n=4)

    said, left, result = asyncio.run(main())
    assert SAID in said
    assert left == "ended"
    assert result.completions


def _ended(coroutine):
    try:
        coroutine.send(None)
    except StopIteration:
        return "ended"
    return "waits"


def test_a_grader_says_so_and_decides_what_needs_no_worker():
    with SyncGrader(workers=1) as grader:
        assert grader.equal_sync("1/2", "0.5").equal
        assert "This grader was opened in process" in refused(
            lambda: grader.equal_sync("1/3", r"\frac13")
        )
        assert said_in_a_fork(lambda: grader.equal_sync("5", "5").equal) == "True"
        assert said_in_a_fork(grader.close) == "None"
        assert grader.equal_sync("1/4", "0.25").equal


def test_a_library_that_its_parent_has_used_is_refused_to_a_fork_and_a_fresh_one_is_not():
    name = "a library that does not survive forks"
    assert said_in_a_fork(lambda: require_unforked(name)) == "None"
    require_unforked(name)
    require_unforked(name)
    assert f"{name} was opened in process {os.getpid()}" in refused(lambda: require_unforked(name))


def test_a_fork_of_a_process_with_connections_makes_none():
    async def main():
        async with TritonConnection("127.0.0.1:1"):
            return refused(lambda: TritonConnection("127.0.0.1:1"))

    assert f"gRPC was opened in process {os.getpid()}" in asyncio.run(main())


def test_what_was_opened_here_may_be_used_here():
    owner = Owner("This")
    owner.require()
    assert owner.is_here
    assert said_in_a_fork(lambda: owner.is_here) == "False"


def test_long_texts_are_encoded_in_a_fork_as_in_its_parent(tokenizer):
    text = "Compute 2 + 2. " * 1000
    ids = tokenizer.encode(text)
    assert said_in_a_fork(lambda: tokenizer.encode(text) == ids) == "True"


FEW_FILES = """
import resource, sys
from pathlib import Path
from tts.session import {what}
limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (3, limit))
{call}
"""


@pytest.mark.parametrize(
    ("what", "call"),
    [
        ("Session", "Session.open('demo')"),
        ("event_loop", "import asyncio; event_loop.run_loop(asyncio.sleep(0))"),
        ("event_loop", "import asyncio; event_loop.interruptible(asyncio.sleep(0), print)"),
    ],
)
def test_without_file_descriptors_it_says_so_and_python_warns_of_nothing(what, call):
    done = subprocess.run(
        [sys.executable, "-W", "default", "-c", FEW_FILES.format(what=what, call=call)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "SessionError: The session cannot open another file" in done.stderr
    assert "ulimit -n" in done.stderr
    assert "never awaited" not in done.stderr
