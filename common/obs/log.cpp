#include "common/obs/log.h"

#include <spdlog/details/null_mutex.h>
#include <spdlog/formatter.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/sinks/null_sink.h>
#include <spdlog/sinks/ostream_sink.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <iterator>
#include <optional>

#include "common/obs/line_writer.h"
#include "common/obs/metrics.h"

namespace baton {
namespace {

spdlog::level::level_enum to_spdlog(LogLevel level) {
  return static_cast<spdlog::level::level_enum>(level);
}

std::optional<LogLevel> parse_level(std::string_view name) {
  constexpr std::string_view kNames[] = {"trace", "debug", "info", "warn", "error"};
  for (std::size_t i = 0; i < std::size(kNames); ++i) {
    if (kNames[i] == name) {
      return static_cast<LogLevel>(i);
    }
  }
  return std::nullopt;
}

std::string_view level_name(spdlog::level::level_enum level) {
  switch (level) {
    case spdlog::level::trace:
      return "trace";
    case spdlog::level::debug:
      return "debug";
    case spdlog::level::info:
      return "info";
    case spdlog::level::warn:
      return "warn";
    default:
      return "error";
  }
}

constexpr std::size_t kLongestMessage = 8 * 1024;  // some hold foreign text

// A JSON string's inside; bytes that are no UTF-8 stay as they are.
void append_escaped(std::string_view text, bool json, spdlog::memory_buf_t& out) {
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n') {
      fmt::format_to(std::back_inserter(out), "\\n");
    } else if (byte < 0x20 || byte == 0x7f) {
      fmt::format_to(std::back_inserter(out), "\\u{:04x}", static_cast<unsigned>(byte));
    } else if (json && (c == '"' || c == '\\')) {
      out.push_back('\\');
      out.push_back(c);
    } else {
      out.push_back(c);
    }
  }
}

std::string utc_time(spdlog::log_clock::time_point time) {
  const auto seconds = std::chrono::time_point_cast<std::chrono::seconds>(time);
  const auto millis = std::chrono::duration_cast<std::chrono::milliseconds>(time - seconds).count();
  const std::time_t clock = spdlog::log_clock::to_time_t(seconds);
  std::tm parts{};
  gmtime_r(&clock, &parts);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z",
                     parts.tm_year + 1900,
                     parts.tm_mon + 1,
                     parts.tm_mday,
                     parts.tm_hour,
                     parts.tm_min,
                     parts.tm_sec,
                     millis);
}

class LineFormatter final : public spdlog::formatter {
 public:
  LineFormatter(std::string process, bool json) : process_(std::move(process)), json_(json) {}

  void format(const spdlog::details::log_msg& msg, spdlog::memory_buf_t& out) override {
    const std::string_view text(msg.payload.data(), std::min(msg.payload.size(), kLongestMessage));
    const auto time = utc_time(msg.time);
    if (json_) {
      fmt::format_to(std::back_inserter(out),
                     R"({{"time":"{}","level":"{}","process":")",
                     time,
                     level_name(msg.level));
      append_escaped(process_, true, out);
      fmt::format_to(std::back_inserter(out), R"(","message":")");
      append_escaped(text, true, out);
      fmt::format_to(std::back_inserter(out), "\"}}\n");
    } else {
      fmt::format_to(
          std::back_inserter(out), "{} {:<5} {} ", time, level_name(msg.level), process_);
      append_escaped(text, false, out);
      out.push_back('\n');
    }
  }

  std::unique_ptr<spdlog::formatter> clone() const override {
    return std::make_unique<LineFormatter>(process_, json_);
  }

 private:
  const std::string process_;
  const bool json_;
};

// No mutex: the formatter has no state that changes, and the writer has its own.
class StderrSink final : public spdlog::sinks::base_sink<spdlog::details::null_mutex> {
 private:
  void sink_it_(const spdlog::details::log_msg& msg) override {
    spdlog::memory_buf_t line;
    formatter_->format(msg, line);
    stderr_lines().push(std::string(line.data(), line.size()));
  }
  void flush_() override {}
};

// In the log's own format, whichever it is.
void tell_gaps(const LineFormatter& format) {
  stderr_lines().tell_gaps([format = std::shared_ptr(format.clone())](std::uint64_t dropped) {
    const std::string told = fmt::format(
        "log lines dropped here: {}; what reads the log was too slow, or the disk was full",
        dropped);
    spdlog::memory_buf_t line;
    format->format({"", spdlog::level::warn, told}, line);
    return std::string(line.data(), line.size());
  });
}

}  // namespace

Logger::Logger(std::shared_ptr<spdlog::logger> sink)
    : sink_(std::move(sink)), warnings_(std::make_shared<std::atomic<std::uint64_t>>(0)) {}

Result<Logger> Logger::create(const LogOptions& options, std::ostream* stream) {
  const auto level = parse_level(options.level);
  if (!level) {
    return fail(
        ErrorCode::InvalidArgument,
        fmt::format("unknown log level '{}': trace, debug, info, warn or error", options.level));
  }
  if (options.format != "text" && options.format != "json") {
    return fail(ErrorCode::InvalidArgument,
                fmt::format("unknown log format '{}': text or json", options.format));
  }
  const LineFormatter format(options.process, options.format == "json");
  spdlog::sink_ptr sink;
  if (stream != nullptr) {
    sink = std::make_shared<spdlog::sinks::ostream_sink_mt>(*stream, true);
  } else {
    sink = std::make_shared<StderrSink>();
    tell_gaps(format);
  }
  auto logger = std::make_shared<spdlog::logger>(options.process, std::move(sink));
  logger->set_formatter(format.clone());
  logger->set_level(to_spdlog(*level));
  logger->flush_on(spdlog::level::trace);
  return Logger(std::move(logger));
}

Logger Logger::silent() {
  return Logger(
      std::make_shared<spdlog::logger>("silent", std::make_shared<spdlog::sinks::null_sink_mt>()));
}

bool Logger::is_enabled(LogLevel level) const {
  return level >= LogLevel::Warn || sink_->should_log(to_spdlog(level));
}

void Logger::write(LogLevel level, std::string_view message) const {
  if (level >= LogLevel::Warn) {
    warnings_->fetch_add(1, std::memory_order_relaxed);
  }
  sink_->log(to_spdlog(level), spdlog::string_view_t(message.data(), message.size()));
}

void export_dropped_lines(Metrics& metrics) {
  const Counter counter = metrics.counter("baton_log_lines_dropped_total",
                                          "Log lines dropped since nothing took them from stderr");
  metrics.before_print([counter, told = std::uint64_t{0}]() mutable {
    const std::uint64_t dropped = stderr_lines().dropped();
    counter.add(static_cast<double>(dropped - std::exchange(told, dropped)));
  });
}

}  // namespace baton
