#include "common/config/text_rules.h"

#include <fmt/format.h>

#include <algorithm>

#include "common/base/cores.h"
#include "common/base/host_port.h"

namespace baton {
namespace {

constexpr std::size_t kMaxText = 4096;
constexpr std::size_t kMaxName = 64;

bool is_name(const std::string& text) {
  return text.size() <= kMaxName && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '-' || c == '_' || c == '.';
         });
}

bool is_origin(const std::string& text) {
  const auto scheme = text.find("://");
  return text == "*" || (scheme != std::string::npos && scheme > 0 && scheme + 3 < text.size() &&
                         text.find_first_of("/ \r\n,*", scheme + 3) == std::string::npos);
}

bool is_sha256(const std::string& text) {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

// Of a text that is there and no longer than kMaxText.
std::string sentence_of(const std::string& value, const TextRule& rule) {
  const std::string shown = value.substr(0, kMaxName);
  switch (rule.form) {
    case TextRule::Form::Any:
      return "";
    case TextRule::Form::Name:
      return is_name(value)
                 ? ""
                 : fmt::format("'{}' is no name: 1 to {} letters, digits, '-', '_' or '.'",
                               shown,
                               kMaxName);
    case TextRule::Form::Address: {
      const auto parsed = HostPort::parse(value);
      return parsed ? "" : parsed.error().message;
    }
    case TextRule::Form::Cores: {
      const auto cores = parse_cores(value);
      return cores ? "" : cores.error().message;
    }
    case TextRule::Form::Choice:
      return std::ranges::find(rule.choices, value) != rule.choices.end()
                 ? ""
                 : fmt::format("must be one of {}; got '{}'", fmt::join(rule.choices, ", "), shown);
    case TextRule::Form::Origin:
      return is_origin(value) ? ""
                              : fmt::format(
                                    "'{}' is no origin: a scheme and a host as in "
                                    "https://chat.example, without a path, or \"*\"",
                                    shown);
    case TextRule::Form::Ratio:
      return value == "auto" || parse_ratio(value)
                 ? ""
                 : fmt::format(
                       "must be auto, or prefill nodes to decode nodes as in 1:2, each 1 "
                       "to 1000; got '{}'",
                       shown);
    case TextRule::Form::Sha256:
      // The value is not shown: it may be the key itself by mistake.
      return is_sha256(value) ? ""
                              : "must be 64 hexadecimal digits in lower case, the SHA-256 of the "
                                "key and never the key; `baton key new` prints one";
  }
  return "";
}

}  // namespace

std::optional<std::string> fault_of(const std::string& value, const TextRule& rule) {
  if (value.empty()) {
    return rule.required ? std::optional<std::string>("is required") : std::nullopt;
  }
  if (value.size() > kMaxText) {
    return fmt::format("is longer than {} bytes", kMaxText);
  }
  std::string sentence = sentence_of(value, rule);
  return sentence.empty() ? std::nullopt : std::optional(std::move(sentence));
}

}  // namespace baton
