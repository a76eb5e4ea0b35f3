"""The engine host beside the bare pipeline: the cost of the way through Triton, and endurance.

| module | job |
|---|---|
| requests | sampled requests, and the two ways to have them answered |
| speed | tokens per second through gRPC and of the bare pipeline, in turns |
| soak | thousands of requests, cancelled and bad ones among them |
"""
