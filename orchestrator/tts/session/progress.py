"""The progress of a run, as plain numbers for displays."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class RunProgress:
    """Counts of one run, written by the run and read by displays."""

    total: int
    """Problems of the run."""
    done: int = 0
    """Problems solved, those of earlier sessions included."""
    judged: int = 0
    """Solved problems that have a reference answer."""
    right: int = 0
    """Judged problems that were answered correctly by the strategy's own rule."""
    in_flight: tuple[int, int] = (0, 0)
    """Requests in flight now: generator, verifier."""
    began: bool = False
    """Whether the run folder holds anything yet."""

    def count(self, correct: bool | None) -> None:
        """Count a solved problem; `correct` is None if it has no reference answer."""
        self.done += 1
        if correct is not None:
            self.judged += 1
            self.right += correct
