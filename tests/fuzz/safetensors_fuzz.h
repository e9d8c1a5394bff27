// Bytes of a safetensors file: parsed, and every view that comes out is read, so that one outside
// of the bytes is a sanitizer's find.
#pragma once

#include <array>

#include "engine/model/safetensors.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/support/safetensors_writer.h"

namespace baton::fuzz {

struct SafetensorsFuzz {
  static constexpr std::string_view kName = "safetensors";

  static void run(std::span<const std::uint8_t> bytes) {
    const auto raw = std::as_bytes(bytes);
    const auto tensors = engine::parse_safetensors(raw, "fuzz.safetensors");
    if (!tensors) {
      fuzz_check(tensors.error().code == ErrorCode::InvalidModel);
      return;
    }
    std::uint64_t sum = 0;
    std::uint64_t total = 0;
    for (const auto& [name, tensor] : *tensors) {
      const auto& data = tensor.data;
      fuzz_check(data.empty() || (data.data() >= raw.data() &&
                                  data.data() + data.size() <= raw.data() + raw.size()));
      fuzz_check(data.size() == tensor.elements() * engine::bytes_of(tensor.type));
      total += data.size();
      for (const std::byte b : data) {
        sum += std::to_integer<unsigned>(b);
      }
    }
    fuzz_check(total <= raw.size());  // no two share bytes
    volatile std::uint64_t used = sum;
    (void)used;
  }

  static std::vector<std::string> seeds() {
    testing::SafetensorsWriter writer;
    const std::vector<std::byte> zeros(96);
    writer.add("a.weight", "F32", std::array<std::uint64_t, 2>{2, 3}, std::span(zeros).first(24));
    writer.add("a.qweight", "I32", std::array<std::uint64_t, 2>{4, 6}, zeros);
    writer.add("b", "BF16", std::array<std::uint64_t, 1>{5}, std::span(zeros).first(10));
    writer.add("c", "F16", {}, std::span(zeros).first(2));
    const auto bytes = writer.bytes();
    return {std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size())};
  }
};

}  // namespace baton::fuzz
