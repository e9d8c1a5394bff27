// The name of a full KV block: a hash of the chain of tokens up to and with it, XXH3 of the block's
// token ids (int32, little endian) seeded with the name of the block before. Nodes announce cached
// blocks by it and the gateway computes it from a prompt. A collision costs a wrong guess in
// routing, never a wrong answer.
//
// Thread: pure function. Failure: none.
#pragma once

#include <cstdint>
#include <span>

#include "common/base/ids.h"

namespace baton {

// `parent`: of the block before; of a first block 0.
std::uint64_t next_prefix_hash(std::uint64_t parent, std::span<const TokenId> block);

}  // namespace baton
