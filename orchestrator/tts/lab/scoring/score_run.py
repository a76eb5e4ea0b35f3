"""Scores chains with a deployment's verifier: those of a file, of a run, or sampled first."""

from __future__ import annotations

import asyncio
import hashlib
import json
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Any

from tts.base.choices import ServerKind
from tts.base.errors import DatasetError, RunError, ServerError
from tts.base.user_paths import is_folder
from tts.build.inputs import VerifierIdentity, verifier_identity
from tts.build.spec import Deployment, VerifierFunction
from tts.fleet.engines import takes_text
from tts.grading import Grader
from tts.problem import Problem
from tts.prompting import Models
from tts.prompting.score_calls import score_calls
from tts.runs.config import FunctionSource, RunConfig, prompting_of
from tts.runs.folder import has_finished, locked
from tts.runs.log import read_events
from tts.runs.run import Run, problem_record
from tts.runs.state import solved_problems
from tts.search import Calibration
from tts.serving.repository.digest import deployment_digest
from tts.serving.server.lookup import find_server
from tts.serving.server.triton import Triton
from tts.session import AsyncSession, Result, RunProgress
from tts.session.event_loop import interruptible
from tts.session.functions import load_all
from tts.session.plan import calibration_of, load_checked
from tts.session.run import unused_folder
from tts.session.scoring import NoGenerator, Solution, SolutionScores, ranked
from tts.strategies.parameters import scores_answers

from ..bench.single_run import bench_in
from ..campaign import observed, resumable
from ..observer import Observer
from .chains import Chain, ChainSet, ScoredChain, read_chains
from .score_folder import RUN, ScoredLine, appending, begin, read_log


@dataclass(frozen=True, kw_only=True)
class ScoreRequest:
    """What a command asks for."""

    deployment: str
    """A bundled name or a file."""
    input: Path | None
    """A file of chains or the folder of a run; None: they are sampled from a dataset."""
    dataset: str | None
    limit: int
    """Problems of the dataset to sample."""
    n: int
    """Answers to each of them."""
    seed: int
    source: FunctionSource | None
    """A function that scores in place of a model."""
    server: ServerKind | None
    endpoints: tuple[str, ...]
    command: tuple[str, ...]
    """The command line, to go on with."""


_SUMMED = ("requests", "prompt_tokens", "new_tokens", "generated_tokens", "no_verdict")


@dataclass(frozen=True, kw_only=True)
class ScoringCost:
    """What the scores took, in all sessions together."""

    steps: int
    """Scores; those that chains share are counted in each."""
    requests: int
    prompt_tokens: int
    new_tokens: int
    """Tokens that no prompt of the same question began with before."""
    generated_tokens: int
    no_verdict: int
    seconds: float
    """With the verifier at work: the start of its engine is not counted."""

    @classmethod
    def of(cls, lines: Sequence[ScoredLine]) -> ScoringCost:
        """The cost of the chains in a log."""
        sessions: dict[int, float] = {}
        for line in lines:
            sessions[line.session] = max(sessions.get(line.session, 0.0), line.seconds)
        scored = [line.scored for line in lines]
        return cls(
            steps=sum(score is not None for each in scored for score in each.scores),
            **{name: sum(getattr(each, name) for each in scored) for name in _SUMMED},
            seconds=round(sum(sessions.values()), 3),
        )

    def __str__(self) -> str:
        if not self.steps:
            return "Every score is from the run's log."
        per = 1000 / self.steps
        critiques = f", {self.generated_tokens * per:,.0f} written" if self.generated_tokens else ""
        tokens = (
            f"{self.prompt_tokens * per:,.0f} tokens of prompts, {self.new_tokens * per:,.0f} of "
            f"them new{critiques}, and "
            if self.prompt_tokens
            else ""
        )
        return (
            f"1,000 steps take {self.requests * per:,.0f} requests, {tokens}"
            f"{self.seconds * per:,.2f} s ({self.steps:,} were scored)."
        )


