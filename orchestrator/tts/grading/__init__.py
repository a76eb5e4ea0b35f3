"""From a completion to a verdict: extraction, equality and grouping of final answers.

    text --extract_answer--> answer --Grader.equal--> Verdict
                             answers --group_answers--> group index per answer

| module | job |
|---|---|
| extract | the answer that a text states: its last box, or what it calls the final answer |
| canonical | a cheap normal form, of JSON too: equal strings are equal answers; LaTeX |
| units | units, money and number bases: answers as quantities |
| sketch | invariants of a parsed answer: what certainly tells two apart |
| equivalence | math-verify, and its formulas as sketches; imported in the worker process only |
| worker | the child process: what it answers, within the limits of tts.base.worker_process |
| problem_grader | comparisons of one problem's answers: shortcuts, sketches, a CPU budget |
| grader | the public `Grader`: the worker processes, their replies; groups of equal answers |
| code | answers in code: right if the problem's tests pass |
| code_harness | the tests and the answer, in two processes of the sandbox |
| votes | from completions to one answer |

Model output is hostile input: no text may hang, kill or bloat the run.
"""

from .canonical import canonical
from .extract import boxed_answer, extract_answer, extract_gsm8k_answer
from .grader import Equality, Grader, group_answers
from .problem_grader import Outcome, ProblemGrader, Reason, Verdict

__all__ = [
    "Equality",
    "Grader",
    "Outcome",
    "ProblemGrader",
    "Reason",
    "Verdict",
    "boxed_answer",
    "canonical",
    "extract_answer",
    "extract_gsm8k_answer",
    "group_answers",
]
