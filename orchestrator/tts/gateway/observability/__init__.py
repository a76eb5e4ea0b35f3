"""What a gateway says of its requests.

| module | job |
|---|---|
| `record` | one request: its stages t0 to t6, tokens, outcome |
| `recorder` | takes the gateway's records of requests; its thread has them kept |
| `request_log` | records on disk: SQLite segments |
| `request_reader` | reading them, also meanwhile; as JSON lines and CSV |
| `metrics` | the gateway's metrics, by name, for Prometheus |
| `telemetry` | spans for an OpenTelemetry collector |
"""

from .record import STAGES, ServedRequest
from .recorder import Recorder
from .request_log import RequestLog, RequestLogs, Retention, requests_dir
from .telemetry import Telemetry, telemetry_of

__all__ = [
    "STAGES",
    "Recorder",
    "RequestLog",
    "RequestLogs",
    "Retention",
    "ServedRequest",
    "Telemetry",
    "requests_dir",
    "telemetry_of",
]
