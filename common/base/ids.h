// Strong ids: numbers that cannot be mixed up. Each wraps one integer, orders and hashes by it, and
// converts only when asked.
//
// Thread: plain values. Failure: none.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace baton {

template <class Tag, class Int>
struct StrongId {
  Int value{};

  constexpr StrongId() = default;
  constexpr explicit StrongId(Int v) : value(v) {}
  constexpr auto operator<=>(const StrongId&) const = default;
};

using RequestId = StrongId<struct RequestIdTag, std::uint64_t>;      // drawn at random by a gateway
using Attempt = StrongId<struct AttemptTag, std::uint32_t>;          // 0, 1, … of one request
using Incarnation = StrongId<struct IncarnationTag, std::uint64_t>;  // new at every process start
using BlockId = StrongId<struct BlockIdTag, std::uint32_t>;          // index into a node's arena
using Epoch = StrongId<struct EpochTag, std::uint32_t>;  // counts re-grants of a lease slot

using NodeName = std::string;  // configured, unique in a cluster
using TokenId = std::int32_t;  // index into the vocabulary

// The right to write one grant's blocks: 128 random bits, so that it cannot be guessed.
struct LeaseId {
  std::uint64_t high = 0;
  std::uint64_t low = 0;
  constexpr auto operator<=>(const LeaseId&) const = default;
  explicit operator bool() const { return (high | low) != 0; }
};

}  // namespace baton

template <class Tag, class Int>
struct std::hash<baton::StrongId<Tag, Int>> {
  std::size_t operator()(baton::StrongId<Tag, Int> id) const noexcept {
    return std::hash<Int>{}(id.value);
  }
};

template <>
struct std::hash<baton::LeaseId> {
  std::size_t operator()(baton::LeaseId id) const noexcept {
    return std::hash<std::uint64_t>{}(id.high ^ (id.low * 0x9e3779b97f4a7c15ULL));
  }
};
