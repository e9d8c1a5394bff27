"""Nodes are replaced one by one, while clients ask, by nodes that compute a little differently, as those of a new
build may: no request fails, and every answer is that of the old nodes or that of the new ones, never a mix."""
import threading

from harness import Cluster, wait_for, words
from test_drain import drain

PROMPTS = [words(20 + 15 * i, seed=70 + i) for i in range(4)]
NEW = ["--set", "model.partial_sums=4"]  # another order of sums: pairs of old and new would not agree


def answer(cluster, prompt):
    return cluster.complete(prompt, max_tokens=48)["choices"][0]["token_ids"]


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


def test_old_and_new_nodes_serve_side_by_side(tmp_path):
    with Cluster(tmp_path, prefill=2, decode=2) as cluster:
        old = [answer(cluster, prompt) for prompt in PROMPTS]
        clients = Clients(cluster)
        try:
            for name in ("decode-1", "prefill-1", "decode-0", "prefill-0"):
                done = drain(cluster, name, "--limit", "60s")
                assert done.returncode == 0, done.stderr
                assert cluster[name].stop() == 0
                cluster[name].command += NEW
                cluster[name].start()
                wait_for(name, lambda: cluster.nodes().get(name, {}).get("state") == "alive", 60)
                seen = len(clients.answers)
                wait_for("answers meanwhile", lambda: len(clients.answers) > seen or clients.errors)
        finally:
            clients.stop()
        assert not clients.errors, clients.errors
        new = [answer(cluster, prompt) for prompt in PROMPTS]
        for index, tokens in clients.answers:
            assert tokens in (old[index], new[index])
