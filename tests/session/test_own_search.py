"""Searches of the user's own: mistakes in them name their function, their line and what to do."""

import signal
import threading
import traceback

import pytest
from tests.session.test_event_loop import interrupt_when

from tts.base.errors import ConfigError, FunctionError, Interrupted, SearchError, SessionError
from tts.search import (
    Completion,
    Expand,
    Guess,
    Hints,
    Sampling,
    Score,
    Search,
    SearchConfig,
    SearchResult,
    Tree,
)
from tts.session import event_loop
from tts.session import strategy as own_search
from tts.session.event_loop import interruptible
from tts.strategies.strategy import Ballot, Strategy

QUESTION = "Compute 2 + 2."
SAMPLING = Sampling(0.8, 1.0, 64)


class One(Search):
    """One chain of one step; each test breaks another part of it."""

    def __init__(self, problem=None, seed=hash):
        self.seed, self.asked, self.found = seed, False, None
        self.tree = Tree()

    def ask(self):
        asked, self.asked = self.asked, True
        return [] if asked else self.first()

    def first(self):
        return [Expand((0,), self.seed((0,)), SAMPLING)]

    def tell(self, result):
        node = self.tree.add(result.node)
        node.thought = result.thoughts[0]
        self.found = SearchResult((Completion((0,), node.thought.text, None),), self.tree)

    def result(self):
        return self.found


def with_method(name, function):
    return type("Mine", (One,), {name: function})


def with_hint(name, function):
    return with_method("hints", type("Clues", (Hints,), {name: function})())


def asking(*work):
    return with_method("first", lambda self: list(work))


class Clashing(One):
    def __init__(self, problem, seed):
        super().__init__()
        self.done = False


class Shadowing(One):
    def __init__(self, problem, seed):
        super().__init__()
        self.ask = []


def expand(node, seed=1, sampling=SAMPLING):
    return Expand(node, seed, sampling)


MISTAKES = {
    "ask raises": (with_method("ask", lambda self: {}["oops"]), "Mine.ask raised KeyError: 'oops'"),
    "tell raises": (with_method("tell", lambda self, it: 1 / 0), "Mine.tell raised Zero"),
    "result raises": (with_method("result", lambda self: 1 / 0), "Mine.result raised Zero"),
    "exit": (with_method("ask", lambda self: exit(3)), "Mine.ask raised SystemExit: 3"),
    "factory raises": (lambda problem, seed: 1 / 0, "raised ZeroDivisionError"),
    "no search": (lambda problem, seed: 3, "gave 3; it must return a .*Search"),
    "clash": (Clashing, "Clashing raised AttributeError: .*done"),
    "shadow": (Shadowing, "Shadowing.ask raised TypeError: 'list' object is not callable"),
    "signature": (with_method("tell", lambda self: None), "Mine.tell raised TypeError"),
    "text": (asking(*"text"), "gave 't' among its work"),
    "no list": (with_method("first", lambda self: None), "raised TypeError|gave None"),
    "twice": (asking(expand((0,)), expand((0,))), r"node \(0,\) to be expanded twice"),
    "no parent": (asking(expand((0, 3))), r"node \(0, 3\) before node \(0,\) was told"),
    "no node": (asking(Score((0,))), r"node \(0,\) before node \(0,\) was told"),
    "node": (asking(expand([0])), r"node \[0\]; a node is a tuple"),
    "seed": (asking(expand((0,), hash)), "the seed <built-in function hash>"),
    "sampling": (asking(expand((0,), 1, 0.8)), "the sampling 0.8"),
    "result": (
        with_method("result", lambda self: "42"),
        "gave '42'; it must return a SearchResult",
    ),
    "completion": (
        with_method("result", lambda self: SearchResult((Completion((0,), "", None),), Tree())),
        r"a completion at node \(0,\), whose chain is not in its tree",
    ),
    "hints": (with_method("hints", 3), "hints is 3; it must be a tts.search.Hints"),
    "needs": (with_hint("needs", lambda self: 3), "Clues.needs gave 3"),
    "tree": (with_method("tree", property(lambda self: {})), "raised AttributeError|tree is"),
}


