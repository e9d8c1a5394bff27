// Unique long prompts for minutes: does the gateway's memory stay where it is?
#include <algorithm>
#include <vector>

#include "bench/gateway/chat_bodies.h"
#include "bench/gateway/gateway_bench.h"
#include "bench/gateway/scripted_nodes.h"
#include "common/base/random.h"

namespace baton::bench {
namespace {

constexpr std::size_t kPromptBytes = 100'000;
constexpr double kRate = 10;
constexpr double kSoakPatience = 5;
constexpr double kWarmShare = 0.25;  // of the time, before memory counts

// Of y over x, least squares.
double slope(const std::vector<double>& x, const std::vector<double>& y) {
  double mean_x = 0;
  double mean_y = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    mean_x += x[i] / static_cast<double>(x.size());
    mean_y += y[i] / static_cast<double>(x.size());
  }
  double above = 0;
  double below = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    above += (x[i] - mean_x) * (y[i] - mean_y);
    below += (x[i] - mean_x) * (x[i] - mean_x);
  }
  return below > 0 ? above / below : 0;
}

}  // namespace

Result<SoakRow> measure_soak(const GatewayBenchOptions& options) {
  BATON_ASSIGN(const auto rig, GatewayRig::start(options.rig, NodePace{}));
  LoadClient client(rig->api(), std::string(kAnswerMark));
  const RandomSource random = seeded_random(1);
  std::uint64_t number = 0;
  std::vector<double> minutes;
  std::vector<double> rss;
  const Nanoseconds begin = now_ns();
  SoakRow row;
  for (unsigned second = 0; second < options.soak_seconds; ++second) {
    BATON_TRY(client.open_loop(kRate, 1, kSoakPatience, random, [&](std::uint64_t) {
      return chat_post(rig->api(), chat_body(kPromptBytes, ++number, 1));
    }));
    for (const LoadAnswer& answer : client.take_answers()) {
      ++row.requests;
      row.failed += answer.status == 200 && answer.is_whole && answer.marks == 1 ? 0 : 1;
    }
    if (second >= kWarmShare * options.soak_seconds) {
      minutes.push_back(static_cast<double>(now_ns() - begin) * 1e-9 / 60);
      rss.push_back(rig->use().rss_kib);
    }
  }
  row.seconds = static_cast<double>(now_ns() - begin) * 1e-9;
  row.start_kib = rss.front();
  row.end_kib = rss.back();
  row.slope_kib_per_min = slope(minutes, rss);
  return row;
}

}  // namespace baton::bench
