#include "common/base/file_limit.h"

#include <sys/resource.h>

namespace baton {

void raise_file_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    limit.rlim_cur = limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit);  // refused: there is the old one
  }
}

}  // namespace baton
