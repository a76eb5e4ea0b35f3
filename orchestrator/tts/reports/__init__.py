"""What a person looks at: tables, progress bars, live trees. Only this package and `cli` print.

| module | shows |
|---|---|
| console | the two consoles, and lines of progress |
| progress | progress of a benchmark or a tuning: a bar, or a line now and then in a pipe |
| live_tree, folded_tree | the tree of one problem while it grows, on as many lines as there are |
| sheet | tables that are never cut |
| runs, comparison | finished runs, and groups of runs side by side |
| trace, perfetto_file | a run's timeline for Perfetto |
| tuning | throughput over load, saturation points, budgets |
| simulation | simulated schedules side by side |
| memory_plan | the memory of each GPU, and both engines' pools |
| host_memory | the memory of a pair on a CPU |
| page | `report.html`: figures and search trees on one page that opens offline |
| findings | what `tts lint` and `tts doctor` have found |
"""
