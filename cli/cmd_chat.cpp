// baton chat: a conversation in the terminal with whatever serves the OpenAI API at a base URL.
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <optional>
#include <thread>

#include "cli/chat/generation.h"
#include "cli/command.h"
#include "cli/signals.h"

namespace baton::cli {
namespace {

struct ChatArguments {
  std::string base_url = "http://127.0.0.1:8000/v1";
  std::string model;
  std::string system = "You are a helpful assistant.";  // small models do better with one
  std::string once;
  bool figures = false;
  int max_tokens = 512;
  double temperature = 0.2;
  double top_p = 0.9;
  std::optional<std::uint64_t> seed;
};

// Runs `act` when a signal comes while it lives.
class WhileInterruptible {
 public:
  WhileInterruptible(SignalWatch& signals, std::function<void()> act)
      : signals_(signals), act_(std::move(act)) {
    if (pipe(pipe_) == 0) {
      thread_ = std::thread([this] { watch(); });
    }
  }
  ~WhileInterruptible() {
    if (thread_.joinable()) {
      close(pipe_[1]);
      thread_.join();
      close(pipe_[0]);
    }
  }
  WhileInterruptible(const WhileInterruptible&) = delete;
  WhileInterruptible& operator=(const WhileInterruptible&) = delete;
  bool happened() const { return happened_; }

 private:
  void watch() {
    pollfd watched[2] = {{signals_.fd(), POLLIN, 0}, {pipe_[0], POLLIN, 0}};
    while (::poll(watched, 2, -1) < 0) {
    }
    if (signals_.take()) {
      happened_ = true;
      act_();
    }
  }

