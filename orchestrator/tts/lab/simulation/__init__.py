"""The real driver and scheduler on simulated engines and virtual time; see
docs/explanation/simulation.md.

| module | job |
|---|---|
| scenario | one run: what is simulated, and what came of it |
| fleet | servers, the GPUs that they are on, the endpoints and the router in front of them |
| published_pairs | pairs of published models; the shapes of a deployment's |
| workload | what simulated engines answer |
"""
