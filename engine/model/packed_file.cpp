#include "engine/model/packed_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <new>
#include <span>
#include <system_error>
#include <type_traits>

namespace baton::engine {
namespace {

constexpr std::array<char, 8> kMagic{'B', 'A', 'T', 'O', 'N', 'P', 'K', '\n'};
constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kAlignment = 64;
constexpr std::size_t kTail = 4096;  // kernels may read a little past a weight
constexpr std::size_t kSample = 4096;
constexpr std::uint64_t kMostEntries = 1 << 20;
constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr std::size_t kWriteBytes = 2 * kHugePage;

struct Head {
  std::array<char, 8> magic = kMagic;
  std::uint32_t version = kVersion;
  std::uint32_t num_entries = 0;
  std::uint64_t weights_hash = 0;
  std::array<char, 32> layout{};
  std::uint64_t file_size = 0;
  std::uint64_t hash = 0;  // of the head with this field 0, and the entries
};
static_assert(sizeof(Head) == 72 && sizeof(PackedEntry) == 64 &&
              std::is_trivially_copyable_v<Head>);

std::uint64_t round_up(std::uint64_t value, std::uint64_t step) {
  return (value + step - 1) / step * step;
}

std::string reason(int error) {
  return std::generic_category().message(error);
}

// Of a piece's first, middle and last bytes.
std::uint64_t sample_of(const std::byte* data, std::size_t bytes) {
  const std::size_t each = std::min(kSample, bytes);
  std::array<std::uint64_t, 4> parts{bytes};
  parts[1] = XXH3_64bits(data, each);
  parts[2] = XXH3_64bits(data + (bytes - each) / 2, each);
  parts[3] = XXH3_64bits(data + bytes - each, each);
  return XXH3_64bits(parts.data(), sizeof(parts));
}

std::uint64_t hash_of(Head head, std::span<const PackedEntry> entries) {
  head.hash = 0;
  XXH3_state_t* state = XXH3_createState();
  XXH3_64bits_reset(state);
  XXH3_64bits_update(state, &head, sizeof(head));
  XXH3_64bits_update(state, entries.data(), entries.size_bytes());
  const std::uint64_t hash = XXH3_64bits_digest(state);
  XXH3_freeState(state);
  return hash;
}

PackedEntry describe(const kernels::WeightView& weight, std::size_t bytes) {
  return {.dtype = static_cast<std::uint32_t>(weight.dtype),
          .rows = weight.rows,
          .cols = weight.cols,
          .bytes = bytes,
          .source_sample = sample_of(weight.data.data(), weight.data.size())};
}

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) {
      ::close(fd_);
    }
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

// On a huge page's boundary and advised to use them: where the file system keeps the file in large
// pages, streams of weights meet few page borders. Elsewhere it is only slower.
std::shared_ptr<const std::byte> map(int fd, std::size_t size) {
  const std::size_t reserved = round_up(size, kHugePage) + kHugePage;
  void* place =
      ::mmap(nullptr, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (place == MAP_FAILED) {
    return nullptr;
  }
  void* aligned = place;
  std::size_t space = reserved;
  std::align(kHugePage, size, aligned, space);
  const std::shared_ptr<const std::byte> out(
      static_cast<const std::byte*>(aligned),
      [place, reserved](const std::byte*) { ::munmap(place, reserved); });
  if (::mmap(aligned, size, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
    return nullptr;
  }
  (void)::madvise(aligned, size, MADV_HUGEPAGE);
#ifdef MADV_POPULATE_READ
  (void)::madvise(aligned, size, MADV_POPULATE_READ);
#endif
  return out;
}

// Collects bytes into large writes at large steps, so that the page cache keeps large pages.
class Writer {
 public:
  Writer(int fd, const std::string& path) : fd_(fd), path_(path), buffer_(kWriteBytes) {}

  Status add(const void* data, std::size_t bytes) {
    const auto* from = static_cast<const std::byte*>(data);
    while (bytes > 0) {
      const std::size_t count = std::min(bytes, buffer_.size() - used_);
      std::memcpy(buffer_.data() + used_, from, count);
      used_ += count;
      from += count;
      bytes -= count;
      if (used_ == buffer_.size()) {
        BATON_TRY(flush());
      }
    }
    return {};
  }
  Status pad_to(std::uint64_t offset) {
    constexpr std::array<std::byte, kAlignment> zeros{};
    while (written_ + used_ < offset) {
      BATON_TRY(
          add(zeros.data(), std::min<std::uint64_t>(zeros.size(), offset - written_ - used_)));
    }
    return {};
  }
  Status flush() {
    for (std::size_t at = 0; at < used_;) {
      const ssize_t count = ::write(fd_, buffer_.data() + at, used_ - at);
      if (count < 0 && errno == EINTR) {
        continue;
      }
      if (count <= 0) {
        return fail(ErrorCode::IoError, fmt::format("cannot write {}: {}", path_, reason(errno)));
      }
      at += static_cast<std::size_t>(count);
    }
    written_ += used_;
    used_ = 0;
    return {};
  }

 private:
  int fd_;
  const std::string& path_;
  std::vector<std::byte> buffer_;
  std::size_t used_ = 0;
  std::uint64_t written_ = 0;
};

}  // namespace

Result<std::unique_ptr<PackedFile>> PackedFile::open(const std::string& path,
                                                     const PackedKey& key) {
  const auto refuse = [&](std::string_view why) {
    return fail(ErrorCode::InvalidModel, fmt::format("{}: {}", path, why));
  };
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) {
    const int error = errno;
    return fail(error == ENOENT ? ErrorCode::NotFound : ErrorCode::IoError,
                fmt::format("cannot open {}: {}", path, reason(error)));
  }
  struct stat info {};
  Head head;
  if (::fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode)) {
    return refuse("not a regular file");
  }
  if (::pread(file.get(), &head, sizeof(head), 0) != static_cast<ssize_t>(sizeof(head)) ||
      head.magic != kMagic) {
    return refuse("not a file of packed weights");
  }
  std::array<char, 32> layout{};
  key.layout.copy(layout.data(), layout.size() - 1);
  if (head.version != kVersion || head.layout != layout) {
    return refuse("of another version or layout");
  }
  if (head.weights_hash != key.weights_hash) {
    return refuse("of another model");
  }
  if (head.file_size != static_cast<std::uint64_t>(info.st_size)) {
    return refuse(fmt::format("{} bytes, {} expected", info.st_size, head.file_size));
  }
  const std::uint64_t table = std::uint64_t{head.num_entries} * sizeof(PackedEntry);
  if (head.num_entries > kMostEntries || sizeof(head) + table + kTail > head.file_size) {
    return refuse("too short for its entries");
  }
  std::unique_ptr<PackedFile> out(new PackedFile());
  out->entries_.resize(head.num_entries);
  if (::pread(file.get(), out->entries_.data(), table, sizeof(head)) !=
      static_cast<ssize_t>(table)) {
    return refuse("its entries cannot be read");
  }
  if (head.hash != hash_of(head, out->entries_)) {
    return refuse("its head does not match its hash");
  }
  std::uint64_t end = sizeof(head) + table;
  const std::uint64_t last = head.file_size - kTail;
  for (const PackedEntry& entry : out->entries_) {
    if (entry.offset % kAlignment != 0 || entry.offset < end || entry.offset > last ||
        entry.bytes > last - entry.offset) {
      return refuse("an entry lies outside the file");
    }
    end = entry.offset + entry.bytes;
  }
  out->size_ = head.file_size;
  out->base_ = map(file.get(), head.file_size);
  if (out->base_ == nullptr) {
    return fail(ErrorCode::IoError, fmt::format("cannot map {}: {}", path, reason(errno)));
  }
  for (const PackedEntry& entry : out->entries_) {
    if (sample_of(out->base_.get() + entry.offset, entry.bytes) != entry.packed_sample) {
      return refuse("its weights do not match their samples");
    }
  }
  return out;
}

