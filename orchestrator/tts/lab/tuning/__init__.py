"""`tts tune`: an engine's throughput over the load in flight, measured with recorded requests.

| module | job |
|---|---|
| tune | the whole of it: record a run if none is given, measure, propose budgets, keep the result |
| observer | what it tells whoever watches; nothing here prints |
| requests | the requests of a run, rebuilt from its log |
| workload | each engine as something to put under load |
| measure | closed loops at several loads, in rounds |
| analysis | from samples to a saturation point and a budget |
| result | tune.json |
| fit | a step time fitted to a result, for `tts simulate` |
"""
