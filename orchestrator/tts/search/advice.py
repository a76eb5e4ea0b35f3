"""Advice to the search of one problem, and the decision that came of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Method = Literal["mcts", "rebase", "vote"]
"""How a problem is searched: by MCTS, in rounds of REBASE, or by independent chains that vote."""
EndedBy = Literal["vote", "allowance", "no votes", "n", "limit"]
"""The end of a search: its vote was decided; it had taken its allowance; many completions had no
vote; n had room for no more; or a limit cut it short."""


@dataclass(frozen=True, slots=True)
class Advice:
    """How a problem is to be searched. The defaults are for one by itself."""

    method: Method = "mcts"
    votes: int = 4
    """Unanimous votes of about this weight decide."""
    width: int = 4
    """Chains of a round."""
    parallel: int = 4
    """Simulations of MCTS at a time."""
    allowance: int | None = None
    """Generated tokens after which the search ends, if it has a completion."""
    cap: int | None = None
    """Generated tokens that the tree may hold at most; not enforced here, see `budget`."""
    auroc: float | None = None
    """How well the scores of inner steps tell right chains from wrong ones, as measured; None where
    the verifier was not measured."""


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