std::shared_ptr<const std::byte> PackedFile::find(const kernels::WeightView& weight,
                                                  std::size_t bytes) {
  if (!fits_ || next_ == entries_.size()) {
    fits_ = false;
    return nullptr;
  }
  const PackedEntry& entry = entries_[next_];
  PackedEntry wanted = describe(weight, bytes);
  wanted.offset = entry.offset;
  wanted.packed_sample = entry.packed_sample;
  wanted.packed_hash = entry.packed_hash;
  fits_ = wanted == entry;
  if (!fits_) {
    return nullptr;
  }
  ++next_;
  return {base_, base_.get() + entry.offset};
}

void PackedFile::add(const kernels::WeightView&, std::shared_ptr<const std::byte>, std::size_t) {
  fits_ = false;
}

Status PackedFile::verify() const {
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const PackedEntry& entry = entries_[i];
    if (XXH3_64bits(base_.get() + entry.offset, entry.bytes) != entry.packed_hash) {
      return fail(ErrorCode::InvalidModel, fmt::format("packed weight {} has changed", i));
    }
  }
  return {};
}

std::shared_ptr<const std::byte> PackedRecord::find(const kernels::WeightView&, std::size_t) {
  return nullptr;
}

void PackedRecord::add(const kernels::WeightView& weight,
                       std::shared_ptr<const std::byte> packed,
                       std::size_t bytes) {
  pieces_.push_back({describe(weight, bytes), std::move(packed)});
  bytes_ += bytes;
  if (progress_) {
    progress_(bytes_);
  }
}

