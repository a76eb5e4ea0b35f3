"""`tts tune`: an engine's throughput over the load in flight, measured on recorded requests.

`recorded` takes the requests from a run, `engines` makes them sendable again, `measure` sends them
at several loads; `analysis` finds the knee and the policy, `fit` a step time, `tables` shows both.
"""
