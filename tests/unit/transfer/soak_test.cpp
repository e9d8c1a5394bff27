// Tens of thousands of tiny transfers between two processes: neither grows. BATON_SOAK_TRANSFERS
// says how many; the figures go to standard output.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <sstream>

#include "tests/unit/transfer/arena.h"
#include "tests/unit/transfer/paths.h"
#include "tests/unit/transfer/peer_process.h"
#include "transfer/transport.h"

namespace baton::testing {
namespace {

using transfer::DigestMode;
using transfer::LeaseReceiver;

// A process's memory and descriptors.
struct Size {
  double rss_kib = 0;
  std::size_t descriptors = 0;
};

Size size_of(const std::string& process) {
  std::ifstream statm("/proc/" + process + "/statm");
  std::size_t total = 0;
  std::size_t resident = 0;
  statm >> total >> resident;
  const std::filesystem::directory_iterator files("/proc/" + process + "/fd");
  return {static_cast<double>(resident) * static_cast<double>(::getpagesize()) / 1024,
          static_cast<std::size_t>(std::distance(begin(files), end(files)))};
}

// KiB a thousand transfers: the least-squares line through the second half of the samples.
double slope(const std::vector<double>& samples, double transfers_between) {
  const auto first = samples.begin() + static_cast<std::ptrdiff_t>(samples.size() / 2);
  const auto n = static_cast<double>(std::distance(first, samples.end()));
  double x_mean = (n - 1) / 2;
  double y_mean = 0;
  for (auto at = first; at != samples.end(); ++at) {
    y_mean += *at / n;
  }
  double above = 0;
  double below = 0;
  for (auto at = first; at != samples.end(); ++at) {
    const auto x = static_cast<double>(std::distance(first, at)) - x_mean;
    above += x * (*at - y_mean);
    below += x * x;
  }
  return above / below / transfers_between * 1000;
}

class Soak : public ::testing::TestWithParam<std::string> {
 protected:
  static int transfers() {
    const char* wanted = std::getenv("BATON_SOAK_TRANSFERS");  // NOLINT(concurrency-mt-unsafe)
    return wanted != nullptr ? std::atoi(wanted) : 4'000;
  }

  // One block of two layers from the other process, digest and all.
  void transfer_one(int number) {
    const LeaseId lease{0x1000U + static_cast<unsigned>(number), 0x77};
    const auto block = static_cast<std::uint32_t>(number % 64);
    auto landing = transport_->open_lease(lease, Epoch{1}, {{BlockId{block}, 1}}, DigestMode::All);
    prefill_.say(fmt::format("send {:x} {:x} 1 {:x}", lease.high, lease.low, block));
    const auto flushed = prefill_.read();
    ASSERT_TRUE(flushed && flushed->starts_with("flushed ")) << flushed.value_or("nothing");
    transfer::Sent sent{.digest_mode = DigestMode::All};
    std::istringstream(flushed->substr(8)) >> std::hex >> sent.bytes >> sent.digest;
    std::promise<Result<LeaseReceiver::Done>> complete;
    landing->expect(sent,
                    [&](Result<LeaseReceiver::Done> done) { complete.set_value(std::move(done)); });
    const auto done = complete.get_future().get();
    ASSERT_TRUE(done) << done.error().message;
    std::promise<void> fenced;
    landing->revoke([&] { fenced.set_value(); });
    fenced.get_future().get();
  }

  TestArena arena_{small_layout(2, 16), 64};
  std::unique_ptr<transfer::Transport> transport_ =
      std::move(transfer::Transport::create({.transport = GetParam()}, arena_.view())).value();
  std::unique_ptr<transfer::Inlet> inlet_ = std::move(transport_->open_inlet()).value();
  PeerProcess prefill_{std::vector{GetParam()}};
};

TEST_P(Soak, TinyTransfersLeaveNothingBehind) {
  std::string address;
  for (const std::byte b : inlet_->address()) {
    address += fmt::format("{:02x}", std::to_integer<unsigned>(b));
  }
  prefill_.say("connect " + address);
  ASSERT_EQ(prefill_.read(), "connected");
  constexpr int kSamples = 40;
  const int between = std::max(1, transfers() / kSamples);
  std::vector<double> own;
  std::vector<double> other;
  Size first_own;
  Size first_other;
  for (int number = 0; number < kSamples * between; ++number) {
    ASSERT_NO_FATAL_FAILURE(transfer_one(number));
    if ((number + 1) % between == 0) {
      const Size self = size_of("self");
      const Size peer = size_of(std::to_string(prefill_.pid()));
      own.push_back(self.rss_kib);
      other.push_back(peer.rss_kib);
      if (own.size() == kSamples / 2) {
        first_own = self;
        first_other = peer;
      }
    }
  }
  const Size last_own = size_of("self");
  const Size last_other = size_of(std::to_string(prefill_.pid()));
  fmt::print(
      "{}: {} transfers; receiver {:.0f} -> {:.0f} KiB, {:.3f} KiB a thousand, {} descriptors; "
      "sender "
      "{:.0f} -> {:.0f} KiB, {:.3f} KiB a thousand, {} descriptors\n",
      GetParam(),
      kSamples * between,
      first_own.rss_kib,
      last_own.rss_kib,
      slope(own, between),
      last_own.descriptors,
      first_other.rss_kib,
      last_other.rss_kib,
      slope(other, between),
      last_other.descriptors);
  // A leak of one small object a transfer, 64 bytes, would be 62 KiB a thousand.
  EXPECT_LT(last_own.rss_kib - first_own.rss_kib, std::max(256.0, 0.01 * between * kSamples));
  EXPECT_LT(last_other.rss_kib - first_other.rss_kib, std::max(256.0, 0.01 * between * kSamples));
  EXPECT_EQ(last_own.descriptors, first_own.descriptors);
  EXPECT_EQ(last_other.descriptors, first_other.descriptors);
  EXPECT_EQ(transport_->stats().open_leases, 0U);
  EXPECT_EQ(transport_->stats().messages_dropped, 0U);
  EXPECT_EQ(transport_->stats().digest_mismatches, 0U);
}

INSTANTIATE_TEST_SUITE_P(Paths,
                         Soak,
                         ::testing::ValuesIn(tested_paths({"tcp", "shm"})),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace baton::testing
