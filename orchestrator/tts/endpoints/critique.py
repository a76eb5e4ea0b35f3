"""A verifier that writes: critiques of a chain, and the verdicts in them.

    prompt ─┬─ sample 0 ─► critique ─► verdict ─┐
            ├─ sample 1 ─► critique ─► verdict ─┼─► their mean is the score
            └─ ...                              ┘

Each critique has a seed made of its prompt's token ids and its number, so equal chains have equal
critiques. One without a verdict is written once more, with another seed; where none of them has
one, the score is `UNDECIDED`.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

from tts.build.spec import VerifierRole
from tts.build.tokenizer import Ids
from tts.build.verifiers.critique import Critic
from tts.build.verifiers.untrained import Prompted

from .base import GenerateCall, Generator, ScoreCall, Verifier, VerifierResult
from .thinking import ThinkingWriter, extended
from .together import together

UNDECIDED = 0.5
"""The score of a chain whose critiques have no verdict."""
ATTEMPTS = 2
"""How often a critique is written, at most."""


@dataclass(frozen=True)
class _Critique:
    ids: list[int]
    verdict: float | None
    tokens: int
    """All that were generated for it, those of an attempt without a verdict included."""


@dataclass(frozen=True)
class WritingVerifier:
    """See endpoints.Verifier."""

    generator: Generator
    """The verifier's engine, which writes."""
    critic: Critic
    spec: VerifierRole
    labels: Verifier | None = None
    """What gives the probabilities of labels in the same engine; None: verdicts are in the text."""

    async def score(self, call: ScoreCall) -> VerifierResult:
        """See endpoints.Verifier."""
        samples = range(self.spec.critique.samples)
        critiques = await together(self._sample(call, number) for number in samples)
        verdicts = [each.verdict for each in critiques if each.verdict is not None]
        return VerifierResult(
            sum(verdicts) / len(verdicts) if verdicts else UNDECIDED,
            tokens=sum(each.tokens for each in critiques),
            no_verdict=len(critiques) - len(verdicts),
            critique=self.critic.tokenizer.spelled(critiques[0].ids),
        )

    async def _write(self, prompt: Ids, seed: int) -> tuple[list[int], int]:
        """A critique without the token that ended it, and how many tokens were generated for it."""
        ids, generated = await self._generated(prompt, seed)
        ends = ids and ids[-1] in self.critic.tokenizer.eos_ids  # it comes as a stop word does
        return ids[:-1] if ends else ids, generated

    async def _generated(self, prompt: Ids, seed: int) -> tuple[list[int], int]:
        sampling, critic = self.spec.critique, self.critic
        room = min(sampling.max_tokens, self.spec.max_seq_len - len(prompt))
        call = GenerateCall(prompt, room, seed, sampling.temperature, sampling.top_p, False)
        thinking, ids, generated = critic.thinking, list[int](), 0
        if thinking and thinking.budget is not None:
            limit = min(thinking.budget - len(thinking.closing_ids), room)
            writer = ThinkingWriter(thinking, limit, closes=True)
            if limit > 0:
                reply = await self.generator.generate(writer.request(call))
                writer.take(reply)
                generated = len(reply)
            writer.finish(truncated=generated >= limit)
            ids, call = writer.ids, writer.answer_request(call)
            if not writer.closed:
                return ids, generated
        if len(ids) < room:
            words = () if thinking and not ids else critic.stop_words  # they may be thought, too
            rest = await self.generator.generate(replace(call, stop_words=words))
            ids, generated = [*ids, *rest], generated + len(rest)
        return ids, generated

    async def _sample(self, call: ScoreCall, number: int) -> _Critique:
        tokens = 0
        for attempt in range(ATTEMPTS if self.spec.critique.temperature else 1):
            seed = seed_of(call.input_ids, number * ATTEMPTS + attempt)
            ids, generated = await self._write(call.input_ids, seed)
            tokens += generated
            verdict = await self._verdict(call.input_ids, ids)
            if verdict is not None:
                break
        return _Critique(ids, verdict, tokens)

    async def _verdict(self, prompt: Ids, ids: list[int]) -> float | None:
        """What a critique says; None if nothing, or if no label fits behind it."""
        if self.labels is None:
            return self.critic.verdict(self.critic.tokenizer.spelled(ids))
        question = extended(prompt, self.critic.ask(ids))
        if len(question) >= self.spec.max_seq_len:
            return None
        return (await self.labels.score(ScoreCall(question))).score


@dataclass(frozen=True)
class CriteriaVerifier:
    """Asks a verifier about one criterion after the other; the score is their mean."""

    verifier: Verifier
    dialogue: Prompted

    async def score(self, call: ScoreCall) -> VerifierResult:
        """See endpoints.Verifier."""
        prompts = self.dialogue.by_criterion(call.input_ids)
        results = await together(
            self.verifier.score(replace(call, input_ids=ids)) for ids in prompts
        )
        return VerifierResult(sum(each.score for each in results) / len(results))


def seed_of(prompt: Ids, number: int) -> int:
    """The seed of a prompt's critique with this number."""
    digest = hashlib.blake2b(prompt.tobytes(), digest_size=8, key=number.to_bytes(8, "big"))
    return int.from_bytes(digest.digest(), "big") >> 1
