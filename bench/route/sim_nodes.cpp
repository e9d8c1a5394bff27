#include "bench/route/sim_nodes.h"

#include <algorithm>

namespace baton::bench {
namespace {

double between(Noise& noise, double low, double high) {
  return low + (high - low) * noise.uniform();
}

// Rarely something else gets in the way.
double hiccup(Noise& noise) {
  return noise.uniform() < 0.01 ? 3 : 1;
}

std::uint32_t blocks_for(std::uint32_t tokens) {
  return (tokens + kTraceBlock - 1) / kTraceBlock;
}

}  // namespace

SimPrefill::SimPrefill(Noise& noise, std::size_t cache_blocks)
    : cache(cache_blocks),
      speed_(between(noise, 7'500, 11'000)),
      attention_(between(noise, 4e-9, 7e-9)) {}

double SimPrefill::begin(SimJob& job, double link_bytes_per_s, Noise& noise) {
  const std::uint32_t input = job.request->input_length;
  const auto blocks = static_cast<std::uint32_t>(cache.held(job.request->blocks));
  job.held = std::min(blocks * kTraceBlock, input - 1);
  double seconds = 0.004;
  const std::uint32_t theirs = std::min(job.theirs, input - 1);
  if (theirs > job.held) {
    const double pull = 0.002 + (theirs - job.held) * kTokenBytes / link_bytes_per_s;
    if (pull < (theirs - job.held) / speed_) {
      job.pulled = theirs - job.held;
      seconds += pull * noise.factor(0.2);
    }
  }
  const double first = input - job.to_compute();
  const double meetings = (static_cast<double>(input) * input - first * first) / 2;
  job.compute_s =
      (job.to_compute() / speed_ + meetings * attention_) * noise.factor(0.1) * hiccup(noise);
  const double rate = job.to_compute() / job.compute_s;
  tokens_per_s = tokens_per_s == 0 ? rate : 0.8 * tokens_per_s + 0.2 * rate;
  return seconds + job.compute_s;
}

void SimPrefill::end(const SimJob& job) {
  cache.use(job.request->blocks);
}

SimDecode::SimDecode(Noise& noise, std::size_t blocks)
    : cache(blocks), blocks_(blocks), slowness_(between(noise, 0.85, 1.15)) {}

bool SimDecode::grant(SimJob& job) {
  job.blocks = blocks_for(job.request->input_length + job.request->output_length);
  if (job.blocks > blocks_free()) {
    return false;
  }
  job.theirs = static_cast<std::uint32_t>(cache.held(job.request->blocks)) * kTraceBlock;
  granted_ += job.blocks;
  cache.resize(blocks_free());
  return true;
}

void SimDecode::release(const SimJob& job) {
  granted_ -= job.blocks;
  cache.resize(blocks_free());
  cache.use(job.request->blocks);
}

double SimDecode::step_seconds(std::size_t batch, std::uint64_t context_tokens, Noise& noise) {
  const double seconds =
      slowness_ *
      (0.007 + 0.0003 * static_cast<double>(batch) + 2e-8 * static_cast<double>(context_tokens)) *
      noise.factor(0.08) * hiccup(noise);
  ++steps;
  step_s = step_s == 0 ? seconds : 0.9 * step_s + 0.1 * seconds;
  return seconds;
}

double link_bytes_per_s(std::uint32_t prefill, std::uint32_t decode, std::uint64_t seed) {
  Noise noise(seed ^ (std::uint64_t{prefill} << 32U) ^ decode);
  return between(noise, 5e9, 12e9);
}

double exposed_seconds(const SimJob& job, double link_bytes_per_s) {
  const double whole = job.moved() * kTokenBytes / link_bytes_per_s;
  return std::max(whole - job.compute_s, 0.06 * whole);
}

}  // namespace baton::bench
