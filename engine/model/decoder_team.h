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
  using Communicators = std::vector<std::unique_ptr<Communicator>>;

  // One decoder a rank, made with the team's communicators, or with those of its device.
  DecoderTeam(std::unique_ptr<RankTeam> ranks,
              Communicators device_ranks,
              std::vector<std::unique_ptr<Decoder>> decoders)
      : ranks_(std::move(ranks)),
        device_ranks_(std::move(device_ranks)),
        decoders_(std::move(decoders)),
        hidden_(decoders_.size()) {}

  const DecoderSpec& spec() const { return decoders_.front()->spec(); }

  // Before the first use of an arena; again costs nothing.
  Status adopt_arena(const KvArenaView& arena) {
    for (const auto& decoder : decoders_) {
      BATON_TRY(decoder->adopt_arena(arena));
    }
    return {};
  }
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
  void run(const StepRows& rows, const KvArenaView& arena, const LayerDone& layer_done) {
    ranks_->run(
        [&](std::uint32_t rank) { hidden_[rank] = decoders_[rank]->run(rows, arena, layer_done); });
  }
  // Logits of `count` of the wanted rows, from `first` on, [count][vocab]: in
  // `out`, or in the memory of `backend()` where that is a device's, until the
  // next call.
  float* head(std::size_t first, std::size_t count, float* out) {
    float* logits = nullptr;
    ranks_->run([&](std::uint32_t rank) {
      float* const of_rank = decoders_[rank]->head(hidden_[rank] + first * spec().dim, count, out);
      if (rank == 0) {
        logits = of_rank;
      }
    });
    return logits;
  }
  // Of rank 0, which has the logits.
  kernels::Backend& backend() { return decoders_.front()->backend(); }

 private:
  std::unique_ptr<RankTeam> ranks_;
  Communicators device_ranks_;  // none where backends compute on the host
  std::vector<std::unique_ptr<Decoder>> decoders_;
  std::vector<const float*> hidden_;  // of each rank, in its memory: the same numbers
};

}  // namespace baton::engine
