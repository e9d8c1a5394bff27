// What the programs that tests talk to by lines have in common.
//
// Thread: any. Failure: none.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <iostream>
#include <mutex>
#include <span>
#include <string>
#include <vector>

namespace baton::testing {

// Writes whole lines to standard output; they come from the data thread too.
class LineWriter {
 public:
  void operator()(const std::string& line) {
    const std::lock_guard lock(mutex_);
    std::cout << line << std::endl;
  }

 private:
  std::mutex mutex_;
};

inline std::string to_hex(std::span<const std::byte> bytes) {
  std::string out;
  for (const std::byte b : bytes) {
    out += fmt::format("{:02x}", std::to_integer<unsigned>(b));
  }
  return out;
}

inline std::vector<std::byte> from_hex(const std::string& text) {
  std::vector<std::byte> out;
  for (std::size_t i = 0; i + 1 < text.size(); i += 2) {
    out.push_back(static_cast<std::byte>(std::stoul(text.substr(i, 2), nullptr, 16)));
  }
  return out;
}

}  // namespace baton::testing
