"""Runs and run folders written by hand, for what reads them."""

from pathlib import Path

from tests.runs.logs import SESSION, expansion, log_bytes, solved, started

from tts.runs.config import RunConfig
from tts.runs.events import Finished
from tts.runs.folder import create_run
from tts.runs.measures import Measures
from tts.runs.rows import Row
from tts.runs.run import Run
from tts.runs.summary import Summary, summarise

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
    """A run whose log these events would be."""
    run = Run(Path(folder), RunConfig(**CONFIG | config), None)
    vars(run)["totals"] = Measures.of(events, run.config)
    return run


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


def row_of(strategy="mcts", tokens=100, accuracy=0.5, right=None, asked="demo", **others):
    """A row of ten solved problems; fields of its summary may be given, too."""
    own = {name: others.pop(name) for name in list(others) if name in Row.__dataclass_fields__}
    summary = summarise(RunConfig(**CONFIG), Measures.of([SESSION])).to_json()
    summary |= {"strategy": strategy, "problems": 10, "questions": asked, **others}
    fields = {
        "strategy": strategy,
        "differs": {},
        "run": "runs/x",
        "vote": "best",
        "n": 4,
        "problems": 10,
        "accuracy": accuracy,
        "interval_95": (0.0, accuracy),
        "pass_at_n": 1.0,
        "tokens_per_problem": tokens,
        "verifier_calls_per_problem": 1.0,
        "seconds_per_problem": 1.0,
        "wall_s": 1.0,
        "accuracy_by_level": {},
        "curve": (),
        "no_curve": None,
        "summary": Summary.of_json(summary),
        "right": graded(10 * (accuracy or 0)) if right is None else right,
    }
    return Row(**fields | own)


def graded(right, of=10):
    """So many of the problems are right."""
    return {str(place): float(place < right) for place in range(of)}
