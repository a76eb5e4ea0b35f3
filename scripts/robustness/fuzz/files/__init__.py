"""Hostile files for every reader: seeded mutations of valid ones, each read in bounds.

| module | job |
|---|---|
| mutate | a valid file, changed by a seed |
| readers | what is read, from what, and by which function |
| run_damage | ways in which a run's folder gets damaged |
| run_folders | damaged run folders, read by every command that does |
| campaign | one reader's files, each within a time and a memory; what came out |
"""
