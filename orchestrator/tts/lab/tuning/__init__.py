"""`tts tune`: an engine's throughput over the load in flight, measured with recorded requests.

| module | job |
|---|---|
| tune | the whole of it: record a run if none is given, measure, propose budgets, keep the result |
| requests | the requests of a run, rebuilt from its log, and each engine under load with them |
| measure | closed loops at several loads, in rounds |
| analysis | from samples to a saturation point and a budget |
| result | tune.json, and a step time fitted to it, for `tts simulate` |
"""