@pytest.mark.parametrize(("strategy", "message"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_names_its_method_and_keeps_the_traceback_of_ones_own_code(
    session, strategy, message
):
    with pytest.raises(FunctionError, match=message) as caught:
        session.solve(QUESTION, strategy=strategy)
    if cause := caught.value.__cause__:
        assert "docs/reference/python.md" in cause.__notes__[-1]
        if "TypeError" not in message:  # called wrongly: none of its lines has run
            assert traceback.extract_tb(cause.__traceback__)[0].filename == __file__


def test_what_is_wrong_before_any_work_is_refused(session):
    class Half(Search):
        def ask(self):
            return []

    class NoSearch(SearchConfig):
        pass

    for strategy, message in (
        (Half, r"Half lacks .*: result, tell"),
        (lambda problem: One(), r"must take \(problem, seed\): too many"),
        (NoSearch, "lacks the method new_search"),
    ):
        with pytest.raises(ConfigError, match=message):
            session.solve(QUESTION, strategy=strategy)
    with pytest.raises(ConfigError, match=r"vote .* 'bets'; there are best"):
        Strategy("mine", "", MineConfig, vote="bets")


class MineConfig(SearchConfig):
    def new_search(self, seed, answer_of):
        return One(None, seed)


def test_a_ballot_that_fails_is_the_users_too(session):
    def of(text):
        raise KeyError(text)

    mine = Strategy("mine", "", MineConfig, vote="best", ballot=lambda config: Ballot(of))
    with pytest.raises(FunctionError, match="of raised KeyError"):
        session.solve(QUESTION, strategy=mine)


def test_a_guess_that_fails_is_raised_when_the_search_is_asked_next():
    mine = with_hint("guess", lambda self, answered: iter([Guess(expand((1, 2)), 1, 1.0)]))
    search = own_search.OwnSearch(mine, mine)
    assert list(search.hints.guess({})) == []
    with pytest.raises(FunctionError, match=r"Clues.guess asked for node \(1, 2\) before"):
        search.ask()


def test_one_that_never_ends_is_ended(session, monkeypatch):
    monkeypatch.setattr(own_search, "MAX_EXPANSIONS", 50)

    class Endless(One):
        n = 0

        def ask(self):
            self.n += 1
            return [expand((self.n,))]

    with pytest.raises(FunctionError, match=r"Endless\.ask asked for 50 steps and goes on"):
        session.solve(QUESTION, strategy=Endless)
    with pytest.raises(SearchError, match="has no result and asks for nothing"):
        session.solve(QUESTION, strategy=with_method("first", lambda self: []))


def looping(inside, release):
    """A strategy that does not return before it is released."""

    class Loops(One):
        def ask(self):
            inside.set()
            while not release.is_set():
                pass
            return super().ask()

    return Loops


def test_a_second_ctrl_c_gives_up_a_session_that_one_holds(opened):
    inside, release, first = threading.Event(), threading.Event(), threading.Event()
    interrupt_when(inside, first.set)
    interrupt_when(first)
    session = opened()
    with pytest.raises(KeyboardInterrupt):
        session.solve(QUESTION, strategy=looping(inside, release))
    with pytest.raises(SessionError, match="held by code that has not returned"):
        session.solve(QUESTION, n=4)
    session.close()
    release.set()


def test_a_second_ctrl_c_breaks_off_one_that_holds_a_command(opened_async, monkeypatch):
    monkeypatch.setattr(event_loop, "STUCK_S", 0.0)
    inside, first = threading.Event(), threading.Event()

    async def solve():
        async with opened_async() as session:
            await session.solve(QUESTION, strategy=looping(inside, threading.Event()))

    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    interrupt_when(inside, first.set)
    interrupt_when(first)
    try:
        with pytest.raises(Interrupted):
            interruptible(solve(), print)
    finally:
        signal.signal(signal.SIGINT, handlers[0])
        signal.signal(signal.SIGTERM, handlers[1])