  SignalWatch& signals_;
  std::function<void()> act_;
  std::atomic<bool> happened_{false};
  int pipe_[2] = {-1, -1};  // closed to end the thread
  std::thread thread_;
};

void print_piece(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

json::object request_body(const ChatArguments& arguments,
                          const std::string& model,
                          const json::array& messages) {
  json::object body{{"model", model},
                    {"messages", messages},
                    {"max_tokens", arguments.max_tokens},
                    {"temperature", arguments.temperature},
                    {"top_p", arguments.top_p}};
  if (arguments.seed) {
    body["seed"] = *arguments.seed;
  }
  return body;
}

json::object message(const char* role, const std::string& content) {
  return json::object{{"role", role}, {"content", content}};
}

Generation answer(ApiClient& client,
                  const ChatArguments& arguments,
                  const std::string& model,
                  const json::array& messages,
                  SignalWatch& signals) {
  Generation made;
  bool stopped = false;
  {
    std::atomic<bool> stop{false};
    WhileInterruptible watch(signals, [&] {
      stop = true;
      client.stop();
    });
    made = generate(client,
                    "/v1/chat/completions",
                    request_body(arguments, model, messages),
                    [&](std::string_view text) {
                      print_piece(text);
                      return !stop;
                    });
    stopped = watch.happened();
  }
  if (stopped) {
    made.status = fail(ErrorCode::Cancelled, "stopped");
  }
  print_piece("\n");
  return made;
}

int run_once(ApiClient& client, const ChatArguments& arguments, const std::string& model) {
  SignalWatch signals;
  json::array messages;
  if (!arguments.system.empty()) {
    messages.push_back(message("system", arguments.system));
  }
  messages.push_back(message("user", arguments.once));
  const Generation made = answer(client, arguments, model, messages, signals);
  if (!made.status) {
    report("chat", made.status.error());
    return made.status.error().code == ErrorCode::Cancelled ? kInterrupted : kFailed;
  }
  if (arguments.figures) {
    fmt::print("{}\n", made.figures_line());
  }
  return kDone;
}

// A line from stdin; nullopt at its end, and on Ctrl-C at the prompt.
std::optional<std::string> read_line(SignalWatch& signals, bool terminal) {
  while (terminal) {  // a terminal hands over whole lines, so nothing waits in std::cin's buffer
    pollfd watched[2] = {{STDIN_FILENO, POLLIN, 0}, {signals.fd(), POLLIN, 0}};
    if (::poll(watched, 2, -1) < 0) {
      continue;
    }
    if (signals.take()) {
      return std::nullopt;
    }
    break;
  }
  std::string line;
  if (!std::getline(std::cin, line)) {
    return std::nullopt;
  }
  return line;
}

int converse(ApiClient& client, const ChatArguments& arguments, const std::string& model) {
  SignalWatch signals;
  const bool terminal = isatty(STDIN_FILENO) != 0 && isatty(STDOUT_FILENO) != 0;
  const char* prompt = terminal ? "\033[1myou>\033[0m " : "";
  const char* speaker = terminal ? "\033[1mmodel>\033[0m " : "";
  if (terminal) {
    fmt::print(
        "{} at {}. /reset forgets the conversation, /figures shows the last answer's "
        "figures, Ctrl-C stops an answer, /quit leaves.\n",
        model,
        client.base_url());
  }
  json::array start;
  if (!arguments.system.empty()) {
    start.push_back(message("system", arguments.system));
  }
  json::array messages = start;
  std::string figures;
  while (true) {
    print_piece(prompt);
    const std::optional<std::string> line = read_line(signals, terminal);
    if (!line || *line == "/quit" || *line == "/exit") {
      if (terminal && !line) {
        print_piece("\n");
      }
      return kDone;
    }
    if (line->empty()) {
      continue;
    }
    if (*line == "/reset") {
      messages = start;
      fmt::print("(forgotten)\n");
      continue;
    }
    if (*line == "/figures") {
      fmt::print("{}\n", figures);
      continue;
    }
    messages.push_back(message("user", *line));
    print_piece(speaker);
    const Generation made = answer(client, arguments, model, messages, signals);
    if (!made.status && made.status.error().code != ErrorCode::Cancelled) {
      report("chat", made.status.error());
      messages.pop_back();
      if (!terminal) {
        return kFailed;
      }
      continue;
    }
    messages.push_back(message("assistant", made.text));
    figures = made.figures_line();
    if (arguments.figures) {
      fmt::print("{}\n", figures);
    }
  }
}

int run(ChatArguments arguments, bool temperature_given) {
  if (!arguments.once.empty() && !temperature_given) {
    arguments.temperature = 0;  // one answer, the same each time
  }
  ApiClient client(arguments.base_url);
  std::string model = arguments.model;
  if (model.empty()) {
    const Result<std::string> first = client.first_model();
    if (!first) {
      return report("chat", first.error());
    }
    model = *first;
  }
  return arguments.once.empty() ? converse(client, arguments, model)
                                : run_once(client, arguments, model);
}

}  // namespace

void add_chat(CLI::App& app, Action& chosen) {
  auto arguments = std::make_shared<ChatArguments>();
  CLI::App* command = app.add_subcommand("chat", "Talk to a served model");
  command->add_option("--base-url", arguments->base_url, "Where the OpenAI API is")
      ->envname("BATON_BASE_URL")
      ->capture_default_str();
  command->add_option("--model", arguments->model, "Model name (default: the first one served)");
  command->add_option("--system", arguments->system, "System message; empty: the model's own")
      ->capture_default_str();
  command->add_option("--once", arguments->once, "Ask this, print the answer, end");
  command->add_flag(
      "--figures", arguments->figures, "Print a JSON line of figures behind each answer");
  command->add_option("--max-tokens", arguments->max_tokens, "Longest answer")
      ->capture_default_str();
  CLI::Option* temperature =
      command->add_option("--temperature", arguments->temperature, "0 with --once unless given")
          ->capture_default_str();
  command->add_option("--top-p", arguments->top_p, "Nucleus")->capture_default_str();
  command->add_option("--seed", arguments->seed, "Makes sampling repeatable");
  command->footer(
      "Where the gateway has keys, BATON_API_KEY holds the one to show.\n"
      "Examples:\n"
      "  baton chat\n"
      "  baton chat --base-url http://gateway:8000/v1 --system 'Answer briefly.'\n"
      "  baton chat --once 'What is the capital of France?' --figures");
  command->callback([arguments, temperature, &chosen] {
    const bool given = temperature->count() > 0;
    chosen = [arguments, given] { return run(*arguments, given); };
  });
}

}  // namespace baton::cli
