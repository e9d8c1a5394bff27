"""`baton bench same-tokens` with a few prompts; the full run of 50 is a long test."""
import json
import subprocess

import pytest
from harness import BIN, ROOT, SMOLLM


def run_same_tokens(tmp_path, count, long, max_tokens, options=(), expected=14):
    prompts = tmp_path / "prompts.jsonl"
    made = subprocess.run([ROOT / "tools" / "make_prompts", "--count", str(count), "--long", str(long),
                           "--max-tokens", str(max_tokens)], capture_output=True, text=True, check=True)
    prompts.write_text(made.stdout)
    done = subprocess.run([BIN / "baton", "bench", "same-tokens", "--prompts", prompts, "--json",
                           "--run-dir", tmp_path / "run", *options], capture_output=True, text=True, cwd=ROOT)
    lines = done.stdout.strip().splitlines()
    assert done.returncode == 0, done.stdout + done.stderr
    assert lines[-1] == f"{expected} passed, 0 failed"
    checks = json.loads(next(line for line in lines if line.startswith('{"checks"')))["checks"]
    assert len(checks) == expected and all(check["answers"] == count for check in checks)
    return checks


@pytest.mark.parametrize("model", ["smollm2-135m-instruct", "gemma3-270m"])
@pytest.mark.parametrize("ranks", [2, 4])
def test_ranks(tmp_path, ranks, model):
    """Prefill on several ranks and decode on one, and the reverse, beside one process of one rank."""
    run_same_tokens(tmp_path, count=6, long=2, max_tokens=32,
                    options=("--tensor-parallel", str(ranks), "--model", model, "--batch", "4"))


def test_few_prompts(tmp_path):
    run_same_tokens(tmp_path, count=12, long=4, max_tokens=48)


@pytest.mark.parametrize("mode", ["ngram", "draft"])
def test_speculation(tmp_path, mode):
    options = ["--speculation", mode] + (["--draft-model", SMOLLM] if mode == "draft" else [])
    checks = run_same_tokens(tmp_path, count=4, long=1, max_tokens=48, options=options, expected=3)
    assert checks[0]["seen"]["accepted_tokens"] > 0


@pytest.mark.long
def test_fifty_prompts(tmp_path):
    run_same_tokens(tmp_path, count=50, long=22, max_tokens=64)


@pytest.mark.long
@pytest.mark.parametrize("dtype", ["i8", "f8"])
def test_keys_and_values_of_one_byte(tmp_path, dtype):
    run_same_tokens(tmp_path, 12, 4, 48, options=("--kv-dtype", dtype))
