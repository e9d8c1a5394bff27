// A layer of an arena as kernels take it. For host code: the arena's types need C++23, which nvcc
// has not.
//
// Thread: pure. Failure: none.
#pragma once

#include "common/types/kv_layout.h"
#include "kernels/cuda/kv_pages.h"

namespace baton::kernels::cuda {

constexpr KvElement element_of(KvDType dtype) {
  switch (dtype) {
    case KvDType::F16:
      break;
    case KvDType::F32:
      return KvElement::Float;
    case KvDType::I8:
      return KvElement::Int8;
    case KvDType::F8:
      return KvElement::E4m3;
    case KvDType::I16:
      return KvElement::Int16;
  }
  return KvElement::Half;
}

// `tables`: where the device finds all block tables of the step. REQUIRES: the engine's order.
inline KvPages pages_of(const KvArenaView& arena,
                        std::uint32_t layer,
                        const std::uint32_t* tables) {
  const KvLayout& layout = arena.layout;
  return {.layer = arena.base + layer * arena.layer_stride(),
          .tables = tables,
          .block_bytes = layout.block_bytes(),
          .values_at = layout.scales_at() / 2,
          .scales_at = layout.scales_at(),
          .block_tokens = layout.block_tokens,
          .kv_heads = layout.kv_heads,
          .head_dim = layout.head_dim,
          .element = element_of(layout.dtype)};
}

}  // namespace baton::kernels::cuda
