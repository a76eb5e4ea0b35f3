"""The best candidate of each problem in the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from tts.session import Result

from .sheet import Sheet, table

MOST_ROWS = 40
_CHARACTERS = 60
_VOTES = ("weighted", "majority")


def print_rankings(out: Console, rankings: Sequence[Result]) -> None:
    """Print a row for each problem: its best candidate, what that answers, what others vote for."""
    judged = any(result.correct is not None for result in rankings)
    columns = ("best", "score", "answer", *_VOTES, *["right"] * judged)
    sheet = table("problem", right=columns)
    for result in rankings[:MOST_ROWS]:
        best = result.completions[0]
        right = "" if result.correct is None else "yes" if result.correct else "no"
        sheet.add_row(
            f"{result.problem.id:.{_CHARACTERS}}",
            f"{best.node[0] + 1} of {len(result.completions)}",
            "-" if best.score is None else f"{best.score:.4f}",
            *(_short(each) for each in (best.answer, *map(result.answers.get, _VOTES))),
            *[right] * judged,
        )
    out.print(Sheet(sheet))
    if (more := len(rankings) - MOST_ROWS) > 0:
        out.print(f"... and {more:,} problems more")


def _short(answer: str | None) -> str:
    return "-" if answer is None else f"{' '.join(answer.split()):.{_CHARACTERS}}"
