// Control connections with certificates on both sides, over real sockets.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <future>
#include <string>
#include <thread>

#include "common/exec/asio_executor.h"
#include "common/exec/mailbox.h"
#include "common/rpc/control_tls.h"
#include "common/rpc/tcp_network.h"
#include "tests/support/tls_client.h"

namespace baton {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
constexpr milliseconds kPatience{20'000};

class RpcTls : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(folder_);
    make("ours");
    make("theirs");
  }
  void TearDown() override {
    client_thread_.run_and_wait([this] {
      dial_.reset();
      client_.reset();
    });
    server_thread_.run_and_wait([this] {
      channels_.clear();
      listener_.reset();
    });
    std::filesystem::remove_all(folder_);
  }

  // A certificate that is its own authority.
  void make(const std::string& name) const {
    testing::write_certificate(file(name + ".pem"), file(name + ".key"), name);
  }
  std::string file(const std::string& name) const { return folder_ + "/" + name; }
  ControlTlsFiles files(const std::string& name, const std::string& authority) const {
    return {file(name + ".pem"), file(name + ".key"), file(authority + ".pem")};
  }
  RpcOptions options(const std::string& name, const std::string& authority) {
    RpcOptions options;
    options.hello_timeout = kPatience;
    if (!name.empty()) {
      auto tls = ControlTls::load(files(name, authority), log_);
      EXPECT_TRUE(tls) << tls.error().message;
      options.tls = *tls;
    }
    return options;
  }

  void listen(RpcOptions options) {
    options.refused = RefusedProbe(metrics_);
    server_thread_.run_and_wait([&] {
      server_.emplace(server_thread_.executor(), log_, std::move(options));
      auto listener = server_->listen(
          "127.0.0.1:0",
          [](const wire::Hello&) { return wire::Welcome(); },
          [this](std::unique_ptr<Channel> channel, const wire::Hello& hello) {
            channel->set_handlers(
                [raw = channel.get()](const wire::Frame& frame) {
                  wire::Frame reply;
                  *reply.mutable_cancel() = frame.cancel();
                  raw->answer(frame, std::move(reply));
                },
                [](const Error&) {});
            channels_.push_back(std::move(channel));
            greeted_.put(hello.node());
          });
      ASSERT_TRUE(listener) << listener.error().message;
      listener_ = std::move(*listener);
    });
  }

  Result<wire::Welcome> dial(const RpcOptions& options) {
    std::promise<Result<wire::Welcome>> done;
    client_thread_.run_and_wait([&] {
      network_.emplace(client_thread_.executor(), log_, options);
      wire::Hello hello;
      hello.set_node("client");
      dial_ = network_->dial(
          listener_->address(), std::move(hello), kPatience, [&](Result<Dialed> result) {
            if (!result) {
              return done.set_value(std::unexpected(result.error()));
            }
            client_ = std::move(result->channel);
            done.set_value(std::move(result->welcome));
          });
    });
    return done.get_future().get();
  }

  // A call whose answer brings `size` bytes back.
  Result<wire::Frame> echo(std::size_t size) {
    std::promise<Result<wire::Frame>> done;
    client_thread_.run_and_wait([&] {
      wire::Frame frame;
      frame.mutable_cancel()->set_reason(std::string(size, 'x'));
      client_->call(std::move(frame), kPatience, [&](Result<wire::Frame> answer) {
        done.set_value(std::move(answer));
      });
    });
    return done.get_future().get();
  }

  // The server counts when its own handshake has failed, of which the client may hear before.
  bool counts_one(const std::string& why) const {
    const std::string line = "baton_control_refused_total{why=\"" + why + "\"} 1";
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (!metrics_.to_text().contains(line)) {
      if (std::chrono::steady_clock::now() > end) {
        return false;
      }
      std::this_thread::yield();
    }
    return true;
  }

  const std::string folder_ = ::testing::TempDir() + "/baton_rpc_tls_" + std::to_string(::getpid());
  const Logger log_ = Logger::silent();
  Metrics metrics_;
  Mailbox<std::string> greeted_;
  ControlThread server_thread_{"server"};
  ControlThread client_thread_{"client"};
  std::optional<TcpNetwork> server_;
  std::optional<TcpNetwork> network_;
  std::unique_ptr<Listener> listener_;
  std::vector<std::unique_ptr<Channel>> channels_;
  std::unique_ptr<Dial> dial_;
  std::unique_ptr<Channel> client_;
};

