// Control connections over real sockets on port 0.
#include <google/protobuf/stubs/logging.h>
#include <gtest/gtest.h>

#include <boost/asio/connect.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <future>

#include "common/base/host_port.h"
#include "common/exec/asio_executor.h"
#include "common/exec/mailbox.h"
#include "common/rpc/frame_codec.h"
#include "common/rpc/peer_link.h"
#include "common/rpc/tcp_network.h"
#include "common/wire/convert.h"

namespace baton {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kLong{20'000};

wire::Hello hello_of(const std::string& node) {
  wire::Hello hello;
  hello.set_node(node);
  return hello;
}

wire::Frame cancel_frame(std::uint64_t request, std::size_t padding = 0) {
  wire::Frame frame;
  frame.mutable_cancel()->set_request(request);
  frame.mutable_cancel()->set_reason(std::string(padding, 'x'));
  return frame;
}

// A listening side and a dialling side, each with its own thread.
class RpcTcp : public ::testing::Test {
 protected:
  void TearDown() override {
    on_client([this] {
      dial_.reset();
      client_.reset();
    });
    on_server([this] {
      server_channels_.clear();
      listener_.reset();
    });
  }

  void on_server(Task task) { server_thread_.run_and_wait(std::move(task)); }
  void on_client(Task task) { client_thread_.run_and_wait(std::move(task)); }

  void listen(RpcOptions options = {}, HelloHandler on_hello = {}) {
    if (!on_hello) {
      on_hello = [](const wire::Hello&) {
        wire::Welcome welcome;
        welcome.set_node("server");
        return welcome;
      };
    }
    on_server([&] {
      server_network_.emplace(server_thread_.executor(), log_, options);
      auto listener = server_network_->listen(
          "127.0.0.1:0",
          std::move(on_hello),
          [this](std::unique_ptr<Channel> channel, wire::Hello hello) {
            channel->set_handlers(
                [this, raw = channel.get()](wire::Frame frame) { serve(*raw, std::move(frame)); },
                [this](Error error) { server_ends_.put(std::move(error)); });
            server_channels_.push_back(std::move(channel));
            greeted_.put(hello.node());
          });
      ASSERT_TRUE(listener) << listener.error().message;
      listener_ = std::move(*listener);
      address_ = listener_->address();
    });
  }

  // Answers Reserve with Granted, Commit with an error, nothing else.
  void serve(Channel& channel, wire::Frame frame) {
    if (frame.has_reserve()) {
      wire::Frame reply;
      reply.mutable_granted()->mutable_grant()->set_node("server");
      channel.answer(frame, std::move(reply));
    } else if (frame.has_commit()) {
      channel.answer_error(frame, Error{ErrorCode::GrantRevoked, "the lease has ended"});
    } else {
      frames_.put(std::move(frame));
    }
  }

  Result<wire::Welcome> dial(milliseconds timeout = kLong) {
    std::promise<Result<wire::Welcome>> done;
    on_client([&] {
      dial_ =
          client_network_.dial(address_, hello_of("client"), timeout, [&](Result<Dialed> result) {
            if (!result) {
              done.set_value(std::unexpected(result.error()));
              return;
            }
            client_ = std::move(result->channel);
            client_->set_handlers(
                [this](wire::Frame frame) { client_frames_.put(std::move(frame)); },
                [this](Error error) { client_ends_.put(std::move(error)); });
            done.set_value(std::move(result->welcome));
          });
    });
    return done.get_future().get();
  }

  Result<wire::Frame> call(wire::Frame frame, milliseconds timeout = kLong) {
    std::promise<Result<wire::Frame>> done;
    on_client([&] {
      client_->call(std::move(frame), timeout, [&](Result<wire::Frame> result) {
        done.set_value(std::move(result));
      });
    });
    return done.get_future().get();
  }

  // A peer that speaks no protocol.
  boost::asio::ip::tcp::socket raw_socket() {
    boost::asio::ip::tcp::socket socket(raw_context_);
    const auto parsed = HostPort::parse(address_);
    socket.connect({boost::asio::ip::make_address(parsed->host), parsed->port});
    return socket;
  }
  // Waits until the other side has closed.
  static void wait_for_end(boost::asio::ip::tcp::socket& socket) {
    std::array<char, 1024> buffer;
    boost::system::error_code error;
    while (!error) {
      socket.read_some(boost::asio::buffer(buffer), error);
    }
  }
  ListenerStats stats() {
    ListenerStats stats;
    on_server([&] { stats = listener_->stats(); });
    return stats;
  }

