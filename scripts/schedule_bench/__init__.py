"""What scripts/bench_schedules is made of."""
