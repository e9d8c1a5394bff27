// Server-sent events arrive in any pieces.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cli/http/api_client.h"

namespace baton::cli {
namespace {

std::vector<std::string> split(std::string_view text, std::size_t piece) {
  EventSplitter splitter;
  std::vector<std::string> events;
  for (std::size_t at = 0; at < text.size(); at += piece) {
    splitter.feed(text.substr(at, piece), [&](std::string_view data) {
      events.emplace_back(data);
      return true;
    });
  }
  return events;
}

TEST(EventSplitter, AnyPieces) {
  const std::string text =
      ": a comment\n\ndata: {\"a\":1}\n\nevent: x\ndata:two\ndata: lines\n\ndata: [DONE]\n\n";
  const std::vector<std::string> expected{"{\"a\":1}", "two\nlines", "[DONE]"};
  for (std::size_t piece = 1; piece <= text.size(); ++piece) {
    EXPECT_EQ(split(text, piece), expected) << "pieces of " << piece;
  }
}

TEST(EventSplitter, StopsWhenAsked) {
  EventSplitter splitter;
  int seen = 0;
  EXPECT_FALSE(
      splitter.feed("data: 1\n\ndata: 2\n\n", [&](std::string_view) { return ++seen < 1; }));
  EXPECT_EQ(seen, 1);
}

}  // namespace
}  // namespace baton::cli
