"""The loop between searches, the scheduler and the two endpoints.

| module | job |
|---|---|
| driver | `Driver`: takes problems at any time; the pump |
| submission | a problem that was handed to the driver, as its caller sees it |
| problem_run | one problem's search while it runs: asks become jobs, answers become results |
| score_cache | scores by content: locked, coalesced, the first one ahead of the others |
| speculation | what was sent ahead of the search, and whether it pays |
| dispatcher | jobs as requests on the endpoints: sent, cancelled, recorded |
| engine_load | how busy the engines are, and why one idles |
| policy | a deployment's batching policies, as the scheduler takes them |
"""

from .driver import Driver
from .policy import policy_of
from .submission import Solved, Submission

__all__ = ["Driver", "Solved", "Submission", "policy_of"]
