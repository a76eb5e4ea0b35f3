"""Records of a gateway's requests, and where they go: database, metrics, traces.

| module | job |
|---|---|
| `record` | one request: its stages t0 to t6, tokens, outcome; the log of requests |
| `recorder` | takes the gateway's records of requests; its threads have them kept |
| `ledger` | a running gateway's hold on its database: keys in memory, usage, requests |
| `metrics` | the gateway's metrics, by name, for Prometheus |
| `telemetry` | spans for an OpenTelemetry collector |
"""
