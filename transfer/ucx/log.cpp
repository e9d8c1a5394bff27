#include "transfer/ucx/log.h"

#include <fmt/format.h>
#include <ucs/debug/log_def.h>

#include <algorithm>
#include <array>
#include <cstdarg>
#include <cstdio>
#include <mutex>
#include <string_view>

#include "common/obs/line_writer.h"
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
    stderr_lines().push(fmt::format("ucx {}: {}\n", kLevelNames[level], message));
  }
  return UCS_LOG_FUNC_RC_STOP;
}

}  // namespace

void redirect_ucx_log() {
  static std::once_flag once;
  std::call_once(once, [] { ucs_log_push_handler(&write_line); });
}

// UCX 1.13: "unused env variables: UCX_A,UCX_B (set … to suppress this warning)". Later ones:
// "unused environment variables: UCX_A (maybe: UCX_C, UCX_D?); UCX_B", then the rest on a new line.
std::string filter_unused_settings(const std::string& message) {
  constexpr std::string_view kStart = "unused env";
  const auto colon = message.find(": ");
  if (!message.starts_with(kStart) || colon == std::string::npos) {
    return message;
  }
  std::string_view rest(message);
  rest = rest.substr(colon + 2);
  rest = rest.substr(0, std::min(rest.find(" (set "), rest.find('\n')));
  std::string left;
  while (!rest.empty()) {
    const auto end = rest.find_first_of(",; ");
    const std::string_view name = rest.substr(0, end);
    rest.remove_prefix(end == rest.npos ? rest.size() : end);
    std::string_view hint;
    if (rest.starts_with(" (")) {
      const auto close = rest.find(')');
      hint = rest.substr(0, close == rest.npos ? close : close + 1);
      rest.remove_prefix(hint.size());
    }
    rest.remove_prefix(std::min(rest.find_first_not_of(",; "), rest.size()));
    if (!is_shipped_setting(name)) {
      left += left.empty() ? "" : ", ";
      left += name;
      left += hint;
    }
  }
  return left.empty() ? left : "settings that this UCX does not know or use: " + left;
}

}  // namespace baton::transfer
