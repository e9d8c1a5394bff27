"""Token ids equal those of the PyPI package `tokenizers`, over many scripts, for the models at hand and for
small vocabularies trained here with every family's rules; `baton bench tokenizer` does the comparing."""
import functools
import json
import random
import struct
import subprocess
import sys
import textwrap

import pytest

import harness

sys.path.insert(0, str(harness.ROOT / "tools" / "peers"))
import hf_tokenizers  # noqa: E402
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers  # noqa: E402

CONTROL = ["<|start|>", "<|end|>", "<|end|>x", "<s>"]
SCRIPTS = [  # ranges of letters, digits and marks
    (0x41, 0x5A), (0x61, 0x7A), (0xC0, 0x17F), (0x300, 0x36F), (0x370, 0x3FF), (0x400, 0x4FF), (0x531, 0x587),
    (0x5D0, 0x5EA), (0x620, 0x669), (0x900, 0x97F), (0x985, 0x9FE), (0xB82, 0xBF2), (0xE01, 0xE5B), (0xF00, 0xFBC),
    (0x10A0, 0x10FF), (0x1100, 0x11FF), (0x1780, 0x17F9), (0x1E00, 0x1FFE), (0x2C00, 0x2DDD), (0x3041, 0x30FF),
    (0x4E00, 0x9FFF), (0xA640, 0xA7FF), (0xAB30, 0xABF9), (0xAC00, 0xD7A3), (0xFB00, 0xFB1C), (0xFF01, 0xFF9F),
    (0x10330, 0x1034A), (0x10400, 0x104FB), (0x118A0, 0x118F2), (0x1D400, 0x1D7FF), (0x1E900, 0x1E959),
    (0x20000, 0x2A6DF), (0x2150, 0x218B), (0x2460, 0x24FF), (0x10D40, 0x10D8F), (0x105C0, 0x105F3)]
EMOJI = ["👩🏽‍🚀", "👨‍👩‍👧‍👦", "🏳️‍🌈", "🇩🇪🇯🇵", "1️⃣", "❤️", "😀😃", "✔︎", "☕️"]
SIGNS = ["", " ", ",", ". ", "!", "?!", "'s", "'ll ", "'RE", "'ſ", "’s", "(", ") ", "[", "]", "{", "}\n", "<", "> ", "\"", "#", "$",
         "`", "``", "~", "^", "|", "_", "-", " -- ", "…", "。", "、", "「", "」", "\u3000", "«", "/", "//\n", "\\", "=", "+=", "@"]
CONTRACTIONS = "I can't, won't, shouldn't've; THEY'LL'VE 'tis rock'n'roll o'clock. "


def spaces(draw):
    return draw.choice([" ", "  ", " " * draw.randrange(3, 90), "\n", "\n\n", "\n" * draw.randrange(3, 40), "\t",
                        "\r\n", " \n", "\n ", "\n\t\t", "\u00a0", "\u2003 ", "\u2028", "\x85", "\u180e", "\u200b", "\ufeff", "\x1c"])


def number(draw):
    digits = draw.choice(["0123456789", "0123456789", "٠١٢٣٤٥٦٧٨٩", "०१२३४५६७८९", "０１２３４５６７８９", "²³¹", "ⅠⅡⅣ", "½¼"])
    return "".join(draw.choice(digits) for _ in range(draw.choice([1, 1, 2, 3, 4, 7, 20])))


def word(draw):
    low, high = draw.choice(SCRIPTS)
    letters = [chr(draw.randint(low, high)) for _ in range(draw.randrange(1, 9))]
    kind = draw.randrange(6)
    if kind == 0:
        letters = [c.upper() for c in letters]
    elif kind == 1:
        letters[0] = letters[0].upper()
    elif kind == 2:
        letters.insert(draw.randrange(len(letters) + 1), chr(draw.randint(0x300, 0x345)))
    return "".join(letters)


