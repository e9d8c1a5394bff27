"""The cuda backend where there is no GPU: it is refused with what is missing, and `auto` goes on on the CPU."""
import ctypes
import json
import subprocess

import harness
import pytest
from harness import BIN, Cluster


def has_gpu():
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    count = ctypes.c_int(0)
    return driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0 and count.value > 0


@pytest.fixture(autouse=True)
def without_gpu():
    if has_gpu():
        pytest.skip("this machine has a GPU")


@pytest.mark.parametrize("role", ["decode", "prefill"])
def test_cuda_is_refused_with_what_is_missing(tmp_path, role):
    cluster = Cluster(tmp_path, config={role: {"engine": {"backend": "cuda"}}})
    done = subprocess.run([BIN / f"baton-{role}", "--config", cluster.file, "--name", f"{role}-0"],
                          capture_output=True, text=True, timeout=60, cwd=harness.ROOT)
    assert done.returncode == 1, done
    text = done.stdout + done.stderr
    missing = "libcuda.so.1" if (BIN / "libbaton_cuda.so").exists() else "libbaton_cuda.so was not built"
    assert "engine.backend cuda" in text and missing in text, text


def test_auto_goes_on_on_the_cpu_and_says_why_once(tmp_path):
    with Cluster(tmp_path, config={"decode": {"engine": {"backend": "auto"}}}) as cluster:
        assert cluster.complete("One two three", max_tokens=4)["usage"]["completion_tokens"] == 4
        lines = [line for line in cluster["decode-0"].tail(200).splitlines() if "CUDA" in line]
    assert len(lines) == 1, lines
    assert "engine.backend auto: the CPU computes" in lines[0]


def test_gpu_check_needs_a_gpu():
    done = subprocess.run([harness.ROOT / "tools/gpu-check"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 3 and "libcuda.so.1" in done.stderr, done


def test_what_gpu_check_runs_agrees_on_the_cpu():
    """The program behind tools/gpu-check, with the CPU in the GPU's place."""
    done = subprocess.run([BIN / "gpu_check", "--backend", "cpu", "--batch", "1,4", "--width", "512",
                           "--seconds", "0"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done
    report = json.loads(done.stdout.splitlines()[-1])
    assert len(report["errors"]) == 7 and all(error < 0.02 for error in report["errors"].values())
    assert len(report["products"]) == 8 and all(each["us"] > 0 for each in report["products"])
