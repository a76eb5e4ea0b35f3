"""`tts study`: many runs of the same problems that show what the two engines do, and advice.

| module | job |
|---|---|
| cells | which runs are made, in which order, and how long they will take. Pure |
| kv_memory | what the pair's KV pools take, and other divisions of that memory. Pure |
| folder | the study in its folder: study.json, load/, measurements.json; its runs, what is left |
| study_run | the runs, one after another, on cold engines; throughput over load; resumable |
| results | each cell's numbers over its rounds; ratios to the base, with intervals |
| measure | the table of every figure; how fast, and how right, the cells were |
| engine_tables | what the engines hold, are sent and do, and what other caches would make of it |
| advice | what follows, in words. Pure |

The figures are drawn by `tts.reports.study_page`.
"""
