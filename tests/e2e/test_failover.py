"""A node is killed, stopped or drained in the middle of a stream: the client sees the same text as without."""
import re
import signal
import urllib.request

import harness
import pytest
from harness import Cluster

SAMPLED = {"temperature": 0.9, "top_p": 0.95, "seed": 7, "frequency_penalty": 0.4, "presence_penalty": 0.2}
PROMPT = harness.words(150, 21)
TOKENS = 320


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(tmp_path_factory.mktemp("failover"), prefill=1, decode=2,
                 config={"gateway": {"queue_timeout_ms": 20000}}) as running:
        yield running


@pytest.fixture(scope="module")
def undisturbed(cluster):
    answer = cluster.complete(PROMPT, TOKENS, **SAMPLED)
    return answer["choices"][0]["text"], answer["usage"]


def failovers(cluster):
    """Of all reasons, from the gateway's metrics."""
    text = urllib.request.urlopen(f"http://{cluster.admin('gateway')}/metrics").read().decode()
    return sum(float(value) for value in re.findall(r"^baton_failovers_total\{.*\} (\S+)", text, re.M))


def worker(cluster):
    """The decode node that has the one running request."""
    return next(name for name, node in cluster.nodes().items() if name.startswith("decode") and node["sequences_given"])


def text_of(events):
    return "".join(event["choices"][0].get("text") or "" for event in events if event.get("choices"))


def stream_with(cluster, disturb):
    """Streams the answer; after some events `disturb(node)` strikes the node at work."""
    before = failovers(cluster)
    events = []
    for event in cluster.stream(PROMPT, TOKENS, **SAMPLED):
        events.append(event)
        if len(events) == 12:
            disturb(worker(cluster))
    assert not any("error" in event for event in events), events[-1]
    assert failovers(cluster) > before, "the answer was over before the node was struck"
    return events


def expect_same(events, undisturbed):
    text, usage = undisturbed
    assert text_of(events) == text
    got = next(event["usage"] for event in reversed(events) if event.get("usage"))
    assert got["completion_tokens"] == usage["completion_tokens"] == TOKENS
    assert got["prompt_tokens"] == usage["prompt_tokens"]
    assert got["prompt_tokens_details"]["cached_tokens"] <= got["prompt_tokens"]


def test_killed_decode_node(cluster, undisturbed):
    struck = []

    def kill(name):
        struck.append(name)
        cluster[name].kill()

    expect_same(stream_with(cluster, kill), undisturbed)
    cluster[struck[0]].start()
    cluster.wait_ready()


def test_stopped_decode_node_that_continues_later(cluster, undisturbed):
    struck = []

    def stop(name):
        struck.append(name)
        cluster[name].popen.send_signal(signal.SIGSTOP)

    try:
        expect_same(stream_with(cluster, stop), undisturbed)
    finally:
        for name in struck:
            cluster[name].popen.send_signal(signal.SIGCONT)
    harness.wait_for("the node to be back", lambda: len(cluster.nodes()) == 3)
    cluster.wait_ready()
    assert cluster.complete(PROMPT, TOKENS, **SAMPLED)["choices"][0]["text"] == undisturbed[0]


def test_drained_decode_node(cluster, undisturbed):
    struck = []

    def drain(name):
        struck.append(name)
        assert cluster.post(f"/v1/baton/nodes/{name}/drain?limit_ms=0", {})["state"] == "draining"

    expect_same(stream_with(cluster, drain), undisturbed)
    name = struck[0]
    assert cluster.nodes()[name]["state"] == "draining" and cluster.nodes()[name]["running"] == 0
    cluster[name].stop()
    cluster[name].start()
    harness.wait_for("the node to be back",
                     lambda: cluster.nodes().get(name, {}).get("state") == "alive", harness.READY_LIMIT)
    cluster.wait_ready()


def test_every_decode_node_is_lost_and_one_returns(cluster, undisturbed):
    def kill_both(_):
        for name in ("decode-0", "decode-1"):
            cluster[name].kill()
        cluster["decode-0"].start()

    try:
        expect_same(stream_with(cluster, kill_both), undisturbed)
    finally:
        cluster["decode-1"].start()
    cluster.wait_ready()


def test_no_pair_left_is_an_error_event(tmp_path):
    with Cluster(tmp_path, config={"gateway": {"queue_timeout_ms": 1000}}) as small:
        events = []
        for event in small.stream(PROMPT, TOKENS, **SAMPLED):
            events.append(event)
            if len(events) == 5:
                small["decode-0"].kill()
        assert events[-1]["error"]["code"] == "queue_timeout", events[-1]
        assert small["gateway"].running()
