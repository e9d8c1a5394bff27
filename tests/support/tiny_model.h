// Tiny random models as GGUF files: a real architecture, a real (small) vocabulary and chat
// template, random weights. Equal options give equal bytes on every machine.
//
// Thread: one. Failure: `write_tiny_model` ends the process when the file cannot be written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/dtype.h"

namespace baton::testing {

struct TinyModelOptions {
  // llama, qwen2, qwen3, qwen3moe, phi3 (byte-level BPE); gemma2, gemma3 (SentencePiece).
  std::string architecture = "llama";
  kernels::DType dtype = kernels::DType::F32;            // of the layers' matrices
  kernels::DType embedding_dtype = kernels::DType::F32;  // of token_embd (and output, if any)
  std::uint32_t layers = 2;
  std::uint32_t dim = 64;  // a multiple of the dtype's block
  std::uint32_t ffn = 96;  // likewise
  std::uint32_t heads = 4;
  std::uint32_t kv_heads = 2;
  std::uint32_t head_dim = 16;
  std::uint32_t context_length = 2048;
  std::uint32_t window = 48;  // Gemmas: of the local layers
  bool all_windowed = false;  // other architectures: every layer has the window
  std::uint32_t experts = 0;  // of llama; qwen3moe has 4 where this is 0
  std::uint32_t experts_used = 2;
  bool biases = false;                 // llama: of attention; qwen2 always has those of q, k and v
  std::string rope_scaling = {};       // "": no key
  float rope_factor = 1.0F;            // written where not 1
  std::uint32_t original_context = 0;  // written where not 0
  bool rope_factors = false;           // llama: rope_freqs; phi3: the factors of longrope
  bool tied_output = true;
  std::uint64_t seed = 1;
};

// Options whose widths suit every dtype, K-quants included.
TinyModelOptions tiny_model_for(std::string architecture, kernels::DType dtype);

// Models that tests/golden/families.json has another engine's logits of.
struct NamedTinyModel {
  std::string name;
  TinyModelOptions options;
};
std::vector<NamedTinyModel> golden_tiny_models();

std::vector<std::byte> make_tiny_model(const TinyModelOptions& options);
void write_tiny_model(const std::string& path, const TinyModelOptions& options);

}  // namespace baton::testing
