// A whole gateway with real sockets on port 0 against scripted nodes over real TCP.
//
// Owner: a test. Thread: the test's. Failure: what cannot be set up fails the test.
#pragma once

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <simdjson.h>

#include <algorithm>
#include <thread>

#include "common/exec/asio_executor.h"
#include "common/rpc/tcp_network.h"
#include "gateway/gateway.h"
#include "tests/support/byte_tokenizer.h"
#include "tests/support/raw_http_client.h"
#include "tests/support/scripted_node.h"

namespace baton::gateway {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;
using testing::http_call;
using testing::http_request;
using testing::NodeScript;
using ::testing::Not;
using testing::RawHttpClient;
using testing::RawReply;
using testing::ScriptedNode;
using testing::ScriptedNodeOptions;
using testing::sse_events;

inline constexpr const char* kChat =
    R"({"model":"scripted","messages":[{"role":"user","content":"hi"}])";
inline constexpr const char* kCompletion = R"({"model":"scripted","prompt":"hi","max_tokens":100)";

inline std::string chat(const std::string& more = "") {
  return kChat + more + "}";
}
inline std::string completion(const std::string& more = "") {
  return kCompletion + more + "}";
}

// A value inside a JSON text by JSON pointer, as JSON.
inline std::string at(const std::string& text, const std::string& pointer) {
  simdjson::dom::parser parser;
  simdjson::dom::element value;
  if (parser.parse(text).at_pointer(pointer).get(value) != simdjson::SUCCESS) {
    return "absent";
  }
  std::string_view string;
  return value.get(string) == simdjson::SUCCESS ? std::string(string)
                                                : std::string(simdjson::minify(value));
}

class GatewayTest : public ::testing::Test {
 protected:
  GatewayTest() : nodes("nodes"), network(nodes.executor(), log) {
    config.cluster.token = "secret";
    config.cluster.heartbeat = milliseconds(100);
    config.gateway.listen = "127.0.0.1:0";
    config.gateway.control_listen = "127.0.0.1:0";
    config.model.id = "configured";
    tuning.tick = milliseconds(20);
  }
  void TearDown() override {
    nodes.run_and_wait([this] { cluster.reset(); });
    nodes.stop();
    if (gateway) {
      gateway->stop();
    }
  }

  void start() {
    auto started = Gateway::start(config, log, tuning);
    ASSERT_TRUE(started) << started.error().message;
    gateway = std::move(*started);
    nodes.run_and_wait([this] {
      cluster = std::make_unique<testing::ScriptedCluster>(nodes.executor(), network);
    });
  }
  void start_pair(NodeScript prefill = {}, NodeScript decode = {}) {
    start();
    add("p0", std::move(prefill));
    add("d0", std::move(decode));
    wait_status(200);
  }
  void add(const std::string& name, NodeScript script = {}) {
    ScriptedNodeOptions options;
    options.name = name;
    options.role = name[0] == 'd' ? "decode" : "prefill";
    options.gateway = gateway->control_address();
    options.token = "secret";
    nodes.run_and_wait([&] { cluster->add(options, std::move(script)); });
  }
  // Until /readyz says so.
  void wait_status(int status) {
    RawHttpClient client(gateway->http_address());
    RawReply reply;
    do {
      client.send(http_request("GET", "/readyz"));
      reply = client.read_reply();
    } while (reply.status != status && reply.status != 0);
    ASSERT_EQ(reply.status, status);
  }
  testing::NodeCounts counts(const std::string& name) {
    testing::NodeCounts result;
    nodes.run_and_wait([&] { result = cluster->node(name).counts(); });
    return result;
  }
  GenerateRequest last_request(const std::string& name) {
    GenerateRequest result;
    nodes.run_and_wait([&] {
      const auto& seen = cluster->node(name).seen();
      result = seen.empty() ? GenerateRequest{} : seen.back();
    });
    return result;
  }
  template <class Condition>
  void wait_counts(const std::string& name, Condition condition) {
    while (!condition(counts(name))) {
      std::this_thread::yield();
    }
  }
  RawReply post(const std::string& path, const std::string& body, const std::string& more = "") {
    return http_call(
        gateway->http_address(), "POST", path, body, "Content-Type: application/json\r\n" + more);
  }
  RawReply metrics() { return http_call(gateway->admin_address(), "GET", "/metrics"); }
  RawReply get(const std::string& path) { return http_call(gateway->http_address(), "GET", path); }

  const Logger log = Logger::silent();
  ClusterConfig config;
  GatewayTuning tuning;
  ControlThread nodes;
  TcpNetwork network;
  std::unique_ptr<testing::ScriptedCluster> cluster;  // on the nodes' strand
  std::unique_ptr<Gateway> gateway;
};

}  // namespace baton::gateway
