"""A collector for tests: takes what OTLP/HTTP exporters send, and reads it as OTLP's protobuf."""

import gzip
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)


class Collector:
    """What has come in."""

    def __init__(self, endpoint):
        self.endpoint = endpoint
        self.requests = []

    @property
    def resources(self):
        return [
            attributes(part.resource.attributes)
            for request in self.requests
            for part in request.resource_spans
        ]

    @property
    def spans(self):
        return [
            span
            for request in self.requests
            for part in request.resource_spans
            for scope in part.scope_spans
            for span in scope.spans
        ]


def attributes(pairs):
    """OTLP's list of pairs as a dictionary."""
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}


@contextmanager
def collecting():
    """A collector on a free port of loopback."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            assert self.path == "/v1/traces"
            collector.requests.append(ExportTraceServiceRequest.FromString(body))
            self.send_response(200)
            self.send_header("content-type", "application/x-protobuf")
            answer = ExportTraceServiceResponse().SerializeToString()
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *args):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        collector = Collector(f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield collector
        finally:
            server.shutdown()
            thread.join()
