"""Why `auto` searched a problem as it did, and took so many tokens: in words."""

from __future__ import annotations

from tts.search import Decision

_METHODS = {
    "mcts": "MCTS followed the scores",
    "rebase": "REBASE followed the scores in part",
    "chains": "Independent chains voted",
}
_ENDS = {
    "vote": "the vote was decided",
    "allowance": "the tokens that it was allowed were spent",
    "n": "there were n completions",
    "limit": "a limit was reached",
}


def reason(decision: Decision) -> str:
    """Sentences on what a problem's search was advised, and what came of it."""
    advice = decision.advice
    method = _METHODS[advice.method]
    if advice.method == "rebase" and advice.chains:
        method += ", in turn with independent chains"
    known = "no earlier problem was known"
    if advice.reliability is not None:
        known = f"in earlier problems, high scores agreed in {advice.reliability:.0%} of pairs"
    if advice.gain is not None:
        known += (
            f", and independent chains agreed {advice.gain:.2f} times as often with those of "
            "REBASE as with one another"
        )
    said = [f"{method} ({known})."]
    if advice.floor:
        said.append(f"Score 0 had {advice.floor:.0%} of the vote that score 1 had.")
    if advice.allowance is not None:
        most = f", and {advice.cap:,} at most" if advice.cap else ""
        said.append(
            f"It was allowed {advice.allowance:,} tokens if it had a completion by then{most}."
        )
    first = "no completion came before the end"
    if decision.first_tokens is not None:
        first = f"the first completion was there after {decision.first_tokens:,}"
    said.append(
        f"It took {decision.tokens:,} tokens ({first}) and ended because "
        f"{_ENDS[decision.ended_by]}."
    )
    return " ".join(said)
