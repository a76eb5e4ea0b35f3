"""A server and its capabilities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

DialectName = Literal["vllm", "sglang", "llama.cpp", "trtllm-serve"]
LabelsBy = Literal["", "ids", "bias"]
"""How the probabilities of labels are read: of named ids, or of a draw that a bias confines to
them."""

NAMES: dict[DialectName, str] = {
    "vllm": "vLLM",
    "sglang": "SGLang",
    "llama.cpp": "llama.cpp",
    "trtllm-serve": "trtllm-serve",
}


@dataclass(frozen=True)
class Capabilities:
    """A server and its capabilities, by its answers to probes."""

    kind: DialectName
    model: str
    """The model that is asked."""
    version: str = ""
    context: int | None = None
    """Tokens of a prompt and its output together; None where the server does not say."""
    generates: bool = True
    streams: bool = False
    """Tokens can be had one by one; else an output comes in one piece."""
    seeds: bool = False
    """Whether a seed gave the same tokens twice, one request after the other."""
    seeds_beside_others: bool = False
    """Whether it did so while others were in flight, too."""
    siblings: bool = False
    """Several samples of one request were those of requests with the next seeds."""
    log_probs: bool = False
    """Log-probabilities of generated tokens."""
    prompt_log_probs: bool = False
    """Log-probabilities of a prompt's tokens, which verifier format likelihood needs."""
    labels: LabelsBy = ""
    """How a verifier's labels are read; empty: they are not."""
    grammar: str = ""
    """The field that takes a grammar; empty: guides are refused."""
    pooling: bool = False
    """It serves a model with a head, which verifiers with a head need."""

    def describe(self) -> str:
        """The server and its capabilities in one line."""
        name = " ".join(filter(None, (NAMES[self.kind], self.version)))
        says = [f"context {self.context:,}"] if self.context else []
        if self.generates:
            says.append(self._seeds())
            read = [
                *(["tokens"] if self.log_probs else []),
                *(["prompts"] if self.prompt_log_probs else []),
                *(["labels"] if self.labels else []),
            ]
            says.append(f"log-probabilities of {', '.join(read)}" if read else "no probabilities")
            says.append(f"grammars ({self.grammar})" if self.grammar else "no grammars")
        if self.pooling:
            says.append("scores of a head")
        return f"{name} serving {self.model}: " + "; ".join(says)

    def _seeds(self) -> str:
        if self.seeds and not self.seeds_beside_others:
            return "seeds honoured one at a time, NOT with several in flight"
        if self.siblings:
            return "seeds honoured, several samples a request"
        return "seeds honoured" if self.seeds else "seeds NOT honoured"
