#!/usr/bin/env python3
"""Writes tests/golden/hf_tokenizers.json: small tokenizer.json texts of every kind that Baton reads, made and
saved by the PyPI package `tokenizers`, with the ids that the package gives.

Needs: pip install tokenizers==0.23.3.
Usage: make_hf_tokenizer_goldens.py > tests/golden/hf_tokenizers.json
"""
import json
import sys

from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
CORPUS = [
    "The quick brown fox jumps over the lazy dog, and the other foxes walk through the other gardens.",
    "for (int i = 0; i < 100; ++i) { values[i] = other_values[i] + 1234; }",
    "Größere Häuser, naïve façades; Съешь же ещё этих мягких булок. 今日は世界 今日は",
    "the there then them their this that these those with without within",
    "I'll say it's what they've got; we'd rather they're here. 1 22 333 4444 55555",
] * 4
TEXTS = [
    "Hello, world!", "", " ", "  two  spaces   three    four", "The other gardens'S and they'VE 12345 x² ½",
    "for (int i = 0; i < n; ++i) {\n\ta[i] += 1;\n}\r\n", "Größe naïve 今日は世界 😀 \U0001f469\U0001f3fd‍\U0001f680",
    "<|start|>user\nHi there<|end|>\n<|start|>assistant\n", "<|end|>   \n  the<|end|>the \t<mark> the <mark>\n\nx",
    "a\u3000<mark>\u00a0b <|end|>\u2028c", "<s>the</s> the<s>", "▁the ▁▁ other", "\x00\x01 \x7f", "    indented\n\n\n  more  ",
    "<|end|><|end|> <|end|>", "tooltool tool<mark", "é e\u0301", "thethethe otherothers",
]


def added(tokenizer, strip):
    tokenizer.add_special_tokens([AddedToken("<|start|>", special=True, normalized=False),
                                  AddedToken("<|end|>", special=True, normalized=False, rstrip=strip, lstrip=False)])
    tokenizer.add_tokens([AddedToken("<mark>", special=False, normalized=False, lstrip=strip, rstrip=strip)])


def byte_level(pre, ignore_merges=False, strip=False, bos=False, nfc=False):
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre
    made.train_from_iterator(CORPUS, trainers.BpeTrainer(
        vocab_size=500, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    if ignore_merges:
        text = json.loads(made.to_str())
        text["model"]["ignore_merges"] = True
        # A token that merging never builds, but that is taken whole.
        text["model"]["vocab"]["Ġgardensother"] = 500
        made = Tokenizer.from_str(json.dumps(text))
    if nfc:
        made.normalizer = normalizers.NFC()
    added(made, strip)
    if bos:
        made.post_processor = processors.Sequence([
            processors.ByteLevel(trim_offsets=False),
            processors.TemplateProcessing(single="<|start|> $A", pair="<|start|> $A <|start|>:1 $B:1",
                                          special_tokens=[("<|start|>", made.token_to_id("<|start|>"))])])
    return made


def split(regex):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(regex), "isolated"),
                                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def sentencepiece(kind, strip=False):
    """A vocabulary with scores; merges made of them as conversions from SentencePiece do."""
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
    words = sorted({w for line in CORPUS for w in line.split()}, key=lambda w: (len(w), w))
    pieces = []
    for size in range(2, 8):
        for word in words:
            piece = ("▁" + word)[:size]
            if len(piece) == size and piece not in pieces:
                pieces.append(piece)
            if len(word) >= size and word[-size:] not in pieces:
                pieces.append(word[-size:])
    pieces += ["▁▁", "▁▁▁▁"]
    letters = sorted({c for p in pieces for c in p} | set("abcdefghijklmnopqrstuvwxyz▁.,'"))
    tokens += [p for p in dict.fromkeys(pieces + letters)]
    ids = {t: i for i, t in enumerate(tokens)}
    merges = []
    for token in tokens[259:]:
        pairs = [(token[:cut], token[cut:]) for cut in range(1, len(token))
                 if token[:cut] in ids and token[cut:] in ids]
        merges += sorted(pairs, key=lambda p: (ids[p[0]], ids[p[1]]))
    made = Tokenizer(models.BPE(ids, merges, byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    if kind == "llama2":
        made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    elif kind == "gemma":
        made.normalizer = normalizers.Replace(" ", "▁")
        made.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    else:
        made.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme=kind, split=False)
    made.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in ("<unk>", "<s>", "</s>")])
    added(made, strip)
    made.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s>:1 $B:1", special_tokens=[("<s>", 1)])
    return made


def main():
    made = {
        "gpt-2": byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False)),
        "smollm": byte_level(pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                                      pre_tokenizers.ByteLevel(add_prefix_space=False)])),
        "llama3": byte_level(split(LLAMA3), ignore_merges=True, bos=True),
        "llama3 with merges": byte_level(split(LLAMA3), strip=True),
        "qwen2": byte_level(split(LLAMA3.replace("{1,3}", "")), nfc=True),
        "deepseek-r1-qwen": byte_level(split(LLAMA3.replace("{1,3}", ""))),
        "llama2": sentencepiece("llama2"),
        "phi3": sentencepiece("llama2", strip=True),
        "gemma": sentencepiece("gemma"),
        "metaspace always": sentencepiece("always"),
        "metaspace first": sentencepiece("first"),
        "metaspace never": sentencepiece("never"),
    }
    out = []
    for name, tokenizer in made.items():
        out.append({"name": name, "json": tokenizer.to_str(), "texts": TEXTS,
                    "ids": [tokenizer.encode(t).ids for t in TEXTS]})
    json.dump(out, sys.stdout, separators=(",", ":"))
    print()


main()
