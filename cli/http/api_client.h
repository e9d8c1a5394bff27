// A client of the gateway's HTTP API for tools: plain calls and streamed answers. It shows the key
// in the environment's BATON_API_KEY, when there is one.
//
// Thread: one caller at a time; `stop` from any thread ends a call that is under way. Failure:
// Unavailable when nobody answers, else the sentence of the server's error object: behind the HTTP
// status, or, where it came in a stream that had begun, before the error's own code.
#pragma once

#include <boost/json.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "common/base/error.h"

namespace httplib {
class Client;
}

namespace baton::cli {

namespace json = boost::json;

class ApiClient {
 public:
  enum class Server : std::uint8_t {
    Chosen,  // by the operator, who gets advice where it does not answer
    Child    // a plain listener of a process of ours: sees no key
  };

  // "http://host:port" or "https://…", with or without "/v1" behind it.
  explicit ApiClient(const std::string& base_url, Server server = Server::Chosen);
  ~ApiClient();
  ApiClient(ApiClient&& other) noexcept;
  ApiClient& operator=(ApiClient&& other) noexcept;
  ApiClient(const ApiClient&) = delete;
  ApiClient& operator=(const ApiClient&) = delete;

  const std::string& base_url() const { return base_url_; }

  // The HTTP status alone; Unavailable when nobody answers.
  Result<int> probe(const std::string& path);
  Result<json::value> get(const std::string& path);
  Result<json::value> post(const std::string& path, const json::value& body);
  // Calls `on_event` with each event of a streamed answer; false from it ends the call (Cancelled).
  // An error event ends it with that error.
  Status stream(const std::string& path,
                const json::value& body,
                const std::function<bool(const json::value&)>& on_event);
  void stop();
  // The first model served.
  Result<std::string> first_model();

 private:
  Error no_answer(int error) const;  // a value of httplib's

  std::string base_url_;
  Server server_;
  std::unique_ptr<httplib::Client> client_;
};

// Splits a stream of server-sent events into their data; feed it bytes as they come.
class EventSplitter {
 public:
  // Calls `on_data` with the data of each event that became whole; false from it ends the feeding.
  bool feed(std::string_view bytes, const std::function<bool(std::string_view)>& on_data);

 private:
  std::string pending_;  // bytes of an event that is not whole yet
};

}  // namespace baton::cli
