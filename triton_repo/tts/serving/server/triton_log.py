"""The log of a start: how far the engines are, why Triton failed, and what TensorRT-LLM says of
memory.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tts.build.spec import Role
from tts.engines import wire
from tts.engines.loading import OPEN, Stage

from ..contract import start_log_forms

_TAIL_BYTES = 200_000
_LAST = 3  # lines that a failure without a form of its own is told by
_FAILED_MODEL = re.compile(r"""failed to load '(?P<model>[^']+)' version \d+: (?P<reason>.*?)"?$""")
_STATUS = re.compile(r"^(Internal|Invalid argument|Unavailable|Not found|Unsupported|Unknown): ")
_ERROR = re.compile(r"^(?:E\d{4} \S+ \d+ \S+\] |error: )(?P<text>.*)$")
_LOG_LINE = re.compile(r"^[IWE]\d{4} |^[+|]")
_NOISE = re.compile(r"CudaDriverHelper|CUDA driver version is insufficient|NVML|DCGM")
_LOST_STUB = re.compile(r"Stub process '\w+' is not healthy|Failed to obtain the health mutex")
_PORT_TAKEN = re.compile(
    r"failed to start \w+ service: .*already in use"  # Triton
    r"|port is already allocated|failed to bind host port"  # docker
)


def failure(log: Path) -> str:
    """Why the server failed, as one sentence per failed model, else its last error lines."""
    text = tail(log)
    failed = {m["model"]: _reason(m["reason"]) for m in map(_FAILED_MODEL.search, text) if m}
    if failed:
        return "; ".join(f"model {model} failed to load: {why}" for model, why in failed.items())
    errors = [m["text"].strip('" ') for m in map(_ERROR.match, text) if m]
    errors = [error for error in errors if not _NOISE.search(error)]
    plain = [line for line in text if line.strip() and not _LOG_LINE.match(line)]
    return "; ".join((errors or plain)[-_LAST:])


def port_was_taken(log: Path) -> bool:
    """Whether the server gave up because another process took one of its ports."""
    return any(_PORT_TAKEN.search(line) for line in tail(log))


def tells_lost_stub(reason: str) -> bool:
    """Whether Triton has lost the process of a model, for whatever reason it had."""
    return bool(_LOST_STUB.search(reason))


def tail(log: Path) -> list[str]:
    """The last lines of a log; empty if there is none."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _TAIL_BYTES))
            return file.read().decode("utf-8", errors="replace").splitlines()
    except OSError:
        return []


def _reason(text: str) -> str:
    # Triton escapes newlines; a Python traceback follows "At:"
    text = text.replace("\\n", "\n").split("\n\nAt:")[0]
    text = _STATUS.sub("", text.strip())
    return " ".join(text.split()).replace('\\"', '"')


@dataclass(frozen=True)
class LogMatch:
    """One line of a known form."""

    form: str
    line: str
    numbers: Mapping[str, int]
    """Numbers by the name of their group in the pattern."""


def read_start_log(lines: Iterable[str]) -> list[LogMatch]:
    """Every line that has one of the known forms, in the log's order."""
    matches = []
    for line in lines:
        for form, pattern in _patterns().items():
            if match := pattern.search(line):
                numbers = {name: int(text) for name, text in match.groupdict().items()}
                matches.append(LogMatch(form, line.strip(), numbers))
                break
    return matches


@cache
def _patterns() -> Mapping[str, re.Pattern[str]]:
    return {name: re.compile(form.pattern, re.ASCII) for name, form in start_log_forms().items()}


LOADING, WAITING, WARMING_UP = "loading", "waiting", "warming up"
_ENGINES: dict[str, Role] = {
    wire.GENERATOR: "generator",
    wire.PRM: "verifier",
    wire.PRM_ENGINE: "verifier",  # where `prm` is an ensemble, which loads after it
}
_BEGUN = re.compile(r'\] "?loading: (?P<model>\w+):\d')
_LOADED = re.compile(r"\] \"?successfully loaded '(?P<model>\w+)'")


@dataclass(frozen=True)
class Loading:
    """The progress of a server that starts."""

    seconds: float
    """Since it was launched."""
    engines: dict[Role, Stage]

    def __str__(self) -> str:
        stages = (
            f"{role}: {stage.doing}" + ("" if stage.fraction is None else f" {stage.fraction:.0%}")
            for role, stage in self.engines.items()
        )
        return ", ".join(stages)

    @property
    def is_open(self) -> bool:
        """Whether every engine is open."""
        return all(stage.doing in (OPEN, WARMING_UP) for stage in self.engines.values())


def read_loading(log: Path, seconds: float, roles: Collection[Role]) -> Loading:
    """How far the engines are by Triton's own lines and those of the engine host.

    `roles` are those that are served.
    """
    models = {model: role for model, role in _ENGINES.items() if role in roles}
    stages = {model: Stage(model, WAITING) for model in models}
    for line in tail(log):
        if (stage := Stage.parse(line)) and stage.model in stages:
            stages[stage.model] = stage
        elif (start := _BEGUN.search(line)) and start["model"] in stages:
            stages[start["model"]] = Stage(start["model"], LOADING)
        elif (end := _LOADED.search(line)) and end["model"] in stages:
            stages[end["model"]] = Stage(end["model"], WARMING_UP)
    engines: dict[Role, Stage] = {}
    for model, role in models.items():
        if role not in engines or stages[model].doing != WAITING:
            engines[role] = stages[model]
    return Loading(seconds, engines)
