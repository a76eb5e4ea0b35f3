"""Chains of steps to be scored, with what is known of their truth, and their scores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Chain:
    """One candidate solution of a problem, in steps."""

    problem: str
    """The problem's id; chains of one problem share it."""
    name: str
    """Unique within the file: the row's `id`, or PROBLEM/NUMBER."""
    question: str
    steps: tuple[str, ...]
    right_steps: tuple[bool | None, ...] | None = None
    """Label of each step, None for a step without one; None where no step has any."""
    right: bool | None = None
    """Whether the final answer is right; None where nobody says so."""
    level: str | None = None
    """What the file calls the problem's level, or the part of a collection that it is in."""
    place: str = ""
    """Where the chain stands, for messages: FILE, line 7."""
    reference: str | None = None
    """The right answer to the problem, where the file has it."""
    extra: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Other cells of the problem's row, for a verifier that is a program."""


@dataclass(frozen=True)
class ChainSet:
    """The chains of a file or a run, and how they were read."""

    chains: list[Chain]
    notes: list[str]
    """Which forms the rows have, what was left out, and what was changed; for people."""
    scores: Mapping[str, tuple[float | None, ...]] = field(default_factory=dict)
    """The logged scores of chains whose every step has one, by the chain's name."""


@dataclass(frozen=True, slots=True)
class ScoredChain:
    """A chain with the verifier's own score of each step."""

    chain: Chain
    scores: tuple[float | None, ...]
    """One per step. A verifier of whole answers scores the last step only."""
    lengths: tuple[int, ...]
    """Length of each step, in the unit that `Measurement` is given: tokens or characters."""
