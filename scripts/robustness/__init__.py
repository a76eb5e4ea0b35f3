"""What must hold when things go wrong: each package is a program, `scripts/run robustness.NAME`.

| package | job |
|---|---|
| chaos | faults at random moments of real runs |
| fuzz | hostile files for every reader, hostile requests to a server |
| clients | the clients that people have, against the gateway |
| gateway | the clients that nobody should be, against the gateway |
| mutants | small changes of the code that a test should notice |
"""
