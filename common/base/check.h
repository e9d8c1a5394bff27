// BATON_CHECK: ends the process, with place and sentence, when a promise of our own code is broken.
// Never for input: foreign bytes give an Error. Always on.
#pragma once

#include <string_view>

namespace baton {

[[noreturn]] void check_failed(const char* file, int line, const char* what, std::string_view why);

}  // namespace baton

#define BATON_CHECK(condition, why)                                 \
  do {                                                              \
    if (!(condition)) [[unlikely]] {                                \
      ::baton::check_failed(__FILE__, __LINE__, #condition, (why)); \
    }                                                               \
  } while (false)
