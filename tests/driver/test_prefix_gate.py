"""What begins with the same prefix waits for the one that fills the cache with it."""

from types import SimpleNamespace

from tts.driver.sharing import PrefixGate
from tts.scheduling import Job, WorkKind
from tts.search import Score


def test_the_leader_goes_alone_and_the_others_follow_it():
    first, second, third, last = (Job(0, Score((each,)), 1, WorkKind.MAIN) for each in range(4))
    sent, leaders = [], {first, second}
    policy = SimpleNamespace(prefetch=True)
    scheduler = SimpleNamespace(policy=policy, add=sent.append, drop=lambda job: job not in sent)
    gate = PrefixGate(scheduler, leaders.__contains__)
    for job in (first, second, third):
        gate.add(job)
    assert sent == [first]
    assert not gate.drop(first), "it has been sent"
    assert gate.drop(third)
    gate.release(second)
    gate.add(third)
    assert sent == [first]
    gate.release(first)
    assert sent == [first, second], "a leader was dropped: the next one leads"
    gate.release(second)
    gate.add(last)
    assert sent == [first, second, third, last]
    policy.prefetch = False
    gate.add(first)
    gate.add(second)
    assert sent[4:] == [first, second]
