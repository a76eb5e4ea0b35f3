"""What must hold when things go wrong: `scripts/run robustness.NAME`.

| program | job |
|---|---|
| chaos | faults at random moments of real runs |
| mutants | small changes of the code that a test should notice |
"""
