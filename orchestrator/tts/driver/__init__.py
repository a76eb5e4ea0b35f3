"""The loop between searches, the scheduler and the two endpoints.

| module | job |
|---|---|
| driver | `Driver`: takes problems at any time; the pump |
| problem_run | one problem's search while it runs: asks become jobs, answers results |
| dispatcher | sends jobs to the endpoints as requests, cancels and reports them |
| submission | a problem that was submitted, and its deadline |
| records | what a driver reports, of which a session makes its log |
| policy | a deployment's batching policies, as the scheduler takes them |

What is added to that stands beside it:

| module | job |
|---|---|
| speculation | work sent ahead of the search, and how far its guesses come true |
| prefix_gate | requests that wait for the prefix that they share |
| generation | an expansion's requests, up to where the generator loses its confidence |
| engine_loads | mean load and idle stretches of the engines |
"""

from .driver import Driver
from .policy import policy_of
from .records import EndedRequest, IdleEngine, Record, SharedScore, Started, UsedGuess
from .submission import Submission

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
