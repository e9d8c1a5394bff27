#include "gateway/http/http_reply.h"

#include <array>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/post.hpp>
#include <boost/beast/http/status.hpp>
#include <charconv>

#include "common/base/check.h"
#include "common/base/digits.h"

namespace baton::gateway {

std::string_view HttpRequest::header(std::string_view name) const {
  for (const auto& [key, value] : headers) {
    if (key == name) {
      return value;
    }
  }
  return {};
}

namespace {

constexpr std::size_t kLikelyHead = 512;

void append_header(std::string& out, std::string_view name, std::string_view value) {
  out += name;
  out += ": ";
  out += value;
  out += "\r\n";
}

}  // namespace

std::string http_head(
    int status, const HttpHeaders& headers, std::string_view lines, bool keep_alive, bool http11) {
  const auto reason = boost::beast::http::obsolete_reason(
      static_cast<boost::beast::http::status>(static_cast<unsigned>(status)));
  std::string head;
  head.reserve(kLikelyHead);
  head += "HTTP/1.1 ";
  append_number(head, status);
  head += ' ';
  head.append(reason.data(), reason.size());
  head += "\r\n";
  for (const auto& [name, value] : headers) {
    append_header(head, name, value);
  }
  head += lines;
  if (!keep_alive) {
    head += "connection: close\r\n";
  } else if (!http11) {
    head += "connection: keep-alive\r\n";
  }
  return head;
}

HttpReply::HttpReply(std::shared_ptr<HttpConnection> connection,
                     HttpRequest request,
                     bool keep_alive,
                     bool chunked)
    : connection_(std::move(connection)),
      thread_(connection_->thread_),
      request_(std::move(request)),
      keep_alive_(keep_alive),
      chunked_(chunked) {}

void HttpReply::add_headers(const HttpHeaders& headers) {
  BATON_CHECK(!started_, "headers for a reply whose head is sent");
  for (const auto& [name, value] : headers) {
    append_header(added_, name, value);
  }
}

std::string HttpReply::head(int status, const HttpHeaders& headers, bool keep_alive) const {
  const std::string_view cors = thread_.cors.lines_for(request_.header("origin"));
  if (added_.empty()) {
    return http_head(status, headers, cors, keep_alive, chunked_);
  }
  return http_head(status, headers, added_ + std::string(cors), keep_alive, chunked_);
}

void HttpReply::respond(int status, HttpHeaders headers, std::string body) {
  BATON_CHECK(!started_, "a second reply to one request");
  started_ = true;
  if (!connection_) {
    return;
  }
  const bool keep = keep_alive_ && !thread_.draining;
  const bool bodiless = status == 204 || status == 304;
  std::string text = head(status, headers, keep);
  if (!bodiless) {
    text += "content-length: ";
    append_number(text, body.size());
    text += "\r\n";
  }
  text += "\r\n";
  if (!bodiless && request_.method != "HEAD") {
    text += body;
  }
  const auto connection = connection_;
  connection->send({text});
  end(keep);
}

void HttpReply::start_stream(int status, HttpHeaders headers) {
  BATON_CHECK(!started_, "a second reply to one request");
  started_ = true;
  if (!connection_) {
    return;
  }
  keep_alive_ = keep_alive_ && chunked_;
  std::string text = head(status, headers, keep_alive_);
  text += chunked_ ? "transfer-encoding: chunked\r\n\r\n" : "\r\n";
  const auto connection = connection_;
  connection->send({text});
}

void HttpReply::write(std::string_view bytes) {
  if (!connection_ || bytes.empty()) {
    return;
  }
  const auto connection = connection_;
  if (!chunked_) {
    return connection->send({bytes});
  }
  std::array<char, 24> size;
  const auto end = std::to_chars(size.data(), size.data() + size.size(), bytes.size(), 16).ptr;
  connection->send({{size.data(), end}, "\r\n", bytes, "\r\n"});
}

void HttpReply::finish() {
  if (!connection_) {
    return;
  }
  const auto connection = connection_;
  if (chunked_) {
    connection->send({"0\r\n\r\n"});
  }
  if (connection_) {  // the last bytes may have been too many for a slow reader
    end(keep_alive_ && !thread_.draining);
  }
}

void HttpReply::end(bool keep_alive) {
  const auto connection = std::exchange(connection_, nullptr);
  on_gone_ = nullptr;
  on_silence_ = nullptr;
  if (connection) {
    connection->reply_finished(keep_alive);
  }
}

void HttpReply::set_on_gone(std::function<void()> on_gone) {
  if (connection_) {
    on_gone_ = std::move(on_gone);
  } else if (!started_) {
    boost::asio::post(thread_.context, std::move(on_gone));
  }
}

void HttpReply::set_on_silence(Duration limit, std::function<void()> on_silence) {
  if (connection_) {
    on_silence_ = std::move(on_silence);
    connection_->set_silence_limit(limit);
  }
}

void HttpReply::post(Task task) {
  boost::asio::dispatch(thread_.context, [&thread = thread_, task = std::move(task)]() mutable {
    const HttpTurn turn(thread);
    task();
  });
}

void HttpReply::gone() {
  connection_ = nullptr;
  on_silence_ = nullptr;
  if (auto on_gone = std::exchange(on_gone_, nullptr)) {
    boost::asio::post(thread_.context, std::move(on_gone));  // never inside the caller's `write`
  }
}

void HttpReply::silence() {
  if (on_silence_) {
    const auto on_silence = on_silence_;  // it may clear itself
    on_silence();
  }
}

}  // namespace baton::gateway
