"""Problems that are taken as they are needed, and those that cannot be asked."""

import asyncio
import itertools
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts.base.errors import ConfigError, DatasetError
from tts.problem import Problem
from tts.session import solver
from tts.session.solver import UNREAD, Outbox

LONG = "Compute " + " + ".join(["1"] * 400) + "."


@pytest.fixture(autouse=True)
def few_ahead(monkeypatch):
    monkeypatch.setattr(solver, "AHEAD", 3)


def test_an_endless_generator_streams_and_is_read_a_little_ahead(session):
    taken = []

    def endless():
        for number in itertools.count():
            assert threading.current_thread() is threading.main_thread()
            taken.append(number)
            yield f"Compute {number} + 1."

    results = session.solve_many(endless(), n=4, in_flight=2)
    solved = [next(results).problem for _ in range(12)]
    ahead = len(taken) - 12
    results.close()
    assert len({problem.id for problem in solved}) == 12
    assert all(problem.question == f"Compute {int(problem.id) - 1} + 1." for problem in solved)
    assert ahead < 12, "2 run, 3 wait, the others are results that were not read yet"
    before = len(taken)
    assert session.solve("Compute 1 + 1.", n=4).completions
    assert len(taken) == before, "nothing more is taken"


def test_the_same_trees_from_a_list_a_generator_and_an_asynchronous_one(opened_async):
    questions = [f"Compute {i} + 2." for i in range(8)]

    async def asynchronous():
        for question in questions:
            await asyncio.sleep(0)
            yield question

    async def run():
        digests = []
        async with opened_async() as session:
            for given in (questions, iter(questions), asynchronous()):
                results = [result async for result in session.solve_many(given, n=4)]
                digests.append({result.problem.id: result.tree_digest for result in results})
        return digests

    first, *others = asyncio.run(run())
    assert len(first) == 8
    assert others == [first, first]


def test_an_asynchronous_generator_is_no_run_in_a_folder(opened_async, tmp_path):
    async def asynchronous():
        yield "Compute 1 + 2."

    async def run():
        async with opened_async() as session:
            with pytest.raises(ConfigError):
                session.solve_many(asynchronous(), n=4, out=tmp_path / "run")

    asyncio.run(run())


def test_what_a_generator_raises_ends_the_run(session):
    def failing():
        yield "Compute 1 + 1."
        raise LookupError("no more of them")

    with pytest.raises(LookupError, match="no more"):
        list(session.solve_many(failing(), n=4))
    with pytest.raises(DatasetError, match="must be unique"):
        list(session.solve_many((Problem("same", "1 + 1") for _ in range(2)), n=4))
    assert session.solve("Compute 1 + 1.", n=4).completions


@pytest.mark.parametrize("made", [list, iter])
def test_an_overlong_question_fails_alone_when_asked_to(session, made):
    asked = ["Compute 1 + 2.", (LONG, "400"), "Compute 3 + 4.", LONG]
    with pytest.raises(DatasetError, match="tokens long"):
        list(session.solve_many(made(asked), n=4))
    whole = {r.problem.id: r for r in session.solve_many(made(asked), n=4, skip_overlong=True)}
    assert sorted(whole) == ["1", "2", "3", "4"]
    assert "tokens long" in whole["2"].error
    assert "error=" in repr(whole["2"])
    assert (whole["2"].answer, whole["2"].correct, whole["4"].correct) == (None, False, None)
    fitting = session.solve_many([Problem(id, asked[int(id) - 1]) for id in ("1", "3")], n=4)
    assert {r.problem.id: r.tree_digest for r in fitting} == {
        id: whole[id].tree_digest for id in ("1", "3")
    }
    assert all(r.error for r in session.solve_many(made([LONG]), n=4, skip_overlong=True))


def test_a_run_in_a_folder_goes_on_without_an_overlong_question(session, tmp_path):
    folder, asked = tmp_path / "run", ["Compute 1 + 2.", LONG]
    options = {"n": 4, "out": folder, "skip_overlong": True}
    first = list(session.solve_many(asked, **options))
    assert [result.error is None for result in first] == [False, True]
    again = list(session.solve_many(asked, resume=True, **options))
    assert [r.tree_digest for r in again] == [r.tree_digest for r in first]


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


def test_a_slow_program_holds_the_searches_up(opened_async, endpoints, monkeypatch):
    monkeypatch.setattr(solver, "UNREAD", 3)
    monkeypatch.setattr(solver, "AHEAD", 2)
    asked = endpoints["verifier"].calls.scored

    async def run():
        async with opened_async() as session:
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
