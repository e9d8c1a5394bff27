// A file of packed weights: what one backend made of one model, in the order in which the model
// asks for its weights. Mapped shared and read-only, so that all processes of a machine have one
// copy.
//
//   Head     magic, version, weights hash, layout name, file size, entries, hash of head and
//   entries entries  for each weight: type, shape, place, samples of the model's bytes and of the
//   packed ones data     64-byte aligned, in order; a page of zeros last
//
// Owner: packed matrices hold the mapping. Thread: one. Failure: whatever does not fit is refused
// by a sentence that says what; a file is never used in part. Like a model file, it must not be
// written while it is mapped: it is only ever replaced by rename.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "kernels/ops.h"

namespace baton::engine {

// What a file must be of.
struct PackedKey {
  std::uint64_t weights_hash = 0;
  std::string layout;  // Backend::packed_layout
};

// One weight, as the file says it.
struct PackedEntry {
  std::uint32_t dtype = 0;
  std::uint32_t reserved = 0;
  std::uint64_t rows = 0;
  std::uint64_t cols = 0;
  std::uint64_t offset = 0;  // from the file's begin
  std::uint64_t bytes = 0;
  std::uint64_t source_sample = 0;  // of the model's bytes
  std::uint64_t packed_sample = 0;  // of the packed ones
  std::uint64_t packed_hash = 0;    // of all of them

  bool operator==(const PackedEntry&) const = default;
};

// Gives out the weights of a file.
class PackedFile final : public kernels::PackedStore {
 public:
  // Checks head, size, places and samples. NotFound when there is no such file.
  static Result<std::unique_ptr<PackedFile>> open(const std::string& path, const PackedKey& key);

  std::shared_ptr<const std::byte> find(const kernels::WeightView& weight,
                                        std::size_t bytes) override;
  void add(const kernels::WeightView& weight,
           std::shared_ptr<const std::byte> packed,
           std::size_t bytes) override;
  // The model asked for exactly the weights of this file.
  bool fits() const { return fits_ && next_ == entries_.size(); }
  // Reads everything: every byte is as it was written.
  Status verify() const;
  std::uint64_t size() const { return size_; }

 private:
  PackedFile() = default;

  std::shared_ptr<const std::byte> base_;
  std::uint64_t size_ = 0;
  std::vector<PackedEntry> entries_;
  std::size_t next_ = 0;
  bool fits_ = true;
};

// Remembers what a backend packs and writes it down.
class PackedRecord final : public kernels::PackedStore {
 public:
  // `progress` hears after each weight how many bytes there are; may be empty.
  explicit PackedRecord(std::function<void(std::uint64_t)> progress = nullptr)
      : progress_(std::move(progress)) {}
  std::shared_ptr<const std::byte> find(const kernels::WeightView& weight,
                                        std::size_t bytes) override;
  void add(const kernels::WeightView& weight,
           std::shared_ptr<const std::byte> packed,
           std::size_t bytes) override;
  std::uint64_t file_size() const;
  // Writes `path` anew; it is not a packed file before this has returned well.
  Status write(const std::string& path, const PackedKey& key) const;

 private:
  struct Piece {
    PackedEntry entry;  // without offset and hashes of the packed bytes
    std::shared_ptr<const std::byte> data;
  };
  std::vector<Piece> pieces_;
  std::uint64_t bytes_ = 0;
  std::function<void(std::uint64_t)> progress_;
};

}  // namespace baton::engine
