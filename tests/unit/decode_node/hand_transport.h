// A data plane that answers only when the test tells it to.
//
// Owner: a test. Thread: the test's. Failure: what a grant table never asks of it is an error.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "transfer/transport.h"

namespace baton::decode_node {

// Remembers what was asked of it; the test completes it by hand.
class HandReceiver final : public transfer::LeaseReceiver {
 public:
  struct Calls {
    std::function<void(Result<Done>)> complete;
    std::function<void()> fenced;
    transfer::Sent expected;
    bool is_dropped = false;
  };
  explicit HandReceiver(Calls& calls) : calls_(calls) {}
  ~HandReceiver() override { calls_.is_dropped = true; }
  void expect(const transfer::Sent& sent, std::function<void(Result<Done>)> complete) override {
    calls_.expected = sent;
    calls_.complete = std::move(complete);
  }
  void revoke(std::function<void()> fenced) override { calls_.fenced = std::move(fenced); }

 private:
  Calls& calls_;
};

class HandTransport final : public transfer::Transport {
 public:
  std::string ucx_version() const override { return "none"; }
  Result<std::unique_ptr<transfer::Inlet>> open_inlet() override {
    return fail(ErrorCode::Internal, "not here");
  }
  std::unique_ptr<transfer::LeaseReceiver> open_lease(LeaseId,
                                                      Epoch,
                                                      std::vector<BlockRun> runs,
                                                      transfer::DigestMode digest) override {
    last_digest = digest;
    last_runs = std::move(runs);
    calls.push_back(std::make_unique<HandReceiver::Calls>());
    return std::make_unique<HandReceiver>(*calls.back());
  }
  Result<std::shared_ptr<transfer::Peer>> connect(std::span<const std::byte>,
                                                  std::function<void(Error)>) override {
    return fail(ErrorCode::Internal, "not here");
  }
  Result<std::unique_ptr<transfer::LeaseSender>> begin(std::shared_ptr<transfer::Peer>,
                                                       const KvGrant&,
                                                       transfer::DigestMode) override {
    return fail(ErrorCode::Internal, "not here");
  }
  transfer::TransportStats stats() const override { return {}; }
  void stop() override {}

  std::vector<std::unique_ptr<HandReceiver::Calls>> calls;
  std::vector<BlockRun> last_runs;
  transfer::DigestMode last_digest = transfer::DigestMode::Off;
};

}  // namespace baton::decode_node
