"""Experiments on a deployment: benchmark runs, a study, tuning, and simulation without engines.

| package | job |
|---|---|
| campaign | runs one after the other, each in its folder, with one session for all |
| bench | what is asked of a run, runs and comparisons carried out, shards |
| study | what the two engines do and why: cells, figures, advice |
| scoring | a verifier measured on labels: `tts score` |
| tuning | where each engine stops gaining from more in flight |
| simulation | the same scheduler on virtual time, with engines modelled by their step times |
"""
