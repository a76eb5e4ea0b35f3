"""What `tts lint` and `tts doctor` print: findings, this machine, a first run and its report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape

from tts.build.errors import RunError
from tts.build.tensorrt import contract

if TYPE_CHECKING:
    from tts.checks.first_run.outcomes import Outcome, State
    from tts.checks.first_run.steps import FirstRun
    from tts.checks.machine import Observation
    from tts.serving.repository.check import Finding

_SEVERITIES = {"error": "bold red", "warning": "yellow", "note": "dim"}
_STATES = {"ok": "green", "note": "yellow", "missing": "red"}


def print_findings(console: Console, findings: Sequence[Finding]) -> None:
    """Print findings with a blank line after each, errors first."""
    for severity, style in _SEVERITIES.items():
        for finding in findings:
            if finding.severity == severity:
                console.print(f"[{style}]{severity}[/]  ", end="")
                for line in (
                    f"{finding.where}: {finding.what}",
                    f"  why: {finding.why}",
                    f"  fix: {finding.fix}\n",
                ):
                    console.print(line, markup=False, soft_wrap=True)


def count_findings(findings: Sequence[Finding]) -> str:
    """How many findings of each severity there are."""
    counts = {name: sum(f.severity == name for f in findings) for name in _SEVERITIES}
    return (
        f"{_number(counts['error'], 'error')}, {_number(counts['warning'], 'warning')}, "
        f"{counts['note']} not checked"
    )


def warnings_line(findings: Sequence[Finding]) -> str | None:
    """What a command says that goes on in spite of warnings; None without any."""
    count = sum(finding.severity == "warning" for finding in findings)
    return f"{_number(count, 'warning')}; tts lint explains." if count else None


def print_observations(console: Console, observations: Sequence[Observation]) -> None:
    """Print what the machine has and lacks, a line each, advice below it."""
    for seen in observations:
        found = escape(" ".join(seen.found.split()))
        mark = f"[{_STATES[seen.state]}]{seen.state:7}[/]"
        console.print(f"{mark}  [bold]{seen.what}[/]: {found}", soft_wrap=True)
        if seen.advice:
            console.print(f"         {escape(seen.advice)}", style="dim", soft_wrap=True)


def _number(count: int, what: str) -> str:
    return f"{count} {what}" + "s" * (count != 1)


_STYLES: dict[State, str] = {"ok": "green", "note": "yellow", "wrong": "red", "not here": "yellow"}
_WIDTH = 140
_NOTHING = "(nothing)"


def print_outcome(console: Console, outcome: Outcome) -> None:
    """Print one step: the result, and the expectation where it differs."""
    mark = f"[{_STYLES[outcome.state]}]{outcome.state:8}[/]"
    found = escape(" ".join(outcome.found.split()))
    console.print(f"{mark}  [bold]{outcome.what}[/]: {found}", soft_wrap=True)
    if outcome.state != "ok":
        console.print(f"          expected: {escape(outcome.expected)}", soft_wrap=True)
    for line in outcome.advice.splitlines():
        console.print(f"          {escape(line)}", style="dim", soft_wrap=True)


def closing_sentence(run: FirstRun) -> str:
    """What a first run came to, and what to do now."""
    states = [outcome.state for outcome in run.outcomes]
    if "wrong" in states:
        return (
            "Something is not as expected: do what the lines above say, and run this again. If it "
            "is not your machine or your file, please report it with this file:"
        )
    if "not here" in states:
        return "What can be done on this machine is as expected; the rest needs another. Report:"
    return (
        f"Everything is as expected. Next: tts bench {run.deployment.named} "
        "(docs/guides/gpu.md says what to compare). Report:"
    )


def first_run_report(run: FirstRun, now: datetime | None = None) -> str:
    """The report as Markdown: no secrets, no prompts."""
    when = (now or datetime.now(UTC)).strftime("%Y-%m-%d %H:%M UTC")
    parts = [
        f"# First run of {run.deployment.name}, {when}",
        "Written by `tts doctor --first-run`, to be attached to a bug report whole.",
        "## Steps",
        *_steps(run),
        "## Versions",
        _table(
            ("of", "version"),
            [
                *run.versions.items(),
                ("TensorRT-LLM, as expected", contract.TENSORRT_LLM),
                ("container", contract.container_image(run.options.container)),
            ],
        ),
        "## GPUs",
        _table(
            ("index", "name", "memory, MiB", "in use, MiB", "driver", "compute capability"),
            [
                (
                    str(gpu.index),
                    gpu.name,
                    str(gpu.total // 2**20),
                    str(gpu.used // 2**20),
                    gpu.driver,
                    gpu.capability,
                )
                for gpu in run.gpus
            ],
        ),
        "## Deployment",
        _fenced(_settings(run)),
        "## Command of the server",
        _fenced([run.command] if run.command else []),
        "## Memory plan",
        _fenced(_plan(run)),
        "## Lint",
        _fenced([f"{finding.severity}: {finding}" for finding in run.findings]),
    ]
    for name, lines in run.excerpts.items():
        parts += [f"## Of {name}", _fenced(lines)]
    from tts.checks.first_run.excerpts import scrubbed

    return scrubbed("\n\n".join(parts) + "\n", run.deployment)


def write_report(file: Path, text: str) -> None:
    """Write a report, replacing an earlier one; raises RunError if the disk refuses."""
    new = file.with_name(f".{file.name}.new")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        new.write_text(text, encoding="utf-8")
        new.replace(file)
    except OSError as error:
        raise RunError(
            f"The report cannot be written to {file}: {error.strerror or error}.",
            hint="Free some space or fix the permissions, or let TTS_HOME name another folder.",
        ) from error


def _steps(run: FirstRun) -> Iterator[str]:
    rows: list[tuple[str, ...]] = [
        (seen.state, seen.what, seen.expected, seen.found, seen.advice) for seen in run.outcomes
    ]
    yield _table(("state", "step", "expected", "found", "what to do"), rows)


def _settings(run: FirstRun) -> list[str]:
    """The deployment without what makes prompts, and without its paths."""
    lines = [f"name: {run.deployment.name}", f"tensorrt: {run.options.model_dump()}"]
    for role, spec in run.deployment.engines().items():
        kept = spec.model_dump(
            mode="json", exclude={"checkpoint", "system_prompt", "template", "step_delimiter"}
        )
        lines += [f"{role}:", f"  checkpoint: {spec.checkpoint.name}"]
        lines += [f"  {key}: {value}" for key, value in kept.items() if value is not None]
    return lines


def _plan(run: FirstRun) -> list[str]:
    if run.plan is None:
        return []
    from .memory_plan import print_memory_plan

    console = Console(width=_WIDTH, color_system=None)
    with console.capture() as captured:
        print_memory_plan(console, run.plan)
    return [line.rstrip() for line in captured.get().splitlines()]


def _table(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    def row(cells: tuple[str, ...]) -> str:
        return f"| {' | '.join(' '.join(cell.split()).replace('|', '/') for cell in cells)} |"

    ruled = [row(header), "|" + "---|" * len(header), *map(row, rows)]
    return "\n".join(ruled) if rows else _NOTHING


def _fenced(lines: list[str]) -> str:
    """Lines as they are; a fence longer than any in them."""
    text = "\n".join(lines) or _NOTHING
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}\n{text}\n{fence}"
