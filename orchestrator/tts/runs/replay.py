"""A recorded run in the engines' place: its requests with their token ids, and a script of answers.

The ids are rebuilt from the log as the run itself built them.
"""

from __future__ import annotations

import hashlib
import random
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np

from tts.base.errors import RunError
from tts.build.spec import Role
from tts.build.tokenizer import Ids
from tts.endpoints.base import GenerateCall
from tts.problem import Problem
from tts.prompting import Context, Models
from tts.prompting.thinking import MOST_PARTS, part_seed
from tts.search import Calibration, NodePath, Stop, Thought, node_seed

from .config import RunConfig, prompting_of
from .events import (
    AnyEvent,
    Cancelled,
    Prefetched,
    ProblemSolved,
    ProblemStarted,
    StepGenerated,
    StepScored,
    problem_of,
    thoughts_of,
)
from .log import read_events
from .paged_cache import TimedRequest
from .run import Run
from .state import end_to_end
from .summary import read_summary

_NONE = np.empty(0, np.int32)
_KEPT = 64
"""Solved problems whose ids are kept for their last requests, which end after them."""


class RebuiltRequest(NamedTuple):
    """A request that an engine was sent."""

    engine: Role
    event: StepGenerated | Prefetched | Cancelled | StepScored
    ids: TimedRequest
    """Its ids; times are those of `end_to_end`. What a cancelled one generated is not known."""
    context: Context
    """What its problem's requests were made from, as far as the log was read."""


def logged_requests(events: Iterable[AnyEvent], models: Models) -> Iterator[RebuiltRequest]:
    """The requests that the engines were sent, in the order in which they ended.

    Requests to a verifier that takes text, such as a program's own reward, are not among them:
    `models` must be loaded for such a one. Raises RunError if the tokenizers are not those of the
    run.
    """
    contexts: dict[str, Context] = {}
    solved: deque[str] = deque()
    for began, event in end_to_end(events):
        match event:
            case ProblemStarted() if event.problem not in contexts:
                contexts[event.problem] = Context.of(models, problem_of(event))
            case ProblemSolved():
                solved.append(event.problem)
                if len(solved) > _KEPT:
                    del contexts[solved.popleft()]
            case StepGenerated() | Prefetched() | Cancelled() | StepScored():
                context = contexts.get(event.problem)
                if context and (request := _request(event, context)):
                    engine, prompt, generated = request
                    if (count := len(prompt)) != event.prompt_tokens:
                        where = f"has {count} tokens and had {event.prompt_tokens}"
                        raise other_tokenizer(event, engine, models, where)
                    start, end = began + event.sent, began + event.done
                    ids = TimedRequest(start, end, prompt, generated)
                    yield RebuiltRequest(engine, event, ids, context)
            case _:
                pass


def _request(
    event: StepGenerated | Prefetched | Cancelled | StepScored, context: Context
) -> tuple[Role, Ids, Ids] | None:
    """Engine, prompt and generated ids; None if no request was sent, or its ids are not known."""
    node = event.node
    match event:
        case StepGenerated():
            _fill(context, node[:-1])
            prompt = context.generator_ids(node[:-1])
            thoughts = thoughts_of(event)
            for thought in thoughts:
                context.add(node, thought)
                node = (*node, 0)
            ids = [token for thought in thoughts for token in thought.token_ids]
            return "generator", prompt, np.asarray(ids, np.int32)
        case Prefetched(engine="generator") | Cancelled(work="prefetch"):
            return "generator", context.generator_ids(()), _NONE
        case Cancelled(work="expand"):
            if node[:-1] not in context:
                return None
            return "generator", context.generator_ids(node[:-1]), _NONE
        case StepScored(cached=False) | Cancelled(work="score"):
            if context.models.takes_text:
                return None
            _fill(context, node)
            if len(context.verifier_ids(node)) != event.prompt_tokens and len(node) > 1:
                context.give_own_turn(node)  # the log does not say which searches ask for that
            return "verifier", context.verifier_ids(node), _NONE
        case _:
            return None


def _fill(context: Context, node: NodePath) -> None:
    """Add a node that no request wrote: its prompt had filled the generator's context."""
    if node not in context:
        _fill(context, node[:-1])
        context.add(node, Thought((), "", Stop.LENGTH))


