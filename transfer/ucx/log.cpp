#include "transfer/ucx/log.h"

#include <fmt/format.h>
#include <ucs/debug/log_def.h>
#include <unistd.h>

#include <array>
#include <cstdarg>
#include <cstdio>
#include <mutex>
#include <string_view>

#include "transfer/ucx/settings.h"

namespace baton::transfer {
namespace {

constexpr std::array<std::string_view, 5> kLevelNames{"FATAL", "ERROR", "WARN", "DIAG", "INFO"};

ucs_log_func_rc_t write_line(const char* /*file*/,
                             unsigned /*line*/,
                             const char* /*function*/,
                             ucs_log_level_t level,
                             const ucs_log_component_config_t* component,
                             const char* format,
                             va_list arguments) {
  if (level > component->log_level && level != UCS_LOG_LEVEL_PRINT) {
    return UCS_LOG_FUNC_RC_STOP;
  }
  if (level > UCS_LOG_LEVEL_INFO) {
    return UCS_LOG_FUNC_RC_CONTINUE;  // asked for by an operator who debugs UCX: its own way
  }
  std::array<char, 4096> text;
  std::vsnprintf(text.data(), text.size(), format, arguments);
  const std::string message = filter_unused_settings(text.data());
  if (!message.empty()) {
    const std::string line = fmt::format("ucx {}: {}\n", kLevelNames[level], message);
    [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line.data(), line.size());
  }
  return UCS_LOG_FUNC_RC_STOP;
}

}  // namespace

void redirect_ucx_log() {
  static std::once_flag once;
  std::call_once(once, [] { ucs_log_push_handler(&write_line); });
}

// "unused env variables: UCX_A,UCX_B (set … to suppress this warning)"; one name: "variable:".
std::string filter_unused_settings(const std::string& message) {
  constexpr std::string_view kStart = "unused env variable";
  if (!message.starts_with(kStart)) {
    return message;
  }
  const auto colon = message.find(": ");
  const auto end = message.find(" (set ");
  if (colon == std::string::npos) {
    return message;
  }
  std::string_view names(message);
  names = names.substr(colon + 2, end == std::string::npos ? names.npos : end - colon - 2);
  std::string left;
  while (!names.empty()) {
    const auto comma = names.find(',');
    const std::string_view name = names.substr(0, comma);
    names.remove_prefix(comma == names.npos ? names.size() : comma + 1);
    if (!is_shipped_setting(name)) {
      left += left.empty() ? "" : ", ";
      left += name;
    }
  }
  return left.empty() ? left : "settings that this UCX does not know or use: " + left;
}

}  // namespace baton::transfer
