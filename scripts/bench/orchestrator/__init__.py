"""What the orchestrator costs by itself; `bench.memory` uses a part of it.

| module | measures |
|---|---|
| scripted | all but gRPC and engines: engines in the same process that answer at once |
| instant | all but engines: a real Triton server whose models answer at once |
| memory | whole runs on scripted engines: processor time and peak memory |
| scale | the same from few problems to many, and from small n to large |
"""
