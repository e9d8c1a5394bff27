// A file of equal slots, mapped into memory: room for KV blocks that the arena has none for. It has
// no name from the start, so nothing of it outlives the process and nobody else's bytes are ever
// read. Its space is taken when it is made: a full disk is an error then, not a signal later.
//
// Owner: FileTier. Thread: made by one; the slots' bytes belong to the copier thread. Failure:
// `create` names the folder and says what to do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "common/base/error.h"

namespace baton::engine {

class TierFile {
 public:
  // As many slots as fit in `megabytes`, at least one, in an existing folder.
  static Result<TierFile> create(const std::string& folder,
                                 std::uint64_t megabytes,
                                 std::size_t slot_bytes);
  TierFile(TierFile&& other) noexcept
      : base_(std::exchange(other.base_, nullptr)),
        slot_bytes_(other.slot_bytes_),
        num_slots_(other.num_slots_) {}
  TierFile& operator=(TierFile&&) = delete;
  TierFile(const TierFile&) = delete;
  TierFile& operator=(const TierFile&) = delete;
  ~TierFile();

  std::uint32_t num_slots() const { return num_slots_; }
  std::span<std::byte> slot(std::uint32_t i) const {
    return {base_ + std::size_t{i} * slot_bytes_, slot_bytes_};
  }

 private:
  TierFile(std::byte* base, std::size_t slot_bytes, std::uint32_t num_slots)
      : base_(base), slot_bytes_(slot_bytes), num_slots_(num_slots) {}

  std::byte* base_;  // [num_slots][slot_bytes]; null when moved from
  std::size_t slot_bytes_;
  std::uint32_t num_slots_;
};

}  // namespace baton::engine
