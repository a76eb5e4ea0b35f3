"""`tts tune`: an engine's throughput over the load in flight, measured with recorded requests.

| module | job |
|---|---|
| tune | the whole of it: record a run if none is given, measure, propose budgets; tune.json |
| recorded_requests | requests of a run, rebuilt from its log; each engine under load by them |
| measure | closed loops at several loads; from samples to a saturation point and a budget |
"""
