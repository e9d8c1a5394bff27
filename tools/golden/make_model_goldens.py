#!/usr/bin/env python3
"""Makes tests/golden/<model>.json: greedy tokens and log-probabilities of another engine.

Runs llama.cpp's llama-server (built by tools/peers/llama_cpp) on each model of the catalogue that is
in the cache, asks for greedy continuations of a few prompts with their 20 best log-probabilities, and
writes what tests/unit/engine_model/golden_test.cpp compares with. Needs nothing but Python.

The weights are first written out as float32 (the same values), because with quantised weights that
engine also rounds activations to 8 bits, which alone moves log-probabilities of unlikely tokens by up
to 0.9; so the files hold what the weights mean, and every backend's own rounding is what differs.

usage: make_model_goldens.py [--bin FOLDER] [--cache FOLDER] [--out FOLDER]
"""
import argparse
import glob
import json
import os
import socket
import subprocess
import tempfile
import time
import urllib.request

MODELS = ["SmolLM2-135M-Instruct.Q4_1.gguf", "gemma-3-270m-q4_k_m.gguf"]
PREDICT = 32
# Output positions whose 20 best are kept; of the others only the best token and its lead.
KEPT_POSITIONS = [0, 1, 2, 5, 11, 19, 31]


def long_text():
    """About 700 tokens, past Gemma's window of 512, with something to look back for."""
    animals = ["otter", "heron", "badger", "lynx", "falcon", "weasel", "salmon", "beetle"]
    places = ["the old mill", "a quiet bay", "the north ridge", "an empty barn", "the long meadow"]
    lines = ["The secret word of the keeper is 'marigold'."]
    for day in range(1, 35):
        animal = animals[day * 5 % len(animals)]
        place = places[day * 3 % len(places)]
        lines.append(f"On day {day} the keeper saw {day % 7 + 1} {animal}s near {place}.")
    lines.append("In the evening the keeper wrote down the secret word:")
    return " ".join(lines)


PROMPTS = [
    "The capital of France is",
    "Once upon a time, in a small village by the sea, there lived",
    "def fibonacci(n):\n    if n < 2:\n        return n\n    return",
    "½ cup of sugar, 3 eggs — naïve café, 東京 and 123456 reasons:\n\n1.",
    long_text(),
]
CHAT = ("<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face"
        "<|im_end|>\n<|im_start|>user\nName three primary colours.<|im_end|>\n<|im_start|>assistant\n")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def post(port, path, body):
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}",
                                     json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=600) as answer:
        return json.load(answer)


def wait_ready(port, process):
    for _ in range(600):
        if process.poll() is not None:
            raise SystemExit(f"llama-server ended with {process.returncode}")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as answer:
                if answer.status == 200:
                    return
        except OSError:
            time.sleep(0.2)
    raise SystemExit("llama-server did not become ready")


def golden(port, text):
    prompt = post(port, "/tokenize", {"content": text, "add_special": True, "parse_special": True})
    prompt = prompt["tokens"]
    answer = post(port, "/completion", {
        "prompt": prompt, "n_predict": PREDICT, "temperature": 0, "n_probs": 20,
        "cache_prompt": False, "return_tokens": True, "ignore_eos": False,
    })
    steps = answer["completion_probabilities"]
    tokens, leads, top = [], [], []
    for position, step in enumerate(steps):
        best = step["top_logprobs"]
        tokens.append(step["id"])
        leads.append(round(best[0]["logprob"] - best[1]["logprob"], 5))
        if position in KEPT_POSITIONS:
            top.append({"position": position,
                        "ids": [b["id"] for b in best],
                        "logprobs": [round(b["logprob"], 5) for b in best]})
    return {"text": text, "prompt": prompt, "tokens": tokens, "leads": leads, "top": top}


def main():
    cache = os.environ.get("BATON_CACHE", os.path.expanduser("~/.cache/baton"))
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cache", default=cache)
    parser.add_argument("--bin", help="folder of llama-server and llama-quantize")
    parser.add_argument("--out", default=os.path.join(root, "tests", "golden"))
    args = parser.parse_args()
    tools = args.bin
    if tools is None:
        found = sorted(glob.glob(os.path.join(args.cache, "peers", "llama_cpp*", "bin")))
        if not found:
            raise SystemExit("no llama.cpp; build it with tools/peers/llama_cpp")
        tools = found[-1]
    for model in MODELS:
        path = os.path.join(args.cache, "models", model)
        if not os.path.exists(path):
            print(f"{model}: not in the cache, skipped")
            continue
        make_golden(model, path, tools, args.out)


def make_golden(model, path, tools, folder):
    with tempfile.TemporaryDirectory() as scratch:
        exact = os.path.join(scratch, "f32.gguf")
        subprocess.run([os.path.join(tools, "llama-quantize"), "--allow-requantize", path, exact, "F32"],
                       check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        port = free_port()
        process = subprocess.Popen(
            [os.path.join(tools, "llama-server"), "-m", exact, "--port", str(port),
             "--host", "127.0.0.1", "-c", "2048", "-np", "1"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            wait_ready(port, process)
            prompts = PROMPTS + ([CHAT] if "Instruct" in model else [])
            cases = [golden(port, text) for text in prompts]
        finally:
            process.terminate()
            process.wait()
    out = os.path.join(folder, model.removesuffix(".gguf") + ".json")
    with open(out, "w", encoding="utf-8") as f:
        lines = ",\n".join("  " + json.dumps(case, ensure_ascii=False) for case in cases)
        f.write('{"model": ' + json.dumps(model) + ', "cases": [\n' + lines + "\n]}\n")
    print(f"{out}: {len(cases)} cases, prompts of {[len(c['prompt']) for c in cases]} tokens")


if __name__ == "__main__":
    main()
