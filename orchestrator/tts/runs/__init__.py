"""Runs: the folder and its log, and everything that is derived from them.

The log is the single source: results, what a resumed run goes on from, measures, figures, traces.

| module | job |
|---|---|
| events | the events, typed, with their one codec and the schema's version |
| log | appending to the log, and the one reader |
| follow | reading a log that is still being written |
| folder | the files of a run folder: names, create, read, write |
| config | what run.json must say for a run to be continued |
| going_on | which runs go on, and which of them is meant |
| groups | a folder of several runs that are compared |
| lock, durable | one process at a time; writing what is still there after the power has failed |
| checksums, checks | of lines and files; whether the parts of a folder still belong together |
| repair, resume, merge | a damaged log, an interrupted run, the shards of a run |
| surroundings, step_log | versions and machine of a session; what the engines did per step |
| state | the one fold of a log: the run so far, and each problem when it is solved |
| run, records | a run folder for programs: `Run.load`, problems and requests as plain data |
| requests, token_requests | requests and their order; the same with token ids |
| utilization, speculation, in_flight | what the requests add up to |
| summary | summary.json, typed: made from the log, and read back |
| measures, measured_run, named_measures | all that is measured of a run, and the table of it |
| trees, calibration, used_resources, engine_steps, paged_cache | parts of it |
| compare, curves | runs side by side and problem by problem; accuracy over n |
| statistics, quantiles | intervals, paired differences, pass@k, the Pareto front |
| replay | a recorded run in the engines' place |
"""
