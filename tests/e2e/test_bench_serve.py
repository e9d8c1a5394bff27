"""`baton bench serve` against a running cluster, and its advice from clusters of its own."""
import json
import subprocess

import pytest
from harness import BIN, Cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(tmp_path_factory.mktemp("serve")) as running:
        yield running


def serve(*arguments):
    done = subprocess.run([BIN / "baton", "bench", "serve", "--json", *map(str, arguments)],
                          capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.strip().splitlines()[-1]), done.stdout


@pytest.mark.parametrize("more", [(), ("--chat", "--no-ignore-eos")])
def test_load_on_a_cluster(cluster, tmp_path, more):
    page = tmp_path / "report.html"
    figures, text = serve("--base-url", cluster.url, "--requests", 6, "--rate", 8, "--isl", "20-40", "--osl", 8,
                          "--html", page, *more)
    assert figures["requests"] == figures["whole"] == 6
    assert figures["failed"] == figures["refused"] == 0
    assert figures["ttft_ms"]["count"] == figures["e2e_ms"]["count"] == 6
    for name in ("ttft_ms", "itl_ms", "e2e_ms"):
        spread = figures[name]
        assert 0 < spread["p50"] <= spread["p90"] <= spread["p99"] <= spread["max"], name
    assert figures["ttft_ms"]["p50"] < figures["e2e_ms"]["p50"]
    assert figures["output_tokens_per_s"] > 0 and "goodput" in text
    assert page.read_text().count("<polyline") == 3


def test_a_trace_says_when_and_how_long(cluster, tmp_path):
    trace = tmp_path / "trace.jsonl"
    trace.write_text("".join(json.dumps({"timestamp": 1000 + 100 * i, "input_length": 10 + i, "output_length": 3,
                                         "hash_ids": []}) + "\n" for i in range(4)))
    figures, _ = serve("--base-url", cluster.url, "--trace", trace)
    assert figures["whole"] == 4
    assert abs(figures["offered_rate"] - 4 / 0.3) < 1e-3
    assert figures["itl_ms"]["count"] <= 4 * 2


def test_nobody_there_and_wrong_words():
    for arguments, status, says in ((("--base-url", "http://127.0.0.1:1/v1", "--model", "m"), 1, "cannot connect"),
                                    (("--base-url", "https://x/v1"), 2, "TLS"),
                                    (("--isl", "many"), 2, "--isl"),
                                    (("--advise", "--workload", "12"), 2, "--workload")):
        done = subprocess.run([BIN / "baton", "bench", "serve", *arguments], capture_output=True, text=True,
                              timeout=60)
        assert done.returncode == status and says in done.stderr, (arguments, done.stderr)


@pytest.mark.long
def test_the_advice_follows_the_workload(tmp_path):
    """Long prompts with short answers want more prefill nodes than short prompts with long answers."""
    advice, text = serve("--advise", "--workload", "40/100", "--workload", "1000/10", "--requests", 6, "--run-dir",
                         tmp_path, "--set", "kv.arena_mb=512")
    short, long = advice["workloads"]
    assert short["prefill_per_decode"] < long["prefill_per_decode"]
    assert short["prefill_nodes"] < long["prefill_nodes"]
    for workload in (short, long):
        assert workload["prefill_nodes"] + workload["decode_nodes"] == 8
        assert workload["split"]["requests"] == workload["colocated"]["requests"] == 6
        assert workload["winner"] in ("split", "colocated", "neither")
        assert f"{workload['prompts_per_s']:.3f} prompts a second" in text
