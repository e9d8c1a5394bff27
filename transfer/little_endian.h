// Integers in messages: byte-wise little endian, so that the host's order and alignment do not
// matter.
//
// Thread: pure functions. Failure: none; the caller has checked that the bytes are there.
#pragma once

#include <cstddef>
#include <cstdint>

namespace baton::transfer {

// Writes `value` at `at`; returns what follows it.
template <class Int>
std::byte* put(std::byte* at, Int value) {
  for (std::size_t i = 0; i < sizeof(Int); ++i) {
    at[i] = static_cast<std::byte>((value >> (8 * i)) & 0xff);
  }
  return at + sizeof(Int);
}

// Reads an integer and moves `at` behind it.
template <class Int>
Int take(const std::byte*& at) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < sizeof(Int); ++i) {
    value |= std::uint64_t{std::to_integer<std::uint8_t>(at[i])} << (8 * i);
  }
  at += sizeof(Int);
  return static_cast<Int>(value);
}

}  // namespace baton::transfer
