"""Token ids of chats, of steps and of verifier dialogues.

| module | job |
|---|---|
| models | tokenizers, formats and limits of both models |
| chat | the generator's prompt |
| step_ends | where a step ends, in token ids and in text |
| context | the ids of one problem's nodes, built once per node |
| writing, thinking | the requests that an expansion takes, and the thoughts of their replies |
| score_calls | requests that score a chain which was written elsewhere |
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .context import Context
    from .models import Models

__all__ = ["Context", "Models"]


def __getattr__(name: str) -> Any:
    """Load it on first use: a check of prompts and stop words needs no search and no endpoint."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{name.lower()}", __name__), name)
