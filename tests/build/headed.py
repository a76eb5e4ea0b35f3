"""Random verifiers with a head, rebuilt from their published description, saved as those are.

Linear, ReLU, Linear to two classes (Qwen2.5-Math-PRM) or to one value (Qwen2.5-Math-RM), or Linear
to one value (Skywork-o1-Open-PRM), over transformers' own layers; see the sources in
tts.build.verifier_heads.
"""

import json

import torch
import transformers
from safetensors.torch import save_file
from torch import nn


class HeadedModel:
    """The layers and a head; `scores` gives a number in 0..1 for every token."""

    def __init__(self, architecture, shape, seed=0):
        torch.manual_seed(seed)
        self.architecture = architecture
        family, _, self.kind = architecture.partition("For")
        self.config = getattr(transformers, f"{family}Config")(**shape)
        self.layers = getattr(transformers, f"{family}Model")(self.config).eval()
        hidden = self.config.hidden_size
        self.two_classes = self.kind == "ProcessRewardModel"
        self.head: nn.Module = nn.Linear(hidden, 2 if self.two_classes else 1)
        if self.kind != "PrmModel":
            self.head = nn.Sequential(nn.Linear(hidden, hidden), nn.ReLU(), self.head)
        with torch.no_grad():  # fresh biases and norms are zeros and ones, which hide mistakes
            for parameter in (*self.layers.parameters(), *self.head.parameters()):
                if parameter.dim() == 1:
                    parameter.add_(0.1 * torch.randn_like(parameter))

    @torch.no_grad()
    def scores(self, ids):
        """Token ids [rows, tokens] -> score at each token [rows, tokens]."""
        out = self.head(self.layers(ids).last_hidden_state)
        return out.softmax(dim=-1)[..., 1] if self.two_classes else out[..., 0].sigmoid()

    def save(self, folder):
        """Write config.json, with an auto_map to code that must not be run, and the weights."""
        folder.mkdir()
        wraps = self.kind == "PrmModel"
        prefix = "v_head.summary" if wraps else "score"
        weights = {f"model.{k}": v for k, v in self.layers.state_dict().items()}
        weights |= {f"{prefix}.{k}": v for k, v in self.head.state_dict().items()}
        if wraps:  # a causal model, whose language head stays unused
            weights["lm_head.weight"] = torch.zeros(self.config.vocab_size, self.config.hidden_size)
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
        config = self.config.to_dict() | {
            "architectures": [self.architecture],
            "auto_map": {"AutoModel": f"evil.{self.architecture}"},
        }
        (folder / "config.json").write_text(json.dumps(config))
        (folder / "evil.py").write_text("raise SystemExit('this code must not be run')\n")
