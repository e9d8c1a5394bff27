#include "common/base/check.h"

#include <cstdio>
#include <cstdlib>

namespace baton {

void check_failed(const char* file, int line, const char* what, std::string_view why) {
  std::fprintf(stderr,
               "baton: internal error at %s:%d: %s: %.*s\n",
               file,
               line,
               what,
               static_cast<int>(why.size()),
               why.data());
  std::fflush(stderr);
  std::abort();
}

}  // namespace baton
