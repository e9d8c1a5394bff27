// Reads a JSON schema and writes it anew with what a grammar can hold to, and nothing else: notes
// for people are dropped, defaults are said outright, and what would be ignored is refused by its
// name and place. The new schema accepts no value that the old one refuses; it may accept fewer
// (an object with `properties` has no others unless the schema says so).
//
// Thread: pure function. Failure: InvalidArgument, `schema#/properties/a: …`.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/error.h"

namespace baton::engine {

struct SchemaLimits {
  static constexpr std::size_t kBytes = std::size_t{128} << 10;
  static constexpr std::size_t kDepth = 32;        // schemas in schemas
  static constexpr std::size_t kSchemas = 2000;    // in all
  static constexpr std::size_t kPatterns = 4'000;  // characters and classes of all patterns
  static constexpr std::size_t kEnumBytes = std::size_t{64} << 10;
  static constexpr std::int64_t kCount = 20'000;  // of items or properties
  static constexpr std::int64_t kLength =
      5'000;  // of a string that has a limit; a higher one is cut
};

struct NormalSchema {
  std::string text;
  std::vector<std::string> patterns;  // every expression in it, as written there
};

Result<NormalSchema> normalise_schema(std::string_view text);

}  // namespace baton::engine
