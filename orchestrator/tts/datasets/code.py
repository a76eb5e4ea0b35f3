"""Rows of code problems: the fields of HumanEval and MBPP, as they were published.

HumanEval (Chen et al. 2021, github.com/openai/human-eval): task_id, prompt, entry_point,
canonical_solution, test. MBPP (Austin et al. 2021, google-research/mbpp): task_id, text, code,
test_list, test_setup_code; its sanitized part has `prompt` for `text`, and test_imports.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tts.base.input_files import Unreadable
from tts.grading.code_tests import tests_of

HUMANEVAL: Final = """\
Please provide a self-contained Python script that solves the following problem in a markdown code \
block:
```python
{prompt}
```"""
"""The instruction of EvalPlus (Liu et al. 2023, evalplus/codegen.py)."""
MBPP: Final = """\
You are an expert Python programmer, and here is your task: {prompt} Your code should pass these \
tests:

{tests}"""
"""The prompt of Austin et al., as the dataset's README has it."""
_KEPT = (
    "prompt",
    "entry_point",
    "test",
    "test_list",
    "test_setup_code",
    "test_imports",
    "challenge_test_list",
)
"""The fields that a verifier and the grader get; the solution is not among them."""


@dataclass(frozen=True)
class CodeRow:
    """What a row of a code problem says."""

    id: str
    """Empty where the row has none."""
    question: str
    answer: str | None
    """The published solution."""
    extra: dict[str, Any]


def is_code_row(cells: Mapping[str, Any]) -> bool:
    """Whether a row has the fields of HumanEval or of MBPP."""
    return {"prompt", "entry_point", "test"} <= cells.keys() or (
        "test_list" in cells and ("text" in cells or "prompt" in cells)
    )


def read_code_row(cells: Mapping[str, Any]) -> CodeRow:
    """The problem of a row; raises Unreadable for a field that is not as published."""
    is_humaneval = "entry_point" in cells
    prompt = cells.get("prompt", cells.get("text"))
    if not isinstance(prompt, str) or not prompt.strip():
        raise Unreadable(f"has the prompt {prompt!r:.100}; it must be a text")
    extra = {name: cells[name] for name in _KEPT if cells.get(name)}
    tests = tests_of(extra)
    if tests is None:
        fields = "test and entry_point texts" if is_humaneval else "test_list a list of texts"
        raise Unreadable(f"has no tests that can be run: {fields}, not empty")
    solution = cells.get("canonical_solution" if is_humaneval else "code")
    if solution is not None and not isinstance(solution, str):
        raise Unreadable(f"has the solution {solution!r:.100}; it must be a text")
    question = (
        HUMANEVAL.format(prompt=prompt.rstrip())
        if is_humaneval
        else MBPP.format(prompt=prompt.strip(), tests="\n".join(tests.tests))
    )
    task = cells.get("task_id")
    return CodeRow("" if task is None else str(task), question, solution, extra)
