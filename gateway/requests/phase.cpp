#include "gateway/requests/phase.h"

#include <array>
#include <utility>

namespace baton::gateway {
namespace {

// Back to Queued: a node was busy, or the attempt failed and another one takes over. A stop string
// may be found while the request waits for that.
constexpr auto kEdges = std::to_array<std::pair<Phase, Phase>>({
    {Phase::Queued, Phase::Prefilling},
    {Phase::Queued, Phase::Finished},
    {Phase::Queued, Phase::Failed},
    {Phase::Queued, Phase::Refused},
    {Phase::Queued, Phase::Cancelled},
    {Phase::Prefilling, Phase::Queued},
    {Phase::Prefilling, Phase::Decoding},
    {Phase::Prefilling, Phase::Finished},
    {Phase::Prefilling, Phase::Failed},
    {Phase::Prefilling, Phase::Cancelled},
    {Phase::Decoding, Phase::Queued},
    {Phase::Decoding, Phase::Ending},
    {Phase::Decoding, Phase::Finished},
    {Phase::Decoding, Phase::Failed},
    {Phase::Decoding, Phase::Cancelled},
    {Phase::Ending, Phase::Finished},
    {Phase::Ending, Phase::Cancelled},
});

}  // namespace

bool is_legal(Phase from, Phase to) {
  for (const auto& edge : kEdges) {
    if (edge == std::pair{from, to}) {
      return true;
    }
  }
  return false;
}

bool is_final(Phase phase) {
  return phase == Phase::Finished || phase == Phase::Failed || phase == Phase::Refused ||
         phase == Phase::Cancelled;
}

std::string_view to_string(Phase phase) {
  switch (phase) {
    case Phase::Queued:
      return "queued";
    case Phase::Prefilling:
      return "prefilling";
    case Phase::Decoding:
      return "decoding";
    case Phase::Ending:
      return "ending";
    case Phase::Finished:
      return "finished";
    case Phase::Failed:
      return "failed";
    case Phase::Refused:
      return "refused";
    case Phase::Cancelled:
      return "cancelled";
  }
  return "unknown";
}

}  // namespace baton::gateway
