"""Why `auto` searched a problem as it did, and took so many tokens: in words."""

from __future__ import annotations

from tts.search import Decision

_METHODS = {
    "mcts": "MCTS, which follows the scores",
    "rebase": "rounds of REBASE, which follows the scores in part",
    "chains": "independent chains",
}
_ENDS = {
    "vote": "the vote was decided",
    "allowance": "the tokens that it was allowed were spent",
    "no votes": "no completion had a vote",
    "n": "n had room for no more completions",
    "limit": "a limit was reached",
}


def reason(decision: Decision) -> str:
    """Sentences on what a problem's search was advised, and what came of it."""
    advice = decision.advice
    method = _METHODS[advice.method]
    if advice.method == "rebase" and advice.chains:
        method = f"rounds of independent chains and, in turn, {method}"
    shown = []
    if advice.reliability is not None:
        shown.append(f"high scores agreed in {advice.reliability:.0%} of pairs")
    if advice.gain is not None:
        shown.append(
            f"independent chains agreed {advice.gain:.2f} times as often with those of REBASE as "
            "with one another"
        )
    known = f"in earlier problems, {', and '.join(shown)}" if shown else "nothing was known"
    said = [f"The method was {method} ({known})."]
    if advice.floor:
        said.append(f"Score 0 had {advice.floor:.0%} of the vote that score 1 had.")
    if advice.allowance is not None:
        allowed, most = "It was to end with its first completions", " or at {:,} tokens"
        if advice.allowance:
            allowed = f"It was allowed {advice.allowance:,} tokens if it had a completion by then"
            most = ", and {:,} at most"
        said.append(allowed + (most.format(advice.cap) if advice.cap else "") + ".")
    first = ""
    if decision.first_tokens is not None:
        first = f" (it could have ended after {decision.first_tokens:,})"
    elif decision.chain_tokens is None:
        first = " (no completion came before the end)"
    said.append(
        f"It took {decision.tokens:,} tokens{first} and ended because {_ENDS[decision.ended_by]}."
    )
    return " ".join(said)