def other_tokenizer(
    event: StepGenerated | Prefetched | Cancelled | StepScored,
    engine: Role,
    models: Models,
    where: str,
) -> RunError:
    """What says that a run's ids mean something else here; `where`: what shows it."""
    checkpoint = getattr(models.deployment, engine).checkpoint
    node = ".".join(map(str, event.node))
    return RunError(
        f"The run's requests cannot be rebuilt: with the tokenizer of {checkpoint} the {engine}'s "
        f"prompt for node {node} of problem {event.problem} {where}.",
        hint="Bring the checkpoint and the deployment back as they were when the run was made. The "
        "requests to a program's own reward, which reads texts, cannot be rebuilt.",
    )


Tokens = tuple[int, ...]
_TAIL = 16  # tokens: more than spell any step delimiter


class Written(NamedTuple):
    """What the generator wrote for a node."""

    ids: Tokens
    prompt: int
    """Tokens of the prompt before it."""


class Script(Protocol):
    """Answers that depend on the request alone, as a real engine's do."""

    def generate(self, call: GenerateCall) -> list[int]:
        """What the generator answers; see endpoints.Generator."""

    def has_ended(self, call: GenerateCall, ids: list[int]) -> bool:
        """Whether the answer `ids` was ended by the end-of-sequence token, which is not in it."""

    def score(self, input_ids: Ids) -> float:
        """What the verifier answers; see endpoints.Verifier."""

    def critique(self, input_ids: Ids, number: int) -> Sequence[int]:
        """The token ids of a score's critique with this number, where the verifier writes."""


@dataclass(frozen=True)
class Recording:
    """See Script. A node is known by its seed, a dialogue by its ids.

    A request that the run never made, such as a speculative expansion that only another schedule
    tries, gets one of the run's other answers, so its length is realistic.
    """

    models: Models
    """The run's models, with its context, which decides where chains are cut."""
    problems: tuple[Problem, ...]
    """The run's problems, in its order, without references."""
    calibration: Calibration | None
    """The probabilities that its scores counted as."""
    answers: Mapping[int, Written]
    """The generated steps, by the seeds of the requests that they may have taken."""
    scores: Mapping[bytes, float]
    """The scores, by the hash of the dialogue's ids."""
    critiques: Mapping[bytes, int]
    """Tokens that the verifier wrote for a score, likewise."""
    steps: Sequence[Tokens]
    """Every step: what an unknown request for a step is answered with."""
    chains: Sequence[Tokens]
    """Every chain: what an unknown request for a whole chain is answered with."""

    def generate(self, call: GenerateCall) -> list[int]:
        """See Script."""
        if recording := self.answers.get(call.seed):
            ids = self._part(call, recording.ids[len(call.input_ids) - recording.prompt :])
        else:
            spare = self.steps if call.stop_at_step else self.chains
            ids = random.Random(call.seed).choice(spare)
        return list(ids[: call.max_new_tokens])

    def _part(self, call: GenerateCall, ids: Tokens) -> Tokens:
        """What a request gives of an answer that took several: up to where it ends."""
        thinking = self.models.thinking
        if thinking and call.stop_words:
            ids = ids[: thinking.end(ids)]
        elif thinking and call.stop_at_step:
            (step,) = self.models.thoughts(ids, truncated=False, whole=False)
            ids = step.token_ids
        return ids

    def has_ended(self, call: GenerateCall, ids: list[int]) -> bool:
        """See Script."""
        if len(ids) >= call.max_new_tokens:
            return False
        delimiter = self.models.deployment.generator.step_delimiter
        return not call.stop_at_step or delimiter not in self.models.generator.decode(ids[-_TAIL:])

    def score(self, input_ids: Ids) -> float:
        """See Script."""
        key = _key(input_ids)
        score = self.scores.get(key)
        return random.Random(key).choice(self.spare_scores) if score is None else score

    def critique(self, input_ids: Ids, number: int) -> Sequence[int]:
        """See Script: what was written for the score, in equal parts, and without its text."""
        key = _key(input_ids)
        tokens = self.critiques.get(key)
        if tokens is None:
            tokens = random.Random(key).choice(list(self.critiques.values()) or [0])
        part, rest = divmod(tokens, self.models.deployment.critiques)
        return range(part + (number < rest))

    @cached_property
    def spare_scores(self) -> Sequence[float]:
        """What unknown dialogues are scored with."""
        return list(self.scores.values()) or [0.5]


def open_recording(path: Path) -> tuple[Path, RunConfig]:
    """The absolute path of a finished run, and its configuration; raises a TtsError."""
    run = Run.load(path)
    read_summary(run.folder)  # refuses one that has not finished
    return run.folder.resolve(), run.config


