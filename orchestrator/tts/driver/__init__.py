"""The loop between searches, the scheduler and the two endpoints.

| module | job |
|---|---|
| driver | `Driver`: takes problems at any time; the pump; a submitted problem |
| problem_run | one problem's search while it runs: asks become jobs, answers become results |
| score_cache | scores by content: locked at the first write, equal requests coalesced |
| speculation | work sent ahead of the search, and whether it pays |
| dispatcher | sends jobs to the endpoints as requests, cancels and reports them; idle engines |
| records | what a driver reports, of which a session makes its log |
| policy | a deployment's batching policies, as the scheduler takes them |
"""

from .driver import Driver, Solved, Submission
from .policy import policy_of
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
