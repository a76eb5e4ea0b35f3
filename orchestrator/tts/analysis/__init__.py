"""From a run's log to numbers and records.

| module | job |
|---|---|
| records | problems, completions and requests as plain data, apart from the log |
| requests | from events to requests, their order, what was in flight over time |
| utilization | what a log adds up to: idle time, waste, latencies, and the three below |
| speculation | what became of expansions that were sent ahead |
| cancelled_tokens | what cancelled requests had generated, estimated |
| batches | the verifier's batches by what let them go |
| summary | what summary.json holds, in one pass |
| recorded_summary | summary.json as it is read back, checked |
| comparison | runs side by side, a row for each strategy |
| independence, curves | accuracy over n from one run, where its parts are smaller runs |
| measures | everything that is measured of a run, in one pass |
| trees, calibration, in_flight | parts of it: useful tokens and trees, scores, load over time |
| used_resources | processor time and energy of sessions |
| measured_run, named_measures | a run folder with its measures, and all of them by name |
| paired_runs | runs compared problem by problem |
| intervals, paired, pareto, pass_at_k | 95% intervals, paired differences, fronts, pass@k |
| statistics, quantiles | quantiles, of lists and of streams; fractions |
| engine_steps | what the engines did per step: every target as one type, on a run's clock |
| token_requests | a run's requests with their token ids, rebuilt from its log |
| paged_cache | what a paged KV cache of any size makes of them |
| run | a run folder for programs: `Run.load` |
"""