  Logger log_ = Logger::silent();
  boost::asio::io_context raw_context_;
  Mailbox<std::string> greeted_;
  Mailbox<wire::Frame> frames_;         // at the server
  Mailbox<wire::Frame> client_frames_;  // at the client
  Mailbox<Error> server_ends_;
  Mailbox<Error> client_ends_;
  ControlThread server_thread_{"server"};
  ControlThread client_thread_{"client"};
  std::optional<TcpNetwork> server_network_;
  TcpNetwork client_network_{client_thread_.executor(), log_};
  std::unique_ptr<Listener> listener_;
  std::vector<std::unique_ptr<Channel>> server_channels_;
  std::unique_ptr<Dial> dial_;
  std::unique_ptr<Channel> client_;
  std::string address_;
};

TEST_F(RpcTcp, GreetsAndCalls) {
  listen();
  const auto welcome = dial();
  ASSERT_TRUE(welcome) << welcome.error().message;
  EXPECT_EQ(welcome->node(), "server");
  EXPECT_EQ(greeted_.wait_all(), std::vector<std::string>{"client"});
  wire::Frame frame;
  frame.mutable_reserve();
  const auto answer = call(std::move(frame));
  ASSERT_TRUE(answer) << answer.error().message;
  EXPECT_EQ(answer->granted().grant().node(), "server");
}

TEST_F(RpcTcp, RefusingAnswerBecomesItsError) {
  listen();
  ASSERT_TRUE(dial());
  wire::Frame frame;
  frame.mutable_commit();
  const auto answer = call(std::move(frame));
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, ErrorCode::GrantRevoked);
  EXPECT_EQ(answer.error().message, "the lease has ended");
}

TEST_F(RpcTcp, UnansweredCallTimesOut) {
  listen();
  ASSERT_TRUE(dial());
  const auto answer = call(cancel_frame(1), milliseconds(20));
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, ErrorCode::Timeout);
}

TEST_F(RpcTcp, LostPeerFailsOpenCallsThenCloses) {
  listen();
  ASSERT_TRUE(dial());
  std::vector<std::string> order;
  Mailbox<int> over;
  on_client([&] {
    client_->set_handlers([](wire::Frame) {},
                          [&](const Error& error) {
                            order.push_back("closed " + std::string(to_string(error.code)));
                            over.put(1);
                          });
    for (int i = 0; i < 2; ++i) {
      client_->call(cancel_frame(1), kLong, [&](const Result<wire::Frame>& result) {
        order.push_back("call " + std::string(to_string(result.error().code)));
      });
    }
  });
  frames_.wait_all();
  on_server([&] { server_channels_.clear(); });
  over.wait_all();
  EXPECT_EQ(order,
            (std::vector<std::string>{"call peer_dead", "call peer_dead", "closed peer_dead"}));
  on_client([&] { EXPECT_FALSE(client_->is_open()); });
  const auto late = call(cancel_frame(2));
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, ErrorCode::PeerDead);
}

TEST_F(RpcTcp, AbortFailsOpenCallsWithItsReason) {
  listen();
  ASSERT_TRUE(dial());
  std::promise<Error> failed;
  on_client([&] {
    client_->call(cancel_frame(1), kLong, [&](const Result<wire::Frame>& result) {
      failed.set_value(result.error());
    });
    client_->abort(Error{ErrorCode::PeerStalled, "no heartbeat"});
  });
  EXPECT_EQ(failed.get_future().get().code, ErrorCode::PeerStalled);
  EXPECT_EQ(client_ends_.wait_all().front().message, "no heartbeat");
}

