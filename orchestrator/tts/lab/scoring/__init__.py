"""`tts score`: a verifier measured on labels.

| module | job |
|---|---|
| chains | a candidate solution in steps, and with its scores. Pure |
| labelled_files | chains from files: ProcessBench, PRM800K, Math-Shepherd, plain, candidates |
| measurement | what scores and labels tell: AUROC, calibration error, groups, picks. Pure |
| first_error | finding the first wrong step, as ProcessBench evaluates it. Pure |
| findings | the same in sentences, each by its interval. Pure |
| tables | scores, measures and candidates as files: JSONL, CSV, Parquet |
| calibrate | maps from scores to probabilities, checked out of fold. Pure |
"""
