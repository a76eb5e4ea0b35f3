"""What is asked in a turn of the event loop goes out together."""

import asyncio

from tts.endpoints.triton_stream import TickBatcher


async def test_a_turn_is_handed_over_by_key_in_order_and_in_parts():
    taken = []
    turns = TickBatcher(lambda key, items: taken.append((key, items)), 3)

    async def ask(key, item):
        turns.add(key, item)

    asked = [ask("a", item) for item in range(5)]
    await asyncio.gather(*asked, ask("b", 7))
    await asyncio.sleep(0)
    assert taken == [("a", [0, 1, 2]), ("a", [3, 4]), ("b", [7])]
    turns.add("a", 8)
    assert len(taken) == 3
    await asyncio.sleep(0)
    assert taken[3:] == [("a", [8])]


async def test_what_is_added_while_a_turn_is_handed_over_belongs_to_the_next():
    taken = []

    def take(key, items):
        taken.append(items)
        if items == [1]:
            turns.add("a", 2)

    turns = TickBatcher(take, 3)
    turns.add("a", 1)
    await asyncio.sleep(0)
    assert taken == [[1]]
    await asyncio.sleep(0)
    assert taken == [[1], [2]]
