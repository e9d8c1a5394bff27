"""Answers over real prefill and decode processes: blocks that moved, lanes, caches, memory."""
import concurrent.futures
import os
import pathlib
import subprocess
import sys

import harness
import pytest
from harness import Cluster


@pytest.fixture(scope="module", params=["tcp", "shm"])
def cluster(request, tmp_path_factory):
    config = {"transfer": {"transport": request.param}}
    with Cluster(tmp_path_factory.mktemp(request.param), config=config) as running:
        running.lane = request.param
        yield running


def test_every_block_is_moved_and_counted(cluster):
    for count, seed in ((3, 1), (24, 2), (60, 3), (500, 4)):
        answer = cluster.complete(words := harness.words(count, seed), max_tokens=4)
        figures, tokens = answer["baton"], answer["usage"]["prompt_tokens"]
        assert figures["kv_transport"] == cluster.lane, words
        held = figures["prefix_blocks_held"]
        assert figures["kv_bytes_moved"] == harness.expected_kv_bytes(tokens, held), (tokens, figures)


def test_moved_blocks_are_no_cache_hits(cluster):
    whole = cluster.complete(harness.words(200, 31), max_tokens=2)
    assert whole["baton"]["kv_bytes_moved"] > 0
    assert whole["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    usage = [event["usage"] for event in cluster.stream(harness.words(200, 32), 2) if not event["choices"]]
    assert usage[0]["prompt_tokens"] >= 200 and usage[0]["prompt_tokens_details"]["cached_tokens"] == 0


def test_choices_share_their_prompt(cluster):
    sampled = {"temperature": 1.0, "seed": 11}
    prompt = harness.words(300, 33)
    answer = cluster.complete(prompt, max_tokens=12, n=4, **sampled)
    texts = [choice["text"] for choice in answer["choices"]]
    assert len(texts) == 4 and len(set(texts)) > 1
    assert answer["usage"]["completion_tokens"] == 48
    assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    assert cluster.complete(prompt, max_tokens=12, **sampled)["choices"][0]["text"] == texts[0]


def test_prompt_logprobs_are_those_of_generating(cluster):
    """What a greedy answer was given, its tokens are given again as part of a prompt."""
    prompt = cluster.complete(harness.words(40, 34), max_tokens=24, logprobs=1)["choices"][0]
    start = prompt["prompt_token_ids"]
    scored = cluster.complete(start + prompt["token_ids"], max_tokens=1, prompt_logprobs=1)["choices"][0]
    told = [entry[str(token)] for entry, token in
            zip(scored["prompt_logprobs"][len(start):], prompt["token_ids"], strict=True)]
    assert [value["logprob"] for value in told] == prompt["logprobs"]["token_logprobs"]
    assert all(value["rank"] == 1 for value in told)


def test_second_time_only_the_tail_moves(cluster):
    prompt = harness.words(300, 77)
    first, second = (cluster.complete(prompt, max_tokens=8) for _ in range(2))
    assert first["choices"][0]["token_ids"] == second["choices"][0]["token_ids"]
    tokens = first["usage"]["prompt_tokens"]
    assert second["baton"]["prefix_blocks_held"] >= harness.blocks(tokens) - 1 > 0
    assert second["baton"]["kv_bytes_moved"] == harness.expected_kv_bytes(
        tokens, second["baton"]["prefix_blocks_held"])
    assert second["usage"]["prompt_tokens_details"]["cached_tokens"] > 0


def test_stream_equals_the_whole_answer(cluster):
    prompt = harness.words(40, 5)
    whole = cluster.complete(prompt, max_tokens=24)
    events = list(cluster.stream(prompt, max_tokens=24))
    text = "".join(event["choices"][0]["text"] for event in events if event["choices"])
    assert text == whole["choices"][0]["text"]
    assert events[-1]["usage"]["completion_tokens"] == 24


def test_many_at_once_equal_one_by_one(cluster):
    prompts = [harness.words(20 + 15 * i, 100 + i) for i in range(10)]
    with concurrent.futures.ThreadPoolExecutor(len(prompts)) as pool:
        together = list(pool.map(lambda prompt: cluster.complete(prompt, max_tokens=24), prompts))
    alone = [cluster.complete(prompt, max_tokens=24) for prompt in prompts]
    assert max(answer["baton"]["max_batch"] for answer in together) > 1
    assert [a["choices"][0]["token_ids"] for a in together] == [a["choices"][0]["token_ids"] for a in alone]


def test_idle_gateway_is_small(cluster):
    assert harness.rss_bytes(cluster["gateway"].popen.pid) < 60_000_000


def test_openai_sdk_against_real_nodes(cluster):
    """The SDK tests that need no scripted answer, over this cluster."""
    if cluster.lane != "tcp":
        pytest.skip("one lane is enough")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "running", "openai_sdk_test.py"],
        cwd=pathlib.Path(__file__).parent, capture_output=True, text=True,
        env={**os.environ, "BATON_BASE_URL": cluster.url})
    assert done.returncode == 0, done.stdout[-3000:]


def test_colocated_moves_nothing(tmp_path):
    config = {"decode": {"local_prefill_max_tokens": 100000}}
    with Cluster(tmp_path, prefill=0, config=config) as cluster:
        answer = cluster.complete(harness.words(100, 9), max_tokens=8)
        assert answer["baton"]["kv_bytes_moved"] == 0
        assert answer["usage"]["completion_tokens"] == 8


def test_gemma_is_served(tmp_path):
    if not harness.GEMMA.exists():
        pytest.skip("baton pull gemma3-270m has not run")
    with Cluster(tmp_path, config={"model": {"id": "gemma3-270m"}}) as cluster:
        answer = cluster.complete("Water is made of", max_tokens=6)
        assert "hydrogen" in answer["choices"][0]["text"]
        assert answer["baton"]["kv_bytes_moved"] > 0
