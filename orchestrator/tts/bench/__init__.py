"""Benchmark runs: what is asked for, one run, groups of runs, and the server that they need."""
