"""`tts score`: a verifier measured on labels.

| module | job |
|---|---|
| chains | a candidate solution in steps, and with its scores. Pure |
| labelled_files | chains from files: ProcessBench, PRM800K, Math-Shepherd, plain, candidates |
"""
