"""What the orchestrator costs by itself: parts of scripts/bench_orchestrator.

| module | measures |
|---|---|
| scripted | all but gRPC and engines: engines in the same process that answer at once |
| instant | all but engines: a real Triton server whose models answer at once (instant_models/) |
| processes | every process of a run on the demo pair |
"""
