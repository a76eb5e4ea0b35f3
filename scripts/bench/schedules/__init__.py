"""The schedules side by side, on two pairs of engines.

| module | job |
|---|---|
| trials | what is timed, in which order and where, and what came of each |
| worker | the process that measures: of one checkout, on one kind of server |
| plans | what the two pairs solve, their engines built |
| runs | one trial on fresh engines; what a run asked of them, without its dependencies |
| tables | the tables that are printed |
"""