@dataclass(frozen=True, kw_only=True)
class Scored:
    """All chains with their scores."""

    folder: Path
    source: str
    """Where the chains are from."""
    deployment: Deployment
    verifier: VerifierIdentity
    chains: list[ScoredChain]
    length_unit: str
    notes: list[str]
    """What was read as what, and what was left out."""
    cost: ScoringCost
    rankings: list[Result]
    """The candidates of each problem, best first, where they were made elsewhere."""
    calibration: Calibration | None = None
    """The probabilities that the scores stand for, if the verifier was measured before."""

    @property
    def facts(self) -> dict[str, str | int | float]:
        """What was scored, by what, and what that took: names and values."""
        return {
            "deployment": self.deployment.name,
            "chains from": self.source,
            **{f"verifier: {name}": value for name, value in asdict(self.verifier).items()},
            "length": self.length_unit,
            **{f"read ({number})": note for number, note in enumerate(self.notes, 1)},
            **{name.replace("_", " "): value for name, value in asdict(self.cost).items()},
        }


def score_chains(request: ScoreRequest, out: Path | None, observer: Observer) -> Scored:
    """Score everything that is not scored yet; raises a TtsError that says how to go on.

    `out` is the folder, by default a new one; one that holds the same scoring is continued.
    """
    spec = load_checked(request.deployment)
    source = request.source
    own = load_all({"verifier": source})["verifier"].value if source else None
    what = request.input.stem if request.input else "sampled"
    folder = (out or unused_folder(f"{spec.name}-score-{what}")).resolve()
    if request.input is None:
        bench_in(_sampling(request, spec), folder / RUN, observer, endpoints=request.endpoints)
    place = request.input or folder / RUN
    inputs = _read(place, spec, source)
    models = Models.load(spec, text_verifier=takes_text(spec, own))
    fitting, notes = _fitting(models, inputs.chains, inputs.notes)
    identity = verifier_identity(spec, f"{source.file}:{source.name}" if source else None)
    job = _Job(request, spec, own, folder, observer)
    with locked(folder):
        begin(
            folder,
            {
                "deployment": spec.name,
                "verifier": asdict(identity),
                "input": str(request.input.resolve()) if request.input else RUN,
                "digest": _digest(inputs.chains),
            },
        )
        job.lines = read_log(folder)
        remaining = [c for c in fitting if c.name not in job.lines and c.name not in inputs.scores]
        if remaining:
            way_on = shlex.join(
                request.command if out else (*request.command, "--out", str(folder))
            )
            with resumable(folder, job.state, way_on):
                interruptible(job.score(remaining, len(fitting)), observer.say)
        elif job.lines:
            observer.say("Every chain is scored already")
    scores = {**{name: line.scored.scores for name, line in job.lines.items()}, **inputs.scores}
    scored = [
        ScoredChain(chain, scores[chain.name], _lengths(models, chain.steps)) for chain in fitting
    ]
    replaced = source is not None and not isinstance(spec.verifier, VerifierFunction)
    calibration = None if replaced else calibration_of(spec)
    rankings: list[Result] = []
    if not is_folder(place) and all(chain.right_steps is None for chain in inputs.chains):
        scored, rankings = asyncio.run(_rank(scored, job.lines, models.step_delimiter, calibration))
    return Scored(
        folder=folder,
        source=request.input.name if request.input else str(request.dataset),
        deployment=spec,
        verifier=identity,
        chains=scored,
        length_unit="characters" if models.takes_text else "tokens",
        notes=notes,
        cost=ScoringCost.of(list(job.lines.values())),
        rankings=rankings,
        calibration=calibration,
    )


