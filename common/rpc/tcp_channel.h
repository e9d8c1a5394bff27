// One TCP connection as a Channel: reads frames, writes queued ones in batches. With TLS the
// handshake comes first; frames wait for it.
//
// Owner: TcpChannel, what its user holds, shares the connection with pending socket operations.
// Thread: the executor's strand. Failure: channel.h.
#pragma once

#include <array>
#include <boost/asio/ip/tcp.hpp>
#include <memory>
#include <string>

#include "common/exec/asio_executor.h"
#include "common/rpc/call_table.h"
#include "common/rpc/channel.h"
#include "common/rpc/frame_codec.h"
#include "common/rpc/tcp_network.h"

struct ssl_st;

namespace baton {

class TcpConnection : public std::enable_shared_from_this<TcpConnection> {
 public:
  using Socket = boost::asio::basic_stream_socket<boost::asio::ip::tcp, AsioExecutor::Strand>;

  enum class Side : std::uint8_t { Dialled, Accepted };

  TcpConnection(AsioExecutor& executor, Socket socket, Side side, const RpcOptions& options);
  TcpConnection(const TcpConnection&) = delete;
  TcpConnection& operator=(const TcpConnection&) = delete;
  ~TcpConnection();

  // Sets the socket's options and reads from the next turn of the executor on.
  void start();
  void set_handlers(Channel::FrameHandler on_frame, Channel::ClosedHandler on_closed);
  void send(const wire::Frame& frame);
  void call(wire::Frame frame, std::chrono::milliseconds timeout, Channel::AnswerHandler handler);
  void close();
  void lose(Error why);
  bool is_open() const { return state_ == State::Open; }
  std::size_t queued_bytes() const { return queued_.size() + writing_.size(); }
  const std::string& remote() const { return remote_; }

 private:
  enum class State : std::uint8_t {
    Open,
    Lingering,  // closed by the user: what is queued goes out, what comes in is dropped
    Closed,
  };
  struct Handlers {
    Channel::FrameHandler on_frame;
    Channel::ClosedHandler on_closed;
  };
  // The socket, or TLS over it.
  struct Tls;
  template <class Handler>
  void async_read(Handler handler);
  template <class Handler>
  void async_write(std::size_t from, Handler handler);

  ssl_st* native_tls();  // null: plain TCP
  void shake_hands();
  void read();
  void received(std::size_t bytes);
  // Fails only for a frame over the limit.
  Status enqueue(const wire::Frame& frame);
  void flush_soon();
  void write();
  void written();
  void finish_sending();
  void close_socket();

  AsioExecutor& executor_;
  const std::weak_ptr<const void> executor_alive_;
  Socket socket_;
  const Side side_;
  std::unique_ptr<Tls> tls_;  // null: plain TCP
  const std::size_t max_queued_bytes_;
  std::string remote_;
  State state_ = State::Open;
  std::shared_ptr<const Handlers> handlers_ = std::make_shared<Handlers>();
  CallTable calls_;
  FrameDecoder decoder_{kMaxHelloBytes};
  bool greeted_ = false;  // the first frame has come
  std::array<char, 64 * 1024> input_;
  std::string queued_;   // frames that wait
  std::string writing_;  // frames being written
  bool flush_posted_ = false;
  bool writing_now_ = false;
  bool sending_over_ = false;
  TimerHandle linger_;
};

// What the user holds: dropping it closes the connection.
class TcpChannel final : public Channel {
 public:
  explicit TcpChannel(std::shared_ptr<TcpConnection> connection)
      : connection_(std::move(connection)) {}
  TcpChannel(const TcpChannel&) = delete;
  TcpChannel& operator=(const TcpChannel&) = delete;
  ~TcpChannel() override { connection_->close(); }

  void set_handlers(FrameHandler on_frame, ClosedHandler on_closed) override {
    connection_->set_handlers(std::move(on_frame), std::move(on_closed));
  }
  void send(wire::Frame frame) override { connection_->send(frame); }
  void call(wire::Frame frame, std::chrono::milliseconds timeout, AnswerHandler handler) override {
    connection_->call(std::move(frame), timeout, std::move(handler));
  }
  void answer(const wire::Frame& question, wire::Frame reply) override;
  void answer_error(const wire::Frame& question, const Error& error) override;
  void close() override { connection_->close(); }
  void abort(Error why) override { connection_->lose(std::move(why)); }
  bool is_open() const override { return connection_->is_open(); }
  std::size_t queued_bytes() const override { return connection_->queued_bytes(); }
  std::string remote() const override { return connection_->remote(); }

 private:
  const std::shared_ptr<TcpConnection> connection_;
};

// host:port of a socket's end.
std::string endpoint_text(const boost::asio::ip::tcp::endpoint& endpoint);

}  // namespace baton
