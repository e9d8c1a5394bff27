// make_tiny_model ARCHITECTURE PATH: writes a tiny random model for tests that start processes;
// --golden NAME PATH writes one that tools/golden/make_family_goldens.py asks for.
#include <cstdio>
#include <string_view>

#include "tests/support/tiny_model.h"

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
  if (argc != 3 || name.starts_with("-")) {
    std::fputs(
        "usage: make_tiny_model ARCHITECTURE PATH\n"
        "       make_tiny_model --golden [NAME PATH]   lists, or writes one\n",
        stderr);
    return 2;
  }
  baton::testing::TinyModelOptions options;
  options.architecture = name;
  baton::testing::write_tiny_model(argv[2], options);
  return 0;
}