def _sampling(request: ScoreRequest, spec: Deployment) -> RunConfig:
    """The run that samples chains, and has every step of them scored."""
    how = "last" if request.source is None and scores_answers(spec) else "mean"
    return RunConfig(
        deployment_source=request.deployment,
        dataset=str(request.dataset),
        limit=request.limit,
        seed=request.seed,
        strategy="best-of-n",
        parameters={"n": request.n, "agg_strategy": how},
        server=request.server,
        sources={"verifier": request.source} if request.source else {},
        command=list(request.command),
    )


def _read(place: Path, spec: Deployment, source: FunctionSource | None) -> ChainSet:
    """The chains of a run, or in a file, where those of a question come together.

    Raises DatasetError, RunError.
    """
    if is_folder(place):
        run = chains_of_run(place)
        if not is_same_verifier(place, spec, source):
            return replace(run, scores={})
        if run.scores:
            run.notes.append(f"{len(run.scores):,} have this verifier's scores in its log")
        return run
    file = read_chains([place], spec.generator.step_delimiter)
    questions = dict.fromkeys(chain.question for chain in file.chains)
    places = {question: number for number, question in enumerate(questions)}
    file.chains.sort(key=lambda chain: places[chain.question])
    return file


def _fitting(
    models: Models, chains: Sequence[Chain], notes: Sequence[str]
) -> tuple[list[Chain], list[str]]:
    """The chains that fit the verifier's context, and the notes with what is left out."""
    fitting, refused = list[Chain](), list[str]()
    for chain in chains:
        try:
            score_calls(models, chain.question, chain.steps)
        except DatasetError as error:
            refused.append(f"{chain.place or chain.name}: {error.message}")
        else:
            fitting.append(chain)
    if not fitting:
        raise DatasetError(refused[0], hint="Raise verifier.max_seq_len in the deployment.")
    left_out = [f"{len(refused):,} chains left out, the first: {refused[0]}"] if refused else []
    return fitting, [*notes, *left_out]


def _lengths(models: Models, steps: Sequence[str]) -> tuple[int, ...]:
    """The length of each step: tokens of the verifier, or characters where it takes text."""
    reads = models.dialogue or models.critic
    if reads is None:
        return tuple(len(step.strip()) for step in steps)
    return tuple(len(reads.tokenizer.encode(step.strip())) for step in steps)


def _digest(chains: Sequence[Chain]) -> str:
    content = [[chain.name, chain.question, chain.steps] for chain in chains]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def _solution(chain: Chain) -> Solution:
    problem = Problem(chain.problem, chain.question, chain.reference, extra=chain.extra)
    return problem, chain.steps


@dataclass
class _Job:
    """A scoring, and how far it is."""

    request: ScoreRequest
    spec: Deployment
    own: Any
    """A function that scores in place of a model, if there is one."""
    folder: Path
    observer: Observer
    lines: dict[str, ScoredLine] = field(default_factory=dict)
    """The log so far, by chain."""
    progress: RunProgress = field(default_factory=lambda: RunProgress(0))

    def state(self) -> str:
        """How far it is, as a sentence that goes on."""
        return f"{self.progress.done:,} of {self.progress.total:,} chains are scored"

    async def score(self, chains: Sequence[Chain], total: int) -> None:
        """Score the chains that are left of so many; each is logged when it is there."""
        observer, progress = self.observer, self.progress
        progress.total, progress.done = total, total - len(chains)
        number = max((line.session for line in self.lines.values()), default=0) + 1
        async with AsyncSession(
            self.spec,
            generator=NoGenerator(),
            verifier=self.own,
            endpoints=self.request.endpoints or None,
            server=self._server(),
            say=observer.say,
            on_loading=observer.loading,
        ) as session:
            with (
                observed(observer, session, progress, "chains"),
                appending(self.folder, number) as append,
            ):

                def take(place: int, scored: SolutionScores) -> None:
                    name = chains[place].name
                    self.lines[name] = append(name, scored)
                    progress.done += 1

                async with session.work():
                    await session.scorer.score_all(map(_solution, chains), take)

    def _server(self) -> ServerKind | None:
        """What runs the engine: a server that runs already, or else this process, if it can.

        A server would be started with both engines.
        """
        request, spec = self.request, self.spec
        own_choice = request.server or request.endpoints or spec.endpoints or not spec.engines()
        if own_choice or spec.server.kind != "triton" or spec.target == "tensorrt":
            return request.server
        with suppress(ServerError):
            if find_server(Triton(spec)):
                return None
        return "embedded"


