"""Requests that score a chain which was written elsewhere, step by step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tts.base.errors import DatasetError
from tts.endpoints.base import ScoreCall

from .context import NO_IDS
from .models import Models

NOTHING: Mapping[str, Any] = {}


def score_calls(
    models: Models, question: str, steps: Sequence[str], extra: Mapping[str, Any] = NOTHING
) -> list[ScoreCall]:
    """A request for the score of each step after those before it.

    `extra` is the problem's, for a verifier that takes text. Raises DatasetError for a chain that
    is longer than the verifier's context, before anything of it is sent.
    """
    texts = tuple(step.strip() for step in steps)
    chains = [texts[:length] for length in range(1, len(texts) + 1)]
    if models.takes_text or not texts:
        delimiter = models.step_delimiter
        return [
            ScoreCall(NO_IDS, question, chain, delimiter.join(steps[: len(chain)]), extra)
            for chain in chains
        ]
    if critic := models.critic:
        dialogues = [critic.prompt(question, chain) for chain in chains]
    elif models.reads_whole:
        answers = (models.step_delimiter.join(filter(None, chain)) for chain in chains)
        dialogues = [models.verifier.first(question, answer) for answer in answers]
    else:
        dialogues = [models.verifier.first(question, texts[0])]
        for chain in chains[1:]:
            number = sum(map(bool, chain))
            dialogues.append(models.verifier.extend(dialogues[-1], chain[-1], number))
    context = models.deployment.verifier_model.max_seq_len
    if (over := len(dialogues[-1]) - (context - 1)) > 0:  # one token is the engine's answer
        raise DatasetError(
            f"The question and its steps are too long for the verifier: {len(dialogues[-1]):,} "
            f"tokens, {over:,} more than the {context - 1:,} that its context leaves for a prompt "
            f"(verifier.max_seq_len is {context:,}).",
            hint="Score fewer steps, or raise verifier.max_seq_len in the deployment.",
        )
    return [ScoreCall(ids, question, chain) for ids, chain in zip(dialogues, chains, strict=True)]
