// What a fuzzer of one parser is. Each parser has one header `<name>_fuzz.h` with a struct that
// has these three:
//   static constexpr std::string_view kName;                  // the folder of its saved inputs
//   static void run(std::span<const std::uint8_t> bytes);     // must return for any bytes
//   static std::vector<std::string> seeds();                  // good inputs to start from
// `replay_test` runs the seeds, the files under tests/fuzz/corpus/<name>/ and seeded damage to
// both; with BATON_FUZZ=ON (clang) the same struct becomes a libFuzzer program.
//
// A broken promise of a parser is reported by `fuzz_check`, which ends the process.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/check.h"

namespace baton::fuzz {

inline std::string_view as_text(std::span<const std::uint8_t> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace baton::fuzz

#define fuzz_check(condition) BATON_CHECK(condition, "a fuzzed parser broke its promise")
