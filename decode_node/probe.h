// Metrics of the decode role.
//
// Owner: DecodeNode. Thread: control strand writes; the exporter reads. Failure: none.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "common/obs/metrics.h"
#include "common/types/token_event.h"
#include "decode_node/grant_table.h"

namespace baton::decode_node {

// Where a cancel found its request.
enum class CancelPhase : std::uint8_t { Granted, Landing, Fencing, Prefilling, Decoding };
inline constexpr std::size_t kCancelPhases = 5;
CancelPhase phase_of(GrantState state);

class Probe {
 public:
  explicit Probe(Metrics& metrics);

  void step(double seconds, std::size_t batch);
  void tokens(std::size_t count) { tokens_.add(static_cast<double>(count)); }
  void drafted(std::size_t count) { drafted_.add(static_cast<double>(count)); }
  void accepted(std::size_t count) { accepted_.add(static_cast<double>(count)); }
  void sat_out() { sat_out_.add(); }
  void ended(FinishReason reason);
  // A request that ends here by an error event.
  void handed_back(ErrorCode why);
  void cancelled(CancelPhase phase) { cancelled_.at(static_cast<std::size_t>(phase)).add(); }
  void busy() { busy_.add(); }
  void received(std::uint64_t bytes) { received_.add(static_cast<double>(bytes)); }
  void pull_served(std::uint64_t bytes);
  void pull_refused() { pulls_refused_.add(); }
  void update(std::uint32_t running, const GrantTable& grants);

 private:
  Histogram step_seconds_;
  Histogram batch_;
  Counter tokens_;
  Counter drafted_;
  Counter accepted_;
  Counter sat_out_;
  Counter stopped_;
  Counter at_length_;
  std::array<Counter, kCancelPhases> cancelled_;
  Counter failed_;
  Counter preempted_;
  Counter drained_;
  Counter late_;
  Counter busy_;
  Counter received_;
  Counter pulls_served_;
  Counter pulls_refused_;
  Counter pulled_bytes_;
  Gauge running_;
  Gauge open_grants_;
  Gauge quarantined_grants_;
  Gauge granted_;
  Gauge verified_;
  Gauge revoked_;
  Gauge expired_;
  Gauge refused_commits_;
};

}  // namespace baton::decode_node
