"""Runs and run folders written by hand, for what reads them."""

from pathlib import Path

from tests.runs.logs import SESSION, expansion, log_bytes, solved, started

from tts.runs.config import RunConfig
from tts.runs.events import Finished
from tts.runs.folder import create_run
from tts.runs.measured_run import MeasuredRun
from tts.runs.measures import Measures

CONFIG = {
    "deployment": "demo",
    "deployment_source": "demo",
    "deployment_digest": "d",
    "dataset": "demo",
    "limit": None,
    "seed": 0,
    "strategy": "best-of-n",
    "vote": "best",
    "parameters": {"n": 4, "temperature": 0.8},
    "schedule": "decoupled",
    "prompting": {},
    "context": None,
    "speculation": "auto",
    "in_flight": None,
    "problem_ids": [],
}


def write_run(folder, events, **config):
    """A run folder with this log."""
    create_run(folder, CONFIG | config)
    (folder / "events.jsonl").write_bytes(log_bytes(*events, Finished(t=9e9)))
    return folder


def run_of(events, folder="run", **config):
    return MeasuredRun(Path(folder), RunConfig(**CONFIG | config), Measures.of(events))


def log_of(answers, tokens=5, question="question of {}"):
    """Problems one after the other, by whether their answers are right."""
    log = [SESSION]
    for place, (name, right) in enumerate(answers.items()):
        log += [
            started(name, float(place), question.format(name)),
            expansion([0], place + 0.1, place + 0.5, tokens=tokens, problem=name),
            solved(name, place + 0.9, correct=None if right is None else {"best": right}),
        ]
    return log
