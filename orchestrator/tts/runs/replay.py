"""A recorded run as a script: each node's step and each dialogue's score, as they were.

A script decides what a search is answered, in the engines' place.
"""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tts.build.errors import RunError
from tts.build.input_files import Unreadable, require_path
from tts.build.tokenizer import Ids
from tts.build.user_paths import is_folder, is_there
from tts.endpoints.base import GenerateCall
from tts.problem import Problem
from tts.prompting import Context, Models
from tts.search import NodePath, ResumedWork, Stop, Thought, node_seed

from .config import RunConfig, read_run_config
from .folder import GROUP
from .log import read_events
from .resume import resumed_work
from .state import ProblemState, RunState, solved_problems
from .summary import read_summary

Tokens = tuple[int, ...]
_TAIL = 16  # tokens: more than spell any step delimiter


class Script(Protocol):
    """Answers that depend on the request alone, as a real engine's do."""

    def generate(self, call: GenerateCall) -> list[int]:
        """What the generator answers; see endpoints.Generator."""

    def ended(self, call: GenerateCall, ids: list[int]) -> bool:
        """Whether the answer `ids` was ended by the end-of-sequence token, which is not in it."""

    def score(self, input_ids: Ids) -> float:
        """What the verifier answers; see endpoints.Verifier."""


def chain_ended(models: Models, call: GenerateCall, ids: list[int]) -> bool:
    """`Script.ended` of answers in the language of `models`."""
    if len(ids) >= call.max_new_tokens:
        return False
    delimiter = models.deployment.generator.step_delimiter
    return not call.stop_at_step or delimiter not in models.generator.decode(ids[-_TAIL:])


@dataclass(frozen=True)
class Recording:
    """See Script. A node is known by its seed, a dialogue by its ids.

    A request that the run never made, such as a speculative expansion that only another schedule
    tries, gets one of the run's other answers, so its length is realistic.
    """

    models: Models
    answers: Mapping[int, Tokens]
    """The generated steps, by the node's seed."""
    scores: Mapping[bytes, float]
    """By the hash of the dialogue's ids."""
    steps: Sequence[Tokens]
    """Every step: what an unknown request for a step is answered with."""
    chains: Sequence[Tokens]
    """The same for whole chains."""
    spare_scores: Sequence[float]
    """The same for dialogues."""

    def generate(self, call: GenerateCall) -> list[int]:
        """See Script."""
        ids = self.answers.get(call.seed)
        if ids is None:
            spare = self.steps if call.stop_at_step else self.chains
            ids = random.Random(call.seed).choice(spare)
        return list(ids[: call.max_new_tokens])

    def ended(self, call: GenerateCall, ids: list[int]) -> bool:
        """See Script."""
        return chain_ended(self.models, call, ids)

    def score(self, input_ids: Ids) -> float:
        """See Script."""
        key = _key(input_ids)
        known = self.scores.get(key)
        return random.Random(key).choice(self.spare_scores) if known is None else known


def open_recording(path: Path) -> tuple[Path, RunConfig]:
    """The absolute path of a finished run, and its configuration; raises RunError."""
    try:
        require_path(str(path))
    except Unreadable as error:
        raise RunError(f"{str(path)!r:.100} cannot be replayed: {error}.") from error
    path = path.expanduser().resolve()
    if not is_folder(path):
        raise RunError(
            f"There is nothing to replay at {path}.", hint="Name the folder of a finished run."
        )
    if is_there(path / GROUP):
        raise RunError(f"{path} holds several runs.", hint="Name the folder of one of them.")
    config = read_run_config(path)
    read_summary(path)  # refuses one that has not finished
    return path, config


def in_recorded_context(folder: Path, config: RunConfig, models: Models) -> Models:
    """`models` with the recorded run's context, which decides where chains are cut."""
    spec = models.deployment.generator
    context = config.context or spec.max_seq_len
    if context > spec.max_seq_len:
        raise RunError(
            f"The run in {folder} had a context of {context} tokens; generator.max_seq_len "
            f"of deployment {models.deployment.name} is {spec.max_seq_len}.",
            hint="Raise it and build the engine again.",
        )
    return models.with_context(context)


def read_recording(
    folder: Path, config: RunConfig, models: Models, problems: Sequence[Problem]
) -> Recording:
    """Read a finished run, checking that its token ids mean the same to `models`.

    Raises RunError naming what does not fit.
    """
    _check_config(folder, config, models, problems)
    recorded = _recorded(folder)
    answers: dict[int, Tokens] = {}
    scores: dict[bytes, float] = {}
    for problem in problems:
        state = recorded.get(problem.id, ProblemState(problem.id))
        work = resumed_work(state)
        context = _context(folder, config, problem, state, work, models)
        for node, thoughts in work.thoughts.items():
            answers[node_seed(config.seed, problem.id, node)] = _joined(thoughts)
        for node, score in work.scores.items():
            scores[_key(context.verifier_ids(node))] = score
    work_of_all = (resumed_work(state) for state in recorded.values())
    generated = [thoughts for work in work_of_all for thoughts in work.thoughts.values()]
    whole = [t for t in generated if t[-1].stop is not Stop.STEP] or generated
    if not generated:
        raise RunError(f"The run in {folder} has generated nothing that could be replayed.")
    return Recording(
        models,
        answers,
        scores,
        [thought.token_ids for thoughts in generated for thought in thoughts],
        [_joined(thoughts) for thoughts in whole],
        list(scores.values()) or [0.5],
    )


