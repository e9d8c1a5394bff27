// Two real processes: bytes cross, and one of them dies by SIGKILL or is stopped at any moment
// without hurting the other. Where the writer puts, its blocks stay where they are until it says
// that it is quiet or is proven to be.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <future>
#include <optional>
#include <string>

#include "tests/unit/transfer/arena.h"
#include "tests/unit/transfer/paths.h"
#include "tests/unit/transfer/peer_process.h"
#include "transfer/transport.h"

namespace baton::testing {
namespace {

// A transfer_peer; `name` as paths.h says.
class TransferPeer : public PeerProcess {
 public:
  explicit TransferPeer(const std::string& name)
      : PeerProcess({transport_of(name), path_of(name)}) {}
};

std::string hex_of(const transfer::Inlet& inlet) {
  std::string address;
  for (const std::byte b : inlet.address()) {
    address += fmt::format("{:02x}", std::to_integer<unsigned>(b));
  }
  return address;
}

class Processes : public ::testing::TestWithParam<std::string> {
 protected:
  static constexpr std::uint64_t kBlockBytes = 4 * 32768;  // all layers
  std::string lease(int n) const { return fmt::format("{:x} {:x} 1 0 40", 0xabcd + n, 0x1234 + n); }
};

TEST_P(Processes, BytesCross) {
  TransferPeer decode(GetParam());
  TransferPeer prefill(GetParam());
  decode.say("open " + lease(0));
  ASSERT_EQ(decode.read(), "opened");
  prefill.say("connect " + decode.address());
  ASSERT_EQ(prefill.read(), "connected");
  prefill.say("send " + lease(0));
  const auto flushed = prefill.read();
  ASSERT_EQ(flushed, fmt::format("flushed {:x}", 64 * kBlockBytes));
  decode.say(fmt::format("expect {:x}", 64 * kBlockBytes));
  EXPECT_EQ(decode.read(), fmt::format("landed {:x} {}", 64 * kBlockBytes, lane_name(GetParam())));
}

TEST_P(Processes, AReceiverKilledFailsTheSenderWhoThenServesANewOne) {
  TransferPeer prefill(GetParam());
  for (int round = 0; round < 3; ++round) {
    TransferPeer decode(GetParam());
    decode.say("open " + lease(round));
    ASSERT_EQ(decode.read(), "opened");
    prefill.say("connect " + decode.address());
    ASSERT_TRUE(prefill.read_until("connected"));
    if (round < 2) {
      if (transport_of(GetParam()) == "tcp") {
        // A TCP connection that is complete: transfer/README.md says what UCX 1.13 does otherwise.
        prefill.say("send " + lease(100 + round));  // unknown there, so dropped
        ASSERT_TRUE(prefill.read_until("flushed"));
      }
      // Stopped first, so that the send is surely under way when the process dies.
      decode.stop();
      prefill.say("send " + lease(round));
      decode.kill();
      EXPECT_TRUE(prefill.read_until("failed peer_dead"));
    } else {
      prefill.say("send " + lease(round));
      EXPECT_TRUE(prefill.read_until("flushed"));
      decode.say(fmt::format("expect {:x}", 64 * kBlockBytes));
      EXPECT_TRUE(decode.read_until("landed"));
    }
  }
}

TEST_P(Processes, AStoppedReceiversSendIsGivenUpAndANewOneServes) {
  TransferPeer prefill(GetParam());
  TransferPeer stopped(GetParam());
  stopped.say("open " + lease(0));
  ASSERT_EQ(stopped.read(), "opened");
  prefill.say("connect " + stopped.address());
  ASSERT_TRUE(prefill.read_until("connected"));
  stopped.stop();
  prefill.say("send " + lease(0));
  prefill.say("disconnect");
  EXPECT_TRUE(prefill.read_until("quiesced"));
  TransferPeer decode(GetParam());
  decode.say("open " + lease(1));
  ASSERT_EQ(decode.read(), "opened");
  prefill.say("connect " + decode.address());
  ASSERT_TRUE(prefill.read_until("connected"));
  prefill.say("send " + lease(1));
  EXPECT_TRUE(prefill.read_until("flushed"));
}

TEST_P(Processes, ASenderKilledLeavesTheReceiverAble) {
  TransferPeer decode(GetParam());
  for (int round = 0; round < 3; ++round) {
    TransferPeer prefill(GetParam());
    decode.renew_inlet();
    decode.say("open " + lease(round));
    ASSERT_TRUE(decode.read_until("opened"));
    prefill.say("connect " + decode.address());
    ASSERT_TRUE(prefill.read_until("connected"));
    if (round < 2) {
      prefill.say("send " + lease(round));
      prefill.kill();
    } else {
      prefill.say("send " + lease(round));
      EXPECT_TRUE(prefill.read_until("flushed"));
      decode.say(fmt::format("expect {:x}", 64 * kBlockBytes));
      EXPECT_TRUE(decode.read_until("landed"));
    }
  }
}

TEST_P(Processes, ARevokedLeaseIsFencedAfterItsWriterWasKilled) {
  TestArena arena(small_layout(4, 256), 64);
  transfer::TransportOptions options;
  options.transport = transport_of(GetParam());
  options.path = path_of(GetParam());
  const auto transport = std::move(transfer::Transport::create(options, arena.view())).value();
  const int rounds = transport_of(GetParam()) == "rdma" ? 5 : 20;  // verbs run on an emulated CPU
  for (int round = 0; round < rounds; ++round) {
    const auto inlet = std::move(transport->open_inlet()).value();
    const std::string address = hex_of(*inlet);
    auto landing = transport->open_lease(
        LeaseId{0xabcdU + static_cast<unsigned>(round), 0x1234U + static_cast<unsigned>(round)},
        Epoch{1},
        {{BlockId{0}, 64}});
    TransferPeer prefill(GetParam());
    prefill.say("connect " + address);
    ASSERT_TRUE(prefill.read_until("connected"));
    prefill.say("send " + lease(round));
    const auto before = transport->stats().bytes_received;
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (transport->stats().bytes_received == before &&
           std::chrono::steady_clock::now() < limit) {
      ::sched_yield();
    }
    ASSERT_GT(transport->stats().bytes_received, before);
    prefill.kill();
    std::promise<void> fenced;
    landing->revoke([&] { fenced.set_value(); });
    ASSERT_EQ(fenced.get_future().wait_for(std::chrono::seconds(60)), std::future_status::ready);
    arena.fill_byte(std::byte{0x11});
    EXPECT_TRUE(arena.is_filled_with(0, BlockId{0}, std::byte{0x11}));
  }
}

INSTANTIATE_TEST_SUITE_P(Paths,
                         Processes,
                         ::testing::ValuesIn(tested_paths({"tcp", "shm", "shm_put"})),
                         [](const auto& info) { return info.param; });

// A receiver in this process, and a writer in another one that puts again and again into a lease
// that is revoked meanwhile.
class Putting : public Processes {
 protected:
  Putting() : arena_(small_layout(4, 256), 64), writer_(GetParam()) {
    transfer::TransportOptions options;
    options.transport = transport_of(GetParam());
    options.path = path_of(GetParam());
    transport_ = std::move(transfer::Transport::create(options, arena_.view())).value();
    connect();
    lease_ = transport_->open_lease(LeaseId{0xabcd, 0x1234}, Epoch{1}, {{BlockId{0}, 64}});
    writer_.say("keep " + lease(0));
    EXPECT_TRUE(writer_.read_until("keeping"));
    expect_writing();
  }
  ~Putting() override { writer_.kill(); }

