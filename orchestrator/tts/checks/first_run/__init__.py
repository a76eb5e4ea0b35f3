"""The first run of a deployment on a new GPU: the expectation and the result of every step.

Nothing of target tensorrt has been executed by the authors, so the first run is a comparison: of
the machine with what the deployment needs, of the start's log with the memory plan.

| module | job |
|---|---|
| steps | the steps in order, as far as this machine can go |
| compare | a start's log and memory against the memory plan; pure |
| excerpts | lines of the logs for a report, without secrets and prompts |
"""
