// baton status: what the gateway knows of its nodes, as a table or as JSON.
#include <fmt/format.h>
#include <poll.h>

#include <memory>

#include "cli/command.h"
#include "cli/http/api_client.h"
#include "cli/signals.h"

namespace baton::cli {
namespace {

struct StatusArguments {
  std::string base_url = "http://127.0.0.1:8000/v1";
  bool watch = false;
  bool json = false;
};

std::string cell(const json::object& node, const char* key) {
  const json::value* value = node.if_contains(key);
  if (value == nullptr || value->is_null()) {
    return "-";
  }
  if (value->is_string()) {
    return std::string(value->as_string());
  }
  return json::serialize(*value);
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
  constexpr const char* kColumns[] = {"name",
                                      "role",
                                      "state",
                                      "blocks_free",
                                      "blocks_total",
                                      "running",
                                      "queued_tokens",
                                      "address"};
  constexpr const char* kTitles[] = {
      "NODE", "ROLE", "STATE", "FREE", "BLOCKS", "RUNNING", "QUEUED", "ADDRESS"};
  fmt::print("\n");
  for (const char* title : kTitles) {
    fmt::print("{:<14}", title);
  }
  fmt::print("\n");
  for (const json::value& node : nodes->as_array()) {
    if (const json::object* fields = node.if_object()) {
      for (const char* column : kColumns) {
        fmt::print("{:<14}", cell(*fields, column));
      }
      fmt::print("\n");
    }
  }
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
      "Examples:\n"
      "  baton status\n"
      "  baton status --base-url http://gateway:8000 --watch");
  command->callback([arguments, &chosen] { chosen = [arguments] { return run(*arguments); }; });
}

}  // namespace baton::cli
