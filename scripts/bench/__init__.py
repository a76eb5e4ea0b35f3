"""Measurements: each module or package is a program, `scripts/run bench.NAME`, unless said below.

| module | measures |
|---|---|
| orchestrator | what the orchestrator costs by itself |
| memory | peak memory of long runs |
| schedules | the schedules side by side, on two pairs of engines |
| worlds | accuracy of strategies on simulated pairs, good and bad ones, in seconds |
| gateway | the gateway beside a usual one and Triton alone |
| peers | ours beside other people's programs |

Parts of several of them: `common` (tables, processor time, logs, trees), `instant_server` (a Triton
server whose models answer at once).
"""
