// baton trace: where the time of one request went, or which requests ended last.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/http/api_client.h"
#include "cli/table.h"

namespace baton::cli {
namespace {

constexpr double kBarWidth = 50;  // characters for the whole of a request

struct TraceArguments {
  std::string request;
  std::string base_url = "http://127.0.0.1:8000/v1";
  bool json = false;
};

std::string milliseconds(double us) {
  return fmt::format("{:.1f}", us / 1e3);
}

// "prefill-0 > decode-0", or one node that did both.
std::string nodes_of(const json::object& request) {
  const std::string prefill = cell(request, "prefill_node");
  const std::string decode = cell(request, "decode_node");
  if (decode.empty()) {
    return "-";
  }
  return prefill == decode ? decode : prefill + " > " + decode;
}

// Local time of day.
std::string time_of(const json::object& request) {
  const auto seconds = static_cast<std::time_t>(number(request, "ended_unix_ms") / 1e3);
  std::tm local{};
  ::localtime_r(&seconds, &local);
  return fmt::format("{:02}:{:02}:{:02}", local.tm_hour, local.tm_min, local.tm_sec);
}

void print_list(const json::object& answer) {
  std::vector<Row> rows{{"ENDED",
                         "REQUEST",
                         "MODEL",
                         "TIER",
                         "NODES",
                         "PROMPT",
                         "CACHED",
                         "OUTPUT",
                         "TTFT ms",
                         "TOTAL ms",
                         "FAILOVERS",
                         "END"}};
  for (const json::object* request : objects_of(answer, "requests")) {
    rows.push_back({time_of(*request),
                    cell(*request, "id"),
                    cell(*request, "model"),
                    cell(*request, "tier"),
                    nodes_of(*request),
                    cell(*request, "prompt_tokens"),
                    cell(*request, "cached_tokens"),
                    cell(*request, "output_tokens"),
                    milliseconds(number(*request, "ttft_us")),
                    milliseconds(number(*request, "total_us")),
                    cell(*request, "failovers"),
                    cell(*request, "how")});
  }
  print_columns(rows);
}

// From `from` to `to` of `total`; at least one mark.
std::string bar(double from, double to, double total) {
  const double scale = kBarWidth / std::max(1.0, total);
  const auto begin = static_cast<std::size_t>(std::min(from * scale, kBarWidth - 1));
  const auto marks = static_cast<std::size_t>(std::max(1.0, std::round((to - from) * scale)));
  return std::string(begin, ' ') + std::string(marks, '#');
}

void print_request(const json::object& request) {
  fmt::print("request {}  model {}  tier {}  {}\n",
             cell(request, "id"),
             cell(request, "model"),
             cell(request, "tier"),
             cell(request, "how"));
  fmt::print("prompt {} tokens, {} of them cached, computed in chunks: {}\n",
             cell(request, "prompt_tokens"),
             cell(request, "cached_tokens"),
             cell(request, "chunks"));
  fmt::print("answer {} tokens, first after {} ms, last after {} ms, largest batch {}\n",
             cell(request, "output_tokens"),
             milliseconds(number(request, "ttft_us")),
             milliseconds(number(request, "total_us")),
             cell(request, "max_batch"));
  fmt::print("KV {:.1f} MB over {}, attempts {}, failovers {}\n",
             number(request, "kv_bytes") / 1e6,
             cell(request, "transport"),
             cell(request, "attempts"),
             cell(request, "failovers"));
  if (const std::string trace = cell(request, "trace_id"); trace.size() > 1) {
    fmt::print("trace {}\n", trace);
  }
  fmt::print("\n");
  std::vector<Row> rows{{"PHASE", "NODE", "FROM ms", "FOR ms", ""}};
  const double total = number(request, "total_us");
  for (const json::object* phase : objects_of(request, "phases")) {
    const double from = number(*phase, "from_us");
    const double to = number(*phase, "to_us");
    rows.push_back({cell(*phase, "name"),
                    cell(*phase, "node"),
                    milliseconds(from),
                    milliseconds(to - from),
                    bar(from, to, total)});
  }
  print_columns(rows);
}

// Of an id as clients see it: letters, digits, '-' and '_' need no escape in a path.
bool is_id(const std::string& text) {
  return std::ranges::all_of(
      text, [](unsigned char c) { return std::isalnum(c) != 0 || c == '-' || c == '_'; });
}

int run(const TraceArguments& arguments) {
  if (!is_id(arguments.request)) {
    return report("trace",
                  {ErrorCode::InvalidConfig,
                   "an id has letters, digits, '-' and '_' only; not '" + arguments.request + "'"});
  }
  ApiClient client(arguments.base_url);
  const bool is_list = arguments.request.empty();
  const Result<json::value> answer =
      client.get(is_list ? "/baton/requests" : "/baton/requests/" + arguments.request);
  if (!answer) {
    return report("trace", answer.error());
  }
  const json::object* fields = answer->if_object();
  if (arguments.json || fields == nullptr) {
    fmt::print("{}\n", json::serialize(*answer));
  } else if (is_list) {
    print_list(*fields);
  } else {
    print_request(*fields);
  }
  return kDone;
}

}  // namespace

void add_trace(CLI::App& app, Action& chosen) {
  auto arguments = std::make_shared<TraceArguments>();
  CLI::App* command =
      app.add_subcommand("trace", "Show where the time of a request went, or the last requests");
  command->add_option("request",
                      arguments->request,
                      "Id of an answer (chatcmpl-…), of a log line or of a trace; without: the "
                      "last requests that ended");
  command->add_option("--base-url", arguments->base_url, "Where the gateway's API is")
      ->envname("BATON_BASE_URL")
      ->capture_default_str();
  command->add_flag("--json", arguments->json, "The gateway's answer as it is");
  command->footer(
      "A gateway knows the requests in work and the last 1024 that ended there; for older ones\n"
      "export spans (gateway.tracing). Never shows a prompt or an answer. Where the gateway has\n"
      "keys: BATON_API_KEY holds one that is marked admin.\n"
      "Exit status: 0 done; 1 not known, or no gateway there; 2 wrong arguments.\n"
      "Examples:\n"
      "  baton trace\n"
      "  baton trace chatcmpl-5f0c2f8d1a7be913");
  command->callback([arguments, &chosen] { chosen = [arguments] { return run(*arguments); }; });
}

}  // namespace baton::cli
