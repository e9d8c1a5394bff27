// baton drain: a node takes nothing new, its requests go on elsewhere, and the operator hears when
// it may be stopped.
#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "cli/command.h"
#include "cli/http/api_client.h"
#include "cli/signals.h"
#include "common/config/cluster_config.h"
#include "common/config/gateways.h"

namespace baton::cli {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kLookEvery{200};
constexpr milliseconds kHandBack{10'000};  // after the limit, for what is handed back to be over

struct DrainArguments {
  std::string node;
  std::string limit = "30s";
  std::string base_url = "http://127.0.0.1:8000/v1";
  std::string config;
};

// "500ms", "30s", "2m", "0".
std::optional<milliseconds> parse_limit(const std::string& text) {
  std::uint64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [unit, fault] = std::from_chars(text.data(), end, value);
  const std::string_view name(unit, static_cast<std::size_t>(end - unit));
  if (fault != std::errc() || value > 1'000'000) {
    return std::nullopt;
  }
  if (name == "ms" || (value == 0 && name.empty())) {
    return milliseconds(value);
  }
  if (name == "s") {
    return std::chrono::seconds(value);
  }
  return name == "m" ? std::optional<milliseconds>(std::chrono::minutes(value)) : std::nullopt;
}

// What a gateway says of one node.
struct NodeState {
  bool is_draining = false;
  std::uint64_t requests = 0;
  std::uint64_t prompt_tokens = 0;

  bool is_idle() const { return is_draining && requests == 0 && prompt_tokens == 0; }
};

std::uint64_t count_of(const json::object& fields, const char* key) {
  const json::value* value = fields.if_contains(key);
  return value != nullptr && value->is_number() ? value->to_number<std::uint64_t>() : 0;
}

Result<json::array> nodes_of(ApiClient& client) {
  BATON_ASSIGN(const json::value status, client.get("/baton/status"));
  const json::object* object = status.if_object();
  const json::value* nodes = object == nullptr ? nullptr : object->if_contains("nodes");
  if (nodes == nullptr || !nodes->is_array()) {
    return fail(ErrorCode::ProtocolError, "the gateway's status has no nodes");
  }
  return nodes->as_array();
}

std::string text(const json::value& node, const char* key) {
  const json::object* fields = node.if_object();
  const json::value* value = fields == nullptr ? nullptr : fields->if_contains(key);
  return value != nullptr && value->is_string() ? std::string(value->as_string()) : std::string();
}

// Nothing when the gateway does not know the node (any more).
Result<std::optional<NodeState>> look(ApiClient& client, const std::string& node) {
  BATON_ASSIGN(const json::array nodes, nodes_of(client));
  for (const json::value& entry : nodes) {
    if (text(entry, "name") != node) {
      continue;
    }
    const json::object& fields = entry.as_object();
    return NodeState{.is_draining = text(entry, "state") == "draining",
                     .requests = std::max({count_of(fields, "running"),
                                           count_of(fields, "credits_used"),
                                           count_of(fields, "sequences_given")}),
                     .prompt_tokens = count_of(fields, "queued_tokens")};
  }
  return std::optional<NodeState>();
}

// Says so when no other node could do what this one does.
void warn_if_last(const json::array& nodes, const std::string& name) {
  const auto self = std::ranges::find_if(
      nodes, [&](const json::value& node) { return text(node, "name") == name; });
  if (self == nodes.end()) {
    return;
  }
  if (text(*self, "state") == "draining") {
    return;  // it takes none already
  }
  const auto takes_over = [&](const json::value& node) {
    return text(node, "name") != name && text(node, "role") == text(*self, "role") &&
           text(node, "model") == text(*self, "model") && text(node, "state") == "alive";
  };
  if (std::ranges::none_of(nodes, takes_over)) {
    fmt::print(stderr,
               "baton drain: warning: {} is the last {} node of {} that takes requests; they wait, "
               "then fail, until another one has started\n",
               name,
               text(*self, "role"),
               text(*self, "model"));
  }
}

int wait_until_idle(ApiClient& client, const std::string& node, milliseconds limit) {
  SignalWatch signals;
  const auto start = steady_clock::now();
  std::string said;
  while (true) {
    const auto state = look(client, node);
    if (!state) {
      return report("drain", state.error());
    }
    if (!*state) {
      return report("drain",
                    {ErrorCode::PeerDead, fmt::format("{} left before it was idle", node)});
    }
    if ((*state)->is_idle()) {
      fmt::print("{}: idle, it may be stopped\n", node);
      return kDone;
    }
    if (steady_clock::now() - start > limit + kHandBack) {
      return report("drain",
                    {ErrorCode::Timeout,
                     fmt::format("{} still has {} requests in work", node, (*state)->requests)});
    }
    const std::string now = (*state)->is_draining
                                ? fmt::format("draining, waits for {} requests", (*state)->requests)
                                : "waits until the node says that it drains";
    if (now != said) {
      fmt::print("{}: {}\n", node, now);
      std::fflush(stdout);
      said = now;
    }
    pollfd watched{signals.fd(), POLLIN, 0};
    ::poll(&watched, 1, static_cast<int>(kLookEvery.count()));
    if (signals.take()) {
      fmt::print(stderr, "baton drain: {} goes on draining\n", node);
      return kInterrupted;
    }
  }
}

int run(const DrainArguments& arguments) {
  const auto limit = parse_limit(arguments.limit);
  if (!limit) {
    return report(
        "drain",
        {ErrorCode::InvalidConfig,
         "--limit takes a number with ms, s or m behind it, as in 30s; not " + arguments.limit});
  }
  std::string url = arguments.base_url;
  if (!arguments.config.empty()) {
    const auto config = load_config(arguments.config, {});
    if (!config) {
      return report("drain", config.error());
    }
    url = (config->gateway.tls.certificate.empty() ? "http://" : "https://") +
          gateways_of(*config).front().listen;
  }
  ApiClient client(url);
  if (const auto nodes = nodes_of(client)) {
    warn_if_last(*nodes, arguments.node);
  }
  const auto answer = client.post(
      fmt::format("/v1/baton/nodes/{}/drain?limit_ms={}", arguments.node, limit->count()),
      json::object());
  if (!answer) {
    return report("drain", answer.error());
  }
  return wait_until_idle(client, arguments.node, *limit);
}

}  // namespace

void add_drain(CLI::App& app, Action& chosen) {
  auto arguments = std::make_shared<DrainArguments>();
  CLI::App* command =
      app.add_subcommand("drain", "Empty a node: its requests end or go on at other nodes");
  command->add_option("node", arguments->node, "The node, as `baton status` names it")->required();
  command
      ->add_option("--limit",
                   arguments->limit,
                   "Time for requests to end here, with ms, s or m behind it; 0: none")
      ->capture_default_str();
  command->add_option("--base-url", arguments->base_url, "A gateway's API")
      ->envname("BATON_BASE_URL")
      ->capture_default_str();
  command->add_option(
      "--config", arguments->config, "Cluster configuration whose gateway is asked instead");
  command->footer(
      "The node takes nothing new from now on. What has not ended at the limit is handed back and\n"
      "goes on at another node, with the same tokens. The node stays registered; stop it with\n"
      "SIGTERM once this says that it is idle. There is no way back but to start it again.\n"
      "Exit status: 0 idle; 1 unknown node, lost, or not idle 10 s after the limit; 2 wrong\n"
      "arguments; 130 interrupted, the node goes on draining.\n"
      "Where the gateway has keys, BATON_API_KEY holds the one to show.\n"
      "Examples:\n"
      "  baton drain decode-1\n"
      "  baton drain prefill-0 --limit 0 --base-url http://gateway:8000");
  command->callback([arguments, &chosen] { chosen = [arguments] { return run(*arguments); }; });
}

}  // namespace baton::cli
