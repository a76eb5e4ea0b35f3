"""One run from plan to summary: server, clients, driver, grading, log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tts.analysis.summary import summarise
from tts.build.errors import RunError
from tts.build.spec import Deployment
from tts.driver import Driver, Solved, Submission, policy_of
from tts.endpoints.base import Generator, Verifier
from tts.endpoints.triton import TritonConnection, TritonGenerator, TritonVerifier
from tts.engines import wire
from tts.grading import Grader
from tts.grading.votes import Judged, judge
from tts.problem import Problem
from tts.prompting.context import Context, Models
from tts.replay import Replay, ReplayGenerator, ReplayVerifier
from tts.runlog import events
from tts.runlog.folder import create_run, read_config, write_summary
from tts.runlog.log import RunLog, read_events
from tts.runlog.resume import read_resume_point
from tts.scheduling import Policy, ScheduleName, SpeculationName
from tts.search import Generated, Scored, Search, SearchConfig, node_seed
from tts.strategies.catalog import new_search
from tts.strategies.strategy import Strategy

# what decides the engines' answers but is not served, and so is not in the deployment's digest
_PROMPTING: dict[str, set[str]] = {
    "generator": {"system_prompt", "step_delimiter"},
    "verifier": {"format", "step_tag", "template"},
}


@dataclass(frozen=True)
class Plan:
    """Everything that decides a run's outcome and order. `source` is what the user named."""

    source: str
    deployment: Deployment
    deployment_digest: str
    dataset: str
    models: Models
    problems: tuple[Context, ...]
    limit: int | None
    seed: int
    strategy: Strategy
    parameters: SearchConfig
    schedule: ScheduleName
    speculation: SpeculationName = "auto"
    in_flight: int | None = None
    """Problems that run at a time at most; None: as many as the schedule wants."""
    replay: Replay | None = None
    """What answers in the engines' place, if they only do the work."""

    @property
    def policy(self) -> Policy:
        """What may be in flight."""
        return policy_of(
            self.deployment, self.schedule, speculation=self.speculation, problems=self.in_flight
        )

    def to_config(self) -> dict[str, Any]:
        """What `run.json` keeps, enough to resume."""
        config = {
            "deployment": self.deployment.name,
            "deployment_source": self.source,
            "deployment_digest": self.deployment_digest,
            "prompting": self.deployment.model_dump(mode="json", include=_PROMPTING),
            "dataset": self.dataset,
            "limit": self.limit,
            "seed": self.seed,
            "strategy": self.strategy.name,
            "vote": self.strategy.vote,
            "parameters": self.parameters.model_dump(mode="json"),
            "context": self.models.deployment.generator.max_seq_len,
            "schedule": self.schedule,
            "speculation": self.speculation,
            "in_flight": self.in_flight,
            "problem_ids": [context.problem.id for context in self.problems],
        }
        return config | ({"replay": self.replay.description} if self.replay else {})


@dataclass
class Progress:
    """How far a run is, for whoever shows it."""

    total: int
    done: int = 0
    judged: int = 0
    right: int = 0
    began: bool = False
    """Whether the run folder holds anything yet."""
    in_flight: Callable[[], tuple[int, int]] = lambda: (0, 0)

    def count(self, correct: bool | None) -> None:
        """A problem has been solved."""
        self.done += 1
        if correct is not None:
            self.judged += 1
            self.right += correct