TEST_F(RpcTcp, ClosedChannelCallsNobodyAndStillDelivers) {
  listen();
  ASSERT_TRUE(dial());
  bool called = false;
  on_client([&] {
    client_->call(
        cancel_frame(7), milliseconds(1), [&](const Result<wire::Frame>&) { called = true; });
    for (int i = 0; i < 100; ++i) {
      client_->send(cancel_frame(8, 10'000));
    }
    client_.reset();
  });
  std::size_t got = 0;
  while (got < 101) {
    got += frames_.wait_all().size();
  }
  EXPECT_EQ(server_ends_.wait_all().front().code, ErrorCode::PeerDead);
  on_client([] {});
  EXPECT_FALSE(called);
  EXPECT_TRUE(client_ends_.take_all().empty());
}

TEST_F(RpcTcp, TenThousandFramesArriveInOrder) {
  listen();
  ASSERT_TRUE(dial());
  constexpr std::uint64_t kCount = 10'000;
  on_client([&] {
    for (std::uint64_t i = 0; i < kCount; ++i) {
      client_->send(cancel_frame(i, i % 700));
    }
  });
  std::uint64_t next = 0;
  while (next < kCount) {
    for (const auto& frame : frames_.wait_all()) {
      ASSERT_EQ(frame.cancel().request(), next);
      ++next;
    }
  }
}

TEST_F(RpcTcp, ManyCallsAtOnceGetTheirOwnAnswers) {
  listen();
  ASSERT_TRUE(dial());
  Mailbox<bool> answers;
  on_client([&] {
    for (int i = 0; i < 2000; ++i) {
      wire::Frame frame;
      if (i % 2 == 0) {
        frame.mutable_reserve();
      } else {
        frame.mutable_commit();
      }
      client_->call(std::move(frame), kLong, [&answers, i](const Result<wire::Frame>& result) {
        answers.put(result.has_value() == (i % 2 == 0));
      });
    }
  });
  std::size_t right = 0;
  while (right < 2000) {
    for (const bool ok : answers.wait_all()) {
      ASSERT_TRUE(ok);
      ++right;
    }
  }
}

TEST_F(RpcTcp, OversizeFrameEndsTheSendersConnection) {
  listen();
  ASSERT_TRUE(dial());
  on_client([&] { client_->send(cancel_frame(1, kMaxFrameBytes)); });
  EXPECT_EQ(client_ends_.wait_all().front().code, ErrorCode::InvalidArgument);
  EXPECT_EQ(server_ends_.wait_all().front().code, ErrorCode::PeerDead);
}

TEST_F(RpcTcp, OversizeCallFailsAlone) {
  listen();
  ASSERT_TRUE(dial());
  const auto answer = call(cancel_frame(1, kMaxFrameBytes));
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, ErrorCode::InvalidArgument);
  wire::Frame frame;
  frame.mutable_reserve();
  EXPECT_TRUE(call(std::move(frame))) << "the connection must live on";
}

TEST_F(RpcTcp, SlowReaderLosesItsConnectionInsteadOfOurMemory) {
  RpcOptions options;
  options.max_queued_bytes = std::size_t{4} << 20;
  listen(options);
  auto socket = raw_socket();
  std::string bytes;
  wire::Frame frame;
  *frame.mutable_hello() = hello_of("slow");
  ASSERT_TRUE(encode_frame(frame, bytes));
  boost::asio::write(socket, boost::asio::buffer(bytes));
  greeted_.wait_all();
  std::size_t most = 0;
  std::vector<Error> ends;
  while (ends.empty()) {
    on_server([&] {
      auto& channel = *server_channels_.front();
      channel.send(cancel_frame(1, 500'000));
      most = std::max(most, channel.is_open() ? channel.queued_bytes() : 0);
    });
    ends = server_ends_.take_all();
  }
  EXPECT_EQ(ends.front().code, ErrorCode::PeerStalled);
  EXPECT_LE(most, options.max_queued_bytes);
}

TEST_F(RpcTcp, RefusedHelloNamesTheField) {
  listen({}, [](const wire::Hello&) {
    wire::Refusal refusal;
    refusal.set_code("mismatch");
    refusal.set_field("model.layout_hash");
    refusal.set_message("layouts differ");
    return refusal;
  });
  const auto welcome = dial();
  ASSERT_FALSE(welcome);
  EXPECT_EQ(welcome.error().code, ErrorCode::Mismatch);
  EXPECT_EQ(welcome.error().message, address_ + " refused: model.layout_hash: layouts differ");
  EXPECT_EQ(stats().refused, 1U);
  EXPECT_TRUE(greeted_.take_all().empty());
}

TEST_F(RpcTcp, GarbageBeforeHelloClosesAndCounts) {
  listen();
  const std::vector<std::string> garbage{
      "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
      std::string("\xff\xff\xff\xff", 4),
      std::string("\x03\x00\x00\x00\xff\xff\xff", 7),             // no message
      std::string("\x00\x00\x00\x00", 4),                         // a frame without a body
      std::string("\x01\x00\x01\x00", 4) + std::string(10, 'x'),  // a Hello over 64 KiB
  };
  for (const auto& bytes : garbage) {
    auto socket = raw_socket();
    boost::system::error_code ignored;
    boost::asio::write(socket, boost::asio::buffer(bytes), ignored);
    wait_for_end(socket);
  }
  // The socket closes a moment before the listener is told.
  while (stats().malformed < garbage.size()) {
  }
  EXPECT_EQ(stats().malformed, garbage.size());
  ASSERT_TRUE(dial()) << "the listener must go on";
}

TEST_F(RpcTcp, GarbageAfterHelloEndsTheConnection) {
  listen();
  wire::Frame frame;
  *frame.mutable_hello() = hello_of("turncoat");
  std::string hello;
  ASSERT_TRUE(encode_frame(frame, hello));
  frame.Clear();
  *frame.mutable_commit() = wire::Commit();
  std::string commit;
  ASSERT_TRUE(encode_frame(frame, commit));
  const std::vector<std::string> garbage{
      std::string("\x01\x00\x40\x00", 4) + std::string(100, 'x'),    // a frame over 4 MiB
      std::string("\x03\x00\x00\x00\xff\xff\xff", 7),                // no message
      commit.substr(0, 4) + std::string(commit.size() - 4, '\x07'),  // a Commit's length, no Commit
  };
  for (const auto& bytes : garbage) {
    auto socket = raw_socket();
    boost::system::error_code ignored;
    boost::asio::write(socket, boost::asio::buffer(hello + bytes), ignored);
    wait_for_end(socket);
    EXPECT_EQ(server_ends_.wait_all().front().code, ErrorCode::ProtocolError);
  }
  // A frame that is cut off ends with its connection, and nothing of it is served.
  auto socket = raw_socket();
  boost::asio::write(socket, boost::asio::buffer(hello + commit.substr(0, commit.size() - 1)));
  boost::system::error_code ignored;
  socket.shutdown(boost::asio::ip::tcp::socket::shutdown_send, ignored);
  wait_for_end(socket);
  EXPECT_TRUE(frames_.take_all().empty());
  ASSERT_TRUE(dial()) << "the listener must go on";
}

TEST_F(RpcTcp, RandomBytesNeverStopTheListener) {
  const google::protobuf::LogSilencer quiet;
  listen();
  std::string good;
  wire::Frame frame;
  *frame.mutable_hello() = hello_of("fuzz");
  ASSERT_TRUE(encode_frame(frame, good));
  *frame.mutable_cancel() = cancel_frame(1, 50).cancel();
  ASSERT_TRUE(encode_frame(frame, good));
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    auto random = seeded_random(seed);
    auto bytes = good;
    for (std::uint64_t i = 0; i < 1 + random() % 3; ++i) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    bytes.resize(1 + random() % bytes.size());
    auto socket = raw_socket();
    boost::system::error_code ignored;
    boost::asio::write(socket, boost::asio::buffer(bytes), ignored);
    socket.shutdown(boost::asio::ip::tcp::socket::shutdown_send, ignored);
    wait_for_end(socket);
  }
  EXPECT_EQ(stats().accepted, 300U);
  ASSERT_TRUE(dial());
}

TEST_F(RpcTcp, HalfHelloTimesOut) {
  RpcOptions options;
  options.hello_timeout = milliseconds(30);
  listen(options);
  auto socket = raw_socket();
  boost::asio::write(socket, boost::asio::buffer("\x10", 1));
  wait_for_end(socket);
  EXPECT_EQ(stats().timed_out, 1U);
}

TEST_F(RpcTcp, FragmentedHelloIsWhole) {
  listen();
  auto socket = raw_socket();
  socket.set_option(boost::asio::ip::tcp::no_delay(true));
  std::string bytes;
  wire::Frame frame;
  *frame.mutable_hello() = hello_of("pieces");
  ASSERT_TRUE(encode_frame(frame, bytes));
  for (const char c : bytes) {
    boost::asio::write(socket, boost::asio::buffer(&c, 1));
  }
  EXPECT_EQ(greeted_.wait_all(), std::vector<std::string>{"pieces"});
}

TEST_F(RpcTcp, OldestOfTooManySilentOnesIsTurnedAway) {
  RpcOptions options;
  options.max_handshakes = 2;
  options.hello_timeout = std::chrono::hours(1);
  listen(options);
  auto a = raw_socket();
  auto b = raw_socket();
  auto c = raw_socket();
  wait_for_end(a);
  EXPECT_EQ(stats().turned_away, 1U);
}

TEST_F(RpcTcp, SilentStrangersKeepNobodyOut) {
  RpcOptions options;
  options.max_handshakes = 2;
  options.hello_timeout = std::chrono::hours(1);
  listen(options);
  std::vector<boost::asio::ip::tcp::socket> strangers;
  for (int i = 0; i < 5; ++i) {
    strangers.push_back(raw_socket());
  }
  ASSERT_TRUE(dial());
  EXPECT_EQ(stats().welcomed, 1U);
  EXPECT_EQ(stats().turned_away, 4U);  // the fifth waits still
}

TEST_F(RpcTcp, FramesRightAfterWelcomeAreNotLost) {
  RpcOptions options;
  on_server([&] {
    server_network_.emplace(server_thread_.executor(), log_, options);
    auto listener = server_network_->listen(
        "127.0.0.1:0",
        [](const wire::Hello&) { return wire::Welcome(); },
        [this](std::unique_ptr<Channel> channel, const wire::Hello&) {
          channel->send(cancel_frame(1));
          channel->send(cancel_frame(2));
          server_channels_.push_back(std::move(channel));
        });
    listener_ = std::move(*listener);
    address_ = listener_->address();
  });
  ASSERT_TRUE(dial());
  std::size_t got = 0;
  while (got < 2) {
    got += client_frames_.wait_all().size();
  }
}

TEST_F(RpcTcp, DialFailsCleanly) {
  address_ = "no port";
  EXPECT_EQ(dial().error().code, ErrorCode::InvalidArgument);
  listen();
  on_server([&] { listener_.reset(); });
  const auto refused = dial();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::PeerDead);
  EXPECT_EQ(refused.error().message, "cannot reach " + address_ + ": Connection refused");
}

TEST_F(RpcTcp, SilentListenerTimesTheDialOut) {
  boost::asio::ip::tcp::acceptor silent(raw_context_,
                                        {boost::asio::ip::make_address("127.0.0.1"), 0});
  address_ = "127.0.0.1:" + std::to_string(silent.local_endpoint().port());
  const auto result = dial(milliseconds(30));
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::Timeout);
}