def wild(draw):
    return "".join(chr(code) for code in (draw.randrange(0x110000) for _ in range(4)) if not 0xD800 <= code < 0xE000)


def corpus(size):
    """Bytes; a few of them are not UTF-8."""
    draw = random.Random(20)
    words = [word(draw) for _ in range(900)]
    out, total = [], 0
    while total < size:
        part = draw.choices(
            [lambda: draw.choice(words), lambda: spaces(draw), lambda: number(draw), lambda: draw.choice(SIGNS),
             lambda: draw.choice(EMOJI), lambda: draw.choice(CONTROL), lambda: CONTRACTIONS, lambda: wild(draw),
             lambda: draw.choice(["a", "ab", "é", "=", "中"]) * draw.randrange(1, 200), lambda: word(draw)],
            [40, 25, 8, 20, 3, 1, 1, 2, 0.3, 10])[0]().encode()
        if draw.random() < 0.002:
            part = part[:-1] + bytes([draw.randrange(128, 256)])
        out.append(part)
        total += len(part)
    return b"".join(out)


@functools.cache
def corpus_text():
    """What vocabularies are trained on: without the control tokens, which are to be no words."""
    text = corpus(60_000).decode("utf-8", "replace")
    return functools.reduce(lambda rest, token: rest.replace(token, ""), CONTROL, text)


def gguf(path, values):
    """A file of metadata alone."""
    def text(value):
        data = value.encode()
        return struct.pack("<Q", len(data)) + data

    def typed(value):
        if isinstance(value, bool):
            return struct.pack("<I?", 7, value)
        if isinstance(value, int):
            return struct.pack("<II", 4, value)
        if isinstance(value, str):
            return struct.pack("<I", 8) + text(value)
        form, code = {str: ("", 8), float: ("f", 6), int: ("i", 5)}[type(value[0])]
        body = b"".join(map(text, value)) if code == 8 else struct.pack(f"<{len(value)}{form}", *value)
        return struct.pack("<IIQ", 9, code, len(value)) + body

    data = struct.pack("<4sIQQ", b"GGUF", 3, 0, len(values))
    for key, value in values.items():
        data += text(key) + typed(value)
    path.write_bytes(data + bytes(-len(data) % 32))
    return path


def vocabulary_file(path, architecture, model, tokens, kinds, **more):
    return gguf(path, {"general.architecture": architecture, "tokenizer.ggml.model": model,
                       "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": kinds,
                       **{"tokenizer.ggml." + key: value for key, value in more.items()}})


def trained(tokenizer, **options):
    tokenizer.train_from_iterator([corpus_text()], trainers.BpeTrainer(show_progress=False, **options))
    made = json.loads(tokenizer.to_str())["model"]
    tokens = sorted(made["vocab"], key=made["vocab"].get)
    return tokens, [" ".join(merge) for merge in made["merges"]]


