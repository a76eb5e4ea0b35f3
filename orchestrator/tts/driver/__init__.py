"""The loop between searches, the scheduler and the two endpoints.

| module | job |
|---|---|
| driver | `Driver`: takes problems at any time; the pump |
| problem_run | one problem's search while it runs: asks become jobs, answers results |
| dispatcher | sends jobs to the endpoints as requests, cancels and reports them |
| records | what a driver takes and reports, of which a session makes its log; idle engines |
| policy | a deployment's batching policies, as the scheduler takes them |

What is added to that stands beside it:

| module | job |
|---|---|
| speculation | work sent ahead of the search, and how far its guesses come true |
| sharing | scores that equal chains share; requests that wait for a prefix that they share |
| generation | an expansion's requests, up to where the generator loses its confidence |
"""

from .driver import Driver
from .policy import policy_of
from .records import EndedRequest, IdleEngine, Record, SharedScore, Started, Submission, UsedGuess

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
