#!/usr/bin/env python3
"""Writes tests/golden/tokenizer.json: token ids and word cuts that the tokenizer tests must repeat.

Oracles: the PyPI package `tokenizers`, built here from the vocabulary and merges inside the GGUF
files, and the peer's llama-tokenize. Where they differ the package decides: SmolLM2 has no token for
some bytes, and the package lets the neighbours of such a byte merge.

Needs: pip install tokenizers==0.23.3 gguf==0.19.0, both model files, a built llama-tokenize.
Usage: PYTHONPATH=tools/peers make_tokenizer_goldens.py --models DIR --llama-tokenize PATH > tests/golden/tokenizer.json
"""
import argparse
import json
import pathlib
import subprocess
import tempfile

import gguf
import hf_tokenizers  # tools/peers
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers

SMOLLM = "SmolLM2-135M-Instruct.Q4_1.gguf"
GEMMA = "gemma-3-270m-q4_k_m.gguf"
TEXTS = [
    "Hello, world!", " leading and trailing ", "", " ", "\n", "a", "  two  spaces   three    four",
    "The quick brown fox jumps over the lazy dog. It's 9 o'clock; they've gone, I'll wait, we'd stay.",
    "IT'S THEY'VE I'LL WE'D it'S 'sun' '' 's's",
    "½ cup, 1½ cups, ¼, ⅓, x² + y³ = z¹⁰, Ⅳ Ⅷ, ٣٤٥ १२३ ㉈ 𝟘𝟙",
    "1 12 123 1234 12345 3.14159 1,000,000 0xFF 1e-5 v2.0.1",
    "def f(x):\n    if x > 0:\n\treturn x ** 2  # square\n    return {'a': [1, 2], \"b\": None}\n",
    "for (int i = 0; i < n; ++i) { a[i] += b->c[i] ? 1 : ~0u; }\r\n\r\n// done\r\n",
    "#include <vector>\n\n\ntemplate <class T>\nstruct S { std::vector<T> v_; };\n",
    "SELECT * FROM \"t\" WHERE a <> 'b''c' AND d >= 10;\n-- comment",
    "<html><body><h1>Title</h1><p>one</p><ul><li>x</li></ul></s></body></html>",
    "Größe, façade, naïve, Ærøskøbing, İstanbul, ŁÓDŹ, ſtraße, e\u0301 n\u0303 A\u030a",
    "Съешь же ещё этих мягких французских булок, да выпей чаю.",
    "Η γρήγορη καφέ αλεπού πηδάει πάνω από τον τεμπέλη σκύλο.",
    "今日は世界。日本語のテキスト、カタカナ、ひらがな。漢字仮名交じり文１２３",
    "我能吞下玻璃而不伤身体。繁體中文測試，標點「引號」。",
    "다람쥐 헌 쳇바퀴에 타고파. 한국어 문장입니다.",
    "מדוע שיער הצב קצר? עברית עם ניקוד: שָׁלוֹם",
    "أنا قادر على أكل الزجاج و هذا لا يؤلمني. ١٢٣",
    "मैं काँच खा सकता हूँ और मुझे उससे कोई चोट नहीं पहुंचती.",
    "ฉันกินกระจกได้ แต่มันไม่ทำให้ฉันเจ็บ",
    "Tôi có thể ăn thủy tinh mà không hại gì.",
    "😀 😃😄 👩🏽‍🚀👨‍👩‍👧‍👦 🇩🇪🇯🇵 ❤️ ✔︎ 🏳️‍🌈 1️⃣",
    "\u0000\u0001\u0002\u0007\u0008\u000e\u001b[31m\u007f\u0085\u200b\u200d\u2060\ufeff\u180e x\u180ey",
    "\u0004\u0006!\u0004!a\u0013b \U00040000\U00041000\U000c0000\U0010fffd",
    "tabs\t\t\tand\ttabs \t mixed\t \n \n\t\n", "a\r\nb\rc\n\rd\r\r\n\n",
    "\u00a0nbsp\u00a0\u00a0two\u2003em\u3000ideographic\u2028line\u2029para\u0085next",
    "a" * 70, "ab" * 40 + "é" * 30, " " * 80 + "x" + " " * 33, "\n" * 45 + "x", "\t" * 40,
    "=" * 60 + "-" * 60 + "#" * 20, "!?!?...,,,;;;:::((()))[[[]]]{{{}}}<<<>>>", "$+<=>^~|`@%&*_\\/\"'",
    "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n",
    "<|endoftext|><|im_start|><|im_end|> <|im_start <|im_end| im_end|> <|IM_END|>",
    "<start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\n<bos><eos><pad><unk>",
    "<unused0><unused42><unused6241><start_of_image>[multimodal]<0x0A><0xff>",
    "▁▁ ▁a _▁b", "Ġ Ċ Äŀ ĠĠ", "http://example.com/a?b=c&d=%20#frag user@example.org C:\\Users\\x",
    "I can't, won't, shouldn't've. 'tis rock'n'roll o'clock ’s curly’t",
    "{\"role\": \"user\", \"content\": \"say \\\"hi\\\"\\n\", \"n\": [1, 2.5, true, null]}",
    "MixedCASE camelCase snake_case kebab-case SCREAMING_SNAKE XMLHttpRequest iPhone15",
    "ﬁ ﬂ ﬀ ™ © ® № ℃ Å K Ω ∑∏∫√∞≠≤≥ →←↑↓ ░▒▓█ ♠♥♦♣", "Zalgo: h̷̢̛e̸̡l̵l̶o̴",
    "\U0001e030\U00031350\U0002ebf0\U00013460 new letters", "end with space then newline \n", "\n\n  \n indented",
]


