#include "transfer/shared_arena.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace baton::transfer {
namespace {

Error system_error(const char* what) {
  return {ErrorCode::IoError, fmt::format("{}: {}", what, std::strerror(errno))};
}

bool is_zero(const std::byte* bytes, std::size_t size) {
  return std::all_of(bytes, bytes + size, [](std::byte b) { return b == std::byte{0}; });
}

Status copy_contents(const std::byte* from, std::size_t bytes, std::size_t page, int file) {
  for (std::size_t at = 0; at < bytes; at += page) {
    if (!is_zero(from + at, page) &&
        ::pwrite(file, from + at, page, static_cast<off_t>(at)) != static_cast<ssize_t>(page)) {
      return std::unexpected(system_error("copying the KV arena into shared memory"));
    }
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<SharedArena>> SharedArena::share(const KvArenaView& arena) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  if (reinterpret_cast<std::uintptr_t>(arena.base) % page != 0) {
    return fail(ErrorCode::InvalidArgument, "an arena to be shared begins on a page");
  }
  const std::size_t bytes = (arena.bytes() + page - 1) / page * page;
  UniqueFd file(::memfd_create("baton-kv", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  // Sealed, so that a writer need not fear that the file shrinks under its hands.
  if (!file || ::ftruncate(file.get(), static_cast<off_t>(bytes)) != 0 ||
      ::fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return std::unexpected(system_error("shared memory for the KV arena"));
  }
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) {
    return std::unexpected(system_error("shared memory for the KV arena"));
  }
  BATON_TRY(copy_contents(arena.base, bytes, page, file.get()));
  // Takes the place of the pages that are there, in one step.
  void* const mapped = ::mmap(arena.base,
                              bytes,
                              PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_FIXED | MAP_NORESERVE,
                              file.get(),
                              0);
  if (mapped == MAP_FAILED) {
    return std::unexpected(system_error("mapping shared memory for the KV arena"));
  }
  (void)::madvise(mapped, bytes, MADV_HUGEPAGE);  // where the system allows it for shared memory
  return std::unique_ptr<SharedArena>(
      new SharedArena(std::move(file), info.st_dev, info.st_ino, bytes));
}

void SharedArena::describe(PutOffer& offer) const {
  offer.allows_shm = true;
  offer.descriptor = static_cast<std::uint32_t>(file_.get());
  offer.device = device_;
  offer.inode = inode_;
  offer.mapped_bytes = bytes_;
}

Result<std::unique_ptr<MappedArena>> MappedArena::map(const PutOffer& offer,
                                                      const ProcessIdentity& owner) {
  const std::string path = fmt::format("/proc/{}/fd/{}", owner.pid, offer.descriptor);
  const UniqueFd file(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!file) {
    return std::unexpected(system_error("opening the peer's shared KV arena"));
  }
  // The number may by now be another file of the process, or another process's.
  struct stat info {};
  if (::fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode) || info.st_dev != offer.device ||
      info.st_ino != offer.inode || static_cast<std::uint64_t>(info.st_size) < offer.mapped_bytes) {
    return fail(ErrorCode::ProtocolError, "the peer's shared KV arena is another file");
  }
  if ((::fcntl(file.get(), F_GET_SEALS) & F_SEAL_SHRINK) == 0) {
    return fail(ErrorCode::ProtocolError, "the peer's shared KV arena could shrink");
  }
  const auto bytes = static_cast<std::size_t>(offer.mapped_bytes);
  void* const base =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file.get(), 0);
  if (base == MAP_FAILED) {
    return std::unexpected(system_error("mapping the peer's shared KV arena"));
  }
  return std::unique_ptr<MappedArena>(new MappedArena(static_cast<std::byte*>(base), bytes));
}

MappedArena::~MappedArena() {
  ::munmap(base_, bytes_);
}

}  // namespace baton::transfer