TEST_F(RpcTls, GreetsAndCallsWithLargeFramesToo) {
  listen(options("ours", "ours"));
  const auto welcome = dial(options("ours", "ours"));
  ASSERT_TRUE(welcome) << welcome.error().message;
  for (const std::size_t size : {std::size_t{1}, std::size_t{3} << 20}) {
    const auto answer = echo(size);
    ASSERT_TRUE(answer) << answer.error().message;
    EXPECT_EQ(answer->cancel().reason(), std::string(size, 'x'));
  }
}

TEST_F(RpcTls, AClientOfAnotherAuthorityIsTurnedAwayAndCounted) {
  listen(options("ours", "ours"));
  const auto welcome = dial(options("theirs", "ours"));
  ASSERT_FALSE(welcome);
  EXPECT_EQ(welcome.error().code, ErrorCode::Unauthorized) << welcome.error().message;
  EXPECT_THAT(welcome.error().message, HasSubstr("cluster.tls"));
  EXPECT_TRUE(greeted_.take_all().empty());
  EXPECT_TRUE(counts_one("untrusted")) << metrics_.to_text();
}

TEST_F(RpcTls, AServerOfAnotherAuthorityIsNotGreeted) {
  listen(options("theirs", "ours"));
  const auto welcome = dial(options("ours", "ours"));
  ASSERT_FALSE(welcome);
  EXPECT_EQ(welcome.error().code, ErrorCode::Unauthorized) << welcome.error().message;
  EXPECT_TRUE(greeted_.take_all().empty());
}

TEST_F(RpcTls, PlainTcpIsTurnedAway) {
  listen(options("ours", "ours"));
  EXPECT_FALSE(dial(options("", "")));
  EXPECT_TRUE(greeted_.take_all().empty());
  EXPECT_TRUE(counts_one("untrusted")) << metrics_.to_text();
}

TEST_F(RpcTls, TlsAtAPlainServerSaysWhatIsMissing) {
  listen(options("", ""));
  const auto welcome = dial(options("ours", "ours"));
  ASSERT_FALSE(welcome);
  EXPECT_TRUE(counts_one("malformed")) << metrics_.to_text();
}

TEST_F(RpcTls, OneThatDiesIsGoneAndNotUntrusted) {
  listen(options("ours", "ours"));
  ASSERT_TRUE(dial(options("ours", "ours")));
  ASSERT_TRUE(echo(1));
  std::promise<Error> gone;
  client_thread_.run_and_wait([&] {
    client_->set_handlers([](const wire::Frame&) {},
                          [&](const Error& why) { gone.set_value(why); });
  });
  server_thread_.run_and_wait([this] { channels_.clear(); });  // no goodbye in TLS
  EXPECT_EQ(gone.get_future().get().code, ErrorCode::PeerDead);
}

TEST_F(RpcTls, NewCertificatesAreTakenForTheNextConnection) {
  const RpcOptions mine = options("ours", "ours");
  listen(mine);
  ASSERT_TRUE(dial(mine));
  std::filesystem::copy_file(
      file("theirs.pem"), file("ours.pem"), std::filesystem::copy_options::overwrite_existing);
  std::filesystem::copy_file(
      file("theirs.key"), file("ours.key"), std::filesystem::copy_options::overwrite_existing);
  EXPECT_TRUE(dial(options("theirs", "theirs"))) << "the listener kept its old certificate";
}

TEST_F(RpcTls, FilesThatAreWrongAreNamed) {
  ControlTlsFiles section = files("ours", "ours");
  section.key = file("none.key");
  const auto none = ControlTls::load(section, log_);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, ErrorCode::InvalidConfig);
  EXPECT_THAT(none.error().message, HasSubstr("cluster.tls.key: " + section.key));
  section.key = file("theirs.key");
  const auto other = ControlTls::load(section, log_);
  ASSERT_FALSE(other) << "a key of another certificate";
  EXPECT_THAT(other.error().message, HasSubstr("cluster.tls.key"));
  const auto off = ControlTls::load({}, log_);
  ASSERT_TRUE(off);
  EXPECT_EQ(*off, nullptr);
}

}  // namespace
}  // namespace baton
