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
  std::string architecture = "llama";          // llama (byte-level BPE) or gemma3 (SentencePiece)
  kernels::DType dtype = kernels::DType::F32;  // of the layers' matrices
  kernels::DType embedding_dtype = kernels::DType::F32;  // of token_embd (and output, if any)
  std::uint32_t layers = 2;
  std::uint32_t dim = 64;  // a multiple of the dtype's block
  std::uint32_t ffn = 96;  // likewise
  std::uint32_t heads = 4;
  std::uint32_t kv_heads = 2;
  std::uint32_t head_dim = 16;
  std::uint32_t context_length = 2048;
  std::uint32_t window = 48;  // gemma3: of the local layers
  bool tied_output = true;
  std::uint64_t seed = 1;
};

// Options whose widths suit every dtype, K-quants included.
TinyModelOptions tiny_model_for(std::string architecture, kernels::DType dtype);

std::vector<std::byte> make_tiny_model(const TinyModelOptions& options);
void write_tiny_model(const std::string& path, const TinyModelOptions& options);

}  // namespace baton::testing
