"""The real driver and scheduler on simulated engines and virtual time; see docs/simulation.md."""
