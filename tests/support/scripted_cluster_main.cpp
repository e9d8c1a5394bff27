// scripted_cluster: a real gateway with scripted nodes in one process, for clients under test.
// Prints its base URL and serves until its standard input ends.
//
// The answer is what follows "say:" in the prompt, else "Hello world"; with "fail:" in the prompt
// decode ends with an error at the fifth token. Token id = byte.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>

#include "common/exec/asio_executor.h"
#include "common/rpc/tcp_network.h"
#include "gateway/gateway.h"
#include "tests/support/byte_tokenizer.h"
#include "tests/support/scripted_node.h"

namespace {

using baton::GenerateRequest;
using baton::TokenId;

std::string text_of(const std::vector<TokenId>& tokens) {
  std::string text;
  for (const TokenId id : tokens) {
    text += id < 256 ? static_cast<char>(id) : '\0';
  }
  return text;
}

std::vector<TokenId> answer_to(const GenerateRequest& request) {
  const std::string prompt = text_of(request.prompt);
  const std::size_t say = prompt.rfind("say:");
  if (say == std::string::npos) {
    return baton::testing::byte_tokens("Hello world");
  }
  const std::size_t begin = say + 4;
  return baton::testing::byte_tokens(prompt.substr(begin, prompt.find('\0', begin) - begin));
}

}  // namespace

int main(int argc, char** argv) {
  baton::ClusterConfig config;
  config.cluster.token = "scripted";
  config.model.id = "scripted";
  config.gateway.listen = "127.0.0.1:0";
  config.gateway.control_listen = "127.0.0.1:0";
  std::uint32_t nodes_each = 1;
  std::uint32_t step_ms = 0;
  std::uint32_t prefill_ms = 0;
  std::string log_level = "warn";
  CLI::App app{"A gateway with scripted nodes", "scripted_cluster"};
  app.add_option("--listen", config.gateway.listen, "host:port of the API")->capture_default_str();
  app.add_option("--io-threads", config.gateway.io_threads)->capture_default_str();
  app.add_option("--queue-limit", config.gateway.queue_limit)->capture_default_str();
  app.add_option("--nodes", nodes_each, "of each role")->capture_default_str();
  app.add_option("--step-ms", step_ms, "between two tokens")->capture_default_str();
  app.add_option("--prefill-ms", prefill_ms, "to the first token")->capture_default_str();
  app.add_option("--reasoning", config.model.reasoning_parser)->capture_default_str();
  app.add_option("--log", log_level)->capture_default_str();
  CLI11_PARSE(app, argc, argv);

  const auto log = baton::Logger::create({log_level, "text", "scripted"});
  if (!log) {
    return 1;
  }
  auto gateway = baton::gateway::Gateway::start(config, *log);
  if (!gateway) {
    fmt::print(stderr, "scripted_cluster: {}\n", gateway.error().message);
    return 1;
  }
  baton::ControlThread thread("nodes");
  baton::TcpNetwork network(thread.executor(), *log);
  std::unique_ptr<baton::testing::ScriptedCluster> cluster;
  thread.run_and_wait([&] {
    cluster = std::make_unique<baton::testing::ScriptedCluster>(thread.executor(), network);
    baton::testing::NodeScript script;
    script.answer = answer_to;
    script.step = std::chrono::milliseconds(step_ms);
    script.prefill_delay = std::chrono::milliseconds(prefill_ms);
    script.max_batch = 20'000;
    script.credits = 20'000;
    script.blocks = 1'000'000;
    script.decode_error_at = 5;
    script.fails = [](const GenerateRequest& request) {
      return text_of(request.prompt).find("fail:") != std::string::npos;
    };
    for (std::uint32_t i = 0; i < nodes_each; ++i) {
      for (const char* role : {"prefill", "decode"}) {
        baton::testing::ScriptedNodeOptions options;
        options.name = fmt::format("{}-{}", role, i);
        options.role = role;
        options.gateway = (*gateway)->control_address();
        options.token = config.cluster.token;
        cluster->add(options, script);
      }
    }
  });
  fmt::print("http://{}/v1\n", (*gateway)->http_address());
  std::fflush(stdout);
  while (std::getchar() != EOF) {
  }
  thread.run_and_wait([&] { cluster.reset(); });
  thread.stop();
  (*gateway)->stop();
  return 0;
}
