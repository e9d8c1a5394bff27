#include "engine/model/mapping.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace baton::engine {
namespace {

std::string reason(int error) {
  return std::generic_category().message(error);
}

}  // namespace

Result<Mapping> Mapping::open(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    const int error = errno;
    return fail(error == ENOENT ? ErrorCode::NotFound : ErrorCode::IoError,
                fmt::format("cannot open the model file {}: {}", path, reason(error)));
  }
  struct stat info {};
  if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    ::close(fd);
    return fail(ErrorCode::IoError, fmt::format("{} is not a regular file", path));
  }
  Mapping out;
  out.size_ = static_cast<std::size_t>(info.st_size);
  if (out.size_ == 0) {
    ::close(fd);
    return fail(ErrorCode::InvalidModel, fmt::format("{}: the file is empty", path));
  }
  void* base = ::mmap(nullptr, out.size_, PROT_READ, MAP_PRIVATE, fd, 0);
  const int error = errno;
  ::close(fd);
  if (base == MAP_FAILED) {
    return fail(ErrorCode::IoError, fmt::format("cannot map {}: {}", path, reason(error)));
  }
  out.base_ = base;
  return out;
}

Mapping::~Mapping() {
  if (base_ != nullptr) {
    ::munmap(base_, size_);
  }
}

}  // namespace baton::engine
