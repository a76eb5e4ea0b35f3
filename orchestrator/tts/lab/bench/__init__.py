"""Benchmark runs on a session: what is asked for, one run, comparisons of several. Nothing prints.

| module | job |
|---|---|
| request | what the user asks, in the user's words, and the plan it makes |
| run | a plan carried out in a session, with progress for the observer |
| observer | what whoever watches is told |
| group_run, members | every strategy in turn, in a folder; which strategies share a run |
| replaying, simulating | what `--replay` makes of the other options; the scenario of a simulation |
| merging | shards of a run made one |
| on_ray | shards handed out to actors on a Ray cluster |
| calibration | a policy of `auto` from finished runs |
"""
