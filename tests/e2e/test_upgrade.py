"""Nodes are replaced one by one while clients ask: by new processes of the same build, and by a revision that computes a
little differently. No request fails, and no answer is a mix of old and new."""
import threading

import pytest
from harness import SMOLLM, Cluster, wait_for, words
from test_drain import drain

OLD = "smollm2-135m-instruct"
PROMPTS = [words(20 + 15 * i, seed=70 + i) for i in range(4)]


def answer(cluster, prompt):
    return cluster.complete(prompt, max_tokens=48, model="chat")["choices"][0]["token_ids"]


class Clients:
    """Ask without a pause until they are stopped."""

    def __init__(self, cluster):
        self.answers, self.errors = [], []
        self.stopped = threading.Event()
        self.threads = [threading.Thread(target=self.run, args=(cluster, i)) for i in range(len(PROMPTS))]
        for thread in self.threads:
            thread.start()

    def run(self, cluster, index):
        while not self.stopped.is_set():
            try:
                self.answers.append((index, answer(cluster, PROMPTS[index])))
            except Exception as error:  # whatever it is: it reached a client
                self.errors.append(error)

    def stop(self):
        self.stopped.set()
        for thread in self.threads:
            thread.join()


def replace(cluster, name, clients, more):
    done = drain(cluster, name, "--limit", "60s")
    assert done.returncode == 0, done.stderr
    assert cluster[name].stop() == 0
    cluster[name].command += more
    cluster[name].start()
    wait_for(name, lambda: cluster.nodes().get(name, {}).get("state") == "alive" or not cluster[name].running(), 60)
    seen = len(clients.answers)
    wait_for("answers meanwhile", lambda: len(clients.answers) > seen or clients.errors)


@pytest.mark.parametrize("revision", [False, True], ids=["same build", "revision"])
def test_old_and_new_nodes_serve_side_by_side(tmp_path, revision):
    more = ["--set", "model.id=new", "--set", f"model.path={SMOLLM}",
            "--set", "model.partial_sums=4"] if revision else []
    config = {"gateway": {"models": [{"id": "chat", "revisions": [{"model": "new", "weight": 99},
                                                                  {"model": OLD, "weight": 1}]}]}}
    with Cluster(tmp_path, prefill=2, decode=2, config=config) as cluster:
        old = [answer(cluster, prompt) for prompt in PROMPTS]
        clients = Clients(cluster)
        try:
            for name in ("decode-1", "prefill-1", "decode-0", "prefill-0"):
                replace(cluster, name, clients, more)
        finally:
            clients.stop()
        assert not clients.errors, clients.errors
        assert {node["model"] for node in cluster.nodes().values()} == {"new" if revision else OLD}
        new = [answer(cluster, prompt) for prompt in PROMPTS]
        assert revision or new == old
        for index, tokens in clients.answers:
            assert tokens in (old[index], new[index])
