"""Measurements: each module or package is a program, `scripts/run bench.NAME`, unless said below.

| module | measures |
|---|---|
| orchestrator | what the orchestrator costs by itself |
| memory | peak memory of long runs |
| grading | how long answers take to be compared |
| schedules | the schedules side by side, on two pairs of engines |
| simulated_schedules | the schedules side by side on GPUs that are not at hand, simulated |
| routing | when many narrow servers are better than few wide ones, simulated |
| host | the engine host beside the bare pipeline |
| engine_memory | the memory of a pair's processes beside the plan |
| prefixes, prefix_cache | which prefixes an engine computes again |
| worlds | accuracy of strategies on simulated pairs, good and bad ones, in seconds |
| verifiers | what a score costs, by kind of verifier |
| gateway | the gateway beside a usual one and Triton alone |
| gateway_request | what keys, limits, filters and the log cost a request |
| long_prompts | how long others wait while the gateway reads a long prompt |

Parts of several of them: `common` (tables, processor time, logs, trees), `engine_host` (an engine
on a thread), `instant_server` (a Triton server whose models answer at once).
"""
