// One client connection: reads requests one after another (a pipelined one waits until the reply
// before it is finished), keeps reading while a reply is in work to notice that the client has
// left, and writes replies through one bounded buffer.
//
// Owner: its own pending operations and the list of its I/O thread. Thread: that I/O thread.
// Failure: a broken request gets an error reply and the connection closes after it.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gateway/http/api_error.h"
#include "gateway/http/cors.h"
#include "gateway/http/http_request_reader.h"
#include "gateway/http/http_server.h"
#include "gateway/http/http_socket.h"

namespace baton::gateway {

class HttpConnection;
class HttpReply;

// What the connections of one I/O thread share.
struct HttpThread {
  boost::asio::io_context& context;
  const HttpServerOptions& options;
  const HttpHandler& handler;
  HttpServerStats& stats;
  const Cors& cors;
  std::function<void()> on_closed;  // a connection is gone
  std::uint32_t number = 0;
  bool draining = false;
  // Those with something to write at the end of this turn, so that all they have been given in it
  // shares a write.
  std::vector<std::shared_ptr<HttpConnection>> to_write{};
  bool in_turn = false;  // an HttpTurn is there to see to them
  // What a socket has is read to here and parsed at once; a connection keeps only what is left.
  std::vector<char> input = std::vector<char>(std::size_t{64} << 10);

  void write_all();
};

// What connections are given while it lives is written at its end.
class HttpTurn {
 public:
  explicit HttpTurn(HttpThread& thread)
      : thread_(thread), is_outer_(!std::exchange(thread.in_turn, true)) {}
  HttpTurn(const HttpTurn&) = delete;
  HttpTurn& operator=(const HttpTurn&) = delete;
  ~HttpTurn() {
    if (is_outer_) {
      thread_.in_turn = false;
      thread_.write_all();
    }
  }

 private:
  HttpThread& thread_;
  const bool is_outer_;
};

class HttpConnection : public std::enable_shared_from_this<HttpConnection> {
 public:
  HttpConnection(HttpThread& thread, boost::asio::ip::tcp::socket socket);
  HttpConnection(const HttpConnection&) = delete;
  HttpConnection& operator=(const HttpConnection&) = delete;
  ~HttpConnection();

  void start();
  // Checks time limits. False once closed. REQUIRES: the caller keeps it alive.
  bool tick(TimePoint now);
  // Closes when idle, else after the reply in work.
  void drain();
  // Closes once what finished replies have left to write is written; a reply in work is given up.
  void close_when_written();
  void close();
  bool is_closed() const { return closed_; }

 private:
  friend class HttpReply;
  friend struct HttpThread;
  enum class State : std::uint8_t { Handshake, Idle, Head, Body, Reply, Linger };

  void shake_hands();
  // Waits for bytes.
  void read();
  void on_readable(boost::system::error_code error);
  void on_input_end(boost::system::error_code error);
  void take(std::string_view bytes);
  // Until a request is whole or more bytes are needed; the bytes it used.
  std::size_t parse(std::string_view bytes);
  void keep(std::string_view bytes);  // until more have come, or its turn has
  void parse_kept();
  void on_head();
  void on_request();
  void on_fault();
  void refuse(const ApiError& error);

  // Queues bytes; they are written at the end of this turn.
  void send(std::initializer_list<std::string_view> parts);
  // Of the reply in work: it is told of a longer silence. 0: it does not care.
  void set_silence_limit(Duration limit);
  void write_soon();
  bool has_unsent() const { return writing_ || !unsent_.empty(); }
  void write();
  // What is left of `sending_`, once the socket takes more.
  void write_rest();
  void written();
  void on_written(boost::system::error_code error, std::size_t bytes);
  void reply_finished(bool keep_alive);
  void all_sent();
  void lost();

  HttpThread& thread_;
  HttpSocket socket_;
  HttpRequestReader reader_;
  State state_ = State::Idle;
  bool closed_ = false;
  bool reading_ = false;
  bool writing_ = false;
  bool in_to_write_ = false;
  bool close_after_write_ = false;
  bool input_ended_ = false;
  TimePoint deadline_;        // of the state, when it has one
  TimePoint write_deadline_;  // of the write in work
  Duration silence_limit_{};
  TimePoint last_sent_;               // while there is such a limit
  std::string input_;                 // bytes read and not yet parsed
  std::string unsent_;                // queued behind `sending_`
  std::string sending_;               // being written
  std::size_t sent_ = 0;              // of `sending_`
  std::size_t lingered_ = 0;          // bytes thrown away after the last reply
  std::shared_ptr<HttpReply> reply_;  // the exchange in work
};

}  // namespace baton::gateway
