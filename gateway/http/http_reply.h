// The exchange that a connection hands to the handler: turns replies into bytes of HTTP/1.1.
//
// Owner, thread: http_exchange.h. Failure: once the connection is gone, calls do nothing.
#pragma once

#include <memory>
#include <string>

#include "gateway/http/http_connection.h"
#include "gateway/http/http_exchange.h"

namespace baton::gateway {

class HttpReply final : public HttpExchange {
 public:
  // `chunked`: the client speaks HTTP/1.1, so a stream can end without closing.
  HttpReply(std::shared_ptr<HttpConnection> connection,
            HttpRequest request,
            bool keep_alive,
            bool chunked);

  const HttpRequest& request() const override { return request_; }
  std::string take_body() override { return std::move(request_.body); }
  void respond(int status, HttpHeaders headers, std::string body) override;
  void start_stream(int status, HttpHeaders headers) override;
  void add_headers(const HttpHeaders& headers) override;
  void write(std::string_view bytes) override;
  void finish() override;
  bool is_started() const override { return started_; }
  bool is_open() const override { return connection_ != nullptr; }
  void set_on_gone(std::function<void()> on_gone) override;
  void set_on_silence(Duration limit, std::function<void()> on_silence) override;
  void post(Task task) override;
  std::uint32_t io_thread() const override { return thread_.number; }

  // From the connection: the client has left.
  void gone();
  void silence();

 private:
  void end(bool keep_alive);
  // Status line and all headers but those of the body's length.
  std::string head(int status, const HttpHeaders& headers, bool keep_alive) const;

  std::shared_ptr<HttpConnection>
      connection_;  // null once the reply is finished or the client gone
  HttpThread& thread_;
  HttpRequest request_;
  bool keep_alive_;
  const bool chunked_;
  bool started_ = false;
  std::string added_;  // header lines for the reply to come
  std::function<void()> on_gone_;
  std::function<void()> on_silence_;
};

// "HTTP/1.1 200 OK\r\n…": status line and headers up to, not including, the empty line. `lines`:
// further headers, whole lines.
std::string http_head(
    int status, const HttpHeaders& headers, std::string_view lines, bool keep_alive, bool http11);

}  // namespace baton::gateway
