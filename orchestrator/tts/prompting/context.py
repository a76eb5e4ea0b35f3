"""The token ids of one problem's tree: what to send for a node, built once per node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tts.base.errors import DatasetError
from tts.build.tokenizer import Ids
from tts.endpoints.base import ScoreCall
from tts.endpoints.thinking import extended
from tts.problem import Problem
from tts.search import NodePath, Stop, Thought

from .models import Models

NO_IDS = np.empty(0, dtype=np.int32)


@dataclass(eq=False, slots=True)
class _Node:
    """The ids and texts of a node; the root is one, without text."""

    above: _Node | None
    token_ids: Sequence[int] = ()
    ids: Ids | None = None
    """The generator's ids, the prompt and everything generated down to the node, once they are
    asked for: few nodes are expanded."""
    text: str = ""
    """The part of its text that the verifier reads."""
    thinking: int | None = None
    """Tokens that the model has thought so far; None once it thinks no more, or never does."""
    is_thought: bool = False
    is_read: bool = True
    """Whether the verifier reads its text; if not, the nodes above it are not read either."""
    has_answer: bool = True
    """Whether its chain can be scored: not while the answer has not begun."""
    steps: tuple[str, ...] | None = None
    """The texts that the verifier reads of its chain, stripped, one each step, once asked for."""
    dialogue: Ids | None = None
    """The verifier's ids, once they are asked for: not every step is scored."""
    key: bytes = b""
    dialogues_below: dict[str, Ids] | None = None
    """Verifier ids by step: equal siblings are tokenised once and share theirs."""


