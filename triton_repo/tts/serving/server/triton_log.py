"""The log of a start: why Triton failed, and what TensorRT-LLM says of memory."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

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
