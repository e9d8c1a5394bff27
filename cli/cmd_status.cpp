// baton status: what the gateway knows of its nodes, as a table or as JSON.
#include <fmt/format.h>
#include <poll.h>

#include <memory>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/http/api_client.h"
#include "cli/pool_lines.h"
#include "cli/signals.h"
#include "cli/table.h"

namespace baton::cli {
namespace {

struct StatusArguments {
  std::string base_url = "http://127.0.0.1:8000/v1";
  bool watch = false;
  bool json = false;
};

// What gets no work: pairs whose blocks arrived changed, and what has failed again and again.
void print_faults(const json::object& status) {
  for (const json::object* pair : objects_of(status, "pairs_out")) {
    fmt::print("pair {} {}: out until one is started anew, blocks arrived changed\n",
               cell(*pair, "prefill"),
               cell(*pair, "decode"));
  }
  for (const json::object* part : objects_of(status, "breakers")) {
    const bool is_pair = part->contains("decode");
    fmt::print("{} {}{}: breaker {}, {} faults in a row, {} ms left\n",
               is_pair ? "pair" : "node",
               cell(*part, "node"),
               is_pair ? " " + cell(*part, "decode") : "",
               cell(*part, "state"),
               cell(*part, "faults"),
               cell(*part, "open_for_ms"));
  }
}

// Titles with their units, then a row a node.
std::vector<Row> rows_of(const json::array& nodes) {
  std::vector<Row> rows{{"NODE",
                         "ROLE",
                         "STATE",
                         "MODEL",
                         "KV FREE",
                         "KV BLOCKS",
                         "RUNNING",
                         "QUEUED tokens",
                         "STEP ms",
                         "RSS MiB",
                         "ADDRESS"}};
  for (const json::value& entry : nodes) {
    const json::object* node = entry.if_object();
    if (node == nullptr) {
      continue;
    }
    const bool is_decode = cell(*node, "role") == "decode";
    rows.push_back(
        {cell(*node, "name"),
         cell(*node, "role"),
         cell(*node, "state"),
         cell(*node, "model"),
         cell(*node, "blocks_free"),
         cell(*node, "blocks_total"),
         is_decode ? fmt::format("{}/{}", cell(*node, "running"), cell(*node, "max_batch"))
                   : fmt::format("{}/{}", cell(*node, "credits_used"), cell(*node, "credit_limit")),
         cell(*node, "queued_tokens"),
         is_decode ? fmt::format("{:.1f}", number(*node, "decode_step_ms")) : "-",
         fmt::format("{:.0f}", number(*node, "rss_bytes") / (1 << 20)),
         cell(*node, "address").empty() ? "-" : cell(*node, "address")});
  }
  return rows;
}

void print_table(const json::value& status) {
  const json::object* object = status.if_object();
  const json::value* nodes = object == nullptr ? nullptr : object->if_contains("nodes");
  if (nodes == nullptr || !nodes->is_array()) {
    fmt::print("{}\n", json::serialize(status));
    return;
  }
  for (const auto& entry : *object) {
    if (entry.key() != "nodes" && !entry.value().is_structured()) {
      fmt::print("{}: {}  ", std::string_view(entry.key()), cell(*object, entry.key_c_str()));
    }
  }
  fmt::print("\n{}", pool_lines(*object));
  print_columns(rows_of(nodes->as_array()));
  print_faults(*object);
}

int show(ApiClient& client, bool as_json) {
  const Result<json::value> status = client.get("/baton/status");
  if (!status) {
    return report("status", status.error());
  }
  if (as_json) {
    fmt::print("{}\n", json::serialize(*status));
  } else {
    print_table(*status);
  }
  std::fflush(stdout);
  return kDone;
}

int run(const StatusArguments& arguments) {
  ApiClient client(arguments.base_url);
  if (!arguments.watch) {
    return show(client, arguments.json);
  }
  SignalWatch signals;
  while (true) {
    if (!arguments.json) {
      fmt::print("\033[H\033[2J");
    }
    show(client, arguments.json);
    pollfd watched{signals.fd(), POLLIN, 0};
    ::poll(&watched, 1, 1000);
    if (signals.take()) {
      return kInterrupted;
    }
  }
}

}  // namespace

void add_status(CLI::App& app, Action& chosen) {
  auto arguments = std::make_shared<StatusArguments>();
  CLI::App* command = app.add_subcommand("status", "Show the nodes a gateway knows");
  command->add_option("--base-url", arguments->base_url, "Where the gateway's API is")
      ->envname("BATON_BASE_URL")
      ->capture_default_str();
  command->add_flag("--watch", arguments->watch, "Again every second, until Ctrl-C");
  command->add_flag("--json", arguments->json, "The gateway's answer as it is");
  command->footer(
      "RUNNING: sequences of a decode node's batch, or prompts of this gateway at a prefill node,\n"
      "and the most that it takes. QUEUED: prompt tokens that are not computed yet. RSS: memory\n"
      "of its process.\n"
      "Where the gateway has keys, BATON_API_KEY holds the one to show.\n"
      "Examples:\n"
      "  baton status\n"
      "  baton status --base-url http://gateway:8000 --watch");
  command->callback([arguments, &chosen] { chosen = [arguments] { return run(*arguments); }; });
}

}  // namespace baton::cli
