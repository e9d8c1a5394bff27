// Logging: one line an event, as text or as a JSON object, to stderr or to a given stream. Passed
// by reference to whoever logs. Text of prompts and answers never goes into a log line, nor keys or
// tokens of the cluster.
//
// Owner: the composition root. Thread: any; no line waits for whoever reads stderr (line_writer.h).
// Failure: creating one refuses an unknown level or format; writing never fails.
#pragma once

#include <fmt/format.h>

#include <atomic>
#include <cstdint>
#include <iosfwd>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "common/base/error.h"

namespace spdlog {
class logger;
}

namespace baton {

class Metrics;

enum class LogLevel : std::uint8_t { Trace, Debug, Info, Warn, Error };

struct LogOptions {
  std::string level = "info";   // trace, debug, info, warn, error
  std::string format = "text";  // text, json
  std::string process;          // gateway, or the node's name; in every line
};

class Logger {
 public:
  // Writes to stderr, or to `stream`, which outlives the logger.
  static Result<Logger> create(const LogOptions& options, std::ostream* stream = nullptr);
  // Drops everything: for tests.
  static Logger silent();

  bool is_enabled(LogLevel level) const;
  // Control characters in `message` are escaped: a line stays one line.
  void write(LogLevel level, std::string_view message) const;

  template <class... Args>
  void trace(fmt::format_string<Args...> format, Args&&... args) const {
    log(LogLevel::Trace, format, std::forward<Args>(args)...);
  }
  template <class... Args>
  void debug(fmt::format_string<Args...> format, Args&&... args) const {
    log(LogLevel::Debug, format, std::forward<Args>(args)...);
  }
  template <class... Args>
  void info(fmt::format_string<Args...> format, Args&&... args) const {
    log(LogLevel::Info, format, std::forward<Args>(args)...);
  }
  template <class... Args>
  void warn(fmt::format_string<Args...> format, Args&&... args) const {
    log(LogLevel::Warn, format, std::forward<Args>(args)...);
  }
  template <class... Args>
  void error(fmt::format_string<Args...> format, Args&&... args) const {
    log(LogLevel::Error, format, std::forward<Args>(args)...);
  }

  // Lines of level warn and error since the start: a test that expects none can check.
  std::uint64_t warnings() const { return warnings_->load(std::memory_order_relaxed); }

 private:
  explicit Logger(std::shared_ptr<spdlog::logger> sink);

  template <class... Args>
  void log(LogLevel level, fmt::format_string<Args...> format, Args&&... args) const {
    if (is_enabled(level)) {
      write(level, fmt::format(format, std::forward<Args>(args)...));
    }
  }

  std::shared_ptr<spdlog::logger> sink_;
  std::shared_ptr<std::atomic<std::uint64_t>> warnings_;
};

// Counts the lines that stderr did not take.
void export_dropped_lines(Metrics& metrics);

}  // namespace baton
