#include "gateway/api/json_body.h"

#include <string_view>
#include <utility>

#include "gateway/api/replies.h"

namespace baton::gateway {
namespace {

bool is_json(std::string_view content_type) {
  const std::string_view type = content_type.substr(0, content_type.find(';'));
  return type.empty() || type.find("json") != std::string_view::npos;
}

// A field that brings a grammar; a text with its name goes to the pool in vain, and no harm is
// done. Names may be written with escapes.
bool may_have_grammar(std::string_view body) {
  if (body.find("\\u") != std::string_view::npos) {
    return true;
  }
  // Each of the names has a '_', which texts seldom have.
  for (std::size_t at = body.find('_'); at != std::string_view::npos; at = body.find('_', at + 1)) {
    const std::string_view before = body.substr(0, at);
    const std::string_view behind = body.substr(at + 1);
    if ((before.ends_with("\"response") && behind.starts_with("format\"")) ||
        before.ends_with("\"guided") ||
        (before.ends_with("\"structured") && behind.starts_with("outputs\"")) ||
        (before.ends_with("\"tool") && behind.starts_with("choice\""))) {
      return true;
    }
  }
  return false;
}

}  // namespace

void take_json_body(const std::shared_ptr<HttpExchange>& exchange,
                    WorkPool& pool,
                    const RandomSource& random,
                    std::function<Task(const std::string& body)> work) {
  if (!is_json(exchange->request().header("content-type"))) {
    ApiError error = bad_request("unsupported_media_type",
                                 "",
                                 "The body must be sent with 'Content-Type: application/json'.");
    error.status = 415;
    return reply_error(*exchange, error, request_id_for(exchange->request(), random()));
  }
  std::string body = exchange->take_body();
  if (body.size() <= kInlineBodyBytes && !may_have_grammar(body)) {
    return work(body)();
  }
  pool.run(
      [exchange, work = std::move(work), body = std::move(body)] { exchange->post(work(body)); });
}

}  // namespace baton::gateway
