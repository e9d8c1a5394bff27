"""No key, prompt or completion leaves the cluster but in its answer: logs of every level, metrics, status,
the dashboard and traces of a cluster that worked, failed and refused are searched for what went in and
came out."""
import hashlib
import http.client
import json
import re
import signal
import threading
import urllib.request

import pytest
from collector import Collector
from harness import Cluster, wait_for

KEY = "sk-canary-key-Zq7vP2mX"
WRONG_KEY = "sk-canary-wrong-Yw5nT8kB"
TOKEN = "canary-cluster-token-Rt3gH9sD"
CANARY = "quetzalcoatlus"  # in every prompt, in many places of a body
PROMPT = f"Repeat after me: the {CANARY} of the north ate seven {CANARY} cakes."
ADMIN = "sk-canary-admin-Lk4jF6dS"


class Client:
    def __init__(self, cluster):
        self.cluster = cluster
        self.completions = []

    def call(self, path, body, key=KEY, headers=None):
        connection = http.client.HTTPConnection(self.cluster.host, self.cluster.api_port, timeout=120)
        text = body if isinstance(body, (str, bytes)) else json.dumps(body)
        connection.request("POST", path, text, {"Content-Type": "application/json", "x-baton-figures": "1",
                                                "Authorization": f"Bearer {key}", **(headers or {})})
        answer = connection.getresponse()
        return answer.status, answer.read().decode(errors="replace")

    def complete(self, on_text=None, max_tokens=24, **fields):
        """A streamed answer; its text and ids are canaries, too."""
        body = {"model": "smollm2-135m-instruct", "prompt": PROMPT, "max_tokens": max_tokens, "temperature": 0,
                "ignore_eos": True, "stream": True, "return_token_ids": True, **fields}
        connection = http.client.HTTPConnection(self.cluster.host, self.cluster.api_port, timeout=120)
        connection.request("POST", "/v1/completions", json.dumps(body), {
            "Content-Type": "application/json", "Authorization": f"Bearer {KEY}"})
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()
        text, ids = "", []
        for line in answer:
            if line.startswith(b"data: {"):
                event = json.loads(line[6:])
                assert "error" not in event, event
                for choice in event["choices"]:
                    text += choice["text"]
                    ids += choice.get("token_ids") or []
                if on_text:
                    on_text(text)
        self.completions.append((text, ids))
        return text


def admin_get(cluster, path, key=ADMIN):
    request = urllib.request.Request(f"http://{cluster.host}:{cluster.api_port}{path}",
                                     headers={"Authorization": f"Bearer {key}"})
    return urllib.request.urlopen(request, timeout=30).read().decode()


class Watched(Cluster):
    """Its gateway wants a key, for its status, too."""

    def get(self, path):
        return json.loads(admin_get(self, path))


def config(endpoint, format):
    hashed = {name: hashlib.sha256(key.encode()).hexdigest() for name, key in (("user", KEY), ("boss", ADMIN))}
    return {"cluster": {"token": TOKEN}, "log": {"level": "trace", "format": format},
            "gateway": {"tracing": {"endpoint": endpoint},
                        "keys": [{"name": "user", "sha256": hashed["user"]},
                                 {"name": "boss", "sha256": hashed["boss"], "admin": True}]}}


def work(client):
    client.complete()
    status, body = client.call("/v1/chat/completions", {
        "model": "smollm2-135m-instruct", "max_tokens": 16, "messages": [
            {"role": "system", "content": PROMPT}, {"role": "user", "content": PROMPT}]})
    assert status == 200
    client.completions.append((json.loads(body)["choices"][0]["message"]["content"], []))
    schema = {"type": "object", "properties": {CANARY: {"type": "string", "maxLength": 8}}, "required": [CANARY],
              "additionalProperties": False}
    status, body = client.call("/v1/chat/completions", {
        "model": "smollm2-135m-instruct", "max_tokens": 60, "messages": [{"role": "user", "content": PROMPT}],
        "response_format": {"type": "json_schema", "json_schema": {"name": CANARY, "schema": schema}}})
    assert status == 200, body
    client.call("/tokenize", {"model": "smollm2-135m-instruct", "prompt": PROMPT})


