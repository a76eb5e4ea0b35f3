"""Faults at random moments of real runs.

| module | job |
|---|---|
| cases | a case: what is drawn from the seed, its course, and what must hold at its end |
| faults | what happens to a run |
| runs | runs in processes of their own, and what they leave |
| surroundings | what cases share: engines, undisturbed runs, a server, a clock that jumps |
| proxy | a TCP proxy in front of a server that cuts, resets and holds connections |

clock.c is preloaded into a case's processes: their wall clock is their own.
"""
