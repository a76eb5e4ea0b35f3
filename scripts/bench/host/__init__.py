"""The engine host beside the bare pipeline: the cost of the way through Triton, and endurance.

| module | job |
|---|---|
| requests | sampled requests, and the two ways to have them answered |
| soak | thousands of requests, cancelled and bad ones among them |
"""