TEST_F(RpcTcp, DroppedDialNeverCalls) {
  listen();
  std::atomic<bool> called = false;
  on_client([&] {
    const auto dropped = client_network_.dial(
        address_, hello_of("gone"), kLong, [&](const Result<Dialed>&) { called = true; });
  });
  ASSERT_TRUE(dial());
  EXPECT_FALSE(called);
}

TEST_F(RpcTcp, ChannelHeldByATaskThatNeverRunsIsDropped) {
  listen();
  {
    ControlThread thread("third");
    TcpNetwork network(thread.executor(), log_);
    std::promise<std::unique_ptr<Channel>> done;
    std::unique_ptr<Dial> dial;
    thread.run_and_wait([&] {
      dial = network.dial(address_, hello_of("third"), kLong, [&](Result<Dialed> result) {
        done.set_value(std::move(result->channel));
      });
    });
    auto channel = done.get_future().get();
    thread.run_and_wait([&] { dial.reset(); });
    thread.stop();
    thread.executor().post([channel = std::move(channel)] {});
  }
  EXPECT_EQ(server_ends_.wait_all().front().code, ErrorCode::PeerDead);
}

TEST_F(RpcTcp, BusyPortIsNamed) {
  listen();
  on_server([&] {
    const auto second = server_network_->listen(
        address_, [](const wire::Hello&) { return wire::Welcome(); }, [](auto, auto) {});
    ASSERT_FALSE(second);
    EXPECT_EQ(second.error().code, ErrorCode::IoError);
    EXPECT_EQ(second.error().message, "cannot listen on " + address_ + ": Address already in use");
  });
}

