"""From a completion to a verdict: extraction, equality and grouping of final answers.

    text --extract_answer--> answer --Grader.equal--> Verdict
                             answers --group_answers--> group index per answer

| module | job |
|---|---|
| extract | the last boxed answer of a text |
| canonical | a cheap normal form: equal strings are equal answers |
| json_answers | answers that are JSON, equal by value |
| screen | refuses what would only burn a worker (towers, factorials) |
| times | times of day, which math-verify takes for ratios |
| sketch | invariants of a parsed answer: what certainly tells two apart |
| invariants | sympy objects to sketches; imported in the worker process only |
| series | values of sums, products and integrals; imported in the worker process only |
| equivalence | math-verify; imported in the worker process only |
| worker | the child process: what it answers, within the limits of tts.build.worker_process |
| process | the parent's handle of one worker: requests, and what the answers mean |
| problem | comparisons of one problem's answers: shortcuts, sketches, a CPU budget |
| grader | the public `Grader`: the workers, and what they have replied |
| equal_answers | answers into groups of mathematical equals |
| votes | from completions to one answer |

Model output is hostile input: no text may hang, kill or bloat the run.
"""

from .canonical import canonical, is_integer
from .equal_answers import Equality, group_answers
from .extract import extract_answer, extract_gsm8k_answer
from .grader import Grader
from .problem import ProblemGrader
from .verdict import Outcome, Reason, Verdict

__all__ = [
    "Equality",
    "Grader",
    "Outcome",
    "ProblemGrader",
    "Reason",
    "Verdict",
    "canonical",
    "extract_answer",
    "extract_gsm8k_answer",
    "group_answers",
    "is_integer",
]
