// The tiny models of tiny_model.h as Hugging Face folders: the same weights, vocabulary and chat
// template, named and laid out as such folders have them.
//
// Thread: one. Failure: ends the process when a file cannot be written.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "tests/support/tiny_model.h"

namespace baton::testing {

// `options.dtype` and `embedding_dtype`: F32, F16 or BF16.
// `shards`: 1 gives model.safetensors, more an index and that many files.
void write_tiny_folder(const std::string& folder,
                       const TinyModelOptions& options,
                       std::size_t shards = 1);

void write_bytes(const std::string& path, std::span<const std::byte> bytes);
void write_text(const std::string& path, std::string_view text);

}  // namespace baton::testing
