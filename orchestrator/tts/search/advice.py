"""Advice to the search of one problem, and the decision that came of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Method = Literal["mcts", "rebase"]
"""How a problem is searched: by MCTS, or in rounds of REBASE."""
EndedBy = Literal["vote", "allowance", "no votes", "n", "limit"]
"""The end of a search: its vote was decided; it had taken its allowance; many completions had no
vote; n had room for no more; or a limit cut it short."""


@dataclass(frozen=True, slots=True)
class Advice:
    """How a problem is to be searched. The defaults are for one without others before it."""

    method: Method = "mcts"
    samples: int = 4
    """Independent chains that the search begins with."""
    votes: int = 4
    """Unanimous votes of about this weight decide."""
    width: int = 4
    """Chains of a round of REBASE."""
    parallel: int = 4
    """Simulations of MCTS at a time."""
    allowance: int | None = None
    """Generated tokens after which the search ends, if it has a completion."""
    cap: int | None = None
    """Generated tokens that the tree may hold at most; not enforced here, see `budget`."""
    trust: float | None = None
    """What the verifier's best scores were worth in earlier problems, as far as it is known."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The advice to a problem's search, and what came of it."""

    advice: Advice
    ended_by: EndedBy
    tokens: int
    """Generated tokens in the tree, with those that the verifier wrote about it."""
    first_tokens: int | None
    """The tokens when it could have ended: it had its first completions. None where a limit came
    first."""
    chain_tokens: int | None = None
    """The mean tokens of a completion, with what was written about it; None where there is none."""
