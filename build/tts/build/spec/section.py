"""The base of the sections of a deployment file, their types, and the texts of their fields."""

from __future__ import annotations

import ast
import inspect
import re
from functools import cache
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue

from tts.base.choices import Role
from tts.base.input_files import require_path

Count = Annotated[int, Field(strict=True, ge=1, le=2**31 - 1)]
"""What TensorRT-LLM and the wire hold as int32."""
Parallel = Annotated[int, Field(strict=True, ge=1, le=1024)]
"""A number of GPUs or CPU threads that one machine may have."""


def _path(value: object) -> object:
    if isinstance(value, str):
        require_path(value)
    return value


FilePath = Annotated[Path, BeforeValidator(_path)]
"""A path that a file can have."""


_REPOSITORY = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*", re.ASCII)


def names_repository(text: str) -> bool:
    """Whether a text may be OWNER/NAME of the hub."""
    return _REPOSITORY.fullmatch(text) is not None


class Section(BaseModel):
    """A mapping of known fields, not changed once it is checked."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        validate_default=True,
        allow_inf_nan=False,
        defer_build=True,  # an engine's process checks none
    )


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
    def tokenizer_folder(self) -> Path:
        """The folder of its tokenizer.json and chat template: by default the checkpoint."""
        values = dict(self)
        folder: Path = values[self.tokenizer_field] or values["checkpoint"]
        return folder


def field_doc(name: str, model: type) -> str:
    """The text below a field in the source of the class that declares it, if there is any."""
    for declaring in model.__mro__:
        if name in vars(declaring).get("__annotations__", {}):
            return _docs(declaring).get(name, "")
    return ""


@cache
def _docs(declaring: type) -> dict[str, str]:
    """The texts below the fields that one class declares itself."""
    (tree,) = ast.parse(inspect.getsource(declaring)).body
    assert isinstance(tree, ast.ClassDef)
    return {
        field.target.id: str(text.value.value)
        for field, text in zip(tree.body, tree.body[1:], strict=False)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
    }
