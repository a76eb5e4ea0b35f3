"""A gateway that is told to stop lets what runs come to its end, for a while."""

import asyncio

import pytest

from tts.base.errors import Terminated
from tts.gateway import draining
from tts.gateway.draining import Drain
from tts.gateway.observability.record import ServedRequest

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def settled_soon(monkeypatch):
    monkeypatch.setattr(draining, "SETTLE_S", 0.02)


class Scene:
    """A drain, and requests that run until they are told to end."""

    def __init__(self, grace_s):
        self.lines = []
        self.drain = Drain(grace_s, self.lines.append)

    def request(self, until, strategy=None):
        """A request that ends with an event; its task has what became of it."""
        record = ServedRequest(id="", endpoint="", time=0.0, t0=0.0, strategy=strategy)

        async def run():
            with self.drain.running(record):
                try:
                    await until.wait()
                    return "answered"
                except asyncio.CancelledError:
                    return "cut off" if self.drain.over else "cancelled"

        return asyncio.ensure_future(run())


def test_what_is_not_served_yet_is_not_drained_and_nothing_is_drained_twice():
    drain = Drain()
    assert not drain.begin()
    drain.open()
    assert drain.begin()
    assert drain.began
    assert not drain.begin()
    asyncio.run(drain.end(lambda: None))  # which waits for nothing
    assert drain.over


async def test_a_gateway_is_drained_when_its_last_request_has_ended():
    scene, ends = Scene(60), asyncio.Event()
    scene.drain.open()
    requests = [scene.request(ends) for _ in range(2)]
    drained = asyncio.ensure_future(scene.drain.drained())
    await asyncio.sleep(0)
    scene.drain.begin()
    for _ in range(3):
        await asyncio.sleep(0)
    first = "Draining: 2 requests left, for at most 60 s"
    assert (scene.lines, drained.done()) == ([first], False)
    ends.set()
    await asyncio.wait_for(drained, 20)
    assert scene.lines == [first, "Drained: no request is left; the gateway ends"]
    assert [request.result() for request in requests] == ["answered", "answered"]


async def test_after_the_grace_period_searches_answer_and_all_others_are_cut_off():
    scene, search_ends = Scene(0.01), asyncio.Event()
    scene.drain.open()
    search = scene.request(search_ends, "beam-search")
    slow = scene.request(asyncio.Event(), "beam-search")
    stream = scene.request(asyncio.Event())
    await asyncio.sleep(0)
    scene.drain.begin()
    with pytest.raises(Terminated, match=r"3 requests had not ended after 0\.01 s"):
        await asyncio.wait_for(scene.drain.drained(), 20)
    await asyncio.wait_for(scene.drain.end(search_ends.set), 20)
    assert [await search, await slow, await stream] == ["answered", "cut off", "cut off"]
