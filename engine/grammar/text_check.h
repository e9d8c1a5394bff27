// Bounds on what a client may have compiled, before anything is built of it: how long a regular
// expression or a set of rules is, and how large its repetitions make it.
//
// Thread: pure functions. Failure: InvalidArgument that says what is too large.
#pragma once

#include <cstddef>
#include <string_view>

#include "common/base/error.h"

namespace baton::engine {

struct TextLimits {
  static constexpr std::size_t kRegexBytes = std::size_t{16} << 10;
  static constexpr std::size_t kRulesBytes = std::size_t{64} << 10;
  static constexpr std::size_t kNesting = 100;  // parentheses
  // Characters and classes, with repetitions written out. A class that holds most characters counts
  // for several: it is as many of bytes.
  static constexpr std::size_t kPatternExpanded = 1'000;  // within a schema
  static constexpr std::size_t kRegexExpanded = 6'000;
  static constexpr std::size_t kRulesExpanded = 50'000;
  // Parts of an expression that may be left out, written out: each is one more place where an
  // output may stand, and what comes next is looked for at all of them.
  static constexpr std::size_t kOptional = 24;
};

// The size of an expression, at most `limit`. `where` begins the sentence. Says nothing of what the
// expression means.
Result<std::size_t> check_regex(std::string_view regex, std::size_t limit, std::string_view where);
Status check_rules(std::string_view rules);

}  // namespace baton::engine
