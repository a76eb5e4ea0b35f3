"""What a verifier judges with: two labels of its language head, or a head of its own.

config.json names the architecture, and with it the head. Sources of the published ones:

- Qwen2ForProcessRewardModel: modeling_qwen2_rm.py of Qwen/Qwen2.5-Math-PRM-7B. `score` is Linear,
  ReLU, Linear to two classes; its card takes the softmax's class 1.
- Qwen2ForPrmModel: Skywork/Skywork-o1-Open-PRM-Qwen-2.5-1.5B and -7B; model_utils/prm_model.py of
  SkyworkAI/skywork-o1-prm-inference. `v_head.summary` is Linear to one number, whose sigmoid is the
  score. A causal model saved by TRL with a value head has the same tensors beside its own.
- ...ForTokenClassification: transformers' own; `score` is one Linear. For TRL's PRMTrainer class 1
  is a right step.
- ...ForSequenceClassification: transformers' own, for whole answers; `score` is one Linear without
  a bias, read at the last token. One number is a reward, as of TRL's RewardTrainer, whose loss is
  -log sigmoid(chosen - rejected); its sigmoid is the score. Of two classes, class 1 is a right
  answer.
- Qwen2ForRewardModel: modeling_qwen2_rm.py of Qwen/Qwen2.5-Math-RM-72B. `score` is Linear, ReLU,
  Linear to one number, read at the last token. infly/Universal-PRM-7B names the same class, and its
  card takes the sigmoid.

Nothing of a checkpoint's own code is run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .spec import HeadKind, Scores

HEAD_COLUMNS = (0, 1)
"""The columns of a head's logits, right first, then wrong: they stand for no tokens."""
HEAD_WEIGHTS = (1.0, 0.0)
"""How much the probability of each counts in a score."""


@dataclass(frozen=True)
class Head:
    """A head of linear layers with a ReLU between them."""

    kind: HeadKind
    layers: tuple[str, ...]
    """Prefixes of the layers' tensors, in the order in which they are computed."""
    scores: Scores = "steps"
    """What it was trained to score."""
    has_bias: bool = True
    """Whether every layer must have a bias; else one that is there is added."""

    @property
    def outputs(self) -> int:
        """Numbers per token: the two classes, or one value."""
        return 1 if self.kind == "value" else 2

    @property
    def text(self) -> str:
        """The head in words, for reports."""
        return f"a {self.kind} head ({', ReLU, '.join(self.layers)})"

    def tensors(self, hidden: int) -> dict[str, tuple[int, ...]]:
        """Names and shapes of its tensors, for a hidden size."""
        tensors: dict[str, tuple[int, ...]] = {}
        for name in self.layers:
            rows = self.outputs if name == self.layers[-1] else hidden
            tensors[f"{name}.weight"] = (rows, hidden)
            if self.has_bias:
                tensors[f"{name}.bias"] = (rows,)
        return tensors


_TWO_LAYERS = Head("classification", ("score.0", "score.2"))
_ONE_LAYER = Head("classification", ("score",))
VALUE_HEAD = Head("value", ("v_head.summary",))
_REWARD = Head("value", ("score.0", "score.2"), "answers")
_OF_ANSWERS = (
    Head("classification", ("score",), "answers", has_bias=False),
    Head("value", ("score",), "answers", has_bias=False),
)

HEADED: Mapping[str, tuple[str, tuple[Head, ...]]] = {
    "Qwen2ForProcessRewardModel": ("Qwen2ForCausalLM", (_TWO_LAYERS,)),
    "Qwen3ForProcessRewardModel": ("Qwen3ForCausalLM", (_TWO_LAYERS,)),
    "Qwen2ForPrmModel": ("Qwen2ForCausalLM", (VALUE_HEAD,)),
    "Qwen2ForRewardModel": ("Qwen2ForCausalLM", (_REWARD,)),
    **{
        f"{family}For{what}Classification": (f"{family}ForCausalLM", heads)
        for what, heads in (("Token", (_ONE_LAYER,)), ("Sequence", _OF_ANSWERS))
        for family in ("Llama", "Qwen2", "Qwen3", "Mistral")
    },
}
"""Architecture in config.json -> the causal model whose layers it has, and its head; where there
are two, the number of labels tells which."""


def head_of(config: Mapping[str, Any]) -> tuple[str, Head] | None:
    """The causal model whose layers a config.json describes, and its head; None: no such head."""
    for architecture, (backbone, heads) in HEADED.items():
        if config.get("architectures") == [architecture]:
            fitting = [head for head in heads if head.outputs == label_count(config)]
            return backbone, (fitting or heads)[0]
    return None


def label_count(config: Mapping[str, Any]) -> object:
    """The number of labels as transformers reads a config.json: 2 where it does not say."""
    names = config.get("id2label")
    count = len(names) if isinstance(names, dict) and names else 2
    return config.get("num_labels") or count
