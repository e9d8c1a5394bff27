"""The AVX-512 kernels' machine code, as the compiler made it for the product, run on a simulated processor
and compared bit for bit with the scalar kernels. tests/support/emulated_avx512_kernels.cpp proves the
source on every machine; this proves what became of it."""
import importlib.util
import os
import pathlib
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
BIN = HERE.parents[1] / "build" / "release" / "bin"


@pytest.fixture
def bochscpu():
    found = importlib.util.find_spec("bochscpu")
    if found is None:
        pytest.skip("no package bochscpu-python here (tools/setup --tests)")
    return next(pathlib.Path(found.origin).parent.glob("_bochscpu.*.so"))


def test_avx512_machine_code_computes_what_scalar_does(bochscpu, tmp_path):
    guest = BIN / "avx512_guest"
    model = tmp_path / "processor_model.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", model, HERE / "processor_model.c", "-ldl"], check=True)
    symbols = {}
    for line in subprocess.run(["nm", guest], check=True, capture_output=True, text=True).stdout.splitlines():
        address, _, name = line.split()
        symbols[name] = address
    done = subprocess.run(
        [sys.executable, HERE / "simulate.py", guest, symbols["hashes"], symbols["hash_count"]],
        env={**os.environ, "LD_PRELOAD": str(model), "BOCHSCPU_MODULE": str(bochscpu)},
        capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    native = subprocess.run([BIN / "kernel_replay"], check=True, capture_output=True, text=True).stdout
    assert len(native.splitlines()) > 50
    assert done.stdout == native
