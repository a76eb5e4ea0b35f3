"""What the source says about a field: for reference pages and descriptions of models."""

from __future__ import annotations

import ast
import inspect
from functools import cache


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
