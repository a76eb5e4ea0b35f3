"""The schedules side by side, on two pairs of engines.

| module | job |
|---|---|
| trials | what is timed, in which order, and what came of each |
| runs | one trial on a fresh server; what a run asked of the engines, without its dependencies |
| tables | the tables that are printed |
"""
