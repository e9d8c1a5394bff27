"""What the compiler says of the CUDA kernels, for every GPU generation they are built for: registers, shared
memory, and that kernels of attention and products keep nothing in local memory."""
import pathlib
import re
import shutil
import subprocess

import pytest

OUT = pathlib.Path(__file__).resolve().parents[1] / "build" / "release" / "kernels" / "cuda"
FUNCTION = re.compile(r"Compiling entry function '(\w+)' for '(sm_\d+)'")
SPILLS = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
USED = re.compile(r"Used (\d+) registers")
SHARED = re.compile(r"(\d+) bytes smem")
NAME = re.compile(r"(?:quant_matmul|float_matmul|plain_matmul|join_parts|attend_tiles|attend_range|join_ranges)")


def kernels(text):
    """(name, architecture, stack bytes, spilled bytes, registers, shared memory) of each kernel of a ptxas log."""
    found, current = [], None
    for line in text.splitlines():
        if match := FUNCTION.search(line):
            current = [*match.groups(), None, None]
        elif current and (match := SPILLS.search(line)):
            stack, stores, loads = map(int, match.groups())
            current[2:] = [stack, stores + loads]
        elif current and (match := USED.search(line)):
            shared = SHARED.search(line)
            found.append((*current, int(match.group(1)), int(shared.group(1)) if shared else 0))
            current = None
    return found


@pytest.fixture(scope="module")
def logs():
    if not (OUT / "ptxas").is_dir():
        pytest.skip("libbaton_cuda.so is not built here: " +
                    ("configure with -DBATON_CUDA=ON" if shutil.which("nvcc") else "no nvcc (tools/check-cuda)"))
    return {path.stem: path.read_text() for path in sorted((OUT / "ptxas").glob("*.txt"))}


def test_the_reader_of_logs():
    text = ("ptxas info    : Compiling entry function '_Z12quant_matmulv' for 'sm_90'\n"
            "ptxas info    : Function properties for _Z12quant_matmulv\n"
            "    16 bytes stack frame, 8 bytes spill stores, 4 bytes spill loads\n"
            "ptxas info    : Used 143 registers, used 1 barriers, 22528 bytes smem, 392 bytes cmem[0]\n")
    assert kernels(text) == [("_Z12quant_matmulv", "sm_90", 16, 12, 143, 22528)]


def test_no_warnings(logs):
    for name, text in logs.items():
        assert "warning" not in text, f"{name}: {text}"


def readable(names):
    """What a kernel is called in the source, its format in short."""
    plain = subprocess.run(["c++filt", "-p", *names], capture_output=True, text=True, check=True).stdout.splitlines()
    return [re.sub(r"baton::kernels::(cuda::)?|\((bool|unsigned int|int)\)", "", name) for name in plain]


def test_products_and_attention_spill_nothing(logs, capsys):
    every = sorted({kernel for text in logs.values() for kernel in kernels(text)})
    names = readable([kernel[0] for kernel in every])
    with capsys.disabled():
        print(f"\n{'kernel':70} {'GPU':7} registers  static shared bytes")
        for name, (_, architecture, _, _, registers, shared) in zip(names, every):
            print(f"{name:70} {architecture:7} {registers:9} {shared:20}")
    heavy = [kernel for kernel in every if NAME.search(kernel[0])]
    for architecture in ("sm_80", "sm_90", "sm_100"):
        assert sum(kernel[1] == architecture for kernel in heavy) >= 25, architecture
    spilling = [kernel for kernel in heavy if kernel[2] or kernel[3]]
    assert not spilling, spilling
