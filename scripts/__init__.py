"""Programs for those who work on the project; `scripts/run` lists them.

| package | job |
|---|---|
| bench | measurements, each of things side by side |
| robustness | faults, foreign clients, mutants of the code |
| training | how the bundled demo models were made |
"""