def read_recording(folder: Path, config: RunConfig, models: Models) -> Recording:
    """Read a finished run, checking that its token ids mean the same to `models`.

    Raises RunError naming what does not fit.
    """
    models = _in_recorded_context(folder, config, models)
    _check_prompting(folder, config, models)
    problems: dict[str, Problem] = {}
    answers: dict[int, Written] = {}
    parts = MOST_PARTS if models.thinking else 1
    generated: dict[str, list[StepGenerated]] = defaultdict(list)
    scores: dict[str, dict[bytes, float]] = defaultdict(dict)
    critiques: dict[bytes, int] = {}

    def noted(events: Iterable[AnyEvent]) -> Iterator[AnyEvent]:
        for event in events:
            if isinstance(event, ProblemStarted):
                problems.setdefault(event.problem, problem_of(event))
            yield event

    for request in logged_requests(noted(read_events(folder)), models):
        match event := request.event:
            case StepGenerated():
                _check_texts(event, models)
                seed = node_seed(config.seed, event.problem, event.node)
                recording = Written(_ids(event), event.prompt_tokens)
                answers |= {part_seed(seed, part): recording for part in range(parts)}
                generated[event.problem].append(event)
            case StepScored():
                _check_length(folder, request.ids.prompt, models)
                key = _key(request.ids.prompt)
                scores[event.problem][key] = event.score
                critiques[key] = event.tokens
            case _:
                pass
    if not answers:
        raise RunError(f"The run in {folder} has generated nothing that could be replayed.")
    # whatever the schedule: problem by problem
    ids = [name for name in config.problem_ids if name in problems]
    events = [event for of_problem in generated.values() for event in of_problem]
    whole = [event for event in events if event.thoughts[-1].stop is not Stop.STEP]
    return Recording(
        models,
        tuple(problems[name] for name in ids),
        calibration_of(config),
        answers,
        {key: score for name in ids for key, score in scores[name].items()},
        critiques,
        [thought.ids for event in events for thought in event.thoughts],
        [_ids(event) for event in whole or events],
    )


def calibration_of(config: RunConfig) -> Calibration | None:
    """The probabilities that the scores of a run count as; None: they count as they are."""
    recorded = config.prompting.get("verifier", {}).get("calibration")
    if not recorded or config.parameters.get("scores") == "raw":
        return None
    return Calibration.of(recorded["final"], recorded.get("inner"))


def _in_recorded_context(folder: Path, config: RunConfig, models: Models) -> Models:
    spec = models.deployment.generator
    context = config.context or spec.max_seq_len
    if context > spec.max_seq_len:
        raise RunError(
            f"The run in {folder} had a context of {context} tokens; generator.max_seq_len "
            f"of deployment {models.deployment.name} is {spec.max_seq_len}.",
            hint="Raise it and build the engine again.",
        )
    return models.with_context(context)


def _check_prompting(folder: Path, config: RunConfig, models: Models) -> None:
    here = prompting_of(models.deployment)
    for role, fields in config.prompting.items():
        for name in sorted({*fields, *here.get(role, {})}):
            was, now = fields.get(name), here.get(role, {}).get(name)
            if was != now:
                raise RunError(
                    f"The run in {folder} cannot be replayed on deployment "
                    f"{models.deployment.name}: its {role}.{name} was {was!r:.100} and is "
                    f"{now!r:.100} here.",
                    hint="Both must prompt alike, or token ids would not mean the same.",
                )


def _check_texts(event: StepGenerated, models: Models) -> None:
    if any(models.generator.decode(thought.ids) != thought.text for thought in event.thoughts):
        raise other_tokenizer(event, "generator", models, "was answered with other text")


def _check_length(folder: Path, dialogue: Ids, models: Models) -> None:
    limit = models.deployment.verifier_model.max_seq_len
    if len(dialogue) >= limit:
        raise RunError(
            f"The run in {folder} scored a dialogue of {len(dialogue)} tokens; "
            f"verifier.max_seq_len of deployment {models.deployment.name} is {limit}.",
            hint="Raise it and build the engine again.",
        )


def _ids(event: StepGenerated) -> Tokens:
    return tuple(token for thought in event.thoughts for token in thought.ids)


def _key(ids: Ids) -> bytes:
    return hashlib.blake2b(ids.tobytes(), digest_size=16).digest()
