"""The run folder and its log, the single source of everything derived from a run.

| module | job |
|---|---|
| events | the events, typed, with their one codec and the schema's version |
| log | appending to the log, and the one reader |
| folder | the files of a run folder: names, create, read, write |
| groups | a folder of several runs that are compared |
| resume | what an interrupted run's log already holds |
"""
