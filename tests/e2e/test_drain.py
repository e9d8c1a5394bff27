"""Nodes that hand requests back, over real processes: drained, short of blocks, stopped by SIGTERM.
Every answer goes on elsewhere, or later, and is the same."""
import re
import subprocess
import threading
import urllib.request

import pytest
from harness import BIN, Cluster, wait_for, words

TOKENS = 160


def drain(cluster, *arguments):
    return subprocess.run([BIN / "baton", "drain", "--base-url", cluster.url, *arguments],
                          capture_output=True, text=True, timeout=120)


def metric(cluster, node, name):
    text = urllib.request.urlopen(f"http://{cluster.admin(node)}/metrics").read().decode()
    found = re.search(rf"^{re.escape(name)} (\S+)", text, re.M)
    return float(found.group(1)) if found else 0


class Asked:
    """Prompts asked at the same time, each on a thread of its own."""

    def __init__(self, cluster, prompts):
        self.answers = [None] * len(prompts)
        self.threads = [threading.Thread(target=self.ask, args=(cluster, i, prompt))
                        for i, prompt in enumerate(prompts)]
        for thread in self.threads:
            thread.start()

    def ask(self, cluster, index, prompt):
        self.answers[index] = ids(cluster, prompt)

    def wait(self):
        for thread in self.threads:
            thread.join()
        return self.answers


def ids(cluster, prompt):
    return cluster.complete(prompt, max_tokens=TOKENS)["choices"][0]["token_ids"]


def working_decode_node(cluster):
    """The decode node that runs most, once one runs anything."""
    found = {}

    def is_working():
        found.update({name: node["running"] for name, node in cluster.nodes().items()
                      if node["role"] == "decode" and node["state"] != "draining"})
        return max(found.values()) > 0
    wait_for("answers on a decode node", is_working)
    return max(found, key=found.get)


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    with Cluster(tmp_path_factory.mktemp("drain"), prefill=2, decode=3) as cluster:
        yield cluster


PROMPTS = [words(30 + 10 * i, seed=i) for i in range(6)]


def test_drained_answers_go_on_at_other_nodes(pairs):
    expected = [ids(pairs, prompt) for prompt in PROMPTS]
    asked = Asked(pairs, PROMPTS)
    drained = working_decode_node(pairs)
    done = drain(pairs, drained, "--limit", "0")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{drained}: idle" in done.stdout
    assert asked.wait() == expected
    node = pairs.nodes()[drained]
    assert node["state"] == "draining" and node["running"] == 0
    assert node["blocks_free"] == node["blocks_total"]
    assert metric(pairs, drained, "baton_node_draining") == 1


def test_prefill_node_is_drained_within_its_limit(pairs):
    expected = [ids(pairs, prompt) for prompt in PROMPTS]
    asked = Asked(pairs, PROMPTS)
    done = drain(pairs, "prefill-0", "--limit", "20s")
    assert done.returncode == 0, done.stdout + done.stderr
    assert asked.wait() == expected
    assert ids(pairs, PROMPTS[0]) == expected[0]


def test_sigterm_hands_back_what_runs_longer(pairs):
    expected = [ids(pairs, prompt) for prompt in PROMPTS]
    asked = Asked(pairs, PROMPTS)
    assert pairs[working_decode_node(pairs)].stop() == 0
    assert asked.wait() == expected


def test_the_last_node_of_a_role_is_told(tmp_path):
    with Cluster(tmp_path, prefill=1, decode=2) as cluster:
        first = drain(cluster, "decode-1")
        assert first.returncode == 0 and "warning" not in first.stderr, first.stderr
        last = drain(cluster, "decode-0")
        assert last.returncode == 0, last.stderr
        assert "decode-0 is the last decode node of smollm2-135m-instruct" in last.stderr


@pytest.mark.parametrize("arguments, status, says", [
    (("nobody",), 1, "No node"),
    (("decode-0", "--limit", "soon"), 2, "--limit"),
    (("decode-0", "--config", "/no/such.yaml"), 2, "/no/such.yaml"),
    ((), 2, "node"),
])
def test_wrong_words_are_told(pairs, arguments, status, says):
    done = drain(pairs, *arguments)
    assert done.returncode == status
    assert says in done.stderr + done.stdout


def test_answers_that_outgrow_a_small_pool_all_end(tmp_path):
    # 33 blocks of 32 tokens; six answers take up to 42 in all.
    with Cluster(tmp_path, config={"kv": {"arena_mb": 24}, "decode": {"expected_output_tokens": 32}}) as cluster:
        expected = [ids(cluster, prompt) for prompt in PROMPTS]
        assert Asked(cluster, PROMPTS).wait() == expected
        assert metric(cluster, "decode-0", 'baton_decode_ended_total{reason="preempted"}') > 0
        wait_for("free blocks", lambda: all(node["blocks_free"] == node["blocks_total"]
                                            for node in cluster.nodes().values()))
