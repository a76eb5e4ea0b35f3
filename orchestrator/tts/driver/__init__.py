"""The loop between searches, the scheduler and the two endpoints.

| module | job |
|---|---|
| driver | `Driver`: takes problems at any time; the pump |
| problem_run | a submitted problem, and its search while it runs: asks become jobs |
| speculation | work sent ahead of the search, and whether it pays |
| dispatcher | sends jobs to the endpoints as requests, cancels and reports them; idle engines |
| records | what a driver reports, of which a session makes its log |
| policy | a deployment's batching policies, as the scheduler takes them |
"""

from .driver import Driver
from .policy import policy_of
from .problem_run import Submission
from .records import EndedRequest, IdleEngine, Record, SharedScore, Started, UsedGuess

__all__ = [
    "Driver",
    "EndedRequest",
    "IdleEngine",
    "Record",
    "SharedScore",
    "Started",
    "Submission",
    "UsedGuess",
    "policy_of",
]
