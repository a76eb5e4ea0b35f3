"""Runs: the folder and its log, and everything that is derived from them.

The log is the single source: results, what a resumed run goes on from, measures, figures, traces.

| module | job |
|---|---|
| events | the events, typed, with their one codec and the schema's version |
| log | appending to the log, reading it, the chain of checksums in it; shards as one log |
| folder | the files of a run folder: names, create, read, write; one process at a time |
| config | what a run is asked to be: run.json |
| groups | folders of several runs: those that are compared, and a list at a glance |
| files | opening the files of a folder that may be somebody else's; writing them durably |
| checks | whether the parts of a folder still belong together |
| resume | an interrupted run and a damaged log |
| engine_steps | what the engines did per step |
| state | the one fold of a log: the run so far, and each problem when it is solved |
| run, records | a run folder for programs: `Run.load`, problems and requests as plain data |
| requests | requests and their order; what became of those sent ahead |
| measures, named_measures | all that is measured of a run, and the table of it |
| summary | summary.json, typed: made from the measures, and read back |
| tables | answers, problems and completions as JSONL, CSV and Parquet |
| verdicts, clustered | how well scores tell right completions from wrong ones; with intervals |
| paged_cache | what a KV cache of any size makes of a run's requests |
| compare, rows, curves | runs side by side and by problem; rows ranked, pooled; accuracy over n |
| statistics | quantiles, intervals, paired differences, pass@k, the Pareto front |
| replay | a recorded run's requests with token ids; a script that answers in the engines' place |
"""