async def _rank(
    scored: Sequence[ScoredChain],
    lines: Mapping[str, ScoredLine],
    delimiter: str,
    calibration: Calibration | None,
) -> tuple[list[ScoredChain], list[Result]]:
    """The candidates of each problem in rank order; and the chains with the verdicts of grading."""
    rankings: list[Result] = []
    judged: list[ScoredChain] = []
    async with Grader() as grader:
        for _, same in groupby(scored, lambda each: each.chain.question):
            chains = list(same)
            result = await ranked(
                [_solution(each.chain) for each in chains],
                [lines[each.chain.name].scored for each in chains],
                "last",
                delimiter,
                grader,
                calibration,
            )
            rankings.append(result)
            reference = chains[0].chain.reference
            answers = {each.node[0]: each.answer for each in result.completions}
            for place, each in enumerate(chains):
                right = each.chain.right
                if right is None and reference is not None:
                    right = (await grader.equal(answers[place], reference)).equal
                judged.append(replace(each, chain=replace(each.chain, right=right)))
    return judged, rankings


def chains_of_run(folder: Path) -> ChainSet:
    """The completions of a run's solved problems; raises RunError."""
    run = Run.load(folder)
    if not has_finished(folder):
        raise RunError(
            f"The run in {folder} has not finished.",
            hint=f"Continue it with: tts bench --resume {folder}",
        )
    chains, scores = [], {}
    place = {name: number for number, name in enumerate(run.config.problem_ids)}
    for problem in sorted(
        solved_problems(read_events(folder)), key=lambda each: place.get(each.id, len(place))
    ):
        record, solved = problem_record(problem, run.config.vote), problem.solution
        assert solved is not None
        for number, (completion, logged) in enumerate(
            zip(record.completions, solved.completions, strict=True), 1
        ):
            pairs = [
                (step, score)
                for step, score in zip(completion.steps, completion.step_scores, strict=True)
                if step
            ]
            if not pairs:
                continue
            name = f"{record.id}/{number}"
            steps, step_scores = zip(*pairs, strict=True)
            right = None
            if record.reference is not None or solved.correct is not None:
                right = logged.group >= 0 and bool(solved.groups[logged.group].correct)
            level = None if record.level is None else str(record.level)
            chains.append(
                Chain(
                    record.id,
                    name,
                    record.question,
                    steps,
                    right=right,
                    level=level,
                    place=f"{folder}, problem {record.id}",
                    reference=record.reference,
                )
            )
            if None not in step_scores:
                scores[name] = step_scores
    if not chains:
        raise RunError(f"The run in {folder} has no completion that could be scored.")
    return ChainSet(chains, [f"{len(chains):,} completions of the run in {folder}"], scores)


def is_same_verifier(folder: Path, deployment: Deployment, source: FunctionSource | None) -> bool:
    """Whether a run was scored by this deployment's verifier, or by this function in its place."""
    config = Run.load(folder).config
    scored_by = config.sources.get("verifier")
    if source or scored_by:
        return bool(source and scored_by and source.sha256 == scored_by.sha256)
    return (
        "verifier" not in config.functions
        and config.deployment_digest == deployment_digest(deployment)
        and _prompting(config.prompting) == _prompting(prompting_of(deployment))
    )


def _prompting(prompting: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The fields of the verifier that decide a score, and not what a calibration makes of it."""
    return {**prompting.get("verifier", {}), "calibration": None}
