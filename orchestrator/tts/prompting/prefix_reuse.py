"""How much of the verifier's prompts begins like one that it has read."""

from __future__ import annotations

import numpy as np

from tts.build.tokenizer import Ids
from tts.search import NodePath

from .context import Context


class PrefixReuse:
    """The dialogues of one problem that the verifier reads, and those above them."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._keys: set[bytes] = set()

    def read(self, node: NodePath) -> int:
        """Note that the verifier reads the dialogue of `node`; how many tokens it need not compute.

        It has read them before: in the dialogue of a node above or an equal one, or, as all share
        the question, in any.
        """
        context, models = self._context, self._context.models
        if models.takes_text:
            return 0
        extends = models.dialogue and not models.reads_whole
        above, keys = node, list[bytes]()
        while above:
            # what does not extend the dialogues above it need not have them made
            if extends or above == node or context.has_dialogue(above):
                if (key := context.score_key(above)) in self._keys:
                    break
                keys.append(key)
            above = above[:-1]
        before = context.verifier_ids(above)
        reused = common_length(context.verifier_ids(node), before) if self._keys else 0
        self._keys.update(keys)
        return reused


def common_length(one: Ids, other: Ids) -> int:
    """How many tokens both begin with."""
    length = min(len(one), len(other))
    differing = np.flatnonzero(one[:length] != other[:length])
    return int(differing[0]) if len(differing) else length
