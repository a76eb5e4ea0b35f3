"""What begins with the same prefix waits for the one that fills the cache with it."""

from tts.driver.prefix_gate import PrefixGate
from tts.scheduling import Job, WorkKind
from tts.search import Score


def test_the_leader_goes_alone_and_the_others_follow_it():
    first, second, third, last = (Job(0, Score((each,)), 1, WorkKind.MAIN) for each in range(4))
    guard = PrefixGate()
    assert guard.admit(first, leads=True)
    assert not guard.admit(second, leads=True)
    assert not guard.admit(third, leads=False)
    assert not guard.withhold(first), "it has been sent"
    assert guard.withhold(third)
    assert guard.follow(second) == []
    assert guard.follow(first) == [second]
    assert guard.admit(second, leads=True), "a leader was dropped: the next one leads"
    assert guard.follow(second) == []
    assert guard.admit(last, leads=False)