TEST_F(RpcTcp, PeerLinkComesBackAfterRestart) {
  listen();
  Mailbox<std::string> events;
  std::unique_ptr<PeerLink> link;
  PeerLinkOptions options;
  options.address = address_;
  options.first_pause = milliseconds(1);
  options.longest_pause = milliseconds(5);
  PeerLinkHandlers handlers;
  handlers.make_hello = [] { return hello_of("node"); };
  handlers.on_up = [&](Channel&, const wire::Welcome& welcome) {
    events.put("up " + welcome.node());
  };
  handlers.on_frame = [](Channel&, const wire::Frame&) {};
  handlers.on_down = [&](const Error&) { events.put("down"); };
  on_client([&] {
    link = std::make_unique<PeerLink>(
        client_thread_.executor(), client_network_, seeded_random(1), options, handlers);
    link->start();
  });
  EXPECT_EQ(events.wait_all().front(), "up server");
  on_server([&] {
    listener_.reset();
    server_channels_.clear();
  });
  EXPECT_EQ(events.wait_all().front(), "down");
  on_server([&] {
    auto again = server_network_->listen(
        address_,
        [](const wire::Hello&) {
          wire::Welcome welcome;
          welcome.set_node("reborn");
          return welcome;
        },
        [this](std::unique_ptr<Channel> channel, const wire::Hello&) {
          server_channels_.push_back(std::move(channel));
        });
    ASSERT_TRUE(again) << again.error().message;
    listener_ = std::move(*again);
  });
  EXPECT_EQ(events.wait_all().front(), "up reborn");
  on_client([&] { link.reset(); });
}

}  // namespace
}  // namespace baton
