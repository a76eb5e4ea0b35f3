"""Results on their way: in order, each once, and no new problems while many wait."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from tts.session import Session, outbox, solver
from tts.session.outbox import UNREAD, Outbox


async def has_room(box):
    waiting = asyncio.ensure_future(box.room())
    await asyncio.sleep(0)
    waiting.cancel()
    return waiting.done()


@given(st.lists(st.integers(-UNREAD, UNREAD), max_size=8))
def test_there_is_room_while_fewer_than_so_many_wait(moves):
    """A positive move puts so many, a negative one takes them."""

    async def run():
        box, put, taken = Outbox(), 0, []
        for move in moves:
            for _ in range(max(0, move)):
                box.put(put)
                put += 1
            for _ in range(min(put - len(taken), max(0, -move))):
                taken.append(await box.get())
            assert await has_room(box) == (put - len(taken) < UNREAD)
        box.close()
        while (result := await box.get()) is not None:
            taken.append(result)
        assert taken == list(range(put))

    asyncio.run(run())


def test_a_slow_program_holds_the_searches_up(tiny_deployment, endpoints, monkeypatch):
    monkeypatch.setattr(outbox, "UNREAD", 3)
    monkeypatch.setattr(solver, "AHEAD", 2)
    asked = endpoints["verifier"].calls.scored

    async def run():
        async with Session.open_async(tiny_deployment, **endpoints) as session:
            questions = [f"Compute {i}." for i in range(60)]
            results = session.solve_many(questions, n=4, beam_width=2)
            await anext(results)
            idle = 0
            while idle < 50 or not asked:  # until nothing more is begun
                idle = idle + 1 if session.in_flight == (0, 0) else 0
                await asyncio.sleep(0)
            before = len(asked)
            for _ in range(50):
                await asyncio.sleep(0)
            assert len(asked) == before
            return before, 1 + len([result async for result in results])

    before, solved = asyncio.run(run())
    assert solved == 60
    assert before < len(asked) / 2
