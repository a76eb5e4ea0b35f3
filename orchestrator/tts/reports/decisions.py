"""Why `auto` searched a problem as it did, and took so many tokens: in words."""

from __future__ import annotations

from tts.search import Decision

_METHODS = {
    "mcts": "MCTS, which follows the scores",
    "rebase": "rounds of REBASE, which follow the scores as far as they are worth anything",
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
    known = "nothing was known of the verifier"
    if advice.trust is not None:
        known = f"in earlier problems, the best scores were worth {advice.trust:.2f}"
    said = [f"The method was {_METHODS[advice.method]} ({known})."]
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
