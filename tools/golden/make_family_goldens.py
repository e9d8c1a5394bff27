#!/usr/bin/env python3
"""Makes tests/golden/families.json: logits that llama.cpp computes for tiny random models.

The models are those of tests/support/tiny_model.cpp (golden_tiny_models), float32, written by the
test program make_tiny_model; tests/unit/engine_model/family_golden_test.cpp makes the same files and
compares. Needs llama.cpp as tools/peers/llama_cpp builds it, a compiler, and make_tiny_model built.

usage: make_family_goldens.py [--peer FOLDER] [--bin FOLDER] [--out FILE]
"""
import argparse
import glob
import hashlib
import json
import os
import subprocess
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
COUNT = 100
# Positions and tokens kept: of 100 rows, those at both ends of the tiny window of 48 and the last.
POSITIONS = [0, 1, 2, 31, 47, 48, 60, 99]
TOKENS = list(range(0, 280, 7))


def tokens():
    """Fixed, below every tiny vocabulary's size."""
    state, out = 7, []
    for _ in range(COUNT):
        state = (state * 1103515245 + 12345) % (1 << 31)
        out.append((state >> 16) % 280)
    return out


def build_peer(peer, source, scratch):
    """A program that links the peer's static libraries."""
    program = os.path.join(scratch, "peer_logits")
    libraries = []
    for name in ("libllama.a", "libggml.a", "libggml-cpu.a", "libggml-base.a"):
        found = glob.glob(os.path.join(peer, "**", name), recursive=True)
        if not found:
            raise SystemExit(f"no {name} under {peer}; build it with tools/peers/llama_cpp")
        libraries.append(found[0])
    subprocess.run(["g++", "-std=c++17", "-O1", os.path.join(ROOT, "tools/golden/peer_logits.cpp"),
                    "-I", os.path.join(source, "include"), "-I", os.path.join(source, "ggml/include"),
                    "-Wl,--start-group", *libraries, "-Wl,--end-group",
                    "-fopenmp", "-lpthread", "-ldl", "-o", program], check=True)
    return program


def main():
    cache = os.environ.get("BATON_CACHE", os.path.expanduser("~/.cache/baton"))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peer", default=os.path.join(cache, "peers", "llama_cpp-build"))
    parser.add_argument("--source", help="llama.cpp's source")
    parser.add_argument("--bin", default=os.path.join(ROOT, "build", "release", "bin"))
    parser.add_argument("--out", default=os.path.join(ROOT, "tests", "golden", "families.json"))
    args = parser.parse_args()
    source = args.source or sorted(
        glob.glob(os.path.join(cache, "peers", "llama_cpp_python-*", "vendor", "llama.cpp")))[-1]
    maker = os.path.join(args.bin, "make_tiny_model")
    names = subprocess.run([maker, "--golden"], check=True, capture_output=True, text=True).stdout.split()
    fed = tokens()
    cases = []
    with tempfile.TemporaryDirectory() as scratch:
        program = build_peer(args.peer, source, scratch)
        for name in names:
            path = os.path.join(scratch, name + ".gguf")
            subprocess.run([maker, "--golden", name, path], check=True)
            done = subprocess.run([program, path, *map(str, fed)], check=True, capture_output=True, text=True)
            rows = [[float(x) for x in line.split()] for line in done.stdout.splitlines()]
            assert len(rows) == COUNT, f"{name}: {len(rows)} rows"
            with open(path, "rb") as f:
                digest = hashlib.sha256(f.read()).hexdigest()
            cases.append({"name": name, "sha256": digest,
                          "logits": [[float(f"{rows[p][t]:.6g}") for t in TOKENS] for p in POSITIONS]})
            print(name, digest[:12])
    with open(args.out, "w", encoding="utf-8") as f:
        lines = ",\n".join("  " + json.dumps(case) for case in cases)
        f.write('{"peer": ' + json.dumps(os.path.basename(os.path.dirname(os.path.dirname(source))))
                + ', "tokens": ' + json.dumps(fed) + ',\n "positions": ' + json.dumps(POSITIONS)
                + ', "ids": ' + json.dumps(TOKENS) + ', "cases": [\n' + lines + "\n]}\n")


if __name__ == "__main__":
    main()
