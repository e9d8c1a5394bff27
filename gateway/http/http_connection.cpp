#include "gateway/http/http_connection.h"

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/write.hpp>

#include "gateway/http/http_reply.h"

namespace baton::gateway {
namespace {

namespace asio = boost::asio;

constexpr int kReadsOfTurn = 4;                      // then others have theirs
constexpr std::size_t kKeepBufferBytes = 32 * 1024;  // larger buffers are freed when idle
constexpr std::size_t kWriteNowBytes = 64 * 1024;    // more does not wait for the turn's end
constexpr std::size_t kLingerBytes = std::size_t{256} << 20;

}  // namespace

HttpConnection::HttpConnection(HttpThread& thread, asio::ip::tcp::socket socket)
    : thread_(thread),
      socket_(std::move(socket), thread.options.certificates.get()),
      reader_({thread.options.max_header_bytes, thread.options.max_body_bytes}) {
  thread_.stats.open.fetch_add(1, std::memory_order_relaxed);
}

HttpConnection::~HttpConnection() {
  thread_.on_closed();
}

void HttpConnection::start() {
  socket_.set_option(asio::ip::tcp::no_delay(true));
  if (thread_.options.send_buffer_bytes > 0) {
    socket_.set_option(asio::socket_base::send_buffer_size(thread_.options.send_buffer_bytes));
  }
  if (socket_.is_tls()) {
    return shake_hands();
  }
  deadline_ = std::chrono::steady_clock::now() + thread_.options.idle_timeout;
  read();
}

void HttpConnection::shake_hands() {
  state_ = State::Handshake;
  if (thread_.stats.handshaking.fetch_add(1) >= thread_.options.max_handshakes) {
    thread_.stats.turned_away.fetch_add(1, std::memory_order_relaxed);
    return close();
  }
  deadline_ = std::chrono::steady_clock::now() + thread_.options.handshake_timeout;
  socket_.async_handshake([self = shared_from_this()](boost::system::error_code error) {
    if (self->closed_) {
      return;
    }
    if (error) {
      self->thread_.stats.malformed.fetch_add(1, std::memory_order_relaxed);
      return self->close();
    }
    self->thread_.stats.handshaking.fetch_sub(1);
    self->state_ = State::Idle;
    self->deadline_ = std::chrono::steady_clock::now() + self->thread_.options.idle_timeout;
    self->read();
  });
}

void HttpConnection::read() {
  if (reading_ || closed_ || input_ended_ ||
      (state_ == State::Reply && input_.size() >= thread_.options.max_pipelined_bytes)) {
    return;
  }
  reading_ = true;
  socket_.async_wait_readable(
      [self = shared_from_this()](boost::system::error_code error) { self->on_readable(error); });
}

void HttpConnection::on_readable(boost::system::error_code error) {
  reading_ = false;
  if (closed_) {
    return;
  }
  const HttpTurn turn(thread_);
  for (int reads = 0; !error && reads < kReadsOfTurn && !closed_; ++reads) {
    const bool replying = state_ == State::Reply;
    const std::size_t room =
        replying
            ? std::min(thread_.input.size(), thread_.options.max_pipelined_bytes - input_.size())
            : thread_.input.size();
    const std::size_t bytes = socket_.read_some(asio::buffer(thread_.input.data(), room), error);
    if (!error) {
      take({thread_.input.data(), bytes});
    }
    // What did not fill the buffer was all there is.
    if (bytes < room || replying || state_ == State::Reply) {
      break;
    }
  }
  if (error && error != asio::error::would_block && !closed_) {
    return on_input_end(error);
  }
  read();
}

void HttpConnection::on_input_end(boost::system::error_code error) {
  if (state_ == State::Linger) {
    return close();
  }
  input_ended_ = true;
  if (error == asio::error::eof && !reply_ && has_unsent()) {
    close_after_write_ = true;  // it wants the reply that is on its way, and nothing more
    return;
  }
  lost();
}

void HttpConnection::take(std::string_view bytes) {
  if (state_ == State::Linger) {
    lingered_ += bytes.size();
    return lingered_ > kLingerBytes ? close() : void();
  }
  if (state_ == State::Body) {
    deadline_ += std::chrono::milliseconds(bytes.size() * 1000 / (16 * 1024));
  }
  if (state_ == State::Reply || !input_.empty()) {
    input_ += bytes;
    return parse_kept();
  }
  keep(bytes.substr(parse(bytes)));
}

void HttpConnection::keep(std::string_view bytes) {
  if (!closed_ && state_ != State::Linger) {
    input_ += bytes;
  }
}

void HttpConnection::parse_kept() {
  if (state_ != State::Reply && state_ != State::Linger) {
    const std::string kept = std::exchange(input_, {});
    keep(std::string_view(kept).substr(parse(kept)));
  }
}

std::size_t HttpConnection::parse(std::string_view bytes) {
  const std::size_t all = bytes.size();
  while (!closed_ && state_ != State::Reply && state_ != State::Linger && !bytes.empty()) {
    if (state_ == State::Idle) {
      state_ = State::Head;
      deadline_ = std::chrono::steady_clock::now() + thread_.options.header_timeout;
    }
    switch (reader_.read(bytes)) {
      case HttpRequestReader::Step::More:
        return all - bytes.size();
      case HttpRequestReader::Step::Head:
        on_head();
        break;
      case HttpRequestReader::Step::Whole:
        on_request();
        break;
      case HttpRequestReader::Step::Fault:
        on_fault();
        break;
    }
  }
  return all - bytes.size();
}

void HttpConnection::on_head() {
  state_ = State::Body;
  deadline_ = std::chrono::steady_clock::now() + thread_.options.body_timeout;
  if (thread_.options.check_head) {
    if (const auto error = thread_.options.check_head(reader_.head())) {
      return refuse(*error);
    }
  }
  if (reader_.expects_continue()) {
    send({"HTTP/1.1 100 Continue\r\n\r\n"});
  }
}

void HttpConnection::on_request() {
  HttpRequestReader::Request request = reader_.take();
  state_ = State::Reply;
  reply_ = std::make_shared<HttpReply>(
      shared_from_this(), std::move(request.message), request.keep_alive, request.is_http11);
  thread_.handler(reply_);
}

void HttpConnection::on_fault() {
  const HttpRequestReader::Fault fault = reader_.fault();
  auto& count = fault.is_too_large ? thread_.stats.too_large : thread_.stats.malformed;
  count.fetch_add(1, std::memory_order_relaxed);
  refuse(fault.error);
}

void HttpConnection::refuse(const ApiError& error) {
  const std::string body = error_body(error);
  const HttpHeaders headers{{"content-type", "application/json"},
                            {"content-length", std::to_string(body.size())}};
  const std::string_view cors = thread_.cors.lines_for(reader_.origin());
  reader_.reset();
  state_ = State::Reply;
  send({http_head(error.status, headers, cors, false, true), "\r\n", body});
  reply_finished(false);
}

void HttpConnection::set_silence_limit(Duration limit) {
  silence_limit_ = limit;
  last_sent_ = std::chrono::steady_clock::now();
}

void HttpConnection::send(std::initializer_list<std::string_view> parts) {
  if (closed_) {
    return;
  }
  if (silence_limit_ > Duration{}) {
    last_sent_ = std::chrono::steady_clock::now();
  }
  if (writing_ && unsent_.size() + (sending_.size() - sent_) > thread_.options.max_unsent_bytes) {
    thread_.stats.slow_cut.fetch_add(1, std::memory_order_relaxed);
    return lost();
  }
  for (const std::string_view part : parts) {
    unsent_ += part;
  }
  if (writing_) {
    return;
  }
  if (unsent_.size() >= kWriteNowBytes) {
    write();
  } else {
    write_soon();
  }
}

void HttpConnection::write_soon() {
  if (std::exchange(in_to_write_, true)) {
    return;
  }
  thread_.to_write.push_back(shared_from_this());
  if (thread_.in_turn || thread_.to_write.size() > 1) {
    return;  // the turn sees to it, or the first one has posted its end
  }
  asio::post(thread_.context, [&thread = thread_] { thread.write_all(); });
}

void HttpThread::write_all() {
  for (const auto& connection : std::exchange(to_write, {})) {
    connection->in_to_write_ = false;
    if (!connection->writing_ && !connection->unsent_.empty()) {
      connection->write();
    }
  }
}

void HttpConnection::write() {
  sending_.swap(unsent_);
  unsent_.clear();
  // Mostly the socket takes all of it at once. An error comes again below.
  boost::system::error_code error;
  sent_ = socket_.write_some(asio::buffer(sending_), error);
  if (!error && sent_ == sending_.size()) {
    return written();
  }
  sent_ = error ? 0 : sent_;
  write_rest();
}

void HttpConnection::write_rest() {
  writing_ = true;
  write_deadline_ = std::chrono::steady_clock::now() + thread_.options.write_timeout;
  // The bytes go in parts so that progress is seen and a dead reader can be told from a slow one.
  socket_.async_write_some(
      asio::buffer(sending_.data() + sent_, sending_.size() - sent_),
      [self = shared_from_this()](boost::system::error_code error, std::size_t bytes) {
        self->on_written(error, bytes);
      });
}

void HttpConnection::on_written(boost::system::error_code error, std::size_t bytes) {
  if (closed_) {
    return;
  }
  if (error) {
    writing_ = false;
    return lost();
  }
  sent_ += bytes;
  if (sent_ < sending_.size()) {
    return write_rest();
  }
  writing_ = false;
  written();
}

void HttpConnection::written() {
  sending_.clear();
  sent_ = 0;
  if (!unsent_.empty()) {
    return write();
  }
  if (sending_.capacity() > kKeepBufferBytes) {
    std::string().swap(sending_);
    std::string().swap(unsent_);
  }
  if (close_after_write_) {
    all_sent();
  }
}

void HttpConnection::reply_finished(bool keep_alive) {
  reply_ = nullptr;
  silence_limit_ = {};
  if (closed_) {
    return;
  }
  if (!keep_alive || input_ended_) {
    close_after_write_ = true;
    if (!has_unsent()) {
      all_sent();
    }
    return;
  }
  state_ = State::Idle;
  deadline_ = std::chrono::steady_clock::now() + thread_.options.idle_timeout;
  // A pipelined request may wait in the buffer. It is begun from the loop, not from inside the
  // reply before it, so that many of them cannot nest.
  if (!input_.empty()) {
    asio::post(thread_.context, [self = shared_from_this()] {
      self->parse_kept();
      self->read();
    });
  } else {
    read();
  }
}

// Closing with unread input would reset the connection and could lose the reply: say that nothing
// more comes and read on for a moment.
void HttpConnection::all_sent() {
  if (input_ended_) {
    return close();
  }
  state_ = State::Linger;
  deadline_ = std::chrono::steady_clock::now() + thread_.options.linger_timeout;
  socket_.shutdown_send();
  input_.clear();
  read();
}

void HttpConnection::lost() {
  const auto reply = std::exchange(reply_, nullptr);
  if (reply) {
    thread_.stats.gone.fetch_add(1, std::memory_order_relaxed);
  }
  close();
  if (reply) {
    reply->gone();
  }
}

void HttpConnection::close() {
  if (closed_) {
    return;
  }
  closed_ = true;
  if (state_ == State::Handshake) {
    thread_.stats.handshaking.fetch_sub(1);
  }
  socket_.close();
  unsent_ = {};
  if (const auto reply = std::exchange(reply_, nullptr)) {
    reply->gone();
  }
}

bool HttpConnection::tick(TimePoint now) {
  if (closed_) {
    return false;
  }
  if (writing_ && now > write_deadline_) {
    thread_.stats.slow_cut.fetch_add(1, std::memory_order_relaxed);
    lost();
  } else if (state_ == State::Reply) {
    if (silence_limit_ > Duration{} && now - last_sent_ >= silence_limit_) {
      if (const auto reply = reply_) {
        reply->silence();
      }
    }
  } else if (now > deadline_) {
    if (state_ == State::Handshake) {
      thread_.stats.timed_out.fetch_add(1, std::memory_order_relaxed);
      close();
    } else if (state_ == State::Head || state_ == State::Body) {
      thread_.stats.timed_out.fetch_add(1, std::memory_order_relaxed);
      ApiError api = bad_request("request_timeout", "", "The request did not arrive in time.");
      api.status = 408;
      refuse(api);
    } else {
      close();
    }
  }
  return !closed_;
}

void HttpConnection::close_when_written() {
  if (closed_) {
    return;
  }
  if (reply_ || !has_unsent()) {
    return lost();
  }
  input_ended_ = true;  // no lingering
  close_after_write_ = true;
}

void HttpConnection::drain() {
  if (state_ == State::Idle || state_ == State::Handshake) {
    close();
  }
}

}  // namespace baton::gateway
