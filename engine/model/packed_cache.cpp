#include "engine/model/packed_cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <optional>
#include <system_error>
#include <thread>
#include <vector>

#include "engine/model/packed_file.h"

namespace baton::engine {
namespace {

namespace fs = std::filesystem;
using RunnerPtr = std::unique_ptr<ModelRunner>;

constexpr std::chrono::seconds kLockLimit{120};
constexpr std::chrono::milliseconds kLockPause{10};
constexpr std::chrono::seconds kProgressPause{3};

// The folder's lock; released when the process ends, however it ends.
class FolderLock {
 public:
  explicit FolderLock(const std::string& path)
      : fd_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644)) {}
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;
  ~FolderLock() {
    if (fd_ >= 0) {
      ::close(fd_);
    }
  }
  // False when it cannot be had in time, or at all.
  bool take() const {
    const auto end = std::chrono::steady_clock::now() + kLockLimit;
    while (fd_ >= 0 && std::chrono::steady_clock::now() < end) {
      if (::flock(fd_, LOCK_EX | LOCK_NB) == 0) {
        return true;
      }
      if (errno != EWOULDBLOCK && errno != EINTR) {
        return false;
      }
      std::this_thread::sleep_for(kLockPause);
    }
    return false;
  }

 private:
  int fd_;
};

// A name that this module gives: 16 hexadecimal digits, a dash, a layout, .bin or .bin.new.
bool is_ours(const std::string& name) {
  constexpr std::size_t kDigits = 16;
  return name.size() > kDigits && name[kDigits] == '-' &&
         std::all_of(name.begin(),
                     name.begin() + kDigits,
                     [](unsigned char c) { return std::isxdigit(c) != 0; }) &&
         (name.ends_with(".bin") || name.ends_with(".bin.new"));
}

// Removes the least recently used files until `room` bytes fit under the limit. Processes that have
// one mapped keep it. A file that vanishes meanwhile is one less.
void make_room(const fs::path& folder, std::uint64_t room, std::uint64_t limit) {
  struct Old {
    fs::file_time_type used;
    std::uint64_t bytes;
    fs::path path;
  };
  std::vector<Old> files;
  std::uint64_t total = room;
  std::error_code ignored;
  for (const auto& file : fs::directory_iterator(folder, ignored)) {
    std::error_code gone;
    if (is_ours(file.path().filename().string()) && file.is_regular_file(gone)) {
      const Old old{file.last_write_time(gone), file.file_size(gone), file.path()};
      if (!gone) {
        total += old.bytes;
        files.push_back(old);
      }
    }
  }
  std::sort(files.begin(), files.end(), [](const Old& a, const Old& b) { return a.used < b.used; });
  for (const Old& old : files) {
    if (total <= limit) {
      break;
    }
    if (fs::remove(old.path, ignored)) {
      total -= old.bytes;
    }
  }
}

class Loading {
 public:
  Loading(std::uint64_t weights_hash,
          kernels::Backend& backend,
          const PackedCacheOptions& options,
          const MakeRunner& make)
      : key_{weights_hash, backend.packed_layout()},
        backend_(backend),
        options_(options),
        make_(make),
        path_(fmt::format("{}/{:016x}-{}.bin", options.folder, weights_hash, key_.layout)) {}

  Result<RunnerPtr> run() {
    if (auto made = from_file()) {
      return std::move(*made);
    }
    std::error_code error;
    fs::create_directories(options_.folder, error);
    const FolderLock lock(options_.folder + "/lock");
    if (error || !lock.take()) {
      note(fmt::format("packed weights are not kept: {} cannot be used{}{}",
                       options_.folder,
                       error ? ": " : "",
                       error ? error.message() : ""));
      return make_();
    }
    if (auto made = from_file()) {  // another process has packed meanwhile
      return std::move(*made);
    }
    return pack();
  }

 private:
  void note(const std::string& line) const {
    if (options_.note) {
      options_.note(line);
    }
  }

  Result<RunnerPtr> make_with(kernels::PackedStore& store) const {
    backend_.use_store(&store);
    auto made = make_();
    backend_.use_store(nullptr);
    return made;
  }

  // Empty: there is no file that fits.
  std::optional<Result<RunnerPtr>> from_file() {
    auto file = PackedFile::open(path_, key_);
    if (!file) {
      // One that is not there or cannot be read: what comes next says whether it matters.
      if (file.error().code == ErrorCode::InvalidModel && !refused_) {
        refused_ = true;
        note(fmt::format("packed weights are made anew: {}", file.error().message));
      }
      return std::nullopt;
    }
    auto made = make_with(**file);
    if (made && !(*file)->fits()) {
      refused_ = true;
      note(fmt::format("packed weights are made anew: {} holds others", path_));
      return std::nullopt;
    }
    (void)::utimensat(AT_FDCWD, path_.c_str(), nullptr, 0);  // used now
    return made;
  }

  Result<RunnerPtr> pack() {
    const std::string fresh = path_ + ".new";
    std::error_code ignored;
    Result<RunnerPtr> made = RunnerPtr{};
    {
      PackedRecord record([this](std::uint64_t bytes) { tell_progress(bytes); });
      made = make_with(record);
      if (!made) {
        return made;
      }
      Status written = keep(record, fresh);
      if (!written) {
        fs::remove(fresh, ignored);
        note(fmt::format("packed weights are not kept: {}", written.error().message));
        return made;
      }
    }
    made->reset();  // its memory goes before the mapping comes
    if (auto mapped = from_file()) {
      return std::move(*mapped);
    }
    return make_();
  }

  void tell_progress(std::uint64_t bytes) {
    const auto now = std::chrono::steady_clock::now();
    if (options_.progress && now - told_ > kProgressPause) {
      told_ = now;
      options_.progress(fmt::format("packing weights: {} MiB so far", bytes >> 20U));
    }
  }

  Status keep(const PackedRecord& record, const std::string& fresh) const {
    const std::uint64_t size = record.file_size();
    if (size > options_.limit_bytes) {
      return fail(ErrorCode::OutOfMemory,
                  fmt::format("{} MiB are more than model.packed_cache_mb", size >> 20));
    }
    make_room(options_.folder, size, options_.limit_bytes);
    BATON_TRY(record.write(fresh, key_));
    std::error_code error;
    fs::rename(fresh, path_, error);
    if (error) {
      return fail(ErrorCode::IoError, fmt::format("cannot rename {}: {}", fresh, error.message()));
    }
    return {};
  }

  const PackedKey key_;
  kernels::Backend& backend_;
  const PackedCacheOptions& options_;
  const MakeRunner& make_;
  const std::string path_;
  bool refused_ = false;
  std::chrono::steady_clock::time_point told_ = std::chrono::steady_clock::now();
};

}  // namespace

Result<RunnerPtr> through_packed_cache(std::uint64_t weights_hash,
                                       kernels::Backend& backend,
                                       const PackedCacheOptions& options,
                                       const MakeRunner& make) {
  if (options.folder.empty() || backend.packed_layout().empty()) {
    return make();
  }
  return Loading(weights_hash, backend, options, make).run();
}

}  // namespace baton::engine
