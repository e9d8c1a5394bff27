// An arena that a writer of the same host maps and writes into itself. The receiver's side puts a
// memory file in the place of its arena's pages; the writer's side opens that file through the
// receiver's process and maps it.
//
// Nothing takes such a mapping away again: only the writer's word or the death of its process says
// that it writes no more.
//
// Thread: any. Failure: see each function; contents survive a failed share().
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "common/base/error.h"
#include "common/types/kv_layout.h"
#include "transfer/process_watch.h"
#include "transfer/put_offer.h"

namespace baton::transfer {

// The receiver's side. The arena's pages stay a mapping of the file after this has gone, until
// their owner unmaps them.
class SharedArena {
 public:
  // Contents are kept; pages of zeros are not touched. REQUIRES: nobody writes to the arena now,
  // and its first page and its last belong to nobody else. Failure: the arena does not begin on a
  // page, or the system refuses.
  static Result<std::unique_ptr<SharedArena>> share(const KvArenaView& arena);
  SharedArena(const SharedArena&) = delete;
  SharedArena& operator=(const SharedArena&) = delete;
  ~SharedArena() = default;

  // Fills in what a writer needs to find the file.
  void describe(PutOffer& offer) const;

 private:
  SharedArena(UniqueFd file, std::uint64_t device, std::uint64_t inode, std::size_t bytes)
      : file_(std::move(file)), device_(device), inode_(inode), bytes_(bytes) {}

  const UniqueFd file_;
  const std::uint64_t device_;
  const std::uint64_t inode_;
  const std::size_t bytes_;
};

// The writer's side.
class MappedArena {
 public:
  // Failure: the process has ended, or its file may not be opened, or is another one.
  static Result<std::unique_ptr<MappedArena>> map(const PutOffer& offer,
                                                  const ProcessIdentity& owner);
  ~MappedArena();
  MappedArena(const MappedArena&) = delete;
  MappedArena& operator=(const MappedArena&) = delete;

  std::byte* base() const { return base_; }

 private:
  MappedArena(std::byte* base, std::size_t bytes) : base_(base), bytes_(bytes) {}

  std::byte* const base_;
  const std::size_t bytes_;
};

}  // namespace baton::transfer
