"""The run folder and its log, the single source of everything derived from a run."""
