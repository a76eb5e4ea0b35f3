"""Figures of reports: a Vega-Lite chart, the numbers behind it, and how to read it.

| module | job |
|---|---|
| figure | what a figure is |
| charts | what all charts have in common: colours, width, thinned rows |
| accuracy, work | the figures of a run, by what they are about |
| run | `figures_of`: those of one run |
| comparison | `comparison_figures`: all those of several runs |
| results, costs, rows | several runs side by side: tables, accuracy against costs, schedules |
| pairs | each run against the first, over all problems and one by one |
| study | `study_figures`: the measurements of a study |
"""