def mistakes(client):
    good = {"model": "smollm2-135m-instruct", "prompt": PROMPT, "max_tokens": 4}
    for path, body, status in (
            ("/v1/completions", '{"prompt": "' + PROMPT, 400),                       # no JSON
            ("/v1/completions", b'{"prompt": "' + CANARY.encode() + b'\xff\xfe"}', 400),
            ("/v1/completions", {**good, "model": CANARY}, 404),
            ("/v1/completions", {**good, "temperature": CANARY}, 400),
            ("/v1/completions", {**good, CANARY: [CANARY]}, None),
            ("/v1/completions", {**good, "prompt": (PROMPT + " ") * 2000}, 400),     # above the context
            ("/v1/completions", {**good, "stop": [CANARY] * 40}, 400),
            ("/v1/chat/completions", {"model": good["model"], "messages": [{"role": CANARY, "content": PROMPT}]}, 400),
            ("/v1/chat/completions", {"model": good["model"], "messages": [{"role": "user", "content": PROMPT}],
                                      "response_format": {"type": "json_schema", "json_schema": {
                                          "name": "a", "schema": {"type": CANARY}}}}, 400),
            (f"/v1/{CANARY}", good, 404)):
        got, text = client.call(path, body)
        assert status is None or got == status, (path, body, got, text)
    assert client.call("/v1/completions", good, key=WRONG_KEY)[0] == 401
    client.call("/v1/completions", good, headers={"traceparent": f"00-{CANARY}", "x-request-id": "known-1"})


def outputs(cluster, collector):
    found = {f"log of {name}": process.log.read_text(errors="replace")
             for name, process in cluster.processes.items()}
    for name, process in cluster.processes.items():
        if process.running():
            found[f"metrics of {name}"] = urllib.request.urlopen(
                f"http://{cluster.admin(name)}/metrics", timeout=30).read().decode()
    found["dashboard"] = urllib.request.urlopen(
        f"http://{cluster.admin('gateway')}/dashboard/data", timeout=30).read().decode()
    found["status"] = admin_get(cluster, "/baton/status")
    found["requests"] = admin_get(cluster, "/baton/requests")
    found["traces"] = collector.text()
    return found


def search(found, completions):
    """What must not be there, and is."""
    secrets = {"key": KEY, "admin key": ADMIN, "wrong key": WRONG_KEY, "cluster token": TOKEN, "prompt": CANARY}
    patterns = {name: re.compile(re.escape(text), re.I) for name, text in secrets.items()}
    for number, (text, ids) in enumerate(completions):
        words = text.split()
        for at in range(0, max(1, len(words) - 4), 3):
            piece = words[at:at + 5]
            if len(" ".join(piece)) >= 16:
                patterns[f"completion {number} word {at}"] = re.compile(r"\s+".join(map(re.escape, piece)))
        for at in range(0, max(0, len(ids) - 3), 4):
            patterns[f"ids {number}.{at}"] = re.compile(
                r"\b" + r"\D{1,3}".join(str(i) for i in ids[at:at + 4]) + r"\b")
    return [f"{name} in {where}: ...{text[max(0, hit.start() - 80):hit.end() + 40]}..."
            for where, text in found.items() for name, pattern in patterns.items()
            if (hit := pattern.search(text))]


def test_the_search_would_find_them():
    found = {"a log": f"said {CANARY.upper()} with {KEY}, then one two\nthree  four fivefivefive and [11, 12, 13, 14]"}
    hits = search(found, [("one two three four fivefivefive", [11, 12, 13, 14])])
    assert {hit.split(" in ")[0] for hit in hits} == {"key", "prompt", "completion 0 word 0", "ids 0.0"}


@pytest.mark.parametrize("format", ["text", "json"])
def test_nothing_leaks(tmp_path, format):
    with Collector() as collector, \
            Watched(tmp_path, prefill=2, decode=2, config=config(collector.endpoint, format)) as cluster:
        client = Client(cluster)
        work(client)
        mistakes(client)

        # A decode node dies under a stream, which goes on; then a prefill node is asked to leave.
        died = threading.Event()

        def kill_once(text):
            if len(text.split()) >= 3 and not died.is_set():
                died.set()
                victim = max((n for n in cluster.nodes().values() if n["role"] == "decode"),
                             key=lambda n: n["sequences_given"])["name"]
                cluster[victim].popen.send_signal(signal.SIGKILL)
        client.complete(on_text=kill_once, max_tokens=120)
        assert died.is_set()
        cluster["prefill-1"].stop()
        client.complete()

        # A client that leaves in the middle.
        connection = http.client.HTTPConnection(cluster.host, cluster.api_port, timeout=60)
        connection.request("POST", "/v1/completions", json.dumps({
            "model": "smollm2-135m-instruct", "prompt": PROMPT, "max_tokens": 400, "stream": True,
            "ignore_eos": True}), {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}"})
        connection.getresponse().readline()
        connection.close()
        cancelled = 'baton_requests_total{status="cancelled"} 1'
        wait_for("the cancel", lambda: cancelled in urllib.request.urlopen(
            f"http://{cluster.admin('gateway')}/metrics", timeout=30).read().decode())

        found = outputs(cluster, collector)
        assert "failover" in found["metrics of gateway"] and "attempt" in found["log of gateway"]
        assert "resourceSpans" in found["traces"]
        assert len(found["log of gateway"].splitlines()) > 5
    found["logs after the end"] = "".join(p.log.read_text(errors="replace") for p in cluster.processes.values())
    leaks = search(found, client.completions)
    assert not leaks, "\n".join(leaks)
