// Names of tensors: what the forward passes ask for by the names of GGUF files, and what a Hugging
// Face folder calls it. One table for all families.
//
// Thread: const after building. Failure: none; an unknown name has no source.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "engine/model/hf_config.h"

namespace baton::engine {

// Where a tensor comes from and what must be done to it.
struct HfSource {
  std::string base;         // "model.layers.0.self_attn.q_proj"
  std::string_view part;    // "weight" or "bias"
  std::uint32_t heads = 0;  // above 0: the rows of each head are paired for interleaved rotation
  bool add_one = false;     // Gemma's norms are stored less one

  std::string name() const { return base + "." + std::string(part); }
};

class HfNames {
 public:
  explicit HfNames(const HfConfig& config);

  // `gguf_name`: "blk.0.attn_q.weight" and the like; expert 3's gate is "blk.0.ffn_gate.3.weight".
  std::optional<HfSource> source_of(std::string_view gguf_name) const;
  // A matrix or norm of the model; `base`: the folder's name without ".weight".
  bool is_known(std::string_view base) const { return known_.contains(base); }

 private:
  HfFamily family_;
  std::uint32_t layers_, heads_, kv_heads_, experts_;
  std::set<std::string, std::less<>> known_;
};

}  // namespace baton::engine
