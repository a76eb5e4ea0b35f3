"""`tts study`: many runs of the same problems that show what the two engines do, and advice.

| module | job |
|---|---|
| cells | which runs are made, in which order, and how long they will take. Pure |
| kv_memory | what the pair's KV pools take, and other divisions of that memory. Pure |
| campaign | the runs, one after another, on servers of their own; resumable |
| engines | the session that a cell needs, cold |
| load | throughput over load, by `tts tune`'s measurements |
| folder | the study's folder: study.json, runs/, load/, measurements.json |
| blocks | cells compared over rounds, with intervals. Pure |

Figures and pages are `tts.reports.figures.study`.
"""
