// The prompts file of the benchmarks.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "bench/engine/prompt_pass.h"

namespace baton::bench {
namespace {

class PromptsTest : public ::testing::Test {
 protected:
  ~PromptsTest() override { std::filesystem::remove(path_); }
  Result<std::vector<Prompt>> read(const std::string& text) {
    std::ofstream(path_) << text;
    return read_prompts(path_);
  }
  std::string path_ =
      (std::filesystem::temp_directory_path() / ("baton-prompts-" + std::to_string(getpid())))
          .string();
};

TEST_F(PromptsTest, ReadsLines) {
  const auto prompts =
      read("{\"prompt\": \"a\\nb ½\", \"max_tokens\": 7, \"note\": 1}\n\n{\"prompt\": \"c\"}\r\n");
  ASSERT_TRUE(prompts) << prompts.error().message;
  ASSERT_EQ(prompts->size(), 2U);
  EXPECT_EQ((*prompts)[0].text, "a\nb ½");
  EXPECT_EQ((*prompts)[0].max_tokens, 7U);
  EXPECT_EQ((*prompts)[1].max_tokens, 64U);
}

TEST_F(PromptsTest, ErrorsNameTheLine) {
  for (const char* line : {"{\"prompt\": 3}", "[]", "{", "{\"max_tokens\": 3}", "nothing"}) {
    const auto prompts = read("{\"prompt\": \"fine\"}\n" + std::string(line) + "\n");
    ASSERT_FALSE(prompts) << line;
    EXPECT_NE(prompts.error().message.find(path_ + ":2:"), std::string::npos);
  }
  EXPECT_FALSE(read(""));
  EXPECT_FALSE(read_prompts("/no/such/file"));
}

TEST_F(PromptsTest, ADeadServerIsAnError) {
  const auto answers = run_pass({{"x", 1}}, {.base_url = "http://127.0.0.1:1", .model = "m"});
  ASSERT_FALSE(answers);
  EXPECT_EQ(answers.error().code, ErrorCode::Unavailable);
}

}  // namespace
}  // namespace baton::bench
