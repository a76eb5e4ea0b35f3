"""What a person looks at: tables, progress bars, live trees. Only this package and `cli` print.

| module | shows |
|---|---|
| console | the two consoles, lines of progress, tables that are never cut |
| progress | what a command waits for, and how far it is: a bar, or a line now and then in a pipe |
| live_tree | the tree of one problem while it grows, on as many lines as there are |
| terminal | what a run did; runs side by side and problem by problem; a list of runs |
| trace | a run's timeline, as Chrome's trace JSON |
| tuning | throughput over load, saturation points, budgets |
| simulation | simulated schedules and placements side by side |
| memory_plan | the memory of each GPU and both engines' pools, or of a pair on a CPU |
| study_page | what `tts study` shows: advice, figures, page |
| measurement | the best candidates; a verifier measured on labels: table, sentences, page |
| page | `report.html`: figures and search trees on one page that opens offline |
| findings | what `tts lint` and `tts doctor` have found |
"""
