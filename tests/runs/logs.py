"""Events by a few words each, and strategies that draw whole logs."""

from hypothesis import strategies as st

from tts.runs.events import (
    VERSION,
    Cancelled,
    Idle,
    LoggedAnswer,
    LoggedCompletion,
    LoggedThought,
    Prefetched,
    ProblemSolved,
    ProblemStarted,
    SessionBegan,
    StepGenerated,
    StepScored,
    Used,
    encode,
)
from tts.runs.log import ChecksumChain
from tts.search import Stop

SESSION = SessionBegan(t=0.0, time="2026-01-01T00:00:00+00:00", version=VERSION)


def log_bytes(*events):
    """A log of these events; bytes are lines that are no events."""
    chain = ChecksumChain()
    lines = []
    for event in events:
        if isinstance(event, bytes):
            chain.fits(event)  # as its reader goes on
            lines.append(event)
        else:
            lines.append(chain.seal(encode(event)))
    return b"".join(lines)


def expansion(node, sent, done, kind="main", *, tokens=None, problem="a", thoughts=()):
    """An answer; its tokens are those of its thoughts, unless it is said otherwise."""
    request = _request(node, sent, done, problem, 5)
    counted = sum(len(thought.ids) for thought in thoughts) if tokens is None else tokens
    return StepGenerated(**request, kind=kind, tokens=counted, thoughts=thoughts)


def texts(*steps, stop="step", length=1):
    """A thought of so many tokens for each text."""
    return tuple(LoggedThought((1,) * length, step, Stop(stop)) for step in steps)


def cut(node, sent, done, kind="speculative", *, work="expand", why="pruned", problem="a", load=5):
    request = _request(node, sent, done, problem, load)
    return Cancelled(**request, kind=kind, work=work, why=why)


def scoring(node, sent, done, *, problem="a", load=5, score=0.5, cached=False, **written):
    request = _request(node, sent, done, problem, load)
    return StepScored(**request, score=score, cached=cached, **written)


def started(problem, now, question=""):
    return ProblemStarted(t=now, problem=problem, question=question)


def used(node, now, problem="a"):
    return Used(t=now, problem=problem, node=tuple(node))


def idle(engine, since, until, why):
    return Idle(t=until, engine=engine, since=since, until=until, why=why)


def solved(problem, now, **fields):
    plain = {
        "answers": {"best": "1", "weighted": "1", "majority": "1"},
        "correct": None,
        "any_correct": None,
        "tree_digest": "d",
        "groups": (),
    }
    return ProblemSolved(t=now, problem=problem, **(plain | fields))


def _request(node, sent, done, problem, load):
    return {
        "t": done,
        "problem": problem,
        "node": tuple(node),
        "sent": sent,
        "done": done,
        "prompt_tokens": load,
        "in_flight": (1, 1),
    }


TIMES = st.integers(0, 10_000).map(lambda ms: ms / 1000)
NODES = st.lists(st.integers(0, 2), min_size=1, max_size=2).map(tuple)
PROBLEMS = st.sampled_from("ab")


@st.composite
def requests(draw):
    sent, done = sorted((draw(TIMES), draw(TIMES)))
    problem, node, load = draw(PROBLEMS), draw(NODES), draw(st.integers(1, 300))
    kind = draw(st.sampled_from(("main", "speculative")))
    match draw(st.sampled_from((StepGenerated, StepScored, Cancelled, Prefetched))).__name__:
        case "StepGenerated":
            tokens = draw(st.integers(0, 200))
            return expansion(node, sent, done, kind, tokens=tokens, problem=problem)
        case "StepScored":
            tokens = draw(st.integers(0, 200))
            return scoring(node, sent, done, problem=problem, load=load, tokens=tokens)
        case "Cancelled":
            work = draw(st.sampled_from(("expand", "score", "prefetch")))
            kind = "eager" if work == "prefetch" else kind
            why = draw(st.sampled_from(("ended", "pruned", "slot")))
            return cut(node, sent, done, kind, work=work, why=why, problem=problem, load=load)
        case _:
            return Prefetched(**_request((), sent, done, problem, load))


USES = st.builds(Used, t=TIMES, problem=PROBLEMS, node=NODES)
LOGS = st.lists(st.one_of(requests(), USES, st.just(SESSION)), max_size=40)
"""Events in no sensible order, of problems that are not solved yet."""


@st.composite
def _problem_events(draw, name):
    """A problem's events in the order in which they happened, at whole milliseconds."""
    now = draw(st.integers(0, 50))
    events = [started(name, now / 1000, f"question of {name}")]
    nodes: list[tuple[int, ...]] = []
    for _ in range(draw(st.integers(1, 6))):
        parent = draw(st.sampled_from([(), *nodes]))
        node = (*parent, sum(other[:-1] == parent for other in nodes))
        nodes.append(node)
        sent = now + draw(st.integers(0, 20))
        now = sent + draw(st.integers(1, 40))
        kind = draw(st.sampled_from(("main", "eager", "speculative")))
        tokens = draw(st.integers(0, 9))
        step = texts("x", length=tokens)
        events.append(expansion(node, sent / 1000, now / 1000, kind, problem=name, thoughts=step))
        if kind == "speculative" and draw(st.booleans()):
            events.append(used(node, now / 1000, problem=name))
        if draw(st.booleans()):
            sent, now = now, now + draw(st.integers(0, 9))
            events.append(scoring(node, sent / 1000, now / 1000, problem=name))
    groups = draw(st.lists(st.booleans(), min_size=1, max_size=2))
    done = draw(st.lists(st.sampled_from(nodes), unique=True, max_size=4))
    completions = tuple(
        LoggedCompletion(node, draw(SCORES), draw(st.integers(-1, len(groups) - 1)))
        for node in done
    )
    right = any(completion.group >= 0 and groups[completion.group] for completion in completions)
    graded = {"best": right, "weighted": draw(st.booleans()), "majority": False}
    events.append(
        solved(
            name,
            (now + draw(st.integers(0, 9))) / 1000,
            level=draw(st.sampled_from((None, 1, 2))),
            reference="1",
            correct=draw(st.sampled_from((None, graded))),
            any_correct=right,
            completions=completions,
            groups=tuple(LoggedAnswer(str(place), fine) for place, fine in enumerate(groups)),
        )
    )
    return events


SCORES = st.none() | st.integers(0, 10_000).map(lambda score: score / 10_000)


@st.composite
def whole_logs(draw, most=3):
    """The log of a session that has solved all of its problems, in order of time."""
    parts = [draw(_problem_events(name)) for name in "abc"[: draw(st.integers(0, most))]]
    return [SESSION, *sorted((event for part in parts for event in part), key=lambda e: e.t)]
