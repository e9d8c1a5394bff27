// make_tiny_model ARCHITECTURE PATH: writes a tiny random model for tests that start processes;
// --golden NAME PATH writes one that tools/golden/make_family_goldens.py asks for; --shape 1b|8b
// PATH one whose matrices are as large as a real model's, for measurements.
#include <cstdio>
#include <string_view>

#include "tests/support/tiny_model.h"

namespace {

// As Llama 3.2 1B and Llama 3.1 8B but for the vocabulary.
baton::testing::TinyModelOptions shaped(bool is_large) {
  baton::testing::TinyModelOptions options;
  options.dtype = baton::kernels::DType::Q4_0;
  options.embedding_dtype = baton::kernels::DType::Q8_0;
  options.layers = is_large ? 32 : 16;
  options.dim = is_large ? 4096 : 2048;
  options.ffn = is_large ? 14336 : 8192;
  options.heads = 32;
  options.kv_heads = 8;
  options.head_dim = is_large ? 128 : 64;
  options.context_length = 8192;
  return options;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view name = argc > 1 ? argv[1] : "";
  const auto golden = baton::testing::golden_tiny_models();
  if (argc == 2 && name == "--golden") {
    for (const auto& model : golden) {
      std::puts(model.name.c_str());
    }
    return 0;
  }
  if (argc == 4 && name == "--golden") {
    for (const auto& model : golden) {
      if (model.name == argv[2]) {
        baton::testing::write_tiny_model(argv[3], model.options);
        return 0;
      }
    }
  }
  if (argc == 4 && name == "--shape") {
    const std::string_view shape = argv[2];
    if (shape == "1b" || shape == "8b") {
      baton::testing::write_tiny_model(argv[3], shaped(shape == "8b"));
      return 0;
    }
  }
  if (argc != 3 || name.starts_with("-")) {
    std::fputs(
        "usage: make_tiny_model ARCHITECTURE PATH\n"
        "       make_tiny_model --golden [NAME PATH]   lists, or writes one\n"
        "       make_tiny_model --shape 1b|8b PATH\n",
        stderr);
    return 2;
  }
  baton::testing::TinyModelOptions options;
  options.architecture = name;
  baton::testing::write_tiny_model(argv[2], options);
  return 0;
}
