// Writes safetensors bytes: what the tests' tiny folders and hostile files are made of.
//
// Thread: one. Failure: none; what is added is written, sense or not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace baton::testing {

class SafetensorsWriter {
 public:
  // `type`: the format's name, "F32", "BF16" …
  void add(std::string_view name,
           std::string_view type,
           std::span<const std::uint64_t> shape,
           std::span<const std::byte> data);
  // Length, header padded to 8 bytes, data.
  std::vector<std::byte> bytes() const;
  std::size_t data_bytes() const { return data_.size(); }

  // A header as given before `data`.
  static std::vector<std::byte> raw(std::string_view header, std::span<const std::byte> data);

 private:
  std::string entries_;
  std::vector<std::byte> data_;
};

// `text` as a JSON string, quotes included.
std::string json_text(std::string_view text);

}  // namespace baton::testing
