// baton-gateway-probe: the processes around the gateway in `baton bench gateway`: `nodes`, a
// scripted prefill and decode node; `bare`, a server that repeats one answer.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <fstream>
#include <iterator>

#include "bench/gateway/bare_server.h"
#include "bench/gateway/scripted_nodes.h"
#include "common/base/file_limit.h"

int main(int argc, char** argv) {
  using std::chrono::milliseconds;
  baton::bench::ScriptedNodesOptions nodes;
  std::uint32_t prefill_ms = 0;
  std::uint32_t token_gap_ms = 0;
  std::uint16_t port = 0;
  std::string answer_file;
  bool awake = false;
  CLI::App app{"The processes around the gateway in `baton bench gateway`", "baton-gateway-probe"};
  app.require_subcommand(1);
  CLI::App* nodes_command = app.add_subcommand("nodes", "A scripted prefill and decode node");
  nodes_command->add_option("--gateway", nodes.gateway, "Control address")->required();
  nodes_command->add_option("--token", nodes.token, "Of the cluster")->required();
  nodes_command->add_option("--model", nodes.model, "File with the tokenizer")->required();
  nodes_command->add_option("--prefill-ms", prefill_ms);
  nodes_command->add_option("--token-gap-ms", token_gap_ms);
  nodes_command->add_option("--max-batch", nodes.max_batch);
  nodes_command->add_option("--credits", nodes.credits);
  CLI::App* bare_command = app.add_subcommand("bare", "A server that repeats one answer");
  bare_command->add_option("--port", port)->required();
  bare_command->add_option("--answer", answer_file, "File with head and body")->required();
  bare_command->add_flag("--awake", awake, "Never sleeps, as a worker on another host");
  CLI11_PARSE(app, argc, argv);

  baton::raise_file_limit();
  baton::Status status;
  if (bare_command->parsed()) {
    std::ifstream in(answer_file, std::ios::binary);
    const std::string answer{std::istreambuf_iterator<char>(in), {}};
    status = baton::bench::run_bare_server(port, answer, awake);
  } else {
    nodes.prefill = milliseconds(prefill_ms);
    nodes.token_gap = milliseconds(token_gap_ms);
    status = baton::bench::run_scripted_nodes(nodes);
  }
  if (!status) {
    fmt::print(stderr, "baton-gateway-probe: {}\n", status.error().message);
    return 1;
  }
  return 0;
}
