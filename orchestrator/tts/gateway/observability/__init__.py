"""What a gateway says of its requests.

| module | job |
|---|---|
| `record` | one request: its stages t0 to t6, tokens, outcome |
| `observer` | where the gateway tells of its requests |
| `request_log` | records on disk: SQLite segments, one writer |
| `metrics` | the gateway's metrics, by name |
| `prometheus` | counters, gauges, histograms and their text format |
"""

from .observer import Observer
from .record import STAGES, RequestRecord
from .request_log import RequestLog, Retention, requests_dir

__all__ = ["STAGES", "Observer", "RequestLog", "RequestRecord", "Retention", "requests_dir"]
