// What the client makes of a server's errors.
#include "cli/http/api_client.h"

#include <gtest/gtest.h>
#include <httplib.h>

#include <string>
#include <thread>

#include "cli/chat/generation.h"

namespace baton::cli {
namespace {

// Answers every POST alike. It listens once it is there; at least one call must be made.
class Server {
 public:
  Server(int status, const std::string& type, const std::string& body) {
    server_.Post(".*", [=](const httplib::Request&, httplib::Response& response) {
      response.status = status;
      response.set_content(body, type.c_str());
    });
    port_ = server_.bind_to_any_port("127.0.0.1");
    thread_ = std::thread([this] { server_.listen_after_bind(); });
  }
  ~Server() {
    server_.stop();
    thread_.join();
  }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;
  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }

 private:
  httplib::Server server_;
  int port_ = 0;
  std::thread thread_;
};

Generation generated(const Server& server, std::string& shown) {
  ApiClient client(server.url());
  return generate(client, "/v1/chat/completions", {}, [&](std::string_view text) {
    shown += text;
    return true;
  });
}

std::string stream_ending_in(const std::string& error) {
  return "data: {\"choices\":[{\"delta\":{\"content\":\"Hello\"}}]}\n\ndata: {\"error\":" + error +
         "}\n\ndata: [DONE]\n\n";
}

TEST(ApiClient, BaseUrlWithAndWithoutVersion) {
  EXPECT_EQ(ApiClient("http://127.0.0.1:1/v1/").base_url(), "http://127.0.0.1:1");
  EXPECT_EQ(ApiClient("http://127.0.0.1:1").base_url(), "http://127.0.0.1:1");
  const auto answer = ApiClient("http://127.0.0.1:1").get("/v1/models");
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, ErrorCode::Unavailable);
}

TEST(ApiClient, AnErrorInsideOfAStreamIsToldByItsOwnMessageAndCode) {
  struct Case {
    std::string error;
    std::string message;
    ErrorCode code;
  };
  for (
      const Case& one : {
          Case{
              R"({"message":"A node failed.","type":"server_error","code":"upstream_unreachable"})",
              "A node failed. (upstream_unreachable)",
              ErrorCode::Unavailable},
          Case{R"({"message":"Too late.","code":"rate_limit_exceeded"})",
               "Too late. (rate_limit_exceeded)",
               ErrorCode::Busy},
          Case{R"({"message":"Of another server.","code":400})",
               "Of another server. (400)",
               ErrorCode::Unavailable},
          Case{R"({"message":"No code.","code":null})", "No code.", ErrorCode::Unavailable},
          Case{R"("Just text.")", "Just text.", ErrorCode::Unavailable},
      }) {
    const Server server(200, "text/event-stream", stream_ending_in(one.error));
    std::string shown;
    const Generation made = generated(server, shown);
    ASSERT_FALSE(made.status);
    EXPECT_EQ(made.status.error().message, one.message);
    EXPECT_EQ(made.status.error().code, one.code);
    EXPECT_EQ(shown, "Hello");
  }
}

TEST(ApiClient, AnErrorInPlaceOfAStreamIsToldByItsStatus) {
  const Server server(404, "application/json", R"({"error":{"message":"No such model."}})");
  std::string shown;
  const Generation made = generated(server, shown);
  ASSERT_FALSE(made.status);
  EXPECT_EQ(made.status.error().message, "HTTP 404: No such model.");
  EXPECT_EQ(made.status.error().code, ErrorCode::NotFound);
}

}  // namespace
}  // namespace baton::cli