  void connect() {
    inlet_ = std::move(transport_->open_inlet()).value();
    writer_.say("connect " + hex_of(*inlet_));
    EXPECT_TRUE(writer_.read_until("connected"));
  }
  void revoke() {
    lease_->revoke([this] { fenced_.set_value(); });
  }
  // Returns once the writer has written after the call.
  void expect_writing() {
    std::byte* const at = arena_.view().block(3, BlockId{63});
    std::atomic_ref<std::byte> first(*at);
    const std::byte wanted = first.load() == std::byte{0x11} ? std::byte{0x22} : std::byte{0x11};
    first.store(wanted);
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (first.load() == wanted && std::chrono::steady_clock::now() < limit) {
      ::sched_yield();
    }
    EXPECT_NE(first.load(), wanted);
  }
  bool is_fenced(std::chrono::milliseconds within = kHang) {
    return fence_.wait_for(within) == std::future_status::ready;
  }
  // After the fence the blocks belong to somebody else.
  void expect_untouched_from_now() {
    arena_.fill_byte(std::byte{0x77});
    TransferPeer another(GetParam());
    auto inlet = std::move(transport_->open_inlet()).value();
    auto next = transport_->open_lease(LeaseId{0xabce, 0x1235}, Epoch{1}, {{BlockId{0}, 1}});
    another.say("connect " + hex_of(*inlet));
    ASSERT_TRUE(another.read_until("connected"));
    another.say("send abce 1235 1 0 1");
    ASSERT_TRUE(another.read_until("flushed"));
    for (std::uint32_t block = 1; block < 64; ++block) {
      ASSERT_TRUE(arena_.is_filled_with(3, BlockId{block}, std::byte{0x77}));
    }
  }

