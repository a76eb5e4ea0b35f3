"""The server of a session: a start that is given up, a server that dies while something runs."""

import asyncio
import threading
from types import SimpleNamespace

import pytest

from tts.base.errors import BuildError, EndpointUnavailable, ServerError, SessionError
from tts.build import builder
from tts.build.openvino import target as openvino_target
from tts.build.spec import load_deployment
from tts.fleet import connecting, engines, server
from tts.fleet.server import Work, open_server
from tts.serving.command.ports import Addresses
from tts.serving.server import supervise
from tts.serving.server.triton import Triton
from tts.session import AsyncSession, Session

WHERE = Addresses("127.0.0.1", 1, 0, 0)


def healthy():
    """A check that finds nothing wrong."""


async def run(waiting, check=None):
    async with Work(check):
        return await waiting


async def endless(ends):
    """Work that ends only when it is cancelled."""
    try:
        await asyncio.Event().wait()
    finally:
        ends.append("work")


def test_the_server_is_looked_at_once_a_second_while_something_runs(monkeypatch):
    looks = []

    async def watch(check, every_s):
        looks.append((check, every_s))
        await asyncio.Event().wait()

    monkeypatch.setattr(server, "watch", watch)
    assert asyncio.run(run(asyncio.sleep(0, 7), healthy)) == 7
    assert looks == [(healthy, 1.0)]


def test_a_server_that_dies_ends_what_runs_and_waits_for_it():
    ends = []

    def dead():
        raise ServerError("It died.")

    async def go():
        with pytest.raises(ServerError, match="died"):
            await run(endless(ends), dead)
        await asyncio.sleep(0)  # the task that did the work goes on
        return asyncio.all_tasks() == {asyncio.current_task()}

    assert asyncio.run(go())
    assert ends == ["work"]


def test_an_endpoints_error_is_explained_by_what_died_or_else_stands():
    died = threading.Event()

    async def fail():
        died.set()
        raise EndpointUnavailable("Nothing answers.")

    def check():
        if died.is_set():
            raise ServerError("The stub died.")

    with pytest.raises(ServerError, match="stub"):
        asyncio.run(run(fail(), check))
    with pytest.raises(EndpointUnavailable, match="Nothing answers"):
        asyncio.run(run(fail(), healthy))


@pytest.mark.parametrize("check", [None, healthy])
def test_cancelling_ends_what_runs_with_or_without_an_end_from_outside(check):
    ends = []

    async def go(end):
        work = None

        async def block():
            nonlocal work
            async with Work(check) as work:
                await endless(ends)

        task = asyncio.ensure_future(block())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        if end:
            work.end(SessionError("It is over."))
        if end != "end":
            task.cancel()
        with pytest.raises(SessionError if end == "end" else asyncio.CancelledError):
            await task
        assert work.over.done()
        return asyncio.all_tasks() == {asyncio.current_task()}

    assert all(asyncio.run(go(end)) for end in ("", "end", "end and cancel"))
    assert ends == ["work"] * 3


def test_a_start_that_is_cancelled_is_given_up_and_waited_for(monkeypatch, home, tiny_deployment):
    starting, over = threading.Event(), []

    def start(deployment, *, say, check, **options):
        say("Starting")
        starting.set()
        try:
            while True:
                check()
        finally:
            over.append(True)

    monkeypatch.setattr(server, "wait_for_server", lambda deployment, **options: None)
    monkeypatch.setattr(supervise, "start_server", start)
    said = []

    async def go():
        opening = asyncio.ensure_future(open_server(Triton(tiny_deployment), said.append))
        await asyncio.to_thread(starting.wait)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        assert over == [True]

    asyncio.run(go())
    assert said == ["Starting"]


@pytest.fixture
def stopped(monkeypatch):
    """A server that `open_server` finds in its thread, and who has stopped it."""
    stopped = SimpleNamespace(ready=threading.Event(), go_on=threading.Event(), by=[])

    def found(service, say, on_loading, check, lasting):
        say("Starting")
        on_loading("half of it")
        stopped.ready.set()
        stopped.go_on.wait()
        return server.Server(WHERE, healthy, lambda: stopped.by.append(True))

    monkeypatch.setattr(server, "_open", found)
    return stopped


def test_what_a_starting_server_does_is_told_in_the_loops_thread(stopped, tiny_deployment):
    told = []

    def tell(what):
        told.append((what, threading.current_thread()))

    stopped.go_on.set()
    asyncio.run(open_server(Triton(tiny_deployment), tell, tell))
    here = threading.current_thread()
    assert told == [("Starting", here), ("half of it", here)]
    assert stopped.by == []


def test_a_server_that_is_ready_just_as_it_is_given_up_is_stopped(stopped, tiny_deployment):
    async def go():
        opening = asyncio.ensure_future(open_server(Triton(tiny_deployment), lambda line: None))
        await asyncio.to_thread(stopped.ready.wait)
        opening.cancel()
        await asyncio.sleep(0)
        stopped.go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await opening

    asyncio.run(go())
    assert stopped.by == [True]


def test_a_session_stops_the_server_that_it_has_started(monkeypatch, tiny_deployment):
    stopped = []

    async def started(service, say, on_loading):
        return server.Server(WHERE, healthy, lambda: stopped.append(True), started=True)

    monkeypatch.setattr(server, "open_server", started)
    monkeypatch.setattr(engines, "require_engines", lambda deployment, addresses, say: None)

    async def go():
        async with AsyncSession(tiny_deployment) as session:
            assert session.address == "127.0.0.1:1"
            assert stopped == []

    asyncio.run(go())
    assert stopped == [True]


def test_endpoints_of_a_program_have_neither_caches_nor_an_address(opened_async):
    async def go():
        async with opened_async() as session:
            assert await session.reset_prefix_caches() is False
            return session.address

    with pytest.raises(SessionError, match="has no server"):
        asyncio.run(go())


def test_without_large_engines_the_session_says_how_to_build_them(home, monkeypatch):
    monkeypatch.setattr(builder, "QUICK_BYTES", 1_000_000)
    with pytest.raises(BuildError, match="tts build-engines demo"):
        Session.open("demo")
    assert not any(thread.name == "tts session" for thread in threading.enumerate())


def test_small_engines_that_are_missing_are_built_where_a_session_needs_them(home, monkeypatch):
    monkeypatch.setattr(openvino_target, "missing_packages", lambda: ["torch"])  # faster
    said, deployment = [], load_deployment("demo")
    for _ in range(2):
        connecting.require_engines(deployment, (), said.append)
    assert said == [
        "Building the generator and verifier of demo, which takes seconds and is needed once"
    ]
