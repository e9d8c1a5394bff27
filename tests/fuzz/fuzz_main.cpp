// A libFuzzer program for the parser that BATON_FUZZ_HEADER and BATON_FUZZ_STRUCT name. Started
// with
// `--write-seeds DIR` it writes the parser's seeds there and ends.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include BATON_FUZZ_HEADER

using Target = baton::fuzz::BATON_FUZZ_STRUCT;

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  if (*argc == 3 && std::strcmp((*argv)[1], "--write-seeds") == 0) {
    const std::filesystem::path folder = (*argv)[2];
    std::filesystem::create_directories(folder);
    int number = 0;
    for (const std::string& seed : Target::seeds()) {
      std::ofstream file(folder / ("seed" + std::to_string(number++)), std::ios::binary);
      file << seed;
    }
    std::exit(0);  // NOLINT(concurrency-mt-unsafe)
  }
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Target::run({data, size});
  return 0;
}
