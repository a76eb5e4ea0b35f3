"""The run folder and its log, the single source of everything derived from a run.

| module | job |
|---|---|
| events | the events, typed, with their one codec and the schema's version |
| log | appending to the log, and the one reader |
| follow | reading a log that is still being written |
| going_on | which runs go on, and which of them is meant |
| folder | the files of a run folder: names, create, read, write |
| engine_steps | what the engines did per step, beside the log |
| groups | a folder of several runs that are compared |
| config | what run.json must say for a run to be continued |
| lock | one process at a time works on a folder |
| checksums | of lines, JSON files and whole files |
| checks | whether the parts of a folder still belong together; the summary |
| durable | writing what is still there after the power has failed |
| repair | dropping what is damaged from a log |
| surroundings | versions and machine, which each session logs |
| resume | what an interrupted run's log already holds |
"""
