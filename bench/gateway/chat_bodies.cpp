#include "bench/gateway/chat_bodies.h"

#include <fmt/format.h>

#include <array>
#include <string_view>

#include "common/base/random.h"

namespace baton::bench {
namespace {

constexpr auto kWords = std::to_array<std::string_view>(
    {"the",      "of",        "and",      "to",        "in",       "that",      "river",
     "stone",    "morning",   "letter",   "garden",    "window",   "market",    "captain",
     "silver",   "yellow",    "people",   "story",     "number",   "island",    "winter",
     "because",  "through",   "between",  "without",   "another",  "question",  "remember",
     "children", "mountain",  "language", "important", "however,", "something", "different",
     "thousand", "country",   "already",  "machine",   "network",  "protocol",  "latency",
     "measure",  "scheduler", "gateway",  "function",  "returns",  "iterator",  "allocated",
     "Saturday", "Amsterdam", "Lisbon",   "1984",      "3.14159",  "17",        "percent",
     "naïve",    "café",      "don't",    "she's",     "(see",     "below)",    "e.g.",
     "therefore"});

}  // namespace

std::string chat_body(std::size_t bytes,
                      std::uint64_t number,
                      unsigned max_tokens,
                      std::string_view tier) {
  constexpr std::string_view kEnd = "\"}]}";
  std::string body = fmt::format(
      "{{\"model\":\"bench\",\"stream\":true,\"max_tokens\":{},\"temperature\":0.7,"
      "\"service_tier\":\"{}\",\"messages\":["
      "{{\"role\":\"system\",\"content\":\"You are a helpful assistant.\"}},"
      "{{\"role\":\"user\",\"content\":\"{:016x} ",
      max_tokens,
      tier,
      number * 0x9e3779b97f4a7c15ULL);
  const RandomSource random = seeded_random(number);
  while (body.size() + kEnd.size() < bytes) {
    const std::uint64_t draw = random();
    body += kWords[draw % kWords.size()];
    body += draw >> 60U == 0 ? ".\\n" : draw >> 59U == 2 ? " \\\"" : " ";
  }
  // A character or an escape may be cut: what is left is filled up.
  while (body.size() + kEnd.size() > bytes || body.back() == '\\' ||
         (static_cast<unsigned char>(body.back()) & 0x80U) != 0) {
    body.pop_back();
  }
  body.append(bytes - kEnd.size() - body.size(), 'x');
  body += kEnd;
  return body;
}

}  // namespace baton::bench