def _recorded(folder: Path) -> dict[str, ProblemState]:
    """The problems of a run, in the order in which they were first answered."""
    run = RunState()
    found = [*solved_problems(read_events(folder), run), *run.open.values()]
    return {problem.id: problem for problem in sorted(found, key=_first_answer)}


def _first_answer(problem: ProblemState) -> float:
    firsts = (*problem.generated[:1], *problem.scored[:1])
    return min((began + event.t for began, event in firsts), default=math.inf)


def _context(
    folder: Path,
    config: RunConfig,
    problem: Problem,
    state: ProblemState,
    work: ResumedWork,
    models: Models,
) -> Context:
    """The problem's context with every recorded node in it; raises RunError if ids differ."""
    for node, thoughts in work.thoughts.items():
        for thought in thoughts:
            if models.generator.decode(thought.token_ids) != thought.text:
                raise _other_tokenizer(
                    folder, "generator", models, f"node {_name(node)} of problem {problem.id}"
                )
    context = Context.of(models, problem)
    present: set[NodePath] = {()}
    for node in sorted(work.thoughts.keys() | work.scores.keys(), key=len):
        if node in present:
            continue
        # scored but never asked of the generator: its prompt had filled the context
        path, full = node, (Thought((), "", Stop.LENGTH),)
        for thought in work.thoughts.get(node, full):
            context.add(path, thought)
            present.add(path)
            path = (*path, 0)
    for _, asked in state.generated:
        ids = context.generator_ids(asked.node[:-1])
        if len(ids) != asked.prompt_tokens:
            where = _other_prompt(problem, asked.node, len(ids), asked.prompt_tokens)
            raise _other_tokenizer(folder, "generator", models, where)
    limit = models.deployment.verifier_model.max_seq_len
    for _, score in state.scored:
        if score.cached:
            continue
        ids = context.verifier_ids(score.node)
        if len(ids) != score.prompt_tokens:
            where = _other_prompt(problem, score.node, len(ids), score.prompt_tokens)
            if own := config.functions.get("verifier"):
                raise _own_verifier(folder, own, models, where)
            raise _other_tokenizer(folder, "verifier", models, where)
        if len(ids) >= limit:
            raise RunError(
                f"The run in {folder} scored a dialogue of {len(ids)} tokens; verifier.max_seq_len "
                f"of deployment {models.deployment.name} is {limit}.",
                hint="Raise it and build the engine again.",
            )
    return context


def _check_config(
    folder: Path, config: RunConfig, models: Models, problems: Sequence[Problem]
) -> None:
    ids = [problem.id for problem in problems]
    if ids != config.problem_ids:
        raise RunError(
            f"The problems of the run in {folder} are not those of {config.dataset} any more: "
            f"they were {config.problem_ids!r:.100} and are {ids!r:.100}.",
            hint="Bring the dataset back as it was when the run was recorded.",
        )
    for role, fields in config.prompting.items():
        spec = getattr(models.deployment, role).model_dump(mode="json")
        for name, value in fields.items():
            if spec.get(name) != value:
                raise RunError(
                    f"The run in {folder} cannot be replayed on deployment "
                    f"{models.deployment.name}: its {role}.{name} was {value!r:.100} and is "
                    f"{spec.get(name)!r:.100} here.",
                    hint="Both must prompt alike, or token ids would not mean the same.",
                )


def _other_tokenizer(folder: Path, role: str, models: Models, where: str) -> RunError:
    checkpoint = getattr(models.deployment, role).checkpoint
    return RunError(
        f"The run in {folder} cannot be replayed on deployment {models.deployment.name}: the "
        f"tokenizer of its {role} ({checkpoint}) is not the recorded one; it differs at {where}.",
        hint="Give the checkpoint the recorded tokenizer: tts random-checkpoint takes it "
        "from the checkpoint named with --tokenizer.",
    )


def _own_verifier(folder: Path, own: str, models: Models, where: str) -> RunError:
    return RunError(
        f"The run in {folder} cannot be replayed on deployment {models.deployment.name}: its "
        f"steps were scored by the program's own `{own}`, which was not asked what the "
        f"deployment's verifier would be: {where}.",
        hint="Replay a run that a deployment's verifier has scored.",
    )


def _other_prompt(problem: Problem, node: NodePath, here: int, then: int) -> str:
    return (
        f"the prompt for node {_name(node)} of problem {problem.id} has {here} tokens here and had "
        f"{then}"
    )


def _joined(thoughts: Sequence[Thought]) -> Tokens:
    return tuple(token for thought in thoughts for token in thought.token_ids)


def _key(ids: Ids) -> bytes:
    return hashlib.blake2b(ids.tobytes(), digest_size=16).digest()


def _name(node: NodePath) -> str:
    return ".".join(map(str, node))
