// The yardstick of the transfer benchmark: a bare UCX active-message loop between two processes,
// with no lease, no check, no thread of its own and no sleep. What is faster than this is not to be
// had from UCX.
//
// Thread: the caller's, which spins. Failure: UCX's own words.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/types/kv_layout.h"

namespace baton::bench {

class RawUcx {
 public:
  // `arena` outlives this; block i of layer 0 is message i's place on both sides.
  static Result<std::unique_ptr<RawUcx>> create(const std::string& transport, KvArenaView arena);
  virtual ~RawUcx() = default;

  virtual std::vector<std::byte> address() const = 0;
  virtual Status connect(std::span<const std::byte> address) = 0;
  // Sends blocks 0 .. count - 1, at most `window` bytes outstanding, then flushes.
  virtual Status send(std::uint32_t count, std::size_t window) = 0;
  // Progresses until `count` messages have landed since the last call.
  virtual void receive(std::uint32_t count) = 0;
  // The other side's operations may need it to end.
  virtual void progress() = 0;
};

}  // namespace baton::bench
