"""Benchmark runs on a session: what is asked for, one run, comparisons of several. Nothing prints.

| module | job |
|---|---|
| single_run | one run: prepared, carried out, continued |
| group_run | several strategies in turn, in a folder, on the same engines |
| sharded_run | shards by processes on a Ray cluster, and made one run again |
| simulated_run | the scenarios of `tts simulate` and of `tts simulate --placements` |
| fitting | the n with which a strategy costs what it may |
"""
