"""The token ids of one problem's tree: what to send for a node, built once per node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tts.base.errors import DatasetError
from tts.build.tokenizer import Ids
from tts.build.verifiers.prompted import Prompted
from tts.endpoints.base import ScoreCall
from tts.problem import Problem
from tts.search import NodePath, Stop, Thought

from .models import Models

NO_IDS = np.empty(0, dtype=np.int32)
NOTHING: Mapping[str, Any] = {}


@dataclass
class Context:
    """The ids of one problem's nodes: generator prompt plus path, and verifier dialogue."""

    models: Models
    problem: Problem
    prompt: Ids
    dialogue: Ids
    """The verifier's before any step; empty for one that takes text."""
    _generator: dict[NodePath, Ids] = field(default_factory=dict)
    _texts: dict[NodePath, str] = field(default_factory=dict)
    _verifier: dict[NodePath, Ids] = field(default_factory=dict)
    _dialogues: dict[tuple[NodePath, str], Ids] = field(default_factory=dict)
    """Verifier ids by parent and step: equal siblings are tokenised once and share theirs."""
    _steps: dict[NodePath, tuple[str, ...]] = field(default_factory=lambda: {(): ()})
    """The stripped texts of the chain that ends in a node."""
    _thinking: dict[NodePath, int] = field(default_factory=dict)
    """Nodes inside the thinking, the root among them: its tokens so far."""
    _unread: set[NodePath] = field(default_factory=set)
    """Nodes of which the verifier reads nothing, as of those above them: thinking."""
    _unanswered: set[NodePath] = field(default_factory=set)
    """Nodes of chains that have no answer, and so no score: those inside or right behind thinking.
    """
    _thought: set[NodePath] = field(default_factory=set)
    """Nodes of thinking."""
    _read: set[bytes] = field(default_factory=set)
    """The dialogues that the verifier reads, and those above them, by key."""

    @classmethod
    def of(cls, models: Models, problem: Problem) -> Context:
        """Tokenise a problem.

        Raises DatasetError if it does not fit either engine, CheckpointError if the chat template
        refuses it.
        """
        models, spec = models.asked_with(problem.chat_template_kwargs), models.deployment
        prompt, dialogue = models.prompts(problem)
        if (thinking := models.thinking_about(problem)) != models.thinking:
            models = replace(models, thinking=thinking)
        sizes = [("generator", prompt, spec.generator.max_seq_len)]
        if dialogue is not None:
            sizes.append(("verifier", dialogue, spec.verifier_model.max_seq_len))
        for role, ids, limit in sizes:
            if len(ids) >= limit:
                raise DatasetError(
                    f"Problem {problem.id} is {len(ids)} tokens long for the {role}, whose "
                    f"max_seq_len is {limit}; nothing would be left to generate.",
                    hint=f"Raise {role}.max_seq_len in the deployment, or leave the problem out.",
                )
        context = cls(models, problem, prompt, NO_IDS if dialogue is None else dialogue)
        context._generator[()] = prompt
        if models.thinking:
            context._thinking[()] = 0
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
        if not thought.thinking:
            self._texts[node] = thought.text
            if thought.blank and node[:-1] in self._thought:
                self._unanswered.add(node)
            return
        self._texts[node] = self._add_thinking(node, thought)
        self._thought.add(node)
        if node in self._unread or thought.stop is not Stop.STEP:
            self._unanswered.add(node)

    def _add_thinking(self, node: NodePath, thought: Thought) -> str:
        """Take in a part of the thinking; what the verifier reads of it."""
        thinking, ids = self.models.thinking, thought.token_ids
        above = self._thinking.get(node[:-1])
        if thinking and above is not None and thinking.end(ids) is None:
            self._thinking[node] = above + len(ids)
        read = self.models.deployment.verifier.reads_thinking
        if read == "none":
            self._unread.add(node)
            return ""
        return thought.text if read == "all" else self.models.generator.decode(ids[-read:])

    def thought_tokens(self, parent: NodePath) -> int | None:
        """Tokens of the thinking that `parent` is in; None where it is behind it."""
        return self._thinking.get(parent)

    def give_own_turn(self, node: NodePath) -> None:
        """Make a step without text a turn of the verifier's dialogue, where it would add nothing.

        A node that was never generated becomes such a step. One text of all steps has no turns.
        """
        self.add(node, Thought((), "", Stop.STEP))
        if self.models.dialogue and not self.models.reads_whole:
            above = self.verifier_ids(node[:-1])
            number = self._number(node[:-1]) + 1
            self._verifier[node] = self.models.verifier.add_turn(above, "", number)

    def generator_ids(self, parent: NodePath) -> Ids:
        """Prompt plus everything generated down to `parent`, int32 [length]."""
        return self._generator[parent]

    def line(self, parent: NodePath) -> str:
        """The text generated down to `parent` since the last line break."""
        line = ""
        while parent and "\n" not in line:
            line = self._texts[parent] + line
            parent = parent[:-1]
        return line.rpartition("\n")[2]

    def room(self, parent: NodePath) -> int:
        """Tokens that the generator's context has left below `parent`."""
        return self.models.room(self._generator[parent])

    def verifier_ids(self, node: NodePath) -> Ids:
        """The dialogue that scores the last step of `node`, int32 [length].

        Built when it is first asked for: not every step is scored, but each is tokenised once.
        """
        if (known := self._verifier.get(node)) is not None:
            return known
        if critic := self.models.critic:
            asked = critic.prompt(self.problem.full_question, self._chain(node))
            return self._verifier.setdefault(node, asked)
        verifier, parent, step = self.models.verifier, node[:-1], self._texts[node].strip()
        ids = self._dialogues.get((parent, step))
        if ids is None:
            if self.models.reads_whole:
                ids = verifier.first(self.problem.full_question, self._said(node).strip())
            elif parent and parent not in self._unread:
                ids = verifier.extend(self.verifier_ids(parent), step, self._number(node))
            else:
                ids = verifier.first(self.problem.full_question, step)
            self._dialogues[parent, step] = ids
        self._verifier[node] = ids
        return ids

    def score_key(self, node: NodePath) -> bytes:
        """The key of a node's score: nodes with the same key have the same score."""
        if not self.models.takes_text:
            return self.verifier_ids(node).tobytes()
        return "\0".join((*self._chain(node), self._said(node))).encode()

    def score_tokens(self, node: NodePath) -> int:
        """Tokens of the chain that the verifier reads for the score of `node`."""
        return len(self._generator[node] if self.models.takes_text else self.verifier_ids(node))

    def score_cost(self, node: NodePath) -> int:
        """What the score of `node` takes of the verifier's budget: critiques, or prompt tokens."""
        dialogue, critiques = self.models.dialogue, self.models.deployment.critiques
        requests = len(dialogue.answers) if isinstance(dialogue, Prompted) else 1
        return critiques or requests * self.score_tokens(node)

    def read(self, node: NodePath) -> int:
        """Note that the verifier reads the dialogue of `node`; how many tokens it need not compute.

        It has read them before: in the dialogue of a node above or an equal one, or, as all share
        the question, in any.
        """
        if self.models.takes_text:
            return 0
        extends = self.models.dialogue and not self.models.reads_whole
        above, new = node, []
        while above:
            # what does not extend the dialogues above it need not have them made
            if extends or above == node or above in self._verifier:
                if (key := self.score_key(above)) in self._read:
                    break
                new.append(key)
            above = above[:-1]
        begun = self.verifier_ids(above) if above else self.dialogue
        reused = common_length(self.verifier_ids(node), begun) if self._read else 0
        self._read.update(new)
        return reused

    def can_be_scored(self, node: NodePath) -> bool:
        """Whether the chain that ends in `node` has an answer and fits the verifier's context."""
        if node in self._unanswered:
            return False
        if self.models.takes_text:
            return True
        return len(self.verifier_ids(node)) < self.models.deployment.verifier_model.max_seq_len

    def score_call(self, node: NodePath) -> ScoreCall:
        """The request that scores the last step of `node`."""
        question, chain = self.problem.full_question, self._chain(node)
        if self.models.takes_text:
            return ScoreCall(NO_IDS, question, chain, self._said(node), self.problem.extra)
        return ScoreCall(self.verifier_ids(node), question, chain)

    def _said(self, node: NodePath) -> str:
        """The text of the chain that ends in a node, as it was written."""
        return "".join(self._texts[node[:end]] for end in range(1, len(node) + 1))

    def _number(self, node: NodePath) -> int:
        """How many steps that say something the verifier reads down to `node`."""
        return sum(map(bool, self._chain(node)))

    def _chain(self, node: NodePath) -> tuple[str, ...]:
        if (known := self._steps.get(node)) is None:
            own = () if node in self._unread else (self._texts[node].strip(),)
            known = (*self._chain(node[:-1]), *own)
            self._steps[node] = known
        return known


def common_length(one: Ids, other: Ids) -> int:
    """How many tokens both begin with."""
    length = min(len(one), len(other))
    differing = np.flatnonzero(one[:length] != other[:length])
    return int(differing[0]) if len(differing) else length


def score_calls(
    models: Models, question: str, steps: Sequence[str], extra: Mapping[str, Any] = NOTHING
) -> list[ScoreCall]:
    """A request for the score of each step after those before it.

    `extra` is the problem's, for a verifier that takes text. Raises DatasetError for a chain that
    is longer than the verifier's context, before anything of it is sent.
    """
    said = tuple(step.strip() for step in steps)
    chains = [said[:length] for length in range(1, len(said) + 1)]
    if models.takes_text or not said:
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
        dialogues = [models.verifier.first(question, said[0])]
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
