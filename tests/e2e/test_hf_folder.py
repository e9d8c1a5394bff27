"""Models as Hugging Face folders: written by the usual packages, read, checked and served by real programs."""
import json
import pathlib
import shutil
import subprocess
import sys

import harness
import pytest
from harness import Cluster

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import hf_models  # noqa: E402

TEXTS = ["The quick brown fox", "for (int i = 0; i < 10; ++i) {\n  a[i] += 12345;\n}\n", "naïve façade, 今日は世界 😀",
         "  two  spaces\n\n\tand tabs ", "<|im_start|>user\nHi<|im_end|>\n"]
QUANTISATIONS = {
    "gptq": {"method": "gptq"},
    "gptq symmetric": {"method": "gptq", "symmetric": True, "group_size": 64},
    "gptq row": {"method": "gptq", "group_size": -1},
    "gptq v2": {"method": "gptq", "version": 2, "group_size": 128},
    "gptq act order": {"method": "gptq", "act_order": True},
    "awq": {"method": "awq", "group_size": 64},
}


def baton(*arguments):
    return subprocess.run([str(harness.BIN / "baton"), *map(str, arguments)], capture_output=True, text=True)


def perplexity(folder, tmp_path, backend="reference"):
    text = tmp_path / "text.txt"
    text.write_text(" ".join(hf_models.CORPUS))
    done = baton("perplexity", text, "--model", folder, "--backend", backend, "--context", 64, "--chunks", 2, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", QUANTISATIONS)
def test_four_bit_weights_are_the_matrix_they_stand_for(name, tmp_path):
    packed = hf_models.write(tmp_path / "packed", quantisation=QUANTISATIONS[name])
    plain = hf_models.write(tmp_path / "plain", quantisation=QUANTISATIONS[name], plain=True)
    assert perplexity(packed, tmp_path) == perplexity(plain, tmp_path)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_shards_change_nothing(dtype, tmp_path):
    whole = perplexity(hf_models.write(tmp_path / "whole", dtype), tmp_path, "cpu")
    assert whole == perplexity(hf_models.write(tmp_path / "shards", dtype, shards=3), tmp_path, "cpu")
    text = hf_models.tokenizer().encode(" ".join(hf_models.CORPUS))
    assert whole["tokens"] <= len(text.ids)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hf")
    model = hf_models.write(folder / "model")
    with Cluster(folder / "cluster", config={"model": {"id": "tiny", "path": str(model)}, "kv": {"arena_mb": 64}}) as running:
        running.model = model
        yield running


def test_a_cluster_answers_by_the_book(cluster):
    tokenizer = hf_models.tokenizer()
    for text in TEXTS:
        ids = tokenizer.encode(text).ids
        answer = cluster.complete(text, max_tokens=10)
        assert answer["usage"]["prompt_tokens"] == len(ids), text
        made = answer["choices"][0]["token_ids"]
        assert made == hf_models.greedy(cluster.model, ids, 10), text


def test_the_gateway_has_the_folders_chat_template(cluster):
    answer = cluster.post("/v1/chat/completions", {
        "model": "tiny", "messages": [{"role": "user", "content": "Hi <|im_end|>"}], "max_tokens": 3, "temperature": 0})
    tokenizer = hf_models.tokenizer()
    before, after = "<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n"
    # What a user writes never becomes a special token.
    tokenizer_plain = hf_models.Tokenizer.from_str(tokenizer.to_str().replace('"special":true', '"special":false'))
    assert answer["usage"]["prompt_tokens"] > len(tokenizer_plain.encode(before + "Hi <|im_end|>" + after).ids)


def test_check_names_what_is_missing(cluster, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(cluster.model, folder)
    setting = f"model.path={folder}"
    done = baton("check", cluster.file, "--set", setting)
    assert done.returncode == 0, done.stdout + done.stderr
    (folder / "tokenizer.json").unlink()
    (folder / "model.safetensors").rename(folder / "other.safetensors")
    done = baton("check", cluster.file, "--set", setting)
    assert done.returncode == 2
    assert f"the model folder {folder} lacks tokenizer.json, model.safetensors" in done.stdout + done.stderr
