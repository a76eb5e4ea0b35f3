"""`tts study`: many runs of the same problems that show what the two engines do, and advice.

| module | job |
|---|---|
| cells | which runs are made, in which order, and how long they will take. Pure |
| kv_memory | what the pair's KV pools take, and other divisions of that memory. Pure |
| plan | a study that is begun: its runs, and which of them are left |
| campaign | the runs, one after another, on servers of their own; resumable |
| engines | the session that a cell needs, cold |
| load | throughput over load, by `tts tune`'s measurements |
| folder | the study's folder: study.json, runs/, load/, measurements.json |
| results, blocks | each cell's numbers over its rounds; ratios to the base, with intervals |
| measure, measurement | the table of every figure: |
| throughput | - how fast, and how right, the cells were |
| inside | - what the engines hold and are sent |
| steps | - what they did per step |
| caches | - what caches of other sizes would make of a run |
| advice | what follows, in words. Pure |

The figures are drawn by `tts.reports.figures.study`.
"""
