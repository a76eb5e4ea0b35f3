"""What became of the expansions that were sent ahead."""

from collections import Counter

from hypothesis import given
from tests.runs.logs import LOGS, SESSION, cut, expansion, solved, used

from tts.runs.events import Cancelled, StepGenerated, Used
from tts.runs.measures import Measures


def all_kept(events):
    """Counted with everything in memory: what Speculation does while it forgets solved problems."""
    ahead = [
        e
        for e in events
        if isinstance(e, StepGenerated | Cancelled)
        and e.kind == "speculative"
        and getattr(e, "work", "expand") == "expand"
    ]
    asked = {(e.problem, e.node) for e in events if isinstance(e, Used)}
    answered = [e for e in ahead if isinstance(e, StepGenerated)]
    return (
        len(ahead),
        len(answered),
        len({(e.problem, e.node) for e in ahead} & asked),
        Counter(e.why for e in ahead if isinstance(e, Cancelled)),
        sum(e.tokens for e in answered if (e.problem, e.node) not in asked),
    )


def counted(events):
    found = Measures.of(events).speculation
    return found.sent, found.answered, found.used, found.cancelled, found.unused_tokens


@given(LOGS, LOGS)
def test_forgetting_solved_problems_changes_no_number(first, second):
    """A cancelled request may end after its problem was solved; nothing is used any more then."""
    late = [event for event in second if isinstance(event, Cancelled)]
    events = [SESSION, *first, solved("a", 20.0), solved("b", 20.0), *late]
    assert counted(events) == all_kept(events)


def test_an_expansion_is_wasted_unless_its_search_asked_for_it():
    one = expansion([0], 0.0, 1.0, "speculative", tokens=7)
    other = expansion([1], 0.0, 1.0, "speculative", tokens=3)
    ahead = Measures.of([SESSION, one, other, used([0], 1.0)]).speculation
    assert (ahead.unused_tokens, ahead.hit_rate) == (3, 0.5)


def test_what_is_asked_for_in_flight_and_cancelled_after_the_end_is_used():
    events = [SESSION, used([0], 1.0), solved("a", 2.0), cut([0], 0.5, 2.5, why="ended")]
    assert counted(events) == (1, 0, 1, Counter(ended=1), 0)
