// Blocks that tests of the pool and the prefix index share: small, and without memory behind them.
#pragma once

#include "common/types/kv_layout.h"

namespace baton::engine {

constexpr std::uint32_t kBlock = 16;  // tokens

inline KvArenaView shape(std::uint32_t num_blocks) {
  return {.base = nullptr,
          .layout = {.layers = 1, .kv_heads = 1, .head_dim = 16, .block_tokens = kBlock},
          .num_blocks = num_blocks};
}

}  // namespace baton::engine
