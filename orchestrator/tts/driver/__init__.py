"""The loop between searches, the scheduler and the two endpoints.

| module | job |
|---|---|
| driver | `Driver`: takes problems at any time; the pump |
| problem_run | a submitted problem, and its search while it runs: asks become jobs |
| score_cache | scores by content: locked at the first write, equal requests coalesced |
| speculation | work sent ahead of the search, and whether it pays |
| dispatcher | sends jobs to the endpoints as requests, cancels and reports them; idle engines |
| records | what a driver reports, of which a session makes its log |
| policy | a deployment's batching policies, as the scheduler takes them |
"""

from .driver import Driver
from .policy import policy_of
from .problem_run import Solved, Submission
from .records import Idle, Record, Request, SharedScore, Started, Used

__all__ = [
    "Driver",
    "Idle",
    "Record",
    "Request",
    "SharedScore",
    "Solved",
    "Started",
    "Submission",
    "Used",
    "policy_of",
]
