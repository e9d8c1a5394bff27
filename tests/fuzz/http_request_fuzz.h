// Bytes of a client's connection as HTTP requests: the same ones however the bytes were cut on
// their way, each within the limits, up to a fault with a status of the 400s. A fault may show
// later where the bytes come in parts: a broken head is looked at once it has an end.
#pragma once

#include <algorithm>

#include "gateway/http/http_request_reader.h"
#include "tests/fuzz/fuzz_target.h"

namespace baton::fuzz {

struct HttpRequestFuzz {
  static constexpr std::string_view kName = "http_request";

  static void run(std::span<const std::uint8_t> bytes) {
    const std::string_view text = as_text(bytes);
    const std::vector<std::string> whole = read(text, text.size());
    fuzz_check(whole == read(text, 1));
    fuzz_check(whole == read(text, 0));
  }

  static std::vector<std::string> seeds() {
    return {
        "POST /v1/chat/completions HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n"
        "Authorization: Bearer k\r\nContent-Length: 2\r\n\r\n{}",
        "POST /v1/completions HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n"
        "Expect: 100-continue\r\n\r\n2;a=b\r\n{}\r\n1\r\n \r\n0\r\nTrailer: t\r\n\r\n",
        "GET /v1/models/a%2Fb?x=1 HTTP/1.1\r\nHost: h\r\nOrigin: http://o\r\n\r\n"
        "GET http://h/livez HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
        "GET /health HTTP/1.0\r\n\r\n",
        "OPTIONS /v1/models HTTP/1.1\r\nHost: h\r\nAccess-Control-Request-Method: GET\r\n\r\n",
        "POST / HTTP/1.1\r\nContent-Length: 5000\r\n\r\n",
        "GET / HTTP/1.1\r\nX: " + std::string(1500, 'x') + "\r\n\r\n",
    };
  }

 private:
  static constexpr gateway::HttpRequestReader::Limits kLimits{1024, 4096};

  static std::string describe(const gateway::HttpRequestReader::Request& request) {
    const gateway::HttpRequest& message = request.message;
    std::string all = message.method + '\n' + message.path + '\n' + message.query + '\n';
    for (const auto& [name, value] : message.headers) {
      fuzz_check(std::ranges::none_of(name, [](char c) { return c >= 'A' && c <= 'Z'; }));
      all += name + ": " + value + '\n';
    }
    fuzz_check(message.body.size() <= kLimits.body_bytes);
    return all + message.body + (request.keep_alive ? "\nstays" : "\nends") +
           (request.is_http11 ? "" : " old");
  }

  // As a connection does it. In pieces of `size`; 0: sizes come from the bytes, so that cuts fall
  // everywhere.
  static std::vector<std::string> read(std::string_view text, std::size_t size) {
    using Step = gateway::HttpRequestReader::Step;
    gateway::HttpRequestReader reader(kLimits);
    std::vector<std::string> seen;
    std::string kept;
    while (!text.empty()) {
      const std::size_t wanted = size > 0 ? size : 1 + static_cast<unsigned char>(text.front());
      const std::string_view piece = text.substr(0, wanted);
      text.remove_prefix(piece.size());
      kept += piece;
      std::string_view left = kept;
      for (Step step = Step::Head; step != Step::More && !left.empty();) {
        step = reader.read(left);
        if (step == Step::Head) {
          fuzz_check(reader.head().headers.size() == 1);
          (void)reader.expects_continue();
        } else if (step == Step::Whole) {
          seen.push_back(describe(reader.take()));
        } else if (step == Step::Fault) {
          const auto fault = reader.fault();
          fuzz_check(fault.error.status >= 400 && fault.error.status < 500);
          (void)reader.origin();
          return seen;
        }
      }
      kept.erase(0, kept.size() - left.size());
    }
    return seen;
  }
};

}  // namespace baton::fuzz
