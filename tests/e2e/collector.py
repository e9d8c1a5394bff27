"""A tiny collector of traces: takes OTLP over HTTP as JSON and keeps the spans."""
import http.server
import json
import threading


class Collector:
    """Use as a context manager; `endpoint` is what gateway.tracing.endpoint takes."""

    def __init__(self):
        self.bodies = []
        self.lock = threading.Lock()
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                assert self.path == "/v1/traces" and self.headers["Content-Type"] == "application/json"
                with collector.lock:
                    collector.bodies.append(body.decode())
                self.send_response(200)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.endpoint = f"http://127.0.0.1:{self.server.server_port}/v1/traces"

    def __enter__(self):
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def text(self):
        with self.lock:
            return "\n".join(self.bodies)

    def spans(self, trace_id=None):
        """Each span with `service` and `instance` of its resource, and its attributes as a dict."""
        found = []
        with self.lock:
            bodies = list(self.bodies)
        for body in bodies:
            for resource in json.loads(body)["resourceSpans"]:
                of = attributes(resource["resource"])
                for scope in resource["scopeSpans"]:
                    for span in scope["spans"]:
                        if trace_id in (None, span["traceId"]):
                            found.append({**span, "attributes": attributes(span),
                                          "service": of["service.name"], "instance": of["service.instance.id"],
                                          "start": int(span["startTimeUnixNano"]),
                                          "end": int(span["endTimeUnixNano"])})
        return found


def attributes(of):
    return {a["key"]: int(a["value"]["intValue"]) if "intValue" in a["value"] else a["value"]["stringValue"]
            for a in of["attributes"]}
