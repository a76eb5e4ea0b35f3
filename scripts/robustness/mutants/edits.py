"""Mutants of a module: small changes of its source, each of which a test should notice. Pure.

An edit replaces one expression or statement and leaves the rest of the file as it is, so that its
diff shows what it does. Left alone are annotations, docstrings, what a class is declared to be
(frozen, slots), and the statements of a module or class, whose loss breaks the import.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

COMPARISONS: dict[type[ast.cmpop], ast.cmpop] = {
    ast.Lt: ast.LtE(),
    ast.LtE: ast.Lt(),
    ast.Gt: ast.GtE(),
    ast.GtE: ast.Gt(),
    ast.Eq: ast.NotEq(),
    ast.NotEq: ast.Eq(),
    ast.Is: ast.IsNot(),
    ast.IsNot: ast.Is(),
    ast.In: ast.NotIn(),
    ast.NotIn: ast.In(),
}
ORDERINGS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
ARITHMETIC: dict[type[ast.operator], ast.operator] = {
    ast.Add: ast.Sub(),
    ast.Sub: ast.Add(),
    ast.Mult: ast.Div(),
    ast.Div: ast.Mult(),
    ast.FloorDiv: ast.Mult(),
}
DROPPED = (ast.Expr, ast.Assign, ast.AugAssign, ast.Delete, ast.Continue, ast.Break, ast.Raise)
"""Statements that may become `pass`."""


@dataclass(frozen=True)
class Edit:
    """`old`, which is at byte `start` of the source, becomes `new`."""

    start: int
    old: str
    new: str

    def applied(self, source: str) -> str:
        """The source with this edit."""
        data = source.encode()
        end = self.start + len(self.old.encode())
        return (data[: self.start] + self.new.encode() + data[end:]).decode()


def edits(source: str) -> list[Edit]:
    """Every edit of a module's source, in the order of the file."""
    data = source.encode()
    lines = [0]
    for line in data.splitlines(keepends=True):
        lines.append(lines[-1] + len(line))
    found = []
    for node, new in _changes(ast.parse(source), in_function=False):
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        start = lines[node.lineno - 1] + node.col_offset
        end = lines[node.end_lineno - 1] + node.end_col_offset
        found.append(Edit(start, data[start:end].decode(), ast.unparse(new)))
    return sorted(found, key=lambda edit: (edit.start, edit.old, edit.new))


def lines_run_with(source: str, edit: Edit) -> frozenset[int]:
    """The lines of the innermost statement around an edit, without the statements inside of it.

    A tracer reports a statement by some of its lines, and seldom by that of the expression.
    """
    line = 1 + source.encode().count(b"\n", 0, edit.start)
    around = [
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.stmt) and line in _lines(node)
    ]
    statement = min(around, key=lambda node: len(_lines(node)))
    inside = (
        _lines(node)
        for node in ast.walk(statement)
        if isinstance(node, ast.stmt) and node is not statement
    )
    return frozenset(_lines(statement)).difference(*inside) | {line}


def function_around(source: str, edit: Edit) -> tuple[str, int] | None:
    """The outermost function whose body an edit is in: its qualified name and first line."""
    line = 1 + source.encode().count(b"\n", 0, edit.start)
    names: list[str] = []
    body = ast.parse(source).body
    while around := [node for node in body if line in _lines(node)]:
        node = around[0]
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            inside = line >= node.body[0].lineno
            return (".".join([*names, node.name]), _lines(node)[0]) if inside else None
        if not isinstance(node, ast.ClassDef):
            return None
        names.append(node.name)
        body = node.body
    return None


def _lines(statement: ast.stmt) -> range:
    decorators = getattr(statement, "decorator_list", [])
    assert statement.end_lineno is not None
    return range(min(n.lineno for n in (statement, *decorators)), statement.end_lineno + 1)


def _changes(node: ast.AST, *, in_function: bool) -> Iterator[tuple[ast.expr | ast.stmt, ast.AST]]:
    """Nodes of the tree below `node`, each with what may stand in its place."""
    in_function = in_function or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    if isinstance(node, ast.expr):
        for new in _other_expressions(node):
            yield node, new
    for test in _conditions(node):
        yield test, ast.UnaryOp(ast.Not(), test)
    if in_function and isinstance(node, DROPPED) and not _is_docstring(node):
        yield node, ast.Pass()
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns"):
            continue
        if isinstance(node, ast.ClassDef) and name in ("decorator_list", "keywords"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not isinstance(child, ast.JoinedStr):
                yield from _changes(child, in_function=in_function)


def _other_expressions(node: ast.expr) -> Iterator[ast.expr]:
    match node:
        case ast.Compare(left, [operator], [right]):
            yield ast.Compare(left, [COMPARISONS[type(operator)]], [right])
        case ast.BinOp(left, operator, right) if type(operator) in ARITHMETIC:
            yield ast.BinOp(left, ARITHMETIC[type(operator)], right)
        case ast.BoolOp(ast.And(), values):
            yield ast.BoolOp(ast.Or(), values)
        case ast.BoolOp(ast.Or(), values):
            yield ast.BoolOp(ast.And(), values)
        case ast.UnaryOp(ast.Not(), operand):
            yield operand
        case ast.Constant(bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(int(value) | float(value)):
            if value + 1 != value:  # as it is for a float beyond 2**53
                yield ast.Constant(value + 1)
                yield ast.Constant(value - 1)
        case ast.Call(function, [first, second, *rest], keywords) if not any(
            isinstance(argument, ast.Starred) for argument in (first, second)
        ) and ast.dump(first) != ast.dump(second):
            yield ast.Call(function, [second, first, *rest], keywords)


def _conditions(node: ast.AST) -> Iterator[ast.expr]:
    """Conditions of a node that no other edit inverts."""
    tests: list[ast.expr] = []
    if isinstance(node, ast.If | ast.While | ast.IfExp):
        tests = [node.test]
    elif isinstance(node, ast.comprehension):
        tests = node.ifs
    for test in tests:
        inverted = isinstance(test, ast.Compare) and not isinstance(test.ops[0], ORDERINGS)
        if not inverted and not isinstance(test, ast.UnaryOp):
            yield test


def _is_docstring(node: ast.stmt) -> bool:
    """Whether it is a lone constant: a docstring, or `...`."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