def strings(field):
    return field.contents()


class Model:
    def __init__(self, path):
        fields = gguf.GGUFReader(str(path)).fields
        self.tokens = strings(fields["tokenizer.ggml.tokens"])
        self.kinds = strings(fields["tokenizer.ggml.token_type"])
        self.ids = {text: i for i, text in enumerate(self.tokens)}
        self.scores = strings(fields["tokenizer.ggml.scores"]) if "tokenizer.ggml.scores" in fields else None
        merges = fields.get("tokenizer.ggml.merges")
        self.merges = [tuple(m.split(" ")) for m in strings(merges)] if merges else None

    def of_kind(self, kind):
        return [text for text, k in zip(self.tokens, self.kinds) if k == kind]

    def add_special(self, tokenizer, allowed):
        tokenizer.add_tokens([AddedToken(t, special=False, normalized=False) for t in self.of_kind(4)])
        if allowed:
            tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in self.of_kind(3)])
        return tokenizer


def byte_level(model, pre, special):
    passes, habits = hf_tokenizers.family(pre)
    made = Tokenizer(models.BPE(model.ids, model.merges, ignore_merges="whole" in habits))
    made.normalizer = normalizers.NFC() if "nfc" in habits else None
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [*passes, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    return model.add_special(made, special)


def sentencepiece(model, special):
    mergeable = {t for t, k in zip(model.tokens, model.kinds) if k in (1, 4)}
    merges = []
    for i, text in enumerate(model.tokens):
        if text in mergeable:
            for cut in range(1, len(text)):
                if text[:cut] in mergeable and text[cut:] in mergeable:
                    merges.append((-model.scores[i], model.ids[text[:cut]], model.ids[text[cut:]]))
    merges.sort()
    pairs = [(model.tokens[left], model.tokens[right]) for _, left, right in merges]
    made = Tokenizer(models.BPE(model.ids, pairs, byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    made.normalizer = normalizers.Replace(" ", "▁")
    return model.add_special(made, special)


def peer_ids(program, path, text, special):
    with tempfile.NamedTemporaryFile() as file:
        file.write(text.encode())
        file.flush()
        command = [program, "-m", str(path), "-f", file.name, "--ids", "--no-bos", "--no-escape", "--log-disable"]
        if not special:
            command.append("--no-parse-special")
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.strip().splitlines()[-1])


def vocabulary_file(source, pre, path):
    """A GGUF of the vocabulary alone, with another pre-tokenizer name."""
    reader = gguf.GGUFReader(str(source))
    writer = gguf.GGUFWriter(str(path), "llama")
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name in ("general.architecture", "tokenizer.ggml.pre"):
            continue
        kind = field.types[0]
        writer.add_key_value(name, field.contents(), kind, field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None)
    writer.add_string("tokenizer.ggml.pre", pre)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--models", type=pathlib.Path, required=True)
    parser.add_argument("--llama-tokenize", required=True)
    args = parser.parse_args()
    small, gemma = Model(args.models / SMOLLM), Model(args.models / GEMMA)
    runs, splits, differing = [], [], []
    for special in (True, False):
        for file, pre, made in ((SMOLLM, "smollm", byte_level(small, "smollm", special)),
                                (GEMMA, "default", sentencepiece(gemma, special))):
            ids = [made.encode(text, add_special_tokens=False).ids for text in TEXTS]
            runs.append({"file": file, "pre": pre, "special": special, "ids": ids})
            for text, mine in zip(TEXTS, ids):
                if text and peer_ids(args.llama_tokenize, args.models / file, text, special) != mine:
                    differing.append((file, special, text))
    for pre in ("gpt-2", "llama-bpe", "qwen2"):
        made = byte_level(small, pre, False)
        runs.append({"file": SMOLLM, "pre": pre, "special": False, "ids": [made.encode(text).ids for text in TEXTS]})
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "vocabulary.gguf"
        vocabulary_file(args.models / SMOLLM, "default", path)
        ids = [peer_ids(args.llama_tokenize, path, text, False) if text else [] for text in TEXTS]
        runs.append({"file": SMOLLM, "pre": "default", "special": False, "ids": ids})
    for names, (passes, _) in hf_tokenizers.FAMILIES.items():
        cutter = pre_tokenizers.Sequence(passes)
        cuts = [[word for word, _ in cutter.pre_tokenize_str(text)] for text in TEXTS]
        splits.append({"pre": names.split()[0], "sizes": [[len(word.encode()) for word in words] for words in cuts]})
    import sys
    for entry in differing:
        print("the peer differs:", entry, file=sys.stderr)
    json.dump({"texts": TEXTS, "runs": runs, "splits": splits}, sys.stdout, separators=(",", ":"))
    print()


main()
