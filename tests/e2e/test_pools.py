"""Nodes that change their role under load, over real processes: the gateway decides, the node drains and
comes back, every answer is the same as without."""
import re
import threading
import urllib.request

from harness import Cluster, wait_for, words

PROMPTS = [words(30 + 12 * i, seed=40 + i) for i in range(4)]
LONG = [words(700, seed=80 + i) for i in range(6)]


def ids(cluster, prompt, tokens):
    return cluster.complete(prompt, max_tokens=tokens)["choices"][0]["token_ids"]


def pools(prefill, decode, **changes):
    def entries(role, count):
        return [{"name": f"{role}-{i}", "any_role": True} for i in range(count)]
    return {"prefill": {"pool": entries("prefill", prefill)}, "decode": {"pool": entries("decode", decode)},
            "pools": {"interval_ms": 500, "cooldown_ms": 2000, "drain_ms": 1000, **changes}}


def roles(cluster):
    return sorted(node["role"] for node in cluster.nodes().values() if node["state"] == "alive")


def metric(cluster, name):
    text = urllib.request.urlopen(f"http://{cluster.admin('gateway')}/metrics").read().decode()
    found = re.search(rf"^{re.escape(name)} (\S+)", text, re.M)
    return float(found.group(1)) if found else 0


class Load:
    """Asks (prompt, tokens) over and over until stopped; keeps every answer that is not the expected one."""

    def __init__(self, cluster, prompts, expected):
        self.stopped = threading.Event()
        self.wrong, self.asked = [], 0
        self.threads = [threading.Thread(target=self.run, args=(cluster, prompt, wanted))
                        for prompt, wanted in zip(prompts, expected)]

    def run(self, cluster, prompt, wanted):
        while not self.stopped.is_set():
            try:
                got = ids(cluster, *prompt)
            except Exception as problem:  # an error is a wrong answer, too
                got = repr(problem)
            self.asked += 1
            if got != wanted:
                self.wrong.append((prompt[0][:20], got))

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *ignored):
        self.stopped.set()
        for thread in self.threads:
            thread.join()


def test_the_pool_that_the_load_needs_grows_and_answers_stay_the_same(tmp_path):
    """Long prompts on one prefill and two decode nodes, which also have answers in work."""
    config = pools(1, 2, change_roles="on") | {
        "kv": {"prefix_cache": False, "arena_mb": 256},  # every prompt has to be computed
        "slo": {"tiers": {"default": {"ttft_ms": 500, "itl_ms": 2000}}}}
    prompts = [(text, 8) for text in LONG] + [(text, 96) for text in PROMPTS]
    with Cluster(tmp_path / "before") as plain:
        expected = [ids(plain, *prompt) for prompt in prompts]
    with Cluster(tmp_path / "pools", prefill=1, decode=2, config=config) as cluster:
        before = cluster.nodes()
        assert roles(cluster) == ["decode", "decode", "prefill"]
        with Load(cluster, prompts, expected) as load:
            wait_for("two prefill nodes", lambda: roles(cluster) == ["decode", "prefill", "prefill"], 120)
            asked = load.asked
            wait_for("answers of the new pools", lambda: load.asked >= asked + 2 * len(prompts), 120)
        assert load.wrong == []
        nodes = cluster.nodes()
        changed = [name for name in nodes if nodes[name]["incarnation"] != before[name]["incarnation"]]
        assert len(changed) >= 1
        for name in changed:  # the process that it was
            assert cluster[name].running()
            roles_had = re.findall(r"ready as a (\w+) node", cluster[name].log.read_text())
            assert roles_had[:2] == [before[name]["role"], "prefill" if name.startswith("decode") else "decode"]
        assert metric(cluster, 'baton_pool_role_changes_total{role="prefill"}') >= 1
        assert metric(cluster, 'baton_pool_desired_replicas{role="prefill"}') >= 2
        pool = cluster.get("/baton/status")["pools"][0]
        assert pool["prefill"]["nodes"] + pool["decode"]["nodes"] + pool["changing"] == 3


def test_dry_run_says_what_it_would_do(tmp_path):
    with Cluster(tmp_path, prefill=2, decode=1,
                 config=pools(2, 1, change_roles="dry_run", ratio="1:2")) as cluster:
        log = cluster["gateway"].log
        wait_for("the line", lambda: "would become a decode node" in log.read_text())
        assert roles(cluster) == ["decode", "prefill", "prefill"]
        assert metric(cluster, 'baton_pool_role_changes_total{role="decode"}') == 0


def test_a_role_that_lost_its_last_node_gets_one_without_load(tmp_path):
    with Cluster(tmp_path, prefill=2, decode=1, config=pools(2, 1, change_roles="on")) as cluster:
        expected = ids(cluster, PROMPTS[0], 8)
        wait_for("a first look", lambda: cluster.get("/baton/status")["pools"])
        lost = next(name for name, node in cluster.nodes().items() if node["role"] == "decode")
        cluster[lost].kill()
        wait_for("a decode node", lambda: roles(cluster) == ["decode", "prefill"], 60)
        assert ids(cluster, PROMPTS[0], 8) == expected
        log = cluster["gateway"].log.read_text()
        assert "2 prefill and 0 decode nodes, floor wants 1 and 1" in log
        assert "times the load expected" not in log  # one request says nothing of it
