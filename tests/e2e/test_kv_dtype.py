"""Keys and values of one byte: a prefill and a decode node answer as one process does, over tcp and
shared memory, with blocks of equal and of different size."""
import harness
import pytest
from harness import Cluster

PROMPTS = [harness.words(count, seed) for count, seed in ((2, 1), (25, 3), (400, 5))]
# Of one layer and 32 tokens: keys and values of 3 heads, 64 codes and a scale of 4 bytes each.
BLOCK_BYTES = 2 * 3 * 32 * (64 + 4)


def answers_of(cluster):
    answers = [cluster.complete(prompt, max_tokens=12) for prompt in PROMPTS]
    return [answer["choices"][0]["token_ids"] for answer in answers], answers


@pytest.mark.parametrize("dtype, transport, prefill_block", [("i8", "tcp", 16), ("f8", "shm", 32)])
def test_split_answers_as_one_process_does(tmp_path, dtype, transport, prefill_block):
    config = {"kv": {"dtype": dtype}, "decode": {"local_prefill_max_tokens": 1 << 20}}
    with Cluster(tmp_path / "one", prefill=0, config=config) as cluster:
        expected, _ = answers_of(cluster)
    config = {"kv": {"dtype": dtype}, "transfer": {"transport": transport}}

    def wrap(name, command):
        return command + ["--set", f"kv.block_tokens={prefill_block}"] if name == "prefill-0" else command

    with Cluster(tmp_path / "split", config=config, wrap=wrap) as cluster:
        tokens, answers = answers_of(cluster)
    assert tokens == expected
    for answer in answers:
        figures, count = answer["baton"], answer["usage"]["prompt_tokens"]
        moved = -(-count // 32) - figures["prefix_blocks_held"]
        assert figures["kv_bytes_moved"] == moved * harness.SMOLLM_LAYERS * BLOCK_BYTES
        assert transport in figures["kv_transport"]
