// Metrics of the prefill role.
//
// Owner: PrefillNode. Thread: control strand writes; the exporter reads. Failure: none.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/obs/metrics.h"

namespace baton::prefill_node {

class Probe {
 public:
  explicit Probe(Metrics& metrics);

  void step(double seconds, std::size_t sequences, std::uint32_t tokens);
  void request(std::uint32_t prompt_tokens, std::uint32_t cached_tokens);
  void committed(std::uint64_t bytes);
  void failed() { failed_.add(); }
  void cancelled() { cancelled_.add(); }
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
  Counter failed_;
  Counter cancelled_;
  Counter busy_;
  Gauge waiting_;
  Gauge jobs_;
};

}  // namespace baton::prefill_node
