"""Why `auto` searched a problem as it did, and took so many tokens: in words."""

from __future__ import annotations

from tts.search import Decision

_METHODS = {
    "mcts": "MCTS, which follows the scores",
    "rebase": "rounds of REBASE, which share out chains by the scores",
    "vote": "independent chains, which vote",
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
    measured = "the verifier was not measured"
    if advice.auroc is not None:
        measured = (
            f"the verifier's scores of steps have an area under the ROC curve of {advice.auroc:.2f}"
        )
    sentences = [f"The method was {_METHODS[advice.method]} ({measured})."]
    if advice.allowance is not None:
        allowed, most = "It was to end with its first completions", " or at {:,} tokens"
        if advice.allowance:
            allowed = f"It was allowed {advice.allowance:,} tokens if it had a completion by then"
            most = ", and {:,} at most"
        sentences.append(allowed + (most.format(advice.cap) if advice.cap else "") + ".")
    first = ""
    if decision.first_tokens is not None:
        first = f" (it could have ended after {decision.first_tokens:,})"
    elif decision.chain_tokens is None:
        first = " (no completion came before the end)"
    sentences.append(
        f"It took {decision.tokens:,} tokens{first} and ended because {_ENDS[decision.ended_by]}."
    )
    return " ".join(sentences)
