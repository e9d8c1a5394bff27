#include "engine/kv/tier_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <limits>

namespace baton::engine {
namespace {

std::unexpected<Error> failed(const std::string& folder, const char* what, int error) {
  return fail(ErrorCode::InvalidConfig,
              fmt::format("kv.file_tier: {} {}: {}", what, folder, std::strerror(error)));
}

}  // namespace

Result<TierFile> TierFile::create(const std::string& folder,
                                  std::uint64_t megabytes,
                                  std::size_t slot_bytes) {
  const std::uint64_t slots = std::min<std::uint64_t>((megabytes << 20U) / slot_bytes,
                                                      std::numeric_limits<std::uint32_t>::max());
  if (slots == 0) {
    return fail(
        ErrorCode::InvalidConfig,
        fmt::format(
            "kv.file_tier_mb: {} MiB hold no block of {} bytes; raise it", megabytes, slot_bytes));
  }
  std::string path = folder + "/baton-kv-XXXXXX";
  const int file = ::mkostemp(path.data(), O_CLOEXEC);
  if (file < 0) {
    return failed(folder, "no file can be made in", errno);
  }
  ::unlink(path.c_str());
  const std::size_t bytes = slots * slot_bytes;
  int error = 0;
  do {
    error = ::posix_fallocate(file, 0, static_cast<off_t>(bytes));
  } while (error == EINTR);
  if (error != 0) {
    ::close(file);
    return failed(folder,
                  fmt::format("there are no {} MiB (kv.file_tier_mb) in", bytes >> 20U).c_str(),
                  error);
  }
  void* const base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  error = errno;
  ::close(file);  // the mapping keeps it
  if (base == MAP_FAILED) {
    return failed(folder, "cannot map a file of", error);
  }
  return TierFile(static_cast<std::byte*>(base), slot_bytes, static_cast<std::uint32_t>(slots));
}

TierFile::~TierFile() {
  if (base_ != nullptr) {
    ::munmap(base_, std::size_t{num_slots_} * slot_bytes_);
  }
}

}  // namespace baton::engine
