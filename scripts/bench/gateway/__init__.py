"""The gateway beside others: systems, the servers behind them, and who asks them.

| module | job |
|---|---|
| systems | what is asked: our gateway, the FastAPI one, Triton's gRPC itself; the servers behind |
| fastapi_gateway | a gateway as it is usually written, for comparison. A process of its own |
| load | the clients. A process of its own, and cheap |
| results | from answers to the numbers of a row; tables |
"""
