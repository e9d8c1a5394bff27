"""Prefill and decode on two "hosts": network namespaces joined by veth pairs and a bridge, where
shared memory cannot be mistaken for the network."""
import os

import harness
import pytest
from harness import Cluster
from hosts import Hosts, run


@pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")
def test_three_hosts_over_tcp(tmp_path):
    with Hosts(3) as hosts:
        place = {"gateway": 0, "prefill-0": 1, "decode-0": 2}
        gateway, prefill, decode = hosts.addresses
        config = {
            "cluster": {"gateways": [f"{gateway}:7000"]},
            "gateway": {"listen": f"{gateway}:8000", "control_listen": f"{gateway}:7000"},
            "transfer": {"transport": "tcp", "network": "eth0"},
            "prefill": {"pool": [{"name": "prefill-0", "control_listen": f"{prefill}:7001"}]},
            "decode": {"pool": [{"name": "decode-0", "control_listen": f"{decode}:7001"}]},
        }

        def wrap(name, command):
            return ["ip", "netns", "exec", hosts.names[place[name]], *command]

        cluster = Cluster(tmp_path, config=config, wrap=wrap)
        # The client is on the gateway's host.
        probe = ["ip", "netns", "exec", hosts.names[0], "python3", "-c", CLIENT, f"http://{gateway}:8000"]
        for process in cluster.processes.values():
            process.start()
        try:
            def ready():
                for process in cluster.processes.values():
                    assert process.running(), process.tail()
                return run(*probe, "ready").returncode == 0

            harness.wait_for("the cluster", ready, harness.READY_LIMIT, every=0.2)
            done = run(*probe, harness.words(200, 21))
            assert done.returncode == 0, done.stderr
            tokens, moved, lane, held = done.stdout.split()
            assert lane == "tcp"
            assert int(moved) == harness.expected_kv_bytes(int(tokens), int(held))
        finally:
            for process in cluster.processes.values():
                process.stop()


CLIENT = """
import json, sys, urllib.request
url, prompt, *count = sys.argv[1:]
if prompt == "ready":
    status = json.load(urllib.request.urlopen(url + "/baton/status", timeout=5))
    sys.exit(0 if len(status["nodes"]) == int(*count or ["2"]) and urllib.request.urlopen(url + "/readyz").status == 200 else 1)
body = json.dumps({"model": "smollm2-135m-instruct", "prompt": prompt, "max_tokens": 8, "temperature": 0})
request = urllib.request.Request(url + "/v1/completions", body.encode(),
                                 {"Content-Type": "application/json", "x-baton-figures": "1"})
answer = json.load(urllib.request.urlopen(request, timeout=120))
figures = answer["baton"]
print(answer["usage"]["prompt_tokens"], figures["kv_bytes_moved"], figures["kv_transport"],
      figures["prefix_blocks_held"])
"""
