"""A search while it runs."""

import asyncio

from tts.gateway.answer.running_searches import RunningSearch


def test_a_search_says_on_which_replica_its_tree_is_also_after_it_has_moved():
    async def go():
        moved, ends = asyncio.Event(), asyncio.Event()

        async def solve(on_step, on_server):
            on_server("a")
            await moved.wait()
            on_server("b")
            await ends.wait()

        search = RunningSearch(solve)
        replicas = [search.replica]
        for event in (moved, ends):
            await asyncio.sleep(0)
            replicas.append(search.replica)
            event.set()
        await search.task
        return [*replicas, search.replica]

    assert asyncio.run(go()) == [None, "a", "b", "b"]
