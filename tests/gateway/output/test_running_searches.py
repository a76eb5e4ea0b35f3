"""A search while it runs; the same asked for twice is one search."""

import asyncio

import pytest

from tts.gateway.output import running_searches
from tts.gateway.output.running_searches import RunningSearch, RunningSearches


class Solving:
    """A search that ends when it is told; counts how often one was started."""

    def __init__(self):
        self.started = 0
        self.end = asyncio.Event()
        self.failure = None

    def __call__(self):
        async def solve(on_step, on_server):
            self.started += 1
            await self.end.wait()
            if self.failure:
                raise self.failure
            return f"result {self.started}"

        return RunningSearch(solve)


async def settle():
    for _ in range(5):
        await asyncio.sleep(0)


def test_a_retry_joins_the_search_that_runs_and_its_result():
    async def run():
        same, solving = RunningSearches(), Solving()
        first = same.join("key", solving, named=False)
        second = same.join("key", solving, named=False)
        assert first is second
        other = same.join("other", solving, named=False)
        assert other is not first
        solving.end.set()
        assert await first.result() == await second.result()
        same.leave("key", first)
        same.leave("key", second)
        assert same.join("key", solving, named=False) is first
        assert solving.started == 2

    asyncio.run(run())


def test_a_search_without_listeners_is_cancelled_at_once():
    async def run():
        same, solving = RunningSearches(), Solving()
        search = same.join("key", solving, named=False)
        same.join("key", solving, named=False)
        same.leave("key", search)
        await settle()
        assert not search.task.done()
        same.leave("key", search)
        await settle()
        assert search.task.cancelled()
        assert same.join("key", solving, named=False) is not search

    asyncio.run(run())


def test_a_named_search_waits_for_whoever_comes_back(monkeypatch):
    monkeypatch.setattr(running_searches, "KEEP_S", 0.0)

    async def run():
        same, solving = RunningSearches(), Solving()
        search = same.join("key", solving, named=True)
        await settle()
        same.leave("key", search)
        assert same.join("key", solving, named=True) is search
        await asyncio.sleep(0.01)  # the time to come back has passed, but somebody listens
        assert not search.task.done()
        same.leave("key", search)
        await asyncio.wait({search.task})
        assert search.task.cancelled()

    asyncio.run(run())


def test_a_failed_search_is_not_joined():
    async def run():
        same, solving = RunningSearches(), Solving()
        solving.failure = ValueError("no")
        solving.end.set()
        search = same.join("key", solving, named=False)
        with pytest.raises(ValueError, match="no"):
            await search.result()
        await settle()
        assert same.join("key", solving, named=False) is not search

    asyncio.run(run())


@pytest.mark.parametrize(
    ("limits", "kept"),
    [({"MOST_KEPT": 3}, [7, 8, 9]), ({"MOST_STEPS": 10}, [8, 9])],
    ids=["results", "steps of large trees"],
)
def test_the_oldest_results_that_are_too_much_go(monkeypatch, limits, kept):
    for name, value in limits.items():
        monkeypatch.setattr(running_searches, name, value)
    monkeypatch.setattr(RunningSearch, "size", property(lambda search: 4))

    async def run():
        same, solving = RunningSearches(), Solving()
        solving.end.set()
        for key in range(10):
            search = same.join(key, solving, named=False)
            await search.result()
            same.leave(key, search)
            await settle()
        assert list(same._searches) == kept

    asyncio.run(run())


def test_a_search_says_on_which_replica_its_tree_is_also_after_it_has_moved():
    async def go():
        moves = asyncio.Queue()

        async def solve(on_step, on_server):
            while replica := await moves.get():
                on_server(replica)

        search = RunningSearch(solve)
        replicas = [search.replica]
        for replica in ("a", "b", None):
            moves.put_nowait(replica)
            await settle()
            replicas.append(search.replica)
        await search.result()
        return replicas

    assert asyncio.run(go()) == [None, "a", "b", "b"]
