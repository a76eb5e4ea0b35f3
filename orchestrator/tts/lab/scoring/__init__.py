"""`tts score`: a verifier measured on labels.

| module | job |
|---|---|
| chains | candidate solutions in steps, from files of ProcessBench, PRM800K, Math-Shepherd, ... |
| score_run, score_folder | chains of a file or run scored, resumably |
| measurement | what scores and labels tell: AUROC, calibration error, groups, picks. Pure |
| first_error | finding the first wrong step, as ProcessBench evaluates it. Pure |
| findings | the same in sentences, each by its interval. Pure |
| tables | scores, measures and candidates as files; the calibration in the deployment |
| calibrate | maps from scores to probabilities, checked out of fold. Pure |
"""
