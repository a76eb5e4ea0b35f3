"""The requests that score a chain of steps which somebody else has written."""

from __future__ import annotations

from collections.abc import Sequence

from tts.build.errors import DatasetError
from tts.endpoints.base import ScoreCall

from .context import NO_IDS
from .models import Models


def score_calls(models: Models, question: str, steps: Sequence[str]) -> list[ScoreCall]:
    """A request for the score of each step after those before it.

    Raises DatasetError for a chain that is longer than the verifier's context, before anything of
    it is sent.
    """
    said = tuple(step.strip() for step in steps)
    chains = [said[:length] for length in range(1, len(said) + 1)]
    dialogue = models.dialogue
    if dialogue is None or not said:
        return [ScoreCall(NO_IDS, question, chain) for chain in chains]
    dialogues = [dialogue.first(question, said[0])]
    for step in said[1:]:
        dialogues.append(dialogue.extend(dialogues[-1], step))
    context = models.deployment.verifier.max_seq_len
    if (over := len(dialogues[-1]) - (context - 1)) > 0:  # one token is the engine's answer
        raise DatasetError(
            f"The question and its steps are too long for the verifier: {len(dialogues[-1]):,} "
            f"tokens, {over:,} more than the {context - 1:,} that its context leaves for a prompt "
            f"(verifier.max_seq_len is {context:,}).",
            hint="Score fewer steps, or raise verifier.max_seq_len in the deployment.",
        )
    return [ScoreCall(ids, question, chain) for ids, chain in zip(dialogues, chains, strict=True)]
