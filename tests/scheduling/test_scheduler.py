"""Which work goes first: by priority, kind and age."""

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.scheduling.supply import SAMPLING, Supply, generate, send

from tts.scheduling import Job, Policy, Scheduler, WorkKind
from tts.search import Expand


def test_main_work_goes_before_eager_before_speculative_and_old_before_young():
    scheduler = Scheduler(Policy("decoupled", 10, 10))
    jobs = [
        generate(0, 1, WorkKind.SPECULATIVE),
        generate(1, 2, WorkKind.EAGER),
        generate(2, 3, WorkKind.MAIN),
        generate(1, 4, WorkKind.MAIN),
        generate(1, 5, WorkKind.MAIN),
    ]
    for job in jobs:
        scheduler.add(job)
    assert [job.work.node[0] for job in send(scheduler)] == [4, 5, 3, 2, 1]


@settings(max_examples=100, deadline=None)
@given(priorities=st.lists(st.integers(0, 2), min_size=1, max_size=12))
def test_work_of_a_higher_priority_goes_first_whatever_its_kind_or_age(priorities):
    scheduler = Scheduler(Policy("decoupled", len(priorities), 100))
    for problem, priority in enumerate(priorities):
        kind = WorkKind.EAGER if problem % 2 else WorkKind.MAIN
        scheduler.add(Job(problem, Expand((problem,), problem, SAMPLING), 5, kind, priority))
    sent = send(scheduler)
    assert [job.priority for job in sent] == sorted(priorities, reverse=True)
    ranks = [(-job.priority, job.kind, job.problem) for job in sent]
    assert ranks == sorted(ranks)


def test_an_urgent_problem_starts_before_pending_work_of_others():
    scheduler = Scheduler(Policy("decoupled", 2, 100))
    scheduler.add(generate(0, 0))
    send(scheduler)
    for child in (1, 2):
        scheduler.add(generate(0, child))
    send(scheduler)
    scheduler.add(generate(0, 3))

    started = []
    supply = Supply([7], start=started.append, priority=1)
    assert send(scheduler, supply) == []
    assert started == [], "no slot is free"
    scheduler.end(generate(0, 0))
    send(scheduler, supply)
    assert started == [7]
