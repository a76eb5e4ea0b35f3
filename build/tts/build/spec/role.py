"""What the orchestrator needs to know of a model, wherever its engine runs."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field, JsonValue

from .section import Count, Section

Role = Literal["generator", "verifier"]
"""Which of the two models."""
ROLES: tuple[Role, Role] = ("generator", "verifier")


class RoleSpec(Section):
    """Fields that sections `generator` and `verifier` share, compiled or remote."""

    max_seq_len: Count
    """Upper bound of one request's prompt plus output, in tokens."""

    chat_template: str | None = None
    """Chat template (Jinja, as text) in place of the checkpoint's own."""

    chat_template_kwargs: dict[str, JsonValue] = Field(default_factory=dict)
    """Variables of the chat template, such as `enable_thinking: false`; it must read each."""

    tokenizer_field: ClassVar[str]
    """The field that names the folder of the tokenizer."""

    @property
    @abstractmethod
    def tokenizer_folder(self) -> Path:
        """The folder of its tokenizer.json and chat template."""
