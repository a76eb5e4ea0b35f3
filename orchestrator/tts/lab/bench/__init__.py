"""Benchmark runs on a session: what is asked for, one run, comparisons of several. Nothing prints.

| module | job |
|---|---|
| single_run | one run: planned, carried out in a session, continued |
| group_run | every strategy in turn, in a folder; which strategies share a run |
| cold | sessions whose engines are cold, for comparisons and studies |
| replaying, simulating | what `--replay` makes of the other options; the scenario of a simulation |
| merging | shards of a run made one |
| on_ray | shards handed out to actors on a Ray cluster |
| calibration | a policy of `auto` from finished runs |
"""
