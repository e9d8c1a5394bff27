// The backends a forward-pass test runs on.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "kernels/ops.h"

namespace baton::engine::testing {

// "reference", "cpu1" (one thread) or "cpu2".
inline std::unique_ptr<kernels::Backend> make_backend(const std::string& name) {
  if (name == "reference") {
    return kernels::make_reference_backend();
  }
  auto backend = kernels::make_cpu_backend({.threads = name == "cpu1" ? 1U : 2U});
  EXPECT_TRUE(backend) << backend.error().message;
  return backend ? std::move(*backend) : nullptr;
}

}  // namespace baton::engine::testing
