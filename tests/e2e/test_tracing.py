"""One trace a request: spans at a collector, the client's trace context through to the nodes' logs, and no
harm when the collector is gone."""
import http.client
import json
import secrets
import time

import pytest
from collector import Collector
from harness import HEADERS, Cluster, free_port, wait_for, words
from test_drain import metric


def ask(cluster, parent=None, **fields):
    connection = http.client.HTTPConnection(cluster.host, cluster.api_port, timeout=120)
    body = {"model": "smollm2-135m-instruct", "prompt": words(40), "max_tokens": 8, "temperature": 0,
            "ignore_eos": True, **fields}
    connection.request("POST", "/v1/completions", json.dumps(body),
                       {**HEADERS, **({"traceparent": parent} if parent else {})})
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read())


@pytest.fixture(scope="module")
def traced(tmp_path_factory):
    with Collector() as collector:
        config = {"gateway": {"tracing": {"endpoint": collector.endpoint}}, "log": {"level": "debug"}}
        with Cluster(tmp_path_factory.mktemp("tracing"), config=config) as cluster:
            yield cluster, collector


def test_a_request_is_one_trace_under_its_client(traced):
    cluster, collector = traced
    trace, parent = secrets.token_hex(16), secrets.token_hex(8)
    before = time.time_ns()
    status, answer = ask(cluster, f"00-{trace}-{parent}-01")
    after = time.time_ns()
    assert status == 200
    wait_for("the spans", lambda: collector.spans(trace))
    spans = {span["name"]: span for span in collector.spans(trace)}
    assert set(spans) == {"gateway", "queue", "prefill", "transfer", "decode"}
    root = spans.pop("gateway")
    assert root["parentSpanId"] == parent and root["kind"] == 2
    slack = 5_000_000  # times of day are kept in milliseconds
    assert before - slack <= root["start"] <= root["end"] <= after + slack
    for span in spans.values():
        assert span["parentSpanId"] == root["spanId"]
        assert root["start"] <= span["start"] <= span["end"] <= root["end"], span
    order = [spans[name]["start"] for name in ("queue", "prefill", "transfer")]
    assert order == sorted(order)
    assert (spans["prefill"]["service"], spans["prefill"]["instance"]) == ("baton-prefill", "prefill-0")
    assert (spans["decode"]["service"], spans["decode"]["instance"]) == ("baton-decode", "decode-0")
    assert spans["transfer"]["attributes"]["baton.kv_bytes"] == answer["baton"]["kv_bytes_moved"]
    assert root["attributes"]["gen_ai.usage.input_tokens"] == answer["usage"]["prompt_tokens"]
    assert root["attributes"]["gen_ai.usage.output_tokens"] == 8
    # Lines of the nodes can be found from the trace.
    for node in ("prefill-0", "decode-0"):
        assert f"is part of trace {trace}" in cluster[node].log.read_text()


def test_a_request_without_a_context_has_a_trace_of_its_own(traced):
    cluster, collector = traced
    known = {span["traceId"] for span in collector.spans()}
    assert ask(cluster)[0] == 200
    wait_for("a new trace", lambda: {span["traceId"] for span in collector.spans()} - known)
    new = {span["traceId"] for span in collector.spans()} - known
    assert len(new) == 1
    root = next(span for span in collector.spans(new.pop()) if span["name"] == "gateway")
    assert "parentSpanId" not in root


def test_what_the_client_does_not_sample_is_not_sent(traced):
    cluster, collector = traced
    unsampled, sampled = secrets.token_hex(16), secrets.token_hex(16)
    assert ask(cluster, f"00-{unsampled}-{secrets.token_hex(8)}-00")[0] == 200
    assert ask(cluster, f"00-{sampled}-{secrets.token_hex(8)}-01")[0] == 200
    wait_for("the later one", lambda: collector.spans(sampled))
    assert not collector.spans(unsampled)
    assert f"is part of trace {unsampled}" in cluster["decode-0"].log.read_text()


def test_without_a_collector_requests_go_on(tmp_path):
    config = {"gateway": {"tracing": {"endpoint": f"http://127.0.0.1:{free_port()}/v1/traces", "queue_spans": 8}}}
    with Cluster(tmp_path, config=config) as cluster:
        expected = ask(cluster)[1]["choices"][0]["text"]
        for _ in range(4):
            status, answer = ask(cluster)
            assert status == 200 and answer["choices"][0]["text"] == expected
        lost = 'baton_trace_spans_total{how="failed"}'
        wait_for("lost spans", lambda: metric(cluster, "gateway", lost) > 0)
        assert metric(cluster, "gateway", 'baton_trace_spans_total{how="exported"}') == 0


def test_off_by_default(tmp_path):
    with Cluster(tmp_path) as cluster:
        assert ask(cluster)[0] == 200
        assert metric(cluster, "gateway", 'baton_trace_spans_total{how="exported"}') == 0
        with open(cluster.folder / "gateway.log") as log:
            assert "trace" not in log.read()
