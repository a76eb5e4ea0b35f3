"""Jobs, queued problems and guesses for the scheduler's tests."""

from tts.scheduling import Job, WorkKind
from tts.search import Expand, Sampling, Score

SAMPLING = Sampling(0.8, 1.0, 10)


def generate(problem, child, kind=WorkKind.MAIN, tokens=5):
    return Job(problem, Expand((child,), child, SAMPLING), tokens, kind)


def score(problem, child, tokens):
    return Job(problem, Score((child,)), tokens, WorkKind.MAIN, cost=tokens)


def speculative(child, *, problem=0, level=1, chance=0.5):
    work = Expand((child,), child, SAMPLING)
    return Job(problem, work, 5, WorkKind.SPECULATIVE, level=level, chance=chance)


def learn(scheduler, load, tokens, seconds):
    """The generator took so long for a request at this load."""
    scheduler.learn(generate(0, 0), load, tokens, seconds)


def learn_score(scheduler, load, seconds):
    """The verifier took so long."""
    scheduler.learn(score(0, 0, 1), load, 0, seconds)


class Supply:
    """Queued problems, of one priority, and guesses, as a driver would supply them."""

    def __init__(self, queued=(), guesses=(), start=lambda problem: None, priority=0):
        self.queued, self.guesses, self.start = list(queued), list(guesses), start
        self.priority = priority


NOTHING = Supply()


def decide(scheduler, supply=NOTHING):
    """What to cancel and what to send now, as a driver asks for it."""
    sent = []
    while True:
        while supply.queued and scheduler.wants_problem(supply.priority):
            scheduler.start_problem(supply.queued[0], ())
            supply.start(supply.queued.pop(0))
        if not (jobs := scheduler.take()):
            break
        sent += jobs
    cancelled = scheduler.spare_slots.overdrawn()
    guesses = [job for job in supply.guesses if job.kind is WorkKind.SPECULATIVE]
    generating = any(job.generates for job in sent)
    return cancelled, sent + scheduler.spare_slots.take(guesses, generating=generating)


def send(scheduler, supply=NOTHING):
    """What may be sent now, where nothing is to be cancelled."""
    cancelled, sent = decide(scheduler, supply)
    assert cancelled == []
    return sent


def of_generator(jobs):
    return [job for job in jobs if isinstance(job.work, Expand)]


def of_verifier(jobs):
    return [job for job in jobs if isinstance(job.work, Score)]
