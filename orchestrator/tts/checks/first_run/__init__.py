"""The first run of a deployment on a new GPU: the expectation and the result of every step.

Nothing of target tensorrt has been executed by the authors, so the first run is a comparison: of
the machine with what the deployment needs, of the start's log with the memory plan.

| module | job |
|---|---|
| machine | GPUs, docker and versions of this machine |
| outcomes | one step: expected, found, what to do; a start against the memory plan; pure |
| steps | the steps in order, as far as this machine can go |
| excerpts | lines of the logs for a report, without secrets and prompts |
"""
