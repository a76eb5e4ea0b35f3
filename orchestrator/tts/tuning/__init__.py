"""`tts tune`: an engine's throughput over the load in flight, measured with recorded requests.

`tune` is the whole of it. `requests` takes the requests from a run, `workload` makes them sendable
again, `measure` sends them at several loads; `analysis` finds the saturation point and the budget,
`result` keeps them, `fit` fits a step time to them. Nothing here prints: `observer` is told.
"""
