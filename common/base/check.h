// BATON_CHECK: ends the process, with place and sentence, when a promise of our own code is broken.
// Never for input: foreign bytes give an Error. Always on. A stderr that nobody reads does not keep
// the process alive.
#pragma once

#include <string_view>

namespace baton {

[[noreturn]] void check_failed(const char* file, int line, const char* what, std::string_view why);
// What runs before the sentence is written: one for the process, which may be called on any thread.
void at_check_failure(void (*run_first)());

}  // namespace baton

#define BATON_CHECK(condition, why)                                 \
  do {                                                              \
    if (!(condition)) [[unlikely]] {                                \
      ::baton::check_failed(__FILE__, __LINE__, #condition, (why)); \
    }                                                               \
  } while (false)
