"""What the orchestrator knows of both models: tokenizers, formats and limits."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

from tts.build.spec import Deployment
from tts.build.thinking import Thinking, continued_thinking, thinking_of
from tts.build.tokenizer import Ids, Message, Tokenizer
from tts.build.verifiers.critique import Critic, critic
from tts.build.verifiers.dialogue import VerifierDialogue, verifier_dialogue
from tts.build.verifiers.untrained import Prompted
from tts.problem import Problem
from tts.search import Thought

from .chat import chat_prompt, generator_chat, shown_chat
from .step_ends import StopWord, delimiter_stop_words, first_step, split_steps

QUESTION = "What is it?"
"""What a deployment's own chat asks, before there are any problems."""
MAX_PROMPTS = 64
"""Prompts whose ids are kept: they are needed when a problem is checked and when it starts."""


@dataclass(frozen=True)
class Models:
    """Both models of a deployment, without their weights."""

    generator: Tokenizer
    dialogue: VerifierDialogue | None
    """How the verifier is asked, in token ids; None for a verifier that takes text."""
    deployment: Deployment
    end_id: int
    step_stop_words: tuple[StopWord, ...]
    end_stop_words: tuple[StopWord, ...]
    """End-of-sequence ids beyond the first: an engine takes one end_id only."""
    thinking: Thinking | None = None
    """How the generator thinks before it answers; None if it does not. A chat may say otherwise:
    `thinking_about`."""
    critic: Critic | None = None
    """How a verifier that writes is asked, in place of a dialogue."""

    @classmethod
    def load(cls, deployment: Deployment, *, text_verifier: bool = False) -> Models:
        """Read the tokenizers, the verifier's unless it takes text; raises CheckpointError."""
        role = deployment.generator
        generator = Tokenizer(role.tokenizer_folder, role.chat_template_kwargs, role.chat_template)
        chat = shown_chat(generator, generator_chat(role, QUESTION))
        thinking = thinking_of(generator, role.thinking, chat)
        dialogue = writes = None
        if not text_verifier:
            spec = deployment.verifier_model
            verifier = Tokenizer(
                spec.tokenizer_folder, spec.chat_template_kwargs, spec.chat_template
            )
            if spec.facts.writes:
                writes = critic(verifier, spec)
            else:
                dialogue = verifier_dialogue(verifier, spec)
        words = delimiter_stop_words(generator.token_texts, deployment.generator.step_delimiter)
        end_id, *more_ends = generator.eos_ids
        return cls(
            generator,
            dialogue,
            deployment,
            end_id,
            tuple(words),
            tuple((token,) for token in more_ends),
            thinking,
            writes,
        )

    def with_context(self, tokens: int) -> Models:
        """A copy with a generator whose context holds `tokens` tokens."""
        generator = self.deployment.generator.model_copy(update={"max_seq_len": tokens})
        deployment = self.deployment.model_copy(update={"generator": generator})
        return replace(self, deployment=deployment)

    def prompts(self, problem: Problem) -> tuple[Ids, Ids | None]:
        """The generator's prompt and the verifier's dialogue before any step, int32 [length].

        The dialogue is None for a verifier that takes text. Raises CheckpointError where the chat
        template refuses the conversation.
        """
        return self._prompts(Problem("", problem.question, history=problem.history))[:2]

    def thinking_about(self, problem: Problem) -> Thinking | None:
        """How the generator thinks about a problem: its chat may switch it; raises as `prompts`."""
        return self._prompts(Problem("", problem.question, history=problem.history))[2]

    def thinking_in(
        self, chat: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()
    ) -> Thinking | None:
        """How the generator thinks before it answers a chat, which is as its template shows it."""
        spec = self.deployment.generator.thinking
        return thinking_of(self.generator, spec, chat, tools=tools, may_be_off=True)

    def continued_thinking(self, chat: Sequence[Message]) -> Thinking | None:
        """How the generator thinks that is to continue the last message of a chat."""
        return continued_thinking(self.generator, self.deployment.generator.thinking, chat)

    def asked_with(self, variables: Mapping[str, Any]) -> Models:
        """A copy with variables of the generator's chat template.

        Raises CheckpointError for one that the template does not read, and where the deployment's
        section on thinking does not go with them.
        """
        return self._asked_with(json.dumps(variables, sort_keys=True)) if variables else self

    @cached_property
    def _asked_with(self) -> Callable[[str], Models]:
        @lru_cache(maxsize=MAX_PROMPTS)
        def models(variables: str) -> Models:
            generator = self.generator.with_template_kwargs(json.loads(variables))
            models = replace(self, generator=generator)
            chat = generator_chat(self.deployment.generator, QUESTION)
            return replace(models, thinking=models.thinking_in(shown_chat(generator, chat)))

        return models

    @cached_property
    def _prompts(self) -> Callable[[Problem], tuple[Ids, Ids | None, Thinking | None]]:
        @lru_cache(maxsize=MAX_PROMPTS)
        def prompts(problem: Problem) -> tuple[Ids, Ids | None, Thinking | None]:
            spec = self.deployment.generator
            chat = generator_chat(spec, problem.question, problem.history)
            thinking = self.thinking_in(shown_chat(self.generator, chat))
            prompt = chat_prompt(self.generator, chat, thinking)
            dialogue = self.dialogue.first(problem.full_question, "") if self.dialogue else None
            if self.critic:
                dialogue = self.critic.prompt(problem.full_question, ())
            return prompt, dialogue, thinking

        return prompts

    @property
    def step_delimiter(self) -> str:
        """What ends a step, in the text."""
        return self.deployment.generator.step_delimiter

    @cached_property
    def verifier(self) -> VerifierDialogue:
        """How the verifier is asked; RuntimeError for one that takes text or writes."""
        if self.dialogue is None:
            raise RuntimeError("this verifier takes text: it has no dialogue in token ids")
        return self.dialogue

    @cached_property
    def takes_text(self) -> bool:
        """Whether chains are scored as text, by a verifier without a tokenizer."""
        return self.dialogue is None and self.critic is None

    @cached_property
    def reads_whole(self) -> bool:
        """Whether the verifier reads the answer as one text."""
        return self.deployment.verifier_model.reads_whole

    @cached_property
    def verifier_context(self) -> int:
        """Tokens of the context of a verifier that is a model."""
        return self.deployment.verifier_model.max_seq_len

    def score_cost(self, tokens: int) -> int:
        """What the score of a chain of so many tokens takes of the verifier's budget."""
        critiques, requests = self._critiques_and_requests
        return critiques or requests * tokens

    @cached_property
    def _critiques_and_requests(self) -> tuple[int, int]:
        """Critiques that a score takes, or 0, and otherwise requests."""
        dialogue = self.dialogue
        requests = len(dialogue.answers) if isinstance(dialogue, Prompted) else 1
        return self.deployment.critiques, requests

    def thoughts(
        self, token_ids: Sequence[int], *, truncated: bool, whole: bool
    ) -> tuple[Thought, ...]:
        """Generated ids as thoughts: one, or with `whole` one per step."""
        token_ids, truncated = self.without_end(token_ids, truncated=truncated)
        delimiter = self.step_delimiter
        if whole:
            return split_steps(token_ids, self.generator.decode, delimiter, truncated=truncated)
        return (first_step(token_ids, self.generator.decode, delimiter, truncated=truncated),)

    def without_end(self, ids: Sequence[int], *, truncated: bool) -> tuple[Sequence[int], bool]:
        """Generated ids without a further end-of-sequence id, and whether a limit ended them."""
        return (ids[:-1], False) if tuple(ids[-1:]) in self.end_stop_words else (ids, truncated)

    def room(self, ids: Ids) -> int:
        """Tokens that the generator's context has left behind these."""
        return self.deployment.generator.max_seq_len - len(ids)
