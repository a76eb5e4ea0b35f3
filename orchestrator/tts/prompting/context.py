"""The token ids of one problem's tree: what to send for a node, built once per node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tts.build.errors import DatasetError
from tts.build.spec import Deployment
from tts.build.tokenizer import Ids, Tokenizer
from tts.build.verifier_format import VerifierFormat, verifier_format
from tts.problem import Problem
from tts.search import NodePath, Thought

from .chat import generator_prompt
from .steps import StopWord, delimiter_stop_words, first_step, split_steps


@dataclass(frozen=True)
class Models:
    """What the orchestrator knows of both models: tokenizers, formats and limits."""

    generator: Tokenizer
    verifier: VerifierFormat
    deployment: Deployment
    end_id: int
    step_stop_words: tuple[StopWord, ...]
    end_stop_words: tuple[StopWord, ...]
    """End-of-sequence ids beyond the first: an engine takes one end_id only."""

    @classmethod
    def load(cls, deployment: Deployment) -> Models:
        """Read both tokenizers; raises CheckpointError."""
        generator = Tokenizer(deployment.generator.checkpoint)
        verifier = Tokenizer(deployment.verifier.checkpoint)
        words = delimiter_stop_words(generator.token_texts, deployment.generator.step_delimiter)
        end_id, *more_ends = generator.eos_ids
        return cls(
            generator,
            verifier_format(verifier, deployment.verifier),
            deployment,
            end_id,
            tuple(words),
            tuple((token,) for token in more_ends),
        )

    def thoughts(
        self, token_ids: Sequence[int], *, truncated: bool, whole: bool
    ) -> tuple[Thought, ...]:
        """Generated ids as thoughts: one, or with `whole` one per step."""
        if tuple(token_ids[-1:]) in self.end_stop_words:
            token_ids, truncated = token_ids[:-1], False
        delimiter = self.deployment.generator.step_delimiter
        if whole:
            return split_steps(token_ids, self.generator.decode, delimiter, truncated=truncated)
        return (first_step(token_ids, self.generator.decode, delimiter, truncated=truncated),)


@dataclass
class Context:
    """The ids of one problem's nodes: generator prompt plus path, and verifier dialogue."""

    models: Models
    problem: Problem
    prompt: Ids
    _generator: dict[NodePath, Ids] = field(default_factory=dict)
    _steps: dict[NodePath, str] = field(default_factory=dict)
    _verifier: dict[NodePath, Ids] = field(default_factory=dict)

    @classmethod
    def of(cls, models: Models, problem: Problem) -> Context:
        """Tokenise a problem; raises DatasetError if it does not fit either engine."""
        prompt = generator_prompt(models.generator, models.deployment.generator, problem.question)
        scored = models.verifier.first(problem.question, "")
        generator, verifier = models.deployment.generator, models.deployment.verifier
        for role, ids, limit in (
            ("generator", prompt, generator.max_seq_len),
            ("verifier", scored, verifier.max_seq_len),
        ):
            if len(ids) >= limit:
                raise DatasetError(
                    f"Problem {problem.id} is {len(ids)} tokens long for the {role}, whose "
                    f"max_seq_len is {limit}; nothing would be left to generate.",
                    hint=f"Raise {role}.max_seq_len in the deployment, or leave the problem out.",
                )
        context = cls(models, problem, prompt)
        context._generator[()] = prompt
        return context

    def __contains__(self, node: NodePath) -> bool:
        return node in self._generator

    def add(self, node: NodePath, thought: Thought) -> None:
        """Take in a node's thought, unless it is there; its parent's must be there already."""
        if node in self._generator:
            return
        self._generator[node] = np.concatenate(
            (self._generator[node[:-1]], np.asarray(thought.token_ids, dtype=np.int32))
        )
        self._steps[node] = thought.text.strip()

    def generator_ids(self, parent: NodePath) -> Ids:
        """Prompt plus everything generated down to `parent`, int32 [length]."""
        return self._generator[parent]

    def verifier_ids(self, node: NodePath) -> Ids:
        """The dialogue that scores the last step of `node`, int32 [length].

        Built when it is first asked for: not every step is scored, but each is tokenised once.
        """
        if (known := self._verifier.get(node)) is not None:
            return known
        verifier, step = self.models.verifier, self._steps[node]
        ids = (
            verifier.first(self.problem.question, step)
            if len(node) == 1
            else verifier.extend(self.verifier_ids(node[:-1]), step)
        )
        self._verifier[node] = ids
        return ids