  static constexpr std::chrono::milliseconds kHang{30'000};
  // Longer than any limit of a transport's own.
  static constexpr std::chrono::milliseconds kLong{2'000};
  TestArena arena_;
  TransferPeer writer_;
  std::unique_ptr<transfer::Transport> transport_;
  std::unique_ptr<transfer::Inlet> inlet_;
  std::unique_ptr<transfer::LeaseReceiver> lease_;
  std::promise<void> fenced_;
  std::future<void> fence_ = fenced_.get_future();
};

TEST_P(Putting, ARevokedLeaseWaitsForTheWritersWord) {
  revoke();
  expect_writing();  // it does go on
  EXPECT_FALSE(is_fenced(kLong));
  expect_writing();
  writer_.say("abort");
  ASSERT_TRUE(writer_.read_until("quiesced"));
  ASSERT_TRUE(is_fenced());
  expect_untouched_from_now();
}

TEST_P(Putting, AStoppedWriterFencesNothingUntilItGoesOnAndSaysSo) {
  writer_.stop();
  revoke();
  EXPECT_FALSE(is_fenced(kLong));
  writer_.go_on();
  expect_writing();
  EXPECT_FALSE(is_fenced(std::chrono::milliseconds(0)));
  writer_.say("abort");
  ASSERT_TRUE(writer_.read_until("quiesced"));
  ASSERT_TRUE(is_fenced());
  expect_untouched_from_now();
}

TEST_P(Putting, AKilledWriterIsQuiet) {
  revoke();
  expect_writing();
  EXPECT_FALSE(is_fenced(std::chrono::milliseconds(0)));
  writer_.kill();
  if (transport_of(GetParam()) == "rdma") {
    inlet_.reset();  // the control connection has broken: no queue pair, no write
  }
  ASSERT_TRUE(is_fenced());
  expect_untouched_from_now();
}

TEST_P(Putting, AStoppedWriterThatIsKilledIsQuiet) {
  writer_.stop();
  revoke();
  EXPECT_FALSE(is_fenced(kLong));
  writer_.kill();
  if (transport_of(GetParam()) == "rdma") {
    inlet_.reset();
  }
  ASSERT_TRUE(is_fenced());
  expect_untouched_from_now();
}

TEST_P(Putting, ALostWriterIsFencedByItsInletOrByItsNextConnection) {
  writer_.stop();
  revoke();
  inlet_.reset();
  if (transport_of(GetParam()) == "rdma") {
    ASSERT_TRUE(is_fenced());
    expect_untouched_from_now();
    writer_.go_on();
    return;
  }
  // Its mapping has outlived the connection.
  EXPECT_FALSE(is_fenced(kLong));
  writer_.go_on();
  expect_writing();
  writer_.say("abort");
  ASSERT_TRUE(writer_.read_until("quiesced"));
  EXPECT_FALSE(is_fenced(std::chrono::milliseconds(0)));  // nobody was there to hear it
  connect();
  ASSERT_TRUE(is_fenced());
  expect_untouched_from_now();
}

INSTANTIATE_TEST_SUITE_P(Paths,
                         Putting,
                         ::testing::ValuesIn(tested_put_paths()),
                         [](const auto& info) { return info.param; });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Putting);

}  // namespace
}  // namespace baton::testing
