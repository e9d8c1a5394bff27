// Every fuzzer without a fuzzing engine: its seeds, its saved inputs (tests/fuzz/corpus/<name>/),
// and seeded damage to both. BATON_FUZZ_ROUNDS sets how many damaged inputs each gets.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include "tests/fuzz/answer_text_fuzz.h"
#include "tests/fuzz/config_fuzz.h"
#include "tests/fuzz/frame_fuzz.h"
#include "tests/fuzz/gguf_fuzz.h"
#include "tests/fuzz/hf_config_fuzz.h"
#include "tests/fuzz/http_body_fuzz.h"
#include "tests/fuzz/http_request_fuzz.h"
#include "tests/fuzz/lease_fuzz.h"
#include "tests/fuzz/message_header_fuzz.h"
#include "tests/fuzz/put_message_fuzz.h"
#include "tests/fuzz/safetensors_fuzz.h"
#include "tests/fuzz/schema_fuzz.h"
#include "tests/fuzz/template_fuzz.h"
#include "tests/fuzz/tokenizer_json_fuzz.h"
#include "tests/fuzz/tokenizer_spec_fuzz.h"
#include "tests/fuzz/tokenizer_text_fuzz.h"

namespace baton::fuzz {
namespace {

std::vector<std::string> saved_inputs(std::string_view name) {
  const std::filesystem::path folder = std::filesystem::path("tests/fuzz/corpus") / name;
  std::vector<std::string> inputs;
  if (!std::filesystem::exists(folder)) {
    return inputs;
  }
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  for (const auto& file : files) {
    std::ifstream stream(file, std::ios::binary);
    inputs.emplace_back(std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>());
  }
  return inputs;
}

// One of the usual accidents: bytes changed, cut, doubled, swapped with another input's.
void damage(std::string& bytes, const std::vector<std::string>& others, std::mt19937_64& random) {
  constexpr std::uint64_t kEdges[] = {0, 1, 0x7F, 0x80, 0xFF, 0xFFFF, 0x7FFFFFFF, ~0ULL};
  const std::size_t at = bytes.empty() ? 0 : random() % bytes.size();
  switch (random() % 7) {
    case 0:
      bytes.resize(at);
      break;
    case 1:
      bytes.insert(at, bytes.substr(at, random() % 32));
      break;
    case 2:
      bytes.erase(at, random() % 16);
      break;
    case 3: {
      const std::uint64_t value = kEdges[random() % std::size(kEdges)];
      const std::size_t size = std::min<std::size_t>(bytes.size() - at, 1ULL << (random() % 4));
      for (std::size_t i = 0; i < size; ++i) {
        bytes[at + i] = static_cast<char>(value >> (8 * i));
      }
      break;
    }
    case 4: {
      const std::string& other = others[random() % others.size()];
      const std::size_t from = other.empty() ? 0 : random() % other.size();
      bytes.insert(at, other.substr(from, random() % 64));
      break;
    }
    default:
      if (!bytes.empty()) {
        bytes[at] = static_cast<char>(bytes[at] ^ (1U << (random() % 8)));
      }
      break;
  }
}

template <class Fuzz>
class Replay : public ::testing::Test {};

using Fuzzers = ::testing::Types<AnswerTextFuzz,
                                 ConfigFuzz,
                                 FrameFuzz,
                                 GgufFuzz,
                                 HfConfigFuzz,
                                 HttpBodyFuzz,
                                 HttpRequestFuzz,
                                 LeaseFuzz,
                                 MessageHeaderFuzz,
                                 PutMessageFuzz,
                                 SafetensorsFuzz,
                                 SchemaFuzz,
                                 TemplateFuzz,
                                 TokenizerJsonFuzz,
                                 TokenizerSpecFuzz,
                                 TokenizerTextFuzz>;

struct Names {
  template <class Fuzz>
  static std::string GetName(int) {
    return std::string(Fuzz::kName);
  }
};

TYPED_TEST_SUITE(Replay, Fuzzers, Names);

TYPED_TEST(Replay, SeedsSavedInputsAndDamage) {
  std::vector<std::string> inputs = TypeParam::seeds();
  for (auto& saved : saved_inputs(TypeParam::kName)) {
    inputs.push_back(std::move(saved));
  }
  ASSERT_FALSE(inputs.empty());
  const auto run = [](const std::string& bytes) {
    // An exact allocation, so that a read past the end is a sanitizer's find.
    const std::vector<std::uint8_t> copy(bytes.begin(), bytes.end());
    TypeParam::run(copy);
  };
  for (const std::string& bytes : inputs) {
    run(bytes);
    for (std::size_t size = 0; size < bytes.size(); size += 1 + bytes.size() / 64) {
      run(bytes.substr(0, size));
    }
  }
  const char* wanted = std::getenv("BATON_FUZZ_ROUNDS");  // NOLINT(concurrency-mt-unsafe)
  const int rounds = wanted != nullptr ? std::atoi(wanted) : 3000;
  std::mt19937_64 random(20251);
  for (int round = 0; round < rounds; ++round) {
    std::string bytes = inputs[random() % inputs.size()];
    for (std::uint64_t i = random() % 4; i < 4; ++i) {
      damage(bytes, inputs, random);
    }
    run(bytes);
  }
}

}  // namespace
}  // namespace baton::fuzz
