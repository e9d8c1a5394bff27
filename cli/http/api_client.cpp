#include "cli/http/api_client.h"

#include <fmt/format.h>
#include <httplib.h>

#include <cstdlib>
#include <utility>

namespace baton::cli {
namespace {

constexpr int kConnectSeconds = 5;
constexpr int kReadSeconds = 900;  // a stream sends comments long before

std::string without_version(std::string url) {
  while (url.ends_with('/')) {
    url.pop_back();
  }
  if (url.ends_with("/v1")) {
    url.resize(url.size() - 3);
  }
  return url;
}

// What a server says of an error: its error object, or that text; what is neither is quoted.
struct ServerError {
  std::string message;
  std::string code;  // a word or a number; empty: none
};

ServerError server_error_of(const std::string& body) {
  ServerError said{body.substr(0, 300), ""};
  json::error_code bad;
  const json::value value = json::parse(body, bad);
  const json::value* error =
      !bad && value.is_object() ? value.as_object().if_contains("error") : nullptr;
  if (error != nullptr && error->is_string()) {
    said.message = error->as_string();
  }
  if (error == nullptr || !error->is_object()) {
    return said;
  }
  if (const json::value* text = error->as_object().if_contains("message");
      text != nullptr && text->is_string()) {
    said.message = text->as_string();
  }
  if (const json::value* code = error->as_object().if_contains("code");
      code != nullptr && !code->is_null()) {
    said.code = code->is_string() ? std::string(code->as_string()) : json::serialize(*code);
  }
  return said;
}

// Of an answer that is an error.
Error error_of(int status, const std::string& body) {
  ErrorCode code = ErrorCode::InvalidArgument;
  if (status >= 500) {
    code = ErrorCode::Unavailable;
  } else if (status == 429) {
    code = ErrorCode::Busy;
  } else if (status == 404) {
    code = ErrorCode::NotFound;
  }
  return Error{code, fmt::format("HTTP {}: {}", status, server_error_of(body).message)};
}

// Of an event in a stream that began well: it has no status, but a code of its own.
Error error_of_event(const std::string& data) {
  const ServerError said = server_error_of(data);
  const bool is_busy = said.code == "rate_limit_exceeded" || said.code == "429";
  return Error{is_busy ? ErrorCode::Busy : ErrorCode::Unavailable,
               said.code.empty() ? said.message : fmt::format("{} ({})", said.message, said.code)};
}

Result<json::value> parse_body(const std::string& body) {
  json::error_code bad;
  json::value value = json::parse(body, bad);
  if (bad) {
    return fail(ErrorCode::ProtocolError, "the answer is no JSON: " + body.substr(0, 200));
  }
  return value;
}

}  // namespace

ApiClient::ApiClient(const std::string& base_url, Server server)
    : base_url_(without_version(base_url)),
      server_(server),
      client_(std::make_unique<httplib::Client>(base_url_)) {
  client_->set_connection_timeout(kConnectSeconds);
  client_->set_read_timeout(kReadSeconds);
  client_->set_tcp_nodelay(true);
  httplib::Headers headers{{"x-baton-figures", "1"}};  // the "baton" object of answers
  const char* key = server == Server::Child ? nullptr : std::getenv("BATON_API_KEY");
  if (key != nullptr && *key != '\0') {
    headers.emplace("Authorization", fmt::format("Bearer {}", key));
  }
  client_->set_default_headers(std::move(headers));
}

ApiClient::~ApiClient() = default;
ApiClient::ApiClient(ApiClient&& other) noexcept = default;
ApiClient& ApiClient::operator=(ApiClient&& other) noexcept = default;

Error ApiClient::no_answer(int error) const {
  const auto cause = static_cast<httplib::Error>(error);
  std::string text = fmt::format("no answer from {} ({})", base_url_, httplib::to_string(cause));
  if (cause == httplib::Error::SSLServerVerification) {
    text = fmt::format(
        "the certificate of {} is not trusted, or is for another name than the URL's; "
        "SSL_CERT_FILE=certificate.pem says whom to trust",
        base_url_);
  } else if (server_ == Server::Chosen) {
    text += "; `baton up` starts a cluster, --base-url or BATON_BASE_URL names another";
  }
  return Error{ErrorCode::Unavailable, std::move(text)};
}

Result<int> ApiClient::probe(const std::string& path) {
  const httplib::Result answer = client_->Get(path);
  if (!answer) {
    return std::unexpected(no_answer(static_cast<int>(answer.error())));
  }
  return answer->status;
}

Result<json::value> ApiClient::get(const std::string& path) {
  const httplib::Result answer = client_->Get(path);
  if (!answer) {
    return std::unexpected(no_answer(static_cast<int>(answer.error())));
  }
  if (answer->status != 200) {
    return std::unexpected(error_of(answer->status, answer->body));
  }
  return parse_body(answer->body);
}

Result<json::value> ApiClient::post(const std::string& path, const json::value& body) {
  const httplib::Result answer = client_->Post(path, json::serialize(body), "application/json");
  if (!answer) {
    return std::unexpected(no_answer(static_cast<int>(answer.error())));
  }
  if (answer->status != 200) {
    return std::unexpected(error_of(answer->status, answer->body));
  }
  return parse_body(answer->body);
}

Status ApiClient::stream(const std::string& path,
                         const json::value& body,
                         const std::function<bool(const json::value&)>& on_event) {
  httplib::Request request;
  request.method = "POST";
  request.path = path;
  request.set_header("Content-Type", "application/json");
  request.set_header("Accept", "text/event-stream");
  request.body = json::serialize(body);
  int status = 0;
  std::string refusal;  // the body of an answer that is no stream
  EventSplitter splitter;
  Status result;
  bool done = false;
  request.response_handler = [&](const httplib::Response& response) {
    status = response.status;
    return true;
  };
  const auto on_data = [&](std::string_view data) {
    if (data == "[DONE]") {
      done = true;
      return true;
    }
    json::error_code bad;
    const json::value event = json::parse(data, bad);
    if (bad) {
      result = fail(ErrorCode::ProtocolError, "an event is no JSON: " + std::string(data));
      return false;
    }
    if (event.is_object() && event.as_object().contains("error")) {
      result = std::unexpected(error_of_event(std::string(data)));
      return false;
    }
    if (!on_event(event)) {
      result = fail(ErrorCode::Cancelled, "stopped");
      return false;
    }
    return true;
  };
  request.content_receiver =
      [&](const char* bytes, std::size_t size, std::uint64_t, std::uint64_t) {
        if (status != 200) {
          refusal.append(bytes, size);
          return true;
        }
        return splitter.feed(std::string_view(bytes, size), on_data);
      };
  const httplib::Result answer = client_->send(request);
  if (!result) {
    return result;
  }
  if (status != 0 && status != 200) {
    return std::unexpected(error_of(status, refusal));
  }
  if (!answer && !done) {
    return std::unexpected(no_answer(static_cast<int>(answer.error())));
  }
  if (!done) {
    return fail(ErrorCode::ProtocolError, "the stream ended without [DONE]");
  }
  return {};
}

void ApiClient::stop() {
  client_->stop();
}

Result<std::string> ApiClient::first_model() {
  BATON_ASSIGN(const json::value models, get("/v1/models"));
  json::error_code bad;
  const json::value* id = models.find_pointer("/data/0/id", bad);
  if (id == nullptr || !id->is_string()) {
    return fail(ErrorCode::Unavailable, base_url_ + " serves no model yet");
  }
  return std::string(id->as_string());
}

bool EventSplitter::feed(std::string_view bytes,
                         const std::function<bool(std::string_view)>& on_data) {
  pending_ += bytes;
  std::size_t from = 0;
  bool wanted = true;
  for (std::size_t end = 0; wanted && (end = pending_.find("\n\n", from)) != std::string::npos;
       from = end + 2) {
    std::string_view event = std::string_view(pending_).substr(from, end - from);
    std::string data;
    while (!event.empty()) {
      const std::size_t newline = std::min(event.find('\n'), event.size());
      std::string_view line = event.substr(0, newline);
      event.remove_prefix(std::min(newline + 1, event.size()));
      if (line.starts_with("data:")) {
        line.remove_prefix(line.starts_with("data: ") ? 6 : 5);
        data += (data.empty() ? "" : "\n");
        data += line;
      }
    }
    if (!data.empty()) {
      wanted = on_data(data);
    }
  }
  pending_.erase(0, from);
  return wanted;
}

}  // namespace baton::cli
