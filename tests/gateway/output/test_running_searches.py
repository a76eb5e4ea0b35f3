"""A search while it runs; the same asked for twice is one search."""

import asyncio
from types import SimpleNamespace

import pytest

from tts.gateway.output import running_searches
from tts.gateway.output.running_searches import RunningSearch, RunningSearches, begin_search
from tts.session.plan import Plan

pytestmark = pytest.mark.anyio


class Solving:
    """A search that ends when it is told; counts how often one was started."""

    def __init__(self):
        self.started = 0
        self.end = asyncio.Event()
        self.failure = None

    def __call__(self):
        async def solve(search):
            self.started += 1
            await self.end.wait()
            if self.failure:
                raise self.failure
            return f"result {self.started}"

        return RunningSearch(solve)


async def settle():
    for _ in range(5):
        await asyncio.sleep(0)


class Listeners:
    """Clients that join searches and leave them, each by its name."""

    def __init__(self):
        self.searches, self.solving, self._joined = RunningSearches(), Solving(), {}

    def join(self, client, key="key", *, has_name=False):
        joined = self.searches.joined(key, self.solving, has_name=has_name)
        self._joined[client] = joined
        return joined.__enter__()

    def leave(self, client):
        self._joined[client].__exit__(None, None, None)


async def test_a_retry_joins_the_search_that_runs_and_its_result():
    clients = Listeners()
    first, second = clients.join("a"), clients.join("b")
    assert first is second
    other = clients.join("c", "other")
    assert other is not first
    clients.solving.end.set()
    assert await first.result() == await second.result()
    clients.leave("a")
    clients.leave("b")
    assert clients.join("a") is first
    assert clients.solving.started == 2


async def test_a_search_without_listeners_is_cancelled_at_once():
    clients = Listeners()
    search = clients.join("a")
    clients.join("b")
    clients.leave("a")
    await settle()
    assert not search.task.done()
    clients.leave("b")
    await settle()
    assert search.task.cancelled()
    assert clients.join("a") is not search


async def test_a_named_search_waits_for_whoever_comes_back(monkeypatch):
    monkeypatch.setattr(running_searches, "KEEP_S", 0.0)
    clients = Listeners()
    search = clients.join("a", has_name=True)
    await settle()
    clients.leave("a")
    assert clients.join("a", has_name=True) is search
    await asyncio.sleep(0.01)  # the time to come back has passed, but somebody listens
    assert not search.task.done()
    clients.leave("a")
    await asyncio.wait({search.task})
    assert search.task.cancelled()


async def test_a_failed_search_is_not_joined():
    clients = Listeners()
    clients.solving.failure = ValueError("no")
    clients.solving.end.set()
    search = clients.join("a")
    with pytest.raises(ValueError, match="no"):
        await search.result()
    await settle()
    assert clients.join("b") is not search


@pytest.mark.parametrize(
    ("limits", "kept"),
    [({"MAX_RESULTS": 3}, [7, 8, 9]), ({"MAX_STEPS": 10}, [8, 9])],
    ids=["results", "steps of large trees"],
)
async def test_the_oldest_results_that_are_too_much_go(monkeypatch, limits, kept):
    for name, value in limits.items():
        monkeypatch.setattr(running_searches, name, value)
    monkeypatch.setattr(RunningSearch, "size", property(lambda search: 4))
    clients = Listeners()
    clients.solving.end.set()
    for key in range(10):
        await clients.join("a", key).result()
        clients.leave("a")
        await settle()
    assert list(clients.searches._searches) == kept


def test_a_search_says_on_which_replica_its_tree_is_also_after_it_has_moved():
    async def go():
        moves = asyncio.Queue()

        async def solve(plan):
            while replica := await moves.get():
                plan.on_server(replica)

        session = SimpleNamespace(solve_planned=solve)
        search = begin_search(session, Plan(None, None, (), SimpleNamespace(config=None)))
        replicas = [search.replica]
        for replica in ("a", "b", None):
            moves.put_nowait(replica)
            await settle()
            replicas.append(search.replica)
        await search.result()
        return replicas

    assert asyncio.run(go()) == [None, "a", "b", "b"]
