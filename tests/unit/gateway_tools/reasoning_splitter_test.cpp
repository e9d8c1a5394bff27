#include "gateway/tools/reasoning_splitter.h"

#include <gtest/gtest.h>

#include <vector>

namespace baton::gateway {
namespace {

// "reasoning|content", the same for the whole text and for single bytes.
std::string split(bool open, const std::string& text) {
  std::vector<std::string> results;
  for (const std::size_t piece : {std::size_t{1}, text.size() + 1}) {
    ReasoningSplitter splitter(open);
    std::string reasoning;
    std::string content;
    for (std::size_t at = 0; at < text.size(); at += piece) {
      splitter.push(std::string_view(text).substr(at, piece), reasoning, content);
    }
    splitter.flush(reasoning, content);
    results.push_back(reasoning + "|" + content);
  }
  EXPECT_EQ(results[0], results[1]);
  return results[0];
}

TEST(ReasoningSplitter, TakesTheTagsAndTheSpaceAroundThem) {
  EXPECT_EQ(split(false, "<think>\na < b\nso\n</think>\n\nYes.\n"), "a < b\nso|Yes.\n");
  EXPECT_EQ(split(false, "\n<think></think>Yes"), "|Yes");
}

TEST(ReasoningSplitter, ThePromptMayHaveOpenedTheTag) {
  EXPECT_EQ(split(true, "\nbecause\n</think>\n\nYes"), "because|Yes");
  EXPECT_EQ(split(true, "<think>again</think>Yes"), "again|Yes");
}

TEST(ReasoningSplitter, TextWithoutTagsPasses) {
  EXPECT_EQ(split(false, "  Yes </think> <think>no</think>"), "|  Yes </think> <think>no</think>");
  EXPECT_EQ(split(false, " <thin"), "| <thin");
  EXPECT_EQ(split(false, " \n"), "| \n");
  EXPECT_EQ(split(false, ""), "|");
}

TEST(ReasoningSplitter, ReasoningThatIsCutOffStaysReasoning) {
  EXPECT_EQ(split(false, "<think>never ends </thin"), "never ends </thin|");
  EXPECT_EQ(split(true, "never ends\n"), "never ends\n|");
}

TEST(ReasoningSplitter, KnowsWhereItIs) {
  ReasoningSplitter splitter(false);
  std::string reasoning;
  std::string content;
  EXPECT_FALSE(splitter.is_inside());
  splitter.push("<think>", reasoning, content);
  EXPECT_TRUE(splitter.is_inside());
  splitter.push("x</think>", reasoning, content);
  EXPECT_FALSE(splitter.is_inside());
  EXPECT_TRUE(ReasoningSplitter(true).is_inside());
}

}  // namespace
}  // namespace baton::gateway
