#include "gateway/openai/stop_watcher.h"

#include <gtest/gtest.h>

#include <random>

namespace baton::gateway {
namespace {

struct Outcome {
  std::string text;
  bool hit = false;
};

Outcome feed(const std::vector<std::string>& stops,
             const std::vector<std::string>& pieces,
             bool keep = false) {
  StopWatcher watcher(stops, keep);
  Outcome outcome;
  for (const std::string& piece : pieces) {
    if (watcher.push(piece, outcome.text)) {
      outcome.hit = true;
      return outcome;
    }
  }
  watcher.flush(outcome.text);
  return outcome;
}

TEST(StopWatcher, FindsAcrossPieces) {
  const Outcome outcome = feed({"<END>"}, {"ab<", "EN", "D>", "never"});
  EXPECT_TRUE(outcome.hit);
  EXPECT_EQ(outcome.text, "ab");
}

TEST(StopWatcher, GivesBackWhatWasNoStop) {
  const Outcome outcome = feed({"<END>"}, {"ab<", "EN", "DX", "<E"});
  EXPECT_FALSE(outcome.hit);
  EXPECT_EQ(outcome.text, "ab<ENDX<E");
}

TEST(StopWatcher, ShowsAtOnceWhatCannotBeAStop) {
  StopWatcher watcher({"xyz"}, false);
  std::string out;
  EXPECT_FALSE(watcher.push("abx", out));
  EXPECT_EQ(out, "ab");
  EXPECT_FALSE(watcher.push("q", out));
  EXPECT_EQ(out, "abxq");
}

TEST(StopWatcher, EarliestBeginningWins) {
  EXPECT_EQ(feed({"cd", "bc"}, {"abcd"}).text, "a");
  EXPECT_EQ(feed({"abc", "b"}, {"xab", "c"}).text, "xa");
}

TEST(StopWatcher, RepeatingPrefix) {
  EXPECT_EQ(feed({"aab"}, {"a", "a", "a", "b"}).text, "a");
}

TEST(StopWatcher, KeepsMatchWhenAsked) {
  EXPECT_EQ(feed({"bc"}, {"ab", "cd"}, true).text, "abc");
}

TEST(StopWatcher, NothingToWatch) {
  EXPECT_EQ(feed({}, {"a", "b"}).text, "ab");
}

// Oracle: search in the whole text. Over all cuts into pieces the outcome is the same.
TEST(StopWatcher, EqualsSearchInWholeText) {
  std::mt19937 random(11);
  for (int round = 0; round < 3000; ++round) {
    const auto word = [&](std::size_t length) {
      std::string text;
      for (std::size_t i = 0; i < length; ++i) {
        text += static_cast<char>('a' + random() % 3);
      }
      return text;
    };
    const std::string stop = word(1 + random() % 4);
    const std::string text = word(random() % 20);
    std::vector<std::string> pieces;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t length = 1 + random() % 3;
      pieces.push_back(text.substr(at, length));
      at += length;
    }
    const Outcome outcome = feed({stop}, pieces);
    const std::size_t found = text.find(stop);
    EXPECT_EQ(outcome.hit, found != std::string::npos) << text << " / " << stop;
    EXPECT_EQ(outcome.text, text.substr(0, found)) << text << " / " << stop;
  }
}

}  // namespace
}  // namespace baton::gateway
