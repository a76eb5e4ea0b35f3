"""From a run's log to numbers: requests, utilization, summaries, comparisons, curves, intervals."""
