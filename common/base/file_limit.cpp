#include "common/base/file_limit.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

namespace baton {

void raise_file_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    limit.rlim_cur = limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit);  // refused: there is the old one
  }
}

void keep_standard_files() {
  for (int file = STDIN_FILENO; file <= STDERR_FILENO; ++file) {
    if (fcntl(file, F_GETFD) == -1) {
      (void)open("/dev/null", O_RDWR);  // takes the lowest number that is free: this one
    }
  }
}

}  // namespace baton
