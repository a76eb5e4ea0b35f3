"""One problem's running search: its asks become jobs, answers become results.

    search ──ask──► expand ─┬─ resumed, or the context is full ────────────────► tell at once
                            └─ else ────────────────► job ─► scheduler
                    score ──┬─ locked, resumed, or too long to be scored ──────► tell at once
                            ├─ equal to a pending one ─► waits for that answer
                            └─ else ────────────────► job ─► scheduler

Token ids come from the problem's context. The scheduler says when a job goes, the dispatcher sends
it, and the driver hands its answer to `take_in`.

Three differences stand beside it: `SharedScores` has each distinct chain scored once, `PrefixGate`
holds requests back until the prefix that they share is in an engine's cache, and `Speculation`
keeps what is sent before the search asks for it.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from tts.prompting import Context
from tts.scheduling import Job, Prefetch, Scheduler, WorkKind
from tts.search import Expand, Generated, NodePath, Score, Scored, Search, Stop, Thought, Work

from .dispatcher import Dispatcher
from .records import JobAnswer, SharedScore, Started, Submission, UsedGuess
from .sharing import PrefixGate, PrefixReuse, SharedScores
from .speculation import Speculation, Trust


class ProblemRun:
    """A started problem."""

    def __init__(
        self,
        submission: Submission,
        context: Context,
        search: Search,
        scheduler: Scheduler,
        dispatcher: Dispatcher,
        trust: Trust,
    ) -> None:
        """`trust` is shared by all problems with the same kind of search."""
        self.submission = submission
        self.problem_id = submission.problem.id
        self.context = context
        self.search = search
        self._job = partial(Job, submission.number, priority=submission.priority)
        self._resumed = submission.resumed
        self._answers = dict(submission.resumed.thoughts)
        """Thoughts that need no request: of an interrupted run, and what `speculation` adds."""
        self.speculation = Speculation(submission, search, context, self._answers, trust)
        self._scheduler = scheduler
        self._dispatcher = dispatcher
        self._scores = scores = SharedScores(self._resumed.scores)
        self._reuse = PrefixReuse(context)
        self._generator_gate = PrefixGate(scheduler, lambda job: isinstance(job.work, Prefetch))
        # a critique would hold the others up until it is written; no cycle through the run
        shares = not context.models.deployment.critiques
        self._verifier_gate = PrefixGate(scheduler, lambda job: shares and scores.empty)

    def start(self) -> None:
        """Ask the search for its first work."""
        self._dispatcher.record(Started(self._dispatcher.clock(), self.context.problem))
        asks = self.search.ask()
        self._scheduler.start_problem(self.submission.number, asks)
        if self._scheduler.policy.prefetch and not self._resumed.thoughts and len(asks) > 1:
            tokens = len(self.context.generator_ids(()))
            # it takes the slots of those that wait for it, or every queued problem would start
            self._generator_gate.add(self._job(Prefetch(), tokens, WorkKind.EAGER, cost=len(asks)))
        self._advance(asks, WorkKind.EAGER)

    def take_in(self, job: Job, answer: JobAnswer) -> None:
        """Give a job's answer to the search; that to a guess waits until it is asked for."""
        match answer:
            case None:  # to a prefetch
                self._generator_gate.release(job)
                return
            case Scored():
                self._take_score(answer)
                self._verifier_gate.release(job)
            case _ if job.kind is WorkKind.SPECULATIVE:
                self.speculation.take_in(job, answer)
                return
            case _:
                self._tell_generated(job.work.node, answer)
        self._advance(self.search.ask(), WorkKind.MAIN)

    def _advance(self, asks: list[Work], kind: WorkKind) -> None:
        """Turn what the search asks for into jobs until it asks for nothing more."""
        while asks:
            for work in asks:
                if isinstance(work, Expand):
                    self._ask_expand(work, kind)
                else:
                    self._ask_score(work, kind)
            asks = self.search.ask()
        for node, is_needed in self.search.hints.needs().items():
            if not is_needed:
                self._drop_score(node)
            elif job := self._scores.pending(self.context.score_key(node)):
                self._scheduler.require(job)
        if self.speculation.ahead and not self.search.done:
            for job in self.speculation.drop_unreachable():
                self._dispatcher.cancel(job, "pruned")

    def _ask_expand(self, work: Expand, kind: WorkKind) -> None:
        node = work.node
        if guess := self.speculation.claim(node):
            self._dispatcher.record(UsedGuess(self._dispatcher.clock(), self.problem_id, node))
            if not guess.answered:
                self._scheduler.spare_slots.promote(guess.job)
                return
        if thoughts := self._answers.pop(node, None):
            self._tell_generated(node, thoughts)
        elif self.context.room(node[:-1]) <= 0:
            thinks = self.context.thought_tokens(node[:-1]) is not None
            self._tell_generated(node, (Thought((), "", Stop.LENGTH, thinks),))
        else:
            tokens = len(self.context.generator_ids(node[:-1]))
            self._generator_gate.add(self._job(work, tokens, kind))

    def _ask_score(self, work: Score, kind: WorkKind) -> None:
        node = work.node
        if work.own_turn:
            self.context.give_own_turn(node)
        if not self.context.can_be_scored(node):
            self._tell_scored(Scored(node, 0.0))  # ranks below every chain that can be
            return
        key, reused = self.context.score_key(node), self._reuse.read(node)
        if scored := self._scores.find(key, node):
            self._tell_scored(scored)
        elif job := self._scores.pending(key):
            self._scores.join(key, node)
            if not work.may_be_pruned:
                self._scheduler.require(job)
        else:
            tokens, cost = self.context.score_tokens(node), self.context.score_cost(node)
            job = self._job(work, tokens, kind, cost=cost, reused=reused)
            self._scores.add(key, job)
            self._verifier_gate.add(job)

    def _drop_score(self, node: NodePath) -> None:
        """Drop or cancel the job of a score that no node waits for any more."""
        if job := self._scores.leave(self.context.score_key(node), node):
            if not self._verifier_gate.drop(job):
                self._dispatcher.cancel(job, "pruned")
            self._verifier_gate.release(job)

    def _take_score(self, fresh: Scored) -> None:
        """Tell a fresh score to every node that waits for it."""
        # the score of all equal chains, and the nodes that wait for it: not always `fresh.node`
        scored, nodes = self._scores.settle(self.context.score_key(fresh.node), fresh)
        for node in nodes:
            if node == scored.node:
                self._tell(scored)
            else:
                self._tell_scored(replace(scored, node=node))

    def _tell_generated(self, node: NodePath, thoughts: tuple[Thought, ...]) -> None:
        path = node
        for thought in thoughts:
            self.context.add(path, thought)
            path = (*path, 0)
        self._tell(Generated(node, thoughts))

    def _tell_scored(self, scored: Scored) -> None:
        """Tell a score that took no request of its own."""
        if scored.node not in self._resumed.scores:
            now = self._dispatcher.clock()
            self._dispatcher.record(SharedScore(now, self.problem_id, scored.node, scored.score))
        self._tell(scored)

    def _tell(self, result: Generated | Scored) -> None:
        self.speculation.refresh()
        self.search.tell(result)
        if self.submission.on_result:
            self.submission.on_result(result)
