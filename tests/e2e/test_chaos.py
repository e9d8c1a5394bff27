"""Nodes die and come back under load: every request ends, answers stay the same, no block is lost."""
import http.client
import random
import threading

import harness
import pytest
from harness import Cluster, HttpError


def settled(cluster):
    """Nothing runs and no block is held but by the prefix caches."""
    nodes = cluster.nodes()
    return len(nodes) == len(cluster.processes) - 1 and all(
        node["running"] == 0 and node["blocks_granted"] == 0 and node["blocks_in_use"] == 0
        and node["blocks_free"] == node["blocks_total"] for node in nodes.values())


class Load:
    """Clients that ask the same prompts again and again and compare the answers."""

    def __init__(self, cluster, prompts, clients):
        self.cluster, self.prompts = cluster, prompts
        self.expected = [self.ask(prompt) for prompt in prompts]
        self.stop = threading.Event()
        self.good, self.failed, self.wrong = 0, 0, []
        self.lock = threading.Lock()
        self.threads = [threading.Thread(target=self.run, args=(i,)) for i in range(clients)]

    def ask(self, prompt):
        return self.cluster.complete(prompt, max_tokens=32)["choices"][0]["token_ids"]

    def run(self, number):
        draw = random.Random(number)
        while not self.stop.is_set():
            index = draw.randrange(len(self.prompts))
            try:
                ids = self.ask(self.prompts[index])
            except HttpError as error:
                assert error.error["message"]
                with self.lock:
                    self.failed += 1
                continue
            except (OSError, http.client.HTTPException):
                with self.lock:
                    self.failed += 1
                continue
            with self.lock:
                self.good += 1
                if ids != self.expected[index]:
                    self.wrong.append(index)

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        for thread in self.threads:
            thread.join(120)
        assert not any(thread.is_alive() for thread in self.threads), "a request never ended"


def kill_under_load(tmp_path, rounds):
    prompts = [harness.words(20 + 60 * i, 300 + i) for i in range(6)]
    with Cluster(tmp_path, prefill=2, decode=2) as cluster:
        draw = random.Random(1)
        with Load(cluster, prompts, clients=4) as load:
            for number in range(rounds):
                before = load.good
                harness.wait_for("answers", lambda: load.good >= before + 4, limit=60)
                victim = draw.choice(["prefill-0", "prefill-1", "decode-0", "decode-1"])
                cluster[victim].kill()
                cluster[victim].start()
                cluster.wait_ready()
        assert not load.wrong, f"answers changed: {load.wrong}"
        assert not load.failed, f"{load.failed} requests did not complete"
        assert load.good > 4 * rounds
        harness.wait_for("the blocks to come back", lambda: settled(cluster))


def test_two_kills_under_load(tmp_path):
    kill_under_load(tmp_path, 2)


@pytest.mark.long
def test_thirty_kills_under_load(tmp_path):
    kill_under_load(tmp_path, 30)


def test_clients_that_leave_lose_no_block(tmp_path):
    with Cluster(tmp_path) as cluster:
        streams = [cluster.stream(harness.words(100 + 40 * i, 400 + i), max_tokens=400) for i in range(6)]
        for i, stream in enumerate(streams):
            if i % 2:
                next(stream)
            stream.close()
        threads = [threading.Thread(target=lambda s=s: next(s, None)) for s in
                   (cluster.stream(harness.words(3000, 500 + i), max_tokens=4) for i in range(2))]
        for thread in threads:
            thread.start()
        harness.wait_for("the work to end", lambda: settled(cluster), limit=60)
        for thread in threads:
            thread.join()
        assert cluster.complete("Hello", max_tokens=4)["usage"]["completion_tokens"] == 4
        harness.wait_for("the blocks to come back", lambda: settled(cluster))
