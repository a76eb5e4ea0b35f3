"""From a run's log to numbers and records.

| module | job |
|---|---|
| records | problems, completions and requests as plain data, apart from the log |
| requests | from events to requests, their order, what was in flight over time |
| utilization | what a log adds up to: idle time, waste, batches, latencies |
| speculation | what became of expansions that were sent ahead |
| summary | what summary.json holds, in one pass |
| comparison | runs side by side, a row for each strategy |
| curves | accuracy over n from one run |
| intervals | 95% intervals of shares |
| statistics | quantiles, fractions |
| run | a run folder for programs: `Run.load` |
"""