def byte_level_file(folder, name, pre=None):
    passes, habits = hf_tokenizers.family(name)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC() if "nfc" in habits else None
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*passes, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokens, merges = trained(tokenizer, vocab_size=3000, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    kinds = [hf_tokenizers.NORMAL] * len(tokens) + [hf_tokenizers.CONTROL] * len(CONTROL) + [hf_tokenizers.USER_DEFINED]
    return vocabulary_file(folder / f"{name}.gguf", "llama", "gpt2", tokens + CONTROL + ["=+="], kinds, pre=pre or name, merges=merges)


def sentencepiece_file(folder, name, architecture, prefix):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
    tokens, merges = trained(tokenizer, vocab_size=2000, limit_alphabet=500)
    ranks = {merge.replace(" ", ""): rank for rank, merge in reversed(list(enumerate(merges)))}
    first = ["<unk>", *CONTROL] + [f"<0x{byte:02X}>" for byte in range(256)]
    kinds = ([hf_tokenizers.UNKNOWN] + [hf_tokenizers.CONTROL] * len(CONTROL) + [hf_tokenizers.BYTE] * 256 +
             [hf_tokenizers.NORMAL] * len(tokens))
    if architecture != "phi3":  # the package finds it a second time in white space that a control token took
        kinds[len(first) + tokens.index("\n\n")] = hf_tokenizers.USER_DEFINED
    scores = [0.0] * len(first) + [-float(ranks.get(token, 10_000 + i)) for i, token in enumerate(tokens)]
    return vocabulary_file(folder / f"{name}.gguf", architecture, "llama", first + tokens, kinds,
                           scores=scores, unknown_token_id=0, add_space_prefix=prefix)


def bench(models_, text, *options):
    command = [str(harness.BIN / "baton"), "bench", "tokenizer", "--json", "--rounds", "1", "--peer-python", sys.executable,
               "--text", str(text), *options, "--model", *map(str, models_)]
    done = subprocess.run(command, cwd=harness.ROOT, capture_output=True, text=True, errors="replace", timeout=280)
    rows = json.loads(done.stdout.splitlines()[-1])["rows"] if '{"rows"' in done.stdout else []
    return done, rows


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("corpus") / "corpus"
    path.write_bytes(corpus(100_000))
    return path


def expect_equal(files, text, *options):
    done, rows = bench(files, text, *options)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(rows) == len(files)
    for row in rows:
        assert row["ids_equal"] and row["bytes"] > 99_000 and row["tokens"] > 10_000, row


def test_every_byte_level_family(tmp_path, text):
    names = [names.split()[0] for names in hf_tokenizers.FAMILIES]
    assert len(names) >= 15
    expect_equal([byte_level_file(tmp_path, name) for name in names], text)


def test_sentencepiece(tmp_path, text):
    files = [sentencepiece_file(tmp_path, "prefixed", "llama", True),
             sentencepiece_file(tmp_path, "bare", "gemma3", False),
             sentencepiece_file(tmp_path, "phi3", "phi3", True)]
    expect_equal(files, text)


def test_control_tokens_that_are_text(tmp_path, text):
    files = [byte_level_file(tmp_path, "llama-bpe"), sentencepiece_file(tmp_path, "bare", "gemma3", False)]
    expect_equal(files, text, "--plain")


@pytest.mark.parametrize("file", [harness.SMOLLM, harness.GEMMA], ids=["smollm2", "gemma3"])
def test_models(file, text):
    if not file.exists():
        pytest.skip(f"the model file is absent: {file}")
    expect_equal([file], text)


def test_a_difference_is_found(tmp_path, text):
    script = tmp_path / "other.py"
    script.write_text(textwrap.dedent(f"""
        import sys
        sys.path.insert(0, {str(harness.ROOT / "tools" / "peers")!r})
        import hf_tokenizers as peer
        peer.FAMILIES = {{"gpt-2": ([peer.split(peer.GPT2.replace("'ll|", ""))], "")}}
        peer.main()
        """))
    done, rows = bench([byte_level_file(tmp_path, "gpt-2")], text, "--peer-script", str(script))
    assert done.returncode == 1 and not rows[0]["ids_equal"]
    assert "token" in done.stdout and "here" in done.stdout, done.stdout


def test_unknown_families_are_refused_and_the_known_have_an_oracle(tmp_path, text):
    done, _ = bench([byte_level_file(tmp_path, "gpt-2", pre="klingon")], text)
    assert done.returncode == 1 and "'klingon'" in done.stderr, done.stderr
    known = done.stderr.split("known are: ")[1].split()
    assert len(known) >= 50
    assert set(known) - {"default"} == {name for names in hf_tokenizers.FAMILIES for name in names.split()}


def test_a_peer_that_fails_is_named(tmp_path, text):
    done, _ = bench([byte_level_file(tmp_path, "gpt-2")], text, "--peer-script", "no-such-script.py")
    assert done.returncode == 1
    assert "no-such-script.py" in done.stderr, done.stderr
