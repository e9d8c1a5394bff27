"""Nodes whose blocks have other sizes answer as one process does; a prefill node that was started
again fetches the chat's prefix from the decode node instead of computing it."""
import harness
import pytest
from harness import Cluster
from ordeals import metrics

PROMPTS = [harness.words(count, seed) for count, seed in ((2, 1), (12, 2), (25, 3), (140, 4), (400, 5))]


def tokens_of(answer):
    return answer["choices"][0]["token_ids"]


@pytest.fixture(scope="module")
def colocated(tmp_path_factory):
    config = {"decode": {"local_prefill_max_tokens": 1 << 20}}
    with Cluster(tmp_path_factory.mktemp("colocated"), prefill=0, config=config) as running:
        yield running


@pytest.fixture(scope="module")
def expected(colocated):
    return [tokens_of(colocated.complete(prompt, max_tokens=12)) for prompt in PROMPTS]


@pytest.mark.parametrize("prefill, decode", [(16, 32), (32, 16), (64, 16)])
def test_block_sizes_may_differ(tmp_path, expected, prefill, decode):
    sizes = {"prefill": prefill, "decode": decode}

    def wrap(name, command):
        size = sizes.get(name.split("-")[0])
        return command + ["--set", f"kv.block_tokens={size}"] if size else command

    with Cluster(tmp_path, wrap=wrap) as cluster:
        for prompt, tokens in zip(PROMPTS, expected):
            answer = cluster.complete(prompt, max_tokens=12)
            assert tokens_of(answer) == tokens
            figures, count = answer["baton"], answer["usage"]["prompt_tokens"]
            moved = -(-count // decode) - figures["prefix_blocks_held"]
            assert figures["kv_bytes_moved"] == (
                moved * harness.SMOLLM_LAYERS * harness.SMOLLM_BLOCK_BYTES * decode // 32)
        again = cluster.complete(PROMPTS[-1], max_tokens=12)
        assert tokens_of(again) == expected[-1]
        assert again["baton"]["prefix_blocks_held"] > 0 and again["usage"]["prompt_tokens_details"]["cached_tokens"] > 0


@pytest.mark.parametrize("block_tokens", [32, 16])
def test_cold_prefill_node_fetches_the_prefix(tmp_path, colocated, block_tokens):
    def wrap(name, command):
        return command + ["--set", f"kv.block_tokens={block_tokens}"] if name == "prefill-0" else command

    def chat(cluster, messages):
        return cluster.post("/v1/chat/completions", {
            "model": cluster.config["model"]["id"], "messages": messages, "max_tokens": 100,
            "temperature": 0, "ignore_eos": True})

    def turns(cluster, between):
        messages = [{"role": "user", "content": harness.words(500, 9)}]
        answers = [chat(cluster, messages)]
        for question in ("And the river?", "And the garden?"):
            between(cluster)
            said = answers[-1]["choices"][0]["message"]["content"]
            messages += [{"role": "assistant", "content": said}, {"role": "user", "content": question}]
            answers.append(chat(cluster, messages))
        return answers

    def restart(cluster):
        cluster["prefill-0"].kill()
        cluster["prefill-0"].start()
        harness.wait_for("the new prefill node", cluster.ready, harness.READY_LIMIT)

    with Cluster(tmp_path, wrap=wrap) as cluster:
        answers = turns(cluster, restart)
        pulled = metrics(cluster.admin("prefill-0"))["baton_prefill_pulled_tokens_total"]
    undisturbed = turns(colocated, lambda cluster: None)
    texts = [[answer["choices"][0]["message"]["content"] for answer in all_of] for all_of in (answers, undisturbed)]
    assert texts[0] == texts[1]
    assert answers[0]["baton"]["pulled_tokens"] == 0
    for answer in answers[1:]:
        assert answer["baton"]["pulled_tokens"] > 500, answer["baton"]
        assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    assert pulled == answers[-1]["baton"]["pulled_tokens"]  # that node's only one
