// Bytes of a GGUF file: parsed, and every view that comes out is read, so that one outside of the
// bytes is a sanitizer's find.
#pragma once

#include <array>

#include "engine/model/gguf.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/support/gguf_writer.h"

namespace baton::fuzz {

struct GgufFuzz {
  static constexpr std::string_view kName = "gguf";

  static void run(std::span<const std::uint8_t> bytes) {
    const auto raw = std::as_bytes(bytes);
    const auto file = engine::parse_gguf(raw, "fuzz.gguf");
    if (!file) {
      fuzz_check(file.error().code == ErrorCode::InvalidModel);
      return;
    }
    fuzz_check(file->data_offset <= raw.size());
    std::uint64_t sum = 0;
    const auto touch = [&](const void* data, std::size_t size) {
      const auto* from = static_cast<const std::byte*>(data);
      fuzz_check(size == 0 || (from >= raw.data() && from + size <= raw.data() + raw.size()));
      for (std::size_t i = 0; i < size; ++i) {
        sum += std::to_integer<unsigned>(from[i]);
      }
    };
    for (const auto& [key, value] : file->values) {
      if (const auto* text = std::get_if<std::string_view>(&value)) {
        touch(text->data(), text->size());
      } else if (const auto* array = std::get_if<engine::GgufArray>(&value)) {
        touch(array->bytes.data(), array->bytes.size());
        std::vector<std::string> strings;
        std::vector<float> floats;
        std::vector<std::int64_t> integers;
        sum += static_cast<std::uint64_t>(engine::read_strings(*array, strings)) +
               static_cast<std::uint64_t>(engine::read_floats(*array, floats)) +
               static_cast<std::uint64_t>(engine::read_ints(*array, integers));
      }
    }
    for (const auto& [name, tensor] : file->tensors) {
      touch(tensor.data.data(), tensor.data.size());
    }
    volatile std::uint64_t used = sum;
    (void)used;
  }

  static std::vector<std::string> seeds() {
    testing::GgufWriter writer;
    writer.add_string("general.architecture", "llama");
    writer.add_uint("general.alignment", 32);
    writer.add_float("llama.rope.freq_base", 1e4F);
    writer.add_bool("flag", true);
    writer.add_strings("tokenizer.ggml.tokens", std::vector<std::string>{"a", "bc", ""});
    writer.add_floats("tokenizer.ggml.scores", std::vector<float>{1, 2, 3});
    writer.add_ints("tokenizer.ggml.token_type", std::vector<std::int32_t>{1, 1, 3});
    const std::vector<std::byte> zeros(96);
    writer.add_tensor("first", std::array<std::uint64_t, 2>{8, 3}, kernels::DType::F32, zeros);
    writer.add_tensor("second",
                      std::array<std::uint64_t, 2>{32, 2},
                      kernels::DType::Q8_0,
                      std::span(zeros).first(68));
    const auto bytes = writer.bytes();
    return {std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size())};
  }
};

}  // namespace baton::fuzz
