"""Strategies at equal cost: accuracy over tokens, with paired intervals.

| module | job |
|---|---|
| records | what was measured, a line of JSON each; a measurement goes on from them |
| table | the table of all that was measured |
| __main__ | fits n and solves the problems, in one session |
"""
