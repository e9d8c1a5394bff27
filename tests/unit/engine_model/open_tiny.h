// A model file of random weights, mapped.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>

#include "engine/model/model_file.h"
#include "tests/support/tiny_model.h"

namespace baton::engine::testing {

// Null, and a failure of the test, where it cannot be opened.
inline std::unique_ptr<const ModelFile> open_tiny(const baton::testing::TinyModelOptions& options) {
  const std::string path =
      ::testing::TempDir() + "open_tiny." + std::to_string(::getpid()) + ".gguf";
  baton::testing::write_tiny_model(path, options);
  auto file = ModelFile::open(path);
  std::filesystem::remove(path);  // the mapping stays
  EXPECT_TRUE(file) << file.error().message;
  return file ? std::move(*file) : nullptr;
}

}  // namespace baton::engine::testing
