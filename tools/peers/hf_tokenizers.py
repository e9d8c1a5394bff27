#!/usr/bin/env python3
"""Tokenizes documents with the PyPI package `tokenizers`: the peer of `baton bench tokenizer` and the
oracle of its test. The package's tokenizer is put together from the vocabulary, merges and family name
inside a GGUF file, as the family's own tokenizer.json says.

Usage: hf_tokenizers.py MODEL.gguf DOCUMENTS IDS [--passes N] [--plain]
DOCUMENTS and IDS hold, for each document, a 32-bit count and that many bytes or 32-bit ids, all
little-endian. Prints one JSON line: seconds of every pass over all documents, one thread, and the
package's version. --plain: control tokens are not looked for in the text.
"""
import argparse
import json
import os
import pathlib
import struct
import sys
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"

import tokenizers  # noqa: E402
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers  # noqa: E402

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)

# Regular expressions of the families, as they stand in their tokenizer.json files.
SUFFIX = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (SUFFIX + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace("{1,3}", "")
QWEN35 = (SUFFIX + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"


def cased(suffix, numbers):
    sign = r"[^\r\n\p{L}\p{N}]?"
    return (f"{sign}{UPPER}*{LOWER}+{suffix}|{sign}{UPPER}+{LOWER}*{suffix}|{numbers}"
            r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")


# Written with escapes: some of these letters change when text is normalized.
DEEPSEEK_LETTERS = (
    r"[A-Za-z\x{B5}\x{C0}-\x{D6}\x{D8}-\x{F6}\x{F8}-\x{1BA}\x{1BC}-\x{1BF}\x{1C4}-\x{293}\x{295}-\x{2AF}"
    r"\x{370}-\x{373}\x{376}\x{377}\x{37B}-\x{37D}\x{37F}\x{386}\x{388}-\x{38A}\x{38C}\x{38E}-\x{3A1}"
    r"\x{3A3}-\x{3F5}\x{3F7}-\x{481}\x{48A}-\x{52F}\x{531}-\x{556}\x{10A0}-\x{10C5}\x{13A0}-\x{13F5}"
    r"\x{13F8}-\x{13FD}\x{1C90}-\x{1CBA}\x{1CBD}-\x{1CBF}\x{1D00}-\x{1D2B}\x{1D6B}-\x{1D77}\x{1D79}-\x{1D9A}"
    r"\x{1E00}-\x{1F15}\x{1F18}-\x{1F1D}\x{1F20}-\x{1F45}\x{1F48}-\x{1F4D}\x{1F50}-\x{1F57}\x{1F59}\x{1F5B}"
    r"\x{1F5D}\x{1F5F}-\x{1F7D}\x{1F80}-\x{1FB4}\x{1FB6}-\x{1FBC}\x{1FBE}\x{1FC2}-\x{1FC4}\x{1FC6}-\x{1FCC}"
    r"\x{1FD0}-\x{1FD3}\x{1FD6}-\x{1FDB}\x{1FE0}-\x{1FEC}\x{1FF2}-\x{1FF4}\x{1FF6}-\x{1FFC}\x{2102}\x{2107}"
    r"\x{210A}-\x{2113}\x{2115}\x{2119}-\x{211D}\x{2124}\x{2126}\x{2128}\x{212A}-\x{212D}\x{212F}-\x{2134}"
    r"\x{2139}\x{213C}-\x{213F}\x{2145}-\x{2149}\x{214E}\x{2183}\x{2184}\x{2C00}-\x{2C7B}\x{2C7E}-\x{2CE4}"
    r"\x{2CEB}-\x{2CEE}\x{2CF2}\x{2CF3}\x{A640}-\x{A66D}\x{A680}-\x{A69B}\x{A722}-\x{A76F}\x{A771}-\x{A787}"
    r"\x{A78B}-\x{A78E}\x{AB70}-\x{ABBF}\x{FB00}-\x{FB06}\x{FB13}-\x{FB17}\x{FF21}-\x{FF3A}\x{FF41}-\x{FF5A}"
    r"\x{10400}-\x{1044F}\x{104B0}-\x{104D3}\x{104D8}-\x{104FB}\x{10C80}-\x{10CB2}\x{10CC0}-\x{10CF2}"
    r"\x{118A0}-\x{118DF}\x{1E900}-\x{1E943}]+")
DEEPSEEK3 = (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
             "| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+")
BLOOM = r" ?[^(\s|.,!?…。，、।۔،)]+"


def split(expression):
    return pre_tokenizers.Split(Regex(expression), "isolated")


DIGITS = pre_tokenizers.Digits(individual_digits=True)
# Names of `tokenizer.ggml.pre` → passes, and what else the family does.
FAMILIES = {
    "gpt-2 gpt2 jais phi-2 exaone4 trillion mellum gigachat granite-docling": ([split(GPT2)], ""),
    "mpt olmo modern-bert": ([split(GPT2)], "nfc"),
    "smollm starcoder refact codeshell minerva-7b mellum2": ([DIGITS, split(GPT2)], ""),
    "command-r exaone": ([DIGITS, split(GPT2)], "nfc"),
    "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral lfm2 midm-2.0 glm4 glm5": ([split(LLAMA3)], "whole"),
    "dbrx smaug-bpe chatglm-bpe": ([split(LLAMA3)], ""),
    "qwen2 megrez": ([split(QWEN2)], "nfc"),
    "deepseek-r1-qwen stablelm2 hunyuan solar-open grok-2 bailingmoe bailingmoe2 llada-moe": ([split(QWEN2)], ""),
    "qwen35": ([split(QWEN35)], "nfc"),
    "seed-coder": ([split(QWEN2.replace(r"[^\s\p{L}\p{N}]+[\r\n]*", r"[^\s\p{L}\p{N}\r\n]+"))], ""),
    "tekken": ([split(cased("", r"\p{N}"))], "whole"),
    "gpt-4o llama4 minimax-m2 kanana2": ([split(cased(SUFFIX + "?", r"\p{N}{1,3}"))], ""),
    "deepseek-llm": ([split("[\r\n]"), split(r"\s?" + DEEPSEEK_LETTERS), split(r"\s?[!-/:-~\x{FF01}-\x{FF0F}\x{FF1A}-\x{FF5E}\x{2018}-\x{201F}\x{3000}-\x{3002}]+"),
                      split(r"\s+$"), split(r"[\x{4E00}-\x{9FA5}\x{800}-\x{4E00}\x{AC00}-\x{D7FF}]+"), DIGITS], ""),
    "deepseek-coder": ([split("[\r\n]"), split(r"\s?\p{L}+"), split(r"\s?\p{P}+"), split(r"[\x{4E00}-\x{9FA5}\x{800}-\x{4E00}\x{AC00}-\x{D7FF}]+"),
                        DIGITS], ""),
    "deepseek-v3 hunyuan-dense joyai-llm": ([split(r"\p{N}{1,3}"), split(r"[\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+"), split(DEEPSEEK3)], ""),
    "falcon": ([pre_tokenizers.Punctuation("contiguous"), split(GPT2), split("[0-9][0-9][0-9]")], ""),
    "bloom gpt3-finnish": ([split(BLOOM)], ""),
    "poro-chat viking": ([split(BLOOM), DIGITS], ""),
}


class Gguf:
    """The metadata of a GGUF file."""
    SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}

    def __init__(self, path):
        self.data, self.at = pathlib.Path(path).read_bytes(), 8
        tensors, count = self.take("<Q"), self.take("<Q")
        self.tensors = tensors
        self.values = {}
        for _ in range(count):
            key = self.text()
            self.values[key] = self.value(self.take("<I"))
        del self.data

    def take(self, form):
        (value,) = struct.unpack_from(form, self.data, self.at)
        self.at += struct.calcsize(form)
        return value

    def text(self):
        size = self.take("<Q")
        self.at += size
        return self.data[self.at - size:self.at].decode("utf-8", "replace")

    def value(self, kind):
        if kind == 8:
            return self.text()
        if kind != 9:
            return self.take(self.SCALARS[kind])
        kind, count = self.take("<I"), self.take("<Q")
        if kind in (8, 9):
            return [self.value(kind) for _ in range(count)]
        form = f"<{count}{self.SCALARS[kind][1]}"
        values = struct.unpack_from(form, self.data, self.at)
        self.at += struct.calcsize(form)
        return list(values)

    def get(self, key, default=None):
        return self.values.get("tokenizer.ggml." + key, default)


def family(name):
    for names, found in FAMILIES.items():
        if name in names.split():
            return found
    sys.exit(f"hf_tokenizers.py knows no family {name!r}; known are: {' '.join(FAMILIES)}")


def byte_level(file, ids, kinds):
    passes, habits = family(file.get("pre", "gpt-2"))
    merges = [tuple(merge.split(" ")) for merge in file.get("merges")]
    made = Tokenizer(models.BPE(ids, merges, ignore_merges="whole" in habits))
    if "nfc" in habits:
        made.normalizer = normalizers.NFC()
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [*passes, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    return made


def sentencepiece(file, ids, kinds):
    tokens, scores = file.get("tokens"), file.get("scores")
    mergeable = {t for t, kind in zip(tokens, kinds) if kind in (NORMAL, USER_DEFINED, UNUSED)}
    merges = []
    for i, text in enumerate(tokens):
        if text in mergeable:
            for cut in range(1, len(text)):
                left, right = text[:cut], text[cut:]
                if left in mergeable and right in mergeable:
                    merges.append((-scores[i], ids[left], ids[right], left, right))
    merges.sort()
    made = Tokenizer(models.BPE(ids, [merge[3:] for merge in merges], byte_fallback=True, fuse_unk=True,
                                unk_token=tokens[file.get("unknown_token_id", 0)]))
    spaces = normalizers.Replace(" ", "▁")
    if file.get("add_space_prefix", True):
        spaces = normalizers.Sequence([normalizers.Prepend("▁"), spaces])
    made.normalizer = spaces
    return made


def build(path, plain):
    file = Gguf(path)
    tokens = file.get("tokens")
    kinds = file.get("token_type") or [NORMAL] * len(tokens)
    ids = {}
    for i, text in enumerate(tokens):
        ids.setdefault(text, i)
    made = (sentencepiece if file.get("model") == "llama" else byte_level)(file, ids, kinds)
    stripping = file.values.get("general.architecture") == "phi3" and file.get("model") == "llama"
    keep = ("<unk>", "<s>", "<|endoftext|>")

    def added(kind, special):
        return [AddedToken(t, special=special, normalized=False,
                           rstrip=stripping and special and t not in keep)
                for t, k in zip(tokens, kinds) if k == kind and t]
    made.add_tokens(added(USER_DEFINED, False))
    if not plain:
        made.add_special_tokens(added(CONTROL, True) + added(UNKNOWN, True))
    return made


def read_documents(path):
    data, at, documents = pathlib.Path(path).read_bytes(), 0, []
    while at < len(data):
        (size,) = struct.unpack_from("<I", data, at)
        documents.append(data[at + 4:at + 4 + size].decode("utf-8", "replace"))
        at += 4 + size
    return documents


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("documents")
    parser.add_argument("ids")
    parser.add_argument("--passes", type=int, default=2)
    parser.add_argument("--plain", action="store_true")
    arguments = parser.parse_args()
    documents = read_documents(arguments.documents)
    tokenizer = build(arguments.model, arguments.plain)
    seconds, results = [], []
    for _ in range(arguments.passes):
        start = time.perf_counter()
        results = tokenizer.encode_batch_fast(documents, add_special_tokens=False)
        seconds.append(time.perf_counter() - start)
    with open(arguments.ids, "wb") as out:
        for result in results:
            ids = result.ids
            out.write(struct.pack(f"<I{len(ids)}I", len(ids), *ids))
    print(json.dumps({"seconds": seconds, "version": tokenizers.__version__}))


if __name__ == "__main__":
    main()
