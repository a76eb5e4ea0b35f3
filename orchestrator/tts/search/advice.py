"""Advice to the search of one problem, and the decision that came of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Method = Literal["mcts", "rebase", "chains"]
"""How a problem is searched: by MCTS, in rounds of REBASE, or in rounds of independent chains."""
EndedBy = Literal["vote", "allowance", "no votes", "n", "limit"]
"""The end of a search: its vote was decided; it had taken its allowance; many completions had no
vote; n had room for no more; or a limit cut it short."""

Agreement = tuple[int, int]
"""How many pairs of chains have the same answer, and how many pairs there are."""

SAMPLES = 4
"""Chains that a tree begins with where it begins with samples."""
WIDTH = 4
"""Chains of a round of REBASE if nothing is known, and of independent chains at most."""


@dataclass(frozen=True, slots=True)
class Advice:
    """How a problem is to be searched. The defaults are for one without others before it."""

    method: Method = "mcts"
    samples: int = SAMPLES
    """Independent chains that MCTS begins with."""
    votes: int = 4
    """Unanimous votes of about this weight decide."""
    width: int = WIDTH
    """Chains of a round of REBASE."""
    chains: int = WIDTH
    """Chains of an independent round; 0 with `rebase`: there are none."""
    parallel: int = 4
    """Simulations of MCTS at a time."""
    allowance: int | None = None
    """Generated tokens after which the search ends, if it has a completion. Samples count when
    the tree search takes them over."""
    cap: int | None = None
    """Generated tokens that the tree may hold at most; not enforced here, see `budget`."""
    floor: float = 0.0
    """The vote of a completion with score 0 where one with score 1 has one vote."""
    reliability: float | None = None
    """How often chains with high scores agreed in earlier problems, as far as it is known."""
    gain: float | None = None
    """How often chains of REBASE agreed with independent ones there, over those with each other."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The advice to a problem's search, and what came of it."""

    advice: Advice
    ended_by: EndedBy
    tokens: int
    """Generated tokens in the tree, with those that the verifier wrote about it."""
    first_tokens: int | None
    """The tokens, without unused samples, when it could have ended: it had its first completions.
    None where a limit came first."""
    high: Agreement = (0, 0)
    """Of the pairs of independent chains with high scores, how many agree."""
    low: Agreement = (0, 0)
    """The same of chains with low scores."""
    independent: Agreement = (0, 0)
    """The same of an independent first round, whatever the scores, if one of REBASE is next."""
    searched: Agreement = (0, 0)
    """Of the pairs of a chain of that first round and one of REBASE, how many agree."""
    chain_tokens: int | None = None
    """The mean tokens of a completion, with what was written about it; None where there is none."""
