// make_tiny_model ARCHITECTURE PATH: writes a tiny random model for tests that start processes.
#include <cstdio>

#include "tests/support/tiny_model.h"

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fputs("usage: make_tiny_model llama|gemma3 PATH\n", stderr);
    return 2;
  }
  baton::testing::TinyModelOptions options;
  options.architecture = argv[1];
  baton::testing::write_tiny_model(argv[2], options);
  return 0;
}
