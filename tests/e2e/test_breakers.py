"""A way between two hosts that is cut while both are heard by the gateway: the pair gets no work, its
nodes go on with others, and one request at a time tries it until it is mended."""
import itertools
import json
import os

import harness
import pytest
from harness import Cluster
from hosts import Hosts, run
from test_network_namespaces import CLIENT

ASK = """
import json, sys, urllib.request
url, prompts = sys.argv[1:]
for prompt in json.loads(prompts):
    body = json.dumps({"model": "smollm2-135m-instruct", "prompt": prompt, "max_tokens": 2})
    urllib.request.urlopen(urllib.request.Request(
        url + "/v1/completions", body.encode(), {"Content-Type": "application/json"}), timeout=120).read()
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")
def test_a_cut_way_puts_only_its_pair_out(tmp_path):
    names = ["gateway", "prefill-0", "prefill-1", "decode-0", "decode-1"]
    with Hosts(len(names)) as hosts:
        place = dict(zip(names, range(len(names))))
        address = dict(zip(names, hosts.addresses))

        def pool(role):
            return [{"name": name, "control_listen": f"{address[name]}:7001"}
                    for name in names if name.startswith(role)]

        config = {
            "cluster": {"gateways": [f"{address['gateway']}:7000"]},
            "gateway": {"listen": f"{address['gateway']}:8000", "control_listen": f"{address['gateway']}:7000",
                        "routing": {"policy": "random"}},
            "transfer": {"transport": "tcp", "network": "eth0"},
            "prefill": {"pool": pool("prefill")},
            "decode": {"pool": pool("decode")},
        }

        def at(name, *command):
            return run("ip", "netns", "exec", hosts.names[place[name]], *command)

        cluster = Cluster(tmp_path, config=config,
                          wrap=lambda name, command: ["ip", "netns", "exec", hosts.names[place[name]], *command])

        def client(*arguments):
            return at("gateway", "python3", "-c", CLIENT, f"http://{address['gateway']}:8000", *arguments)

        def breakers():
            page = at("gateway", "curl", "-s", f"http://{address['gateway']}:8000/baton/status")
            return json.loads(page.stdout)["breakers"]

        def ready():
            for process in cluster.processes.values():
                assert process.running(), process.tail()
            return client("ready", "4").returncode == 0

        seeds = itertools.count(1)

        def ask():
            """Twenty prompts that nobody has seen, one after the other; none may fail."""
            prompts = [harness.words(30, next(seeds)) for _ in range(20)]
            done = at("gateway", "python3", "-c", ASK, f"http://{address['gateway']}:8000", json.dumps(prompts))
            assert done.returncode == 0, done.stderr

        try:
            for process in cluster.processes.values():
                process.start()
            harness.wait_for("the cluster", ready, harness.READY_LIMIT, every=0.2)
            cut = f"{address['decode-0']}/32"
            assert at("prefill-0", "ip", "route", "add", "unreachable", cut).returncode == 0

            def is_out():
                ask()
                return any(part["state"] == "open" for part in breakers())
            harness.wait_for("the pair to be out", is_out, 60)
            out = [part for part in breakers() if part["state"] != "closed"]
            assert [(part["node"], part["decode"]) for part in out] == [("prefill-0", "decode-0")]

            assert at("prefill-0", "ip", "route", "del", "unreachable", cut).returncode == 0

            def is_mended():
                ask()
                return all(part["state"] == "closed" for part in breakers())
            harness.wait_for("a request to try the pair", is_mended, 90)
        finally:
            for process in cluster.processes.values():
                process.stop()
