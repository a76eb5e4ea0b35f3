"""Scripted runs kept as real ones are, and engines that only do the work of a replay."""

import asyncio
import json
import random
from dataclasses import dataclass, field, replace

from hypothesis import HealthCheck, settings
from tests.amounts import amount
from tests.driver.scripted_run import CONFIGS, PROBLEMS, Run
from tests.runs import runs
from tests.runs.logs import log_bytes

from tts.endpoints.base import VerifierResult
from tts.prompting import Models
from tts.runs.checks import write_summary
from tts.runs.config import RunConfig
from tts.runs.folder import CONFIG, EVENTS
from tts.runs.measures import Measures
from tts.runs.replay import Script, read_recording
from tts.runs.summary import summarise

PROMPTING = {
    "generator": {"system_prompt", "step_delimiter"},
    "verifier": {"format", "step_tag", "template"},
}
WORDS = ("1", "22", "a", " + ", "")
FEW = settings(
    max_examples=amount(3, 6),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@dataclass
class Endless:
    """An engine that writes one token until the limit, and finds everything as good."""

    asked: list[int] = field(default_factory=list)
    scored: int = 0
    jitter: random.Random = field(default_factory=random.Random)

    async def generate(self, call):
        assert not call.stop_at_step
        for _ in range(self.jitter.randint(0, 20)):
            await asyncio.sleep(0)
        self.asked.append(call.max_new_tokens)
        return [7] * call.max_new_tokens

    async def score(self, call):
        for _ in range(self.jitter.randint(0, 20)):
            await asyncio.sleep(0)
        self.scored += 1
        return VerifierResult(0.5)


@dataclass(frozen=True)
class ReplayGenerator:
    """An engine that does the work, while a recording answers."""

    inner: Endless
    script: Script

    async def generate(self, call):
        ids = self.script.generate(call)
        tokens = len(ids) + self.script.has_ended(call, ids)
        await self.inner.generate(replace(call, max_new_tokens=tokens, stop_at_step=False))
        return ids


@dataclass(frozen=True)
class ReplayVerifier:
    """The same of the verifier."""

    inner: Endless
    script: Script

    async def score(self, call):
        await self.inner.score(call)
        return VerifierResult(self.script.score(call.input_ids))


def record(folder, run, deployment):
    """Keep a scripted run as a real one is kept."""
    folder.mkdir(exist_ok=True)
    config = runs.CONFIG | {
        "deployment": deployment.name,
        "prompting": deployment.model_dump(mode="json", include=PROMPTING),
        "seed": 1,
        "strategy": "beam-search",
        "vote": "weighted",
        "parameters": run.config.model_dump(mode="json"),
        "context": deployment.generator.max_seq_len,
        "schedule": "lockstep",
        "problem_ids": [problem.id for problem in PROBLEMS],
    }
    (folder / CONFIG).write_text(json.dumps(config))
    solved = {"problems": len(PROBLEMS), "tree_digest": "recorded"}
    (folder / EVENTS).write_bytes(log_bytes(*run.events))
    write_summary(
        folder,
        summarise(RunConfig(**config), Measures.of(run.events, RunConfig(**config))).to_json()
        | solved,
    )
    return folder


def words_of(deployment):
    """What scripted engines write: the words of their steps, and the delimiter."""
    encode_text = Models.load(deployment).generator.encode
    return [encode_text(word) for word in WORDS], encode_text("\n\n")


def recorded_run(deployment, folder):
    """A recorded beam search and its folder."""
    run = Run(deployment, words_of(deployment), CONFIGS[0], "lockstep").go()
    return run, record(folder, run, deployment)


def load(folder, deployment, **changes):
    """The recording of the run in `folder`, whose run.json would say otherwise."""
    config = json.loads((folder / CONFIG).read_text()) | changes
    return read_recording(folder, RunConfig(**config), Models.load(deployment))


def replay(deployment, words, config, schedule, script, jitter=0, **policy):
    run = Run(deployment, words, config, schedule, **policy)
    engine = Endless(jitter=random.Random(jitter))
    run.generator, run.verifier = ReplayGenerator(engine, script), ReplayVerifier(engine, script)
    return run.go(), engine
