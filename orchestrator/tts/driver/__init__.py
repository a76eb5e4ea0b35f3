"""The loop between searches, the scheduler and the two endpoints."""
