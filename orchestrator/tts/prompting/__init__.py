"""Token ids of chats, of steps and of verifier dialogues.

| module | job |
|---|---|
| models | tokenizers, formats and limits of both models |
| chat | the generator's prompt |
| step_ends | where a step ends, in token ids and in text |
| context | the ids of one problem's nodes, built once per node; requests that score a given chain |
"""

from .context import Context
from .models import Models

__all__ = ["Context", "Models"]
