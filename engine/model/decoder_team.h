// The decoders of all ranks of one model, run together as if they were one.
//
// Owner: one model runner. Thread: the engine thread, which is rank 0. Failure: construction throws
// bad_alloc or std::system_error.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "engine/model/decoder.h"
#include "engine/parallel/rank_team.h"

namespace baton::engine {

class DecoderTeam {
 public:
  // One decoder a rank, made with the team's communicators.
  DecoderTeam(std::unique_ptr<RankTeam> ranks, std::vector<std::unique_ptr<Decoder>> decoders)
      : ranks_(std::move(ranks)), decoders_(std::move(decoders)), hidden_(decoders_.size()) {}

  const DecoderSpec& spec() const { return decoders_.front()->spec(); }

  // What others than this team wrote into these blocks is used from now on.
  void bring_blocks(const KvArenaView& arena, std::span<const BlockId> blocks) {
    for (const auto& decoder : decoders_) {
      decoder->backend().bring_blocks(arena, blocks);
    }
  }
  // Until all that was begun is over: blocks that are full are in the arena.
  void settle() {
    for (const auto& decoder : decoders_) {
      decoder->backend().settle();
    }
  }
  // As Decoder's.
  const float* run(const StepRows& rows, const KvArenaView& arena, const LayerDone& layer_done) {
    ranks_->run(
        [&](std::uint32_t rank) { hidden_[rank] = decoders_[rank]->run(rows, arena, layer_done); });
    return hidden_.front();
  }
  void head(const float* hidden, std::size_t count, float* out) {
    ranks_->run([&](std::uint32_t rank) { decoders_[rank]->head(hidden, count, out); });
  }

 private:
  std::unique_ptr<RankTeam> ranks_;
  std::vector<std::unique_ptr<Decoder>> decoders_;
  std::vector<const float*> hidden_;  // of each rank, all the same numbers
};

}  // namespace baton::engine