async def execute(
    plan: Plan,
    folder: Path,
    grpc_address: str,
    *,
    resume: bool = False,
    progress: Progress | None = None,
    on_node: Callable[[Problem, Search], None] | None = None,
    on_judged: Callable[[Solved, Judged], None] | None = None,
) -> dict[str, Any]:
    """Run a plan against a server and return the summary; everything goes to the run folder.

    With `resume` the folder's earlier sessions are continued: solved problems are left out, and
    what was generated or scored for unfinished ones is taken from the log. Raises a TtsError if an
    engine is lost; what was done until then is saved.
    """
    progress = progress or Progress(len(plan.problems))
    config = plan.to_config()
    if resume:
        check_same(config, read_config(folder), folder)
    else:
        create_run(folder, config)
    rule = plan.strategy.vote
    saved = read_resume_point(folder, rule)
    for correct in saved.solved.values():
        progress.count(correct)
    models = plan.models
    async with TritonConnection(grpc_address) as connection, Grader() as grader:
        with RunLog(folder) as log:
            progress.began = True

            async def solved(submission: Submission) -> None:
                outcome = await submission
                judged = await judge(outcome.result, outcome.problem.answer, grader)
                log.write(_solved_event(log.clock(), outcome, judged))
                log.flush()
                progress.count(judged.correct.get(rule) if judged.correct else None)
                if on_judged:
                    on_judged(outcome, judged)

            generator, verifier = endpoints_of(plan, connection)
            driver = Driver(
                models, generator, verifier, plan.policy, record=log.write, clock=log.clock
            )
            progress.in_flight = lambda: driver.in_flight

            def submit(problem: Problem) -> Submission:
                seed = partial(node_seed, plan.seed, problem.id)
                search: Search | None = None

                def new() -> Search:
                    nonlocal search
                    search = new_search(plan.parameters, seed)
                    return search

                def on_result(_: Generated | Scored) -> None:
                    if on_node and search:
                        on_node(problem, search)

                return driver.submit(
                    problem, new, resumed=saved.unfinished.get(problem.id), on_result=on_result
                )

            left = [c.problem for c in plan.problems if c.problem.id not in saved.solved]
            try:
                async with driver, asyncio.TaskGroup() as group:
                    for problem in left:
                        group.create_task(solved(submit(problem)))
            except BaseExceptionGroup as errors:
                raise errors.exceptions[0] from errors
            log.write(events.Finished(t=log.clock(), generator_knee=driver.saturation_point))
    summary = summarise(config, read_events(folder))
    write_summary(folder, summary)
    return summary


def endpoints_of(plan: Plan, connection: TritonConnection) -> tuple[Generator, Verifier]:
    """Both engines; in a replay they do the work of its script and the script answers."""
    verifier = TritonVerifier(connection)
    if plan.replay:
        endless = TritonGenerator(connection, end_id=wire.NO_END_ID, step_stop_words=())
        script = plan.replay.script
        return ReplayGenerator(endless, script), ReplayVerifier(verifier, script)
    models = plan.models
    generator = TritonGenerator(
        connection,
        end_id=models.end_id,
        step_stop_words=models.step_stop_words,
        end_stop_words=models.end_stop_words,
    )
    return generator, verifier


def _solved_event(t: float, outcome: Solved, judged: Judged) -> events.ProblemSolved:
    problem, result = outcome.problem, outcome.result
    return events.ProblemSolved(
        t=t,
        problem=problem.id,
        level=problem.level,
        reference=problem.answer,
        answers=asdict(judged.answers),
        correct=judged.correct,
        any_correct=judged.any_correct,
        undecided=judged.undecided,
        groups=tuple(events.LoggedAnswer(g.answer, g.correct) for g in judged.groups),
        completions=tuple(
            events.LoggedCompletion(done.node, done.score, group)
            for done, group in zip(result.completions, judged.group_of, strict=True)
        ),
        nodes=len(result.tree),
        tree_digest=result.tree.digest(),
    )


def check_same(now: dict[str, Any], before: dict[str, Any], folder: Path) -> None:
    """Refuse to continue what is no longer the same; raises RunError naming what has changed."""
    for name, value in before.items():
        if now.get(name) != value:
            raise RunError(
                f"The run in {folder} cannot be continued: its {name} was {value!r:.200} and is "
                f"now {now.get(name)!r:.200}.",
                hint="Bring that back as it was, or start a new run.",
            )
