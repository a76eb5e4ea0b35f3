"""The real driver and scheduler on simulated engines and virtual time; see
docs/explanation/simulation.md.

| module | job |
|---|---|
| scenario | one run: what is simulated, and what came of it |
| fleet | servers, the GPUs that they are on, endpoints and router; the usual pair |
| workload | what simulated engines answer |
"""
