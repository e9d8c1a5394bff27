// Metrics of the prefill role.
//
// Owner: PrefillNode. Thread: control strand writes; the exporter reads. Failure: none.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "common/base/error.h"
#include "common/obs/metrics.h"

namespace baton::prefill_node {

// Where a cancel found its request.
enum class CancelPhase : std::uint8_t { Waiting, Computing, Delivering };
inline constexpr std::size_t kCancelPhases = 3;

class Probe {
 public:
  explicit Probe(Metrics& metrics);

  void step(double seconds, std::size_t sequences, std::uint32_t tokens);
  void request(std::uint32_t prompt_tokens, std::uint32_t cached_tokens);
  void committed(std::uint64_t bytes);
  void pulled(std::uint32_t tokens, std::uint64_t bytes);
  void pull_failed() { pulls_failed_.add(); }
  // A request that ends here by an error event.
  void failed(ErrorCode why);
  void cancelled(CancelPhase phase) { cancelled_.at(static_cast<std::size_t>(phase)).add(); }
  void busy() { busy_.add(); }
  void update(std::size_t waiting, std::size_t jobs);

 private:
  Histogram step_seconds_;
  Histogram sequences_;
  Counter tokens_;
  Counter prompt_tokens_;
  Counter cached_tokens_;
  Counter committed_;
  Counter bytes_;
  Counter pulls_;
  Counter pulls_failed_;
  Counter pulled_tokens_;
  Counter pulled_bytes_;
  Counter failed_;
  Counter drained_;
  Counter late_;
  std::array<Counter, kCancelPhases> cancelled_;
  Counter busy_;
  Gauge waiting_;
  Gauge jobs_;
};

}  // namespace baton::prefill_node
