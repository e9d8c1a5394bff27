"""Tiny random models as Hugging Face folders, written with the packages that users' folders are written with:
`safetensors` and `tokenizers`. 4-bit layouts (GPTQ, AWQ) are packed here with numpy, beside the plain matrix
that they stand for."""
import functools
import json
import pathlib

import numpy as np
import safetensors
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

DIM, FFN, HEADS, KV_HEADS, HEAD_DIM, LAYERS = 128, 256, 4, 2, 32, 2
AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]
CORPUS = ["The quick brown fox jumps over the lazy dog and 1234 other animals of the forest.",
          "for (int i = 0; i < 10; ++i) { total += values[i]; }  // naïve façade, 今日は世界"] * 4
CHAT = ("{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
        "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")
MATRICES = {"self_attn.q_proj": (HEADS * HEAD_DIM, DIM), "self_attn.k_proj": (KV_HEADS * HEAD_DIM, DIM),
            "self_attn.v_proj": (KV_HEADS * HEAD_DIM, DIM), "self_attn.o_proj": (DIM, HEADS * HEAD_DIM),
            "mlp.gate_proj": (FFN, DIM), "mlp.up_proj": (FFN, DIM), "mlp.down_proj": (DIM, FFN)}


@functools.cache
def tokenizer():
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                                  pre_tokenizers.ByteLevel(add_prefix_space=False)])
    made.decoder = decoders.ByteLevel()
    made.train_from_iterator(CORPUS, trainers.BpeTrainer(
        vocab_size=380, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    made.add_special_tokens([AddedToken(t, special=True, normalized=False)
                             for t in ("<|endoftext|>", "<|im_start|>", "<|im_end|>")])
    return made


def save(path, tensors):
    """tensors: name -> array, or (type name, array) where numpy lacks the type."""
    held = {name: t if isinstance(t, tuple) else (t.dtype.name, t) for name, t in tensors.items()}
    held = {name: (kind, np.ascontiguousarray(array)) for name, (kind, array) in held.items()}
    specs = {name: safetensors.TensorSpec(dtype=kind, shape=array.shape, data_ptr=array.ctypes.data, data_len=array.nbytes)
             for name, (kind, array) in held.items()}
    safetensors.serialize_file(specs, path, {"format": "pt"})


def pack(values, axis, order=range(8)):
    """Eight 4-bit numbers to a word along `axis`: number order[i] of each eight in nibble i."""
    moved = np.moveaxis(values.astype(np.uint32), axis, -1)
    eights = moved.reshape(*moved.shape[:-1], -1, 8)
    words = np.zeros(eights.shape[:-1], np.uint32)
    for nibble, source in enumerate(order):
        words |= eights[..., source] << np.uint32(4 * nibble)
    return np.moveaxis(words, -1, axis).view(np.int32)


def int4(rng, shape, method, group_size=32, symmetric=False, act_order=False, version=1):
    """A random 4-bit matrix of [outputs, inputs]: its tensors and the plain matrix it stands for."""
    outputs, inputs = shape
    size = inputs if group_size == -1 else group_size
    groups = inputs // size
    codes = rng.integers(0, 16, (inputs, outputs))
    # The first GPTQ format cannot hold a zero point of 0.
    zeros = np.full((groups, outputs), 8) if symmetric else rng.integers(1, 16, (groups, outputs))
    scales = rng.uniform(0.5, 2.0, (groups, outputs)).astype(np.float16) * np.float16(0.25 / inputs ** 0.5)
    group_of = np.arange(inputs) // size
    if act_order:
        rng.shuffle(group_of)
    plain = (codes - zeros[group_of]).astype(np.float32) * scales[group_of].astype(np.float32)
    if act_order:
        plain = plain.astype(np.float16).astype(np.float32)
    if method == "awq":
        parts = {"qweight": pack(codes, 1, AWQ_ORDER), "qzeros": pack(zeros, 1, AWQ_ORDER), "scales": scales}
    else:
        parts = {"qweight": pack(codes, 0), "qzeros": pack(zeros - (1 if version == 1 else 0), 1), "scales": scales,
                 "g_idx": group_of.astype(np.int32)}
    return parts, np.ascontiguousarray(plain.T)


def write(folder, dtype="float32", quantisation=None, plain=False, shards=1, seed=1):
    """`quantisation`: keywords of int4(). `plain`: the same weights unpacked, as a float32 model."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True)
    rng = np.random.default_rng(seed)
    text = tokenizer()
    vocab = text.get_vocab_size()

    def stored(array):
        if dtype == "bfloat16":
            return dtype, (array.astype(np.float32).view(np.uint32) >> np.uint32(16)).astype(np.uint16)
        return array.astype(dtype)

    tensors = {"model.embed_tokens.weight": stored(rng.normal(0, 0.5, (vocab, DIM))), "model.norm.weight": stored(rng.uniform(0.8, 1.2, DIM))}
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}."
        for norm in ("input_layernorm", "post_attention_layernorm"):
            tensors[prefix + norm + ".weight"] = stored(rng.uniform(0.8, 1.2, DIM))
        for name, shape in MATRICES.items():
            if quantisation is None:
                tensors[prefix + name + ".weight"] = stored(rng.normal(0, 1.5 / shape[1] ** 0.5, shape))
                continue
            parts, matrix = int4(rng, shape, **quantisation)
            if plain:
                tensors[prefix + name + ".weight"] = matrix
            else:
                tensors |= {f"{prefix}{name}.{part}": array for part, array in parts.items()}
    names = sorted(tensors)
    weight_map = {}
    for shard in range(shards):
        file = "model.safetensors" if shards == 1 else f"model-{shard + 1:05}-of-{shards:05}.safetensors"
        save(folder / file, {name: tensors[name] for name in names[shard::shards]})
        weight_map |= {name: file for name in names[shard::shards]}
    if shards > 1:
        (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": DIM, "intermediate_size": FFN,
              "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "head_dim": HEAD_DIM,
              "vocab_size": vocab, "max_position_embeddings": 2048, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
              "hidden_act": "silu", "tie_word_embeddings": True}
    if quantisation and not plain:
        config["quantization_config"] = {"quant_method": quantisation["method"], "bits": 4,
                                         "group_size": quantisation.get("group_size", 32)}
        if quantisation["method"] == "awq":
            config["quantization_config"] |= {"version": "gemm", "zero_point": True}
        elif quantisation.get("version") == 2:
            config["quantization_config"]["checkpoint_format"] = "gptq_v2"
    (folder / "config.json").write_text(json.dumps(config))
    text.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"model_max_length": int(1e30), "eos_token": "<|im_end|>"}))
    (folder / "chat_template.jinja").write_text(CHAT)
    (folder / "generation_config.json").write_text(json.dumps(
        {"eos_token_id": [text.token_to_id("<|im_end|>"), text.token_to_id("<|endoftext|>")]}))
    return folder


def greedy(folder, ids, count):
    """The model of a plain folder by the book, in float64: rotation over halves, as such weights are trained."""
    from safetensors.numpy import load_file
    w = {name: array.astype(np.float64) for name, array in load_file(pathlib.Path(folder) / "model.safetensors").items()}

    def norm(x, name):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * w[name + ".weight"]

    def rotate(x):  # [tokens][heads][dims]
        angles = np.arange(len(x))[:, None] * 10000.0 ** (-np.arange(0, HEAD_DIM, 2) / HEAD_DIM)
        cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
        a, b = x[..., :HEAD_DIM // 2], x[..., HEAD_DIM // 2:]
        return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)

    ids = list(ids)
    for _ in range(count):
        x = w["model.embed_tokens.weight"][ids]
        for layer in range(LAYERS):
            p = f"model.layers.{layer}."
            h = norm(x, p + "input_layernorm")
            q, k, v = ((h @ w[f"{p}self_attn.{n}_proj.weight"].T).reshape(len(ids), -1, HEAD_DIM) for n in "qkv")
            q, k = rotate(q), np.repeat(rotate(k), HEADS // KV_HEADS, 1)
            scores = np.einsum("qhd,khd->hqk", q, k) / HEAD_DIM ** 0.5
            scores = np.where(np.tri(len(ids), dtype=bool), scores, -np.inf)
            weights = np.exp(scores - scores.max(-1, keepdims=True))
            weights /= weights.sum(-1, keepdims=True)
            mixed = np.einsum("hqk,khd->qhd", weights, np.repeat(v, HEADS // KV_HEADS, 1)).reshape(len(ids), -1)
            x = x + mixed @ w[p + "self_attn.o_proj.weight"].T
            h = norm(x, p + "post_attention_layernorm")
            gate, up = h @ w[p + "mlp.gate_proj.weight"].T, h @ w[p + "mlp.up_proj.weight"].T
            x = x + (gate / (1 + np.exp(-gate)) * up) @ w[p + "mlp.down_proj.weight"].T
        logits = norm(x[-1], "model.norm") @ w["model.embed_tokens.weight"].T
        ids.append(int(logits.argmax()))
    return ids[-count:]