std::uint64_t PackedRecord::file_size() const {
  std::uint64_t size = round_up(sizeof(Head) + pieces_.size() * sizeof(PackedEntry), kAlignment);
  for (const Piece& piece : pieces_) {
    size += round_up(piece.entry.bytes, kAlignment);
  }
  return size + kTail;
}

Status PackedRecord::write(const std::string& path, const PackedKey& key) const {
  if (pieces_.size() > kMostEntries || key.layout.size() >= Head{}.layout.size()) {
    return fail(ErrorCode::InvalidArgument, fmt::format("{}: too many weights to keep", path));
  }
  const Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (file.get() < 0) {
    return fail(ErrorCode::IoError, fmt::format("cannot write {}: {}", path, reason(errno)));
  }
  Head head;
  head.num_entries = static_cast<std::uint32_t>(pieces_.size());
  head.weights_hash = key.weights_hash;
  key.layout.copy(head.layout.data(), head.layout.size() - 1);
  head.file_size = file_size();
  std::vector<PackedEntry> entries;
  std::uint64_t offset = round_up(sizeof(Head) + pieces_.size() * sizeof(PackedEntry), kAlignment);
  for (const Piece& piece : pieces_) {
    PackedEntry& entry = entries.emplace_back(piece.entry);
    entry.offset = offset;
    entry.packed_sample = sample_of(piece.data.get(), entry.bytes);
    entry.packed_hash = XXH3_64bits(piece.data.get(), entry.bytes);
    offset += round_up(entry.bytes, kAlignment);
  }
  head.hash = hash_of(head, entries);
  Writer writer(file.get(), path);
  BATON_TRY(writer.add(&head, sizeof(head)));
  BATON_TRY(writer.add(entries.data(), entries.size() * sizeof(PackedEntry)));
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    BATON_TRY(writer.pad_to(entries[i].offset));
    BATON_TRY(writer.add(pieces_[i].data.get(), entries[i].bytes));
  }
  BATON_TRY(writer.pad_to(head.file_size));
  BATON_TRY(writer.flush());
  // What a rename makes visible must be there after a crash, too.
  if (::fdatasync(file.get()) != 0) {
    return fail(ErrorCode::IoError, fmt::format("cannot write {}: {}", path, reason(errno)));
  }
  return {};
}

}  // namespace baton::engine
