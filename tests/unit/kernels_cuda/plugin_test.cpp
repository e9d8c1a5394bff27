// What the loader says when something is missing, and that it hands over what the library makes.
#include "kernels/cuda/plugin.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace baton::kernels {
namespace {

using ::testing::HasSubstr;

// A library that every machine has stands for the driver.
constexpr char kPresent[] = "libc.so.6";

std::string error_of(const CudaPlaces& places, const CudaOptions& options = {}) {
  const auto made = load_cuda_backends(options, places);
  EXPECT_FALSE(made);
  EXPECT_EQ(made.error().code, ErrorCode::Unavailable);
  return made.error().message;
}

TEST(CudaPlugin, SaysThatTheLibraryWasNotBuilt) {
  const std::string message =
      error_of({.library = "/nowhere/libbaton_cuda.so", .driver = kPresent});
  EXPECT_THAT(message, HasSubstr("/nowhere/libbaton_cuda.so"));
  EXPECT_THAT(message, HasSubstr("tools/setup-cuda"));
}

TEST(CudaPlugin, SaysThatTheDriverIsMissing) {
  const std::string message =
      error_of({.library = FAKE_PLUGIN, .driver = "libno-such-driver.so.1"});
  EXPECT_THAT(message, HasSubstr("driver"));
  EXPECT_THAT(message, HasSubstr("libno-such-driver.so.1"));
}

TEST(CudaPlugin, SaysWhatIsWrongWithALibraryThatDoesNotLoad) {
  const std::string path =
      ::testing::TempDir() + "plugin_test." + std::to_string(::getpid()) + ".so";
  std::ofstream(path) << "no library";
  EXPECT_THAT(error_of({.library = path, .driver = kPresent}), HasSubstr(path));
  std::filesystem::remove(path);
}

TEST(CudaPlugin, RefusesALibraryOfAnotherBuild) {
  EXPECT_THAT(error_of({.library = FOREIGN_PLUGIN, .driver = kPresent}),
              HasSubstr("another build"));
  EXPECT_THAT(error_of({.library = OLD_PLUGIN, .driver = kPresent}),
              HasSubstr("another build than this program (0, long ago"));
}

TEST(CudaPlugin, HandsOverWhatTheLibraryMakes) {
  const auto made =
      load_cuda_backends({.device = 3, .ranks = 2}, {.library = FAKE_PLUGIN, .driver = kPresent});
  ASSERT_TRUE(made) << made.error().message;
  ASSERT_EQ(made->size(), 2U);
  EXPECT_EQ(made->front()->name(), "reference");
}

TEST(CudaPlugin, HandsOverWhatTheLibraryFindsLacking) {
  const auto made = load_cuda_backends({.device = 7}, {.library = FAKE_PLUGIN, .driver = kPresent});
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().message, "no device 7");
}

TEST(CudaPlugin, TheRealLibraryLoadsAndSaysWhatItFindsLacking) {
  const std::string library = CudaPlaces::beside_program().library;
  if (!std::filesystem::exists(library)) {
    GTEST_SKIP() << library << " is not built here (tools/check-cuda)";
  }
  const std::string message = error_of({.library = library, .driver = kPresent}, {.device = 255});
  EXPECT_THAT(message,
              ::testing::AnyOf(HasSubstr("shows no GPU"), HasSubstr("there is no GPU 255")));
}

TEST(CudaPlugin, LooksBesideTheProgram) {
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe");
  EXPECT_EQ(CudaPlaces::beside_program().library,
            (program.parent_path() / "libbaton_cuda.so").string());
}

}  // namespace
}  // namespace baton::kernels
