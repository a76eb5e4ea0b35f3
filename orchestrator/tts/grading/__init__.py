"""From a completion to a verdict: extraction, equality and grouping of final answers.

    text --extract_answer--> answer --Grader.equal--> Verdict
                             answers --group_answers--> group index per answer

| module | job |
|---|---|
| extract | the last boxed answer of a text |
| canonical | a cheap normal form: equal strings are equal answers |
| screen | refuses what would only burn a worker (towers, factorials) |
| equivalence | math-verify; imported in the worker process only |
| worker | the child process: JSON lines in, JSON lines out, within limits it sets on itself |
| process | the parent's handle of one worker: start, ask with a deadline, kill |
| grader | the public `Grader`: shortcuts, memo, worker pool |
| grouping | answers into groups of mathematical equals |

Model output is hostile input: no text may hang, kill or bloat the run.
"""

from .canonical import canonical, is_integer
from .equal_answers import Equality, group_answers
from .extract import extract_answer, extract_gsm8k_answer
from .grader import Grader
from .process import GraderUnavailable
from .verdict import Outcome, Reason, Verdict

__all__ = [
    "Equality",
    "Grader",
    "GraderUnavailable",
    "Outcome",
    "Reason",
    "Verdict",
    "canonical",
    "extract_answer",
    "extract_gsm8k_answer",
    "group_answers",
    "is_integer",
]
