"""`baton bench same-tokens` with a few prompts; the full run of 50 is a long test."""
import json
import subprocess

import pytest
from harness import BIN, ROOT


def run_same_tokens(tmp_path, count, long, max_tokens):
    prompts = tmp_path / "prompts.jsonl"
    made = subprocess.run([ROOT / "tools" / "make_prompts", "--count", str(count), "--long", str(long),
                           "--max-tokens", str(max_tokens)], capture_output=True, text=True, check=True)
    prompts.write_text(made.stdout)
    done = subprocess.run([BIN / "baton", "bench", "same-tokens", "--prompts", prompts, "--json",
                           "--run-dir", tmp_path / "run"], capture_output=True, text=True, cwd=ROOT)
    lines = done.stdout.strip().splitlines()
    assert done.returncode == 0, done.stdout + done.stderr
    assert lines[-1] == "14 passed, 0 failed"
    checks = json.loads(next(line for line in lines if line.startswith('{"checks"')))["checks"]
    assert len(checks) == 14 and all(check["answers"] == count for check in checks)


def test_few_prompts(tmp_path):
    run_same_tokens(tmp_path, count=12, long=4, max_tokens=48)


@pytest.mark.long
def test_fifty_prompts(tmp_path):
    run_same_tokens(tmp_path, count=50, long=22, max_tokens=64)
