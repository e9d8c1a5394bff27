"""Blocks are digested between real processes, whichever side asks for it, and the tokens stay the same."""
import harness
import pytest
from harness import Cluster
from ordeals import metrics

PROMPTS = [harness.words(count, seed) for count, seed in ((3, 1), (60, 2), (300, 3))]


@pytest.fixture(scope="module")
def answers():
    """Of the first mode; the others must give the same."""
    return []


@pytest.mark.parametrize("prefill, decode", [("off", "off"), ("off", "all"), ("all", "off"), ("sample", "all")])
@pytest.mark.parametrize("transport", ["tcp", "shm"])
def test_digests_of_both_sides_agree(tmp_path, answers, transport, prefill, decode):
    modes = {"prefill": prefill, "decode": decode}

    def wrap(name, command):
        mode = modes.get(name.split("-")[0])
        return command + ["--set", f"transfer.digest={mode}"] if mode else command

    with Cluster(tmp_path, config={"transfer": {"transport": transport}}, wrap=wrap) as cluster:
        for role, mode in modes.items():
            assert f"digest {mode}" in cluster[f"{role}-0"].tail()
        given = [cluster.complete(prompt, max_tokens=8)["choices"][0]["token_ids"] for prompt in PROMPTS]
        answers.append(given)
        assert given == answers[0]

        def verified():
            return metrics(cluster.admin("decode-0"))['baton_decode_grant_events{event="verified"}']

        harness.wait_for("the page to show every grant", lambda: verified() == len(PROMPTS))
        samples = metrics(cluster.admin("decode-0"))
        assert samples["baton_transfer_digest_mismatches"] == 0
        assert samples["baton_transfer_received_bytes"] > 0
