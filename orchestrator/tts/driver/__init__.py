"""The loop between searches, the scheduler and the two endpoints.

| module | job |
|---|---|
| driver | `Driver`: takes problems at any time; the pump |
| submission | a submitted problem, as its caller sees it |
| problem_run | one problem's search while it runs: asks become jobs, answers become results |
| score_cache | scores by content: locked at the first write, equal requests coalesced |
| speculation | work sent ahead of the search, and whether it pays |
| dispatcher | sends jobs to the endpoints as requests, cancels and records them |
| engine_load | how busy the engines are, and why an engine idles |
| policy | a deployment's batching policies, as the scheduler takes them |
"""

from .driver import Driver
from .policy import policy_of
from .submission import Solved, Submission

__all__ = ["Driver", "Solved", "Submission", "policy_of"]