@dataclass
class Context:
    """The ids of one problem's nodes: generator prompt plus path, and verifier dialogue."""

    models: Models
    problem: Problem
    _nodes: dict[NodePath, _Node]

    @classmethod
    def of(cls, models: Models, problem: Problem) -> Context:
        """Tokenise a problem; DatasetError if it does not fit, CheckpointError by the template."""
        models, spec = models.asked_with(problem.chat_template_kwargs), models.deployment
        prompt, dialogue = models.prompts(problem)
        if (thinking := models.thinking_about(problem)) != models.thinking:
            models = replace(models, thinking=thinking)
        sizes = [("generator", prompt, spec.generator.max_seq_len)]
        if dialogue is not None:
            sizes.append(("verifier", dialogue, models.verifier_context))
        for role, ids, limit in sizes:
            if len(ids) >= limit:
                raise DatasetError(
                    f"Problem {problem.id} is {len(ids)} tokens long for the {role}, whose "
                    f"max_seq_len is {limit}; nothing would be left to generate.",
                    hint=f"Raise {role}.max_seq_len in the deployment, or leave the problem out.",
                )
        root = _Node(None, ids=prompt, thinking=0 if models.thinking else None, steps=())
        root.dialogue = NO_IDS if dialogue is None else dialogue
        return cls(models, problem, {(): root})

    def __contains__(self, node: NodePath) -> bool:
        return node in self._nodes

    def add(self, node: NodePath, thought: Thought) -> None:
        """Take in a node's thought, unless it is there; its parent's must be there already."""
        if node in self._nodes:
            return
        above = self._nodes[node[:-1]]
        new = self._nodes[node] = _Node(above, thought.token_ids, text=thought.text)
        if thought.thinking:
            self._add_thinking(new, above, thought)
        elif above.is_thought:
            new.has_answer = not thought.blank

    def _add_thinking(self, new: _Node, above: _Node, thought: Thought) -> None:
        """Note that a new node is a part of the thinking, and what the verifier reads of it."""
        thinking, ids = self.models.thinking, thought.token_ids
        if thinking and above.thinking is not None and thinking.end(ids) is None:
            new.thinking = above.thinking + len(ids)
        reads = self.models.deployment.verifier.reads_thinking
        if reads == "none":
            new.text = ""
        elif reads != "all":
            new.text = self.models.generator.decode(ids[-reads:])
        new.is_thought = True
        new.is_read = reads != "none"
        new.has_answer = new.is_read and thought.stop is Stop.STEP

    def give_own_turn(self, node: NodePath) -> None:
        """Make a step without text a turn of the verifier's dialogue, where it would add nothing.

        A node that was never generated becomes such a step. One text of all steps has no turns.
        """
        self.add(node, Thought((), "", Stop.STEP))
        if self.models.dialogue and not self.models.reads_whole:
            above = self._nodes[node[:-1]]
            turn = self.models.verifier.add_turn(self._dialogue(above), "", _number(above) + 1)
            self._nodes[node].dialogue, self._nodes[node].key = turn, turn.tobytes()

    def generator_ids(self, parent: NodePath) -> Ids:
        """Prompt plus everything generated down to `parent`, int32 [length]."""
        node, pieces = self._nodes[parent], list[Sequence[int]]()
        while node.ids is None:
            pieces.append(node.token_ids)
            assert node.above
            node = node.above
        if pieces:
            behind = [token for piece in reversed(pieces) for token in piece]
            self._nodes[parent].ids = extended(node.ids, behind)
        ids = self._nodes[parent].ids
        assert ids is not None
        return ids

    def room(self, parent: NodePath) -> int:
        """Tokens that the generator's context has left below `parent`."""
        return self.models.room(self.generator_ids(parent))

    def thought_tokens(self, parent: NodePath) -> int | None:
        """Tokens of the thinking that `parent` is in; None where it is behind it."""
        return self._nodes[parent].thinking

    def line(self, parent: NodePath) -> str:
        """The text generated down to `parent` since the last line break."""
        return _text(self._nodes[parent]).rpartition("\n")[2]

    def verifier_ids(self, node: NodePath) -> Ids:
        """The dialogue that scores the last step of `node`, int32 [length]."""
        return self._dialogue(self._nodes[node])

    def score_key(self, node: NodePath) -> bytes:
        """The key of a node's score: nodes with the same key have the same score."""
        record = self._nodes[node]
        if not record.key:
            if self.models.takes_text:
                record.key = "\0".join((*_steps(record), _text(record))).encode()
            else:
                record.key = self._dialogue(record).tobytes()
        return record.key

    def score_tokens(self, node: NodePath) -> int:
        """Tokens of the chain that the verifier reads for the score of `node`."""
        return len(self.generator_ids(node) if self.models.takes_text else self.verifier_ids(node))

    def score_cost(self, node: NodePath) -> int:
        """What the score of `node` takes of the verifier's budget."""
        return self.models.score_cost(self.score_tokens(node))

    def can_be_scored(self, node: NodePath) -> bool:
        """Whether the chain that ends in `node` has an answer and fits the verifier's context."""
        if not self._nodes[node].has_answer:
            return False
        if self.models.takes_text:
            return True
        return len(self.verifier_ids(node)) < self.models.verifier_context

    def score_call(self, node: NodePath) -> ScoreCall:
        """The request that scores the last step of `node`."""
        record, problem = self._nodes[node], self.problem
        ids = NO_IDS if self.models.takes_text else self._dialogue(record)
        return ScoreCall(ids, problem.full_question, _steps(record), _text(record), problem.extra)

    def has_dialogue(self, node: NodePath) -> bool:
        """Whether the verifier's ids of `node` have been built."""
        return self._nodes[node].dialogue is not None

    def _dialogue(self, node: _Node) -> Ids:
        """The dialogue that scores a node's step, tokenised once for all equal siblings."""
        if node.dialogue is not None:
            return node.dialogue
        above = node.above
        assert above
        if critic := self.models.critic:
            node.dialogue = critic.prompt(self.problem.full_question, _steps(node))
        else:
            verifier, step = self.models.verifier, node.text.strip()
            if above.dialogues_below is None:
                above.dialogues_below = {}
            ids = above.dialogues_below.get(step)
            if ids is None:
                question = self.problem.full_question
                if self.models.reads_whole:
                    ids = verifier.first(question, _text(node).strip())
                elif above.above and above.is_read:
                    ids = verifier.extend(self._dialogue(above), step, _number(node))
                else:
                    ids = verifier.first(question, step)
                above.dialogues_below[step] = ids
            node.dialogue = ids
        return node.dialogue


def _text(node: _Node) -> str:
    texts: list[str] = []
    while node.above:
        texts.append(node.text)
        node = node.above
    return "".join(reversed(texts))


def _steps(node: _Node) -> tuple[str, ...]:
    """The texts that the verifier reads of the chain that ends in a node, one each step."""
    unbuilt: list[_Node] = []
    last = node
    while last.steps is None:
        unbuilt.append(last)
        assert last.above
        last = last.above
    steps = last.steps
    for each in reversed(unbuilt):
        steps = each.steps = (*steps, each.text.strip()) if each.is_read else steps
    return steps


def _number(node: _Node) -> int:
    return sum(map(bool, _steps(node)))
