"""Figures of reports: a Vega-Lite chart, the numbers behind it, and how to read it.

| module | job |
|---|---|
| charts | what a figure is, and what all charts have in common |
| run, work | `figures_of`: those of one run; what it did, and how long it took |
| comparison | `comparison_figures`: those of several runs: accuracy against costs, schedules |
| results | the tables of several runs |
| pairs | each run against the first, over all problems and one by one |
| verifier | a verifier's scores with labels |
"""
