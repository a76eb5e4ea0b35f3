"""The closed loop: everything once, in order, within the budget."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from tts.lab.tuning.measure import send_all


@given(st.lists(st.integers(1, 12), max_size=30), st.integers(1, 10), st.randoms())
def test_everything_is_sent_once_in_order_and_within_the_budget(costs, budget, random):
    started, in_flight = [], []

    async def send(work):
        started.append(work)
        in_flight.append(work)
        costing = [costs[place] for place in in_flight]
        assert sum(costing) <= budget or len(costing) == 1
        for _ in range(random.randrange(4)):
            await asyncio.sleep(0)
        in_flight.remove(work)

    asyncio.run(send_all(range(len(costs)), costs.__getitem__, budget, send))
    assert started == list(range(len(costs)))
    assert in_flight == []


def test_the_budget_is_filled():
    most = 0

    async def run():
        in_flight = 0

        async def send(_):
            nonlocal in_flight, most
            in_flight += 1
            most = max(most, in_flight)
            await asyncio.sleep(0)
            in_flight -= 1

        await send_all(range(20), lambda _: 1, 4, send)

    asyncio.run(run())
    assert most == 4
