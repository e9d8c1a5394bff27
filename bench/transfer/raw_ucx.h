// The yardstick of the transfer benchmark: bare UCX loops between two processes, by active messages
// and by puts, with no lease, no check, no thread of their own and no sleep. What is faster than
// the better of both is not to be had from UCX.
//
// Thread: the caller's, which spins. Failure: UCX's own words.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "common/base/error.h"
#include "common/types/kv_layout.h"

namespace baton::bench {

class RawUcx {
 public:
  virtual ~RawUcx() = default;

  // One word of text for the other side's `connect`.
  virtual Result<std::string> address() const = 0;
  virtual Status connect(const std::string& address) = 0;
  // Sends blocks 0 .. count - 1, at most `window` bytes outstanding, then flushes.
  virtual Status send(std::uint32_t count, std::size_t window) = 0;
  // Active messages only: progresses until `count` of them have landed since the last call. A put's
  // flush tells the sender instead, while the target calls progress().
  virtual void receive(std::uint32_t count) = 0;
  // The other side's operations may need it to end.
  virtual void progress() = 0;
};

// `arena` outlives them; its block i of layer 0 goes to block i there.
Result<std::unique_ptr<RawUcx>> make_raw_am(const std::string& transport, KvArenaView arena);
Result<std::unique_ptr<RawUcx>> make_raw_put(const std::string& transport, KvArenaView arena);

// Bytes as text.
std::string to_hex(const void* bytes, std::size_t size);
std::string from_hex(const std::string& text);

}  // namespace baton::bench
