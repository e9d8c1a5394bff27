#include "tests/support/safetensors_writer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstring>

namespace baton::testing {

void SafetensorsWriter::add(std::string_view name,
                            std::string_view type,
                            std::span<const std::uint64_t> shape,
                            std::span<const std::byte> data) {
  entries_ += fmt::format("{}{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}",
                          entries_.empty() ? "" : ",",
                          json_text(name),
                          type,
                          fmt::join(shape, ","),
                          data_.size(),
                          data_.size() + data.size());
  data_.insert(data_.end(), data.begin(), data.end());
}

std::vector<std::byte> SafetensorsWriter::bytes() const {
  std::string header = R"({"__metadata__":{"format":"pt"})";
  if (!entries_.empty()) {
    header += ',';
    header += entries_;
  }
  header += '}';
  header.resize((header.size() + 7) / 8 * 8, ' ');
  return raw(header, data_);
}

std::vector<std::byte> SafetensorsWriter::raw(std::string_view header,
                                              std::span<const std::byte> data) {
  const std::uint64_t size = header.size();
  std::vector<std::byte> out(sizeof(size) + header.size() + data.size());
  std::memcpy(out.data(), &size, sizeof(size));
  std::memcpy(out.data() + sizeof(size), header.data(), header.size());
  if (!data.empty()) {
    std::memcpy(out.data() + sizeof(size) + header.size(), data.data(), data.size());
  }
  return out;
}

std::string json_text(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned char>(c));
    } else {
      out += c;
    }
  }
  return out + "\"";
}

}  // namespace baton::testing
