"""Two gateways over the same nodes: one is killed in the middle of its clients' requests. Those of the
other see nothing of it, and the nodes take back all that the dead one had."""
import copy
import http.client
import threading

import harness
from harness import BIN, Cluster, Process
from ordeals import is_settled, what_is_left


class Second:
    """Another gateway of the same cluster, with the HTTP calls of a Cluster."""

    def __init__(self, cluster):
        self.door = copy.copy(cluster)
        self.door.api_port = harness.free_port()
        self.control = cluster.config["cluster"]["gateways"][1]
        command = [str(BIN / "baton-gateway"), "--config", str(cluster.file)]
        for key, value in (("listen", f"127.0.0.1:{self.door.api_port}"), ("control_listen", self.control),
                           ("admin_listen", "127.0.0.1:0")):
            command += ["--set", f"gateway.{key}={value}"]
        self.process = Process("gateway-1", command, cluster.folder / "gateway-1.log")

    def __enter__(self):
        self.process.start()
        harness.wait_for("the second gateway", self.door.ready, harness.READY_LIMIT)
        return self

    def __exit__(self, *_):
        self.process.stop()


def tokens_of(events):
    return [token for event in events if event["choices"] for token in event["choices"][0]["token_ids"]]


def test_each_gateway_has_a_name_of_its_own(tmp_path):
    control = [f"127.0.0.1:{harness.free_port()}" for _ in range(2)]
    config = {"cluster": {"gateways": control}, "gateway": {"control_listen": control[0]}}
    with Cluster(tmp_path, config=config) as cluster, Second(cluster) as second:
        for door, log, name in ((cluster, cluster["gateway"], "gateway-0"), (second.door, second.process, "gateway-1")):
            assert door.get("/baton/status")["gateway"] == name
            assert f" {name} " in log.tail() or f"[{name}]" in log.tail(), log.tail()
            asked = door.complete("One, two,", max_tokens=2)
            phases = door.get(f"/baton/requests/{asked['id']}")["phases"]
            assert phases[0]["node"] == name
        assert "registered with gateway gateway-1 at" in cluster["decode-0"].tail()


def test_a_killed_gateway_takes_nothing_with_it(tmp_path):
    control = [f"127.0.0.1:{harness.free_port()}" for _ in range(2)]
    config = {"cluster": {"gateways": control}, "gateway": {"control_listen": control[0]}}
    with Cluster(tmp_path, prefill=2, decode=2, config=config) as cluster, Second(cluster) as second:
        first, other = cluster, second.door
        prompts = [harness.words(40, seed) for seed in range(3)]
        alone = [other.complete(prompt, max_tokens=300)["choices"][0]["token_ids"] for prompt in prompts]

        # Of the gateway that dies: answers that run, and long prompts that are computed or wait.
        doomed = [first.stream(harness.words(60, 20 + i), max_tokens=4000) for i in range(3)]
        for stream in doomed:
            next(stream)
        ends = []

        def ask_long(seed):
            try:
                first.complete(harness.words(4000, seed), max_tokens=8)
                ends.append("answered")
            except (OSError, http.client.HTTPException) as error:
                ends.append(type(error).__name__)

        clients = [threading.Thread(target=ask_long, args=(40 + i,)) for i in range(4)]
        for client in clients:
            client.start()
        harness.wait_for("a long prompt to be computed",
                         lambda: any(node["queued_tokens"] > 0 for node in first.nodes().values()), every=0.005)

        streams = [other.stream(prompt, max_tokens=300, return_token_ids=True) for prompt in prompts]
        begun = [[next(stream)] for stream in streams]
        first["gateway"].kill()
        for client in clients:
            client.join(30)
            assert not client.is_alive()
        assert len(ends) == 4

        # Its clients' answers are those of a quiet cluster, each from one attempt.
        for events, stream, expected in zip(begun, streams, alone):
            events += list(stream)
            assert tokens_of(events) == expected
            figures = next(event["baton"] for event in reversed(events) if "baton" in event)
            assert figures["failovers"] == 0 and figures["attempts"] == 1
        # What the dead one had is free, while it is still dead; other work goes on there.
        after = other.complete(prompts[0], max_tokens=300)
        assert after["choices"][0]["token_ids"] == alone[0]
        try:
            harness.wait_for("all blocks and leases of the dead gateway", lambda: is_settled(other), 60)
        except AssertionError as error:
            raise AssertionError(f"{error}: {what_is_left(other)}") from None

        first["gateway"].start()
        first.wait_ready()
        assert first.complete(prompts[1], max_tokens=300)["choices"][0]["token_ids"] == alone[1]
