// Packed weights outlive a build on disk, so their layout has a name: this test packs known bytes
// of every type and compares a hash, and fails when the bytes change and the name does not.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/gguf_blocks.h"
#include "tests/support/emulated_kernels.h"
#include "tests/unit/kernels/kernel_fixtures.h"

namespace baton::kernels::testing {
namespace {

// Packed bytes of every layout that backends of this build name. Changed the packing? Raise
// kPackedLayoutRevision (kernels/cpu/packed_weight.h) and put the new name and hash here.
const std::map<std::string, std::uint64_t> kKnown{{"cpu.1", 0x8ad38470669e6985},
                                                  {"cpu.1.pairs", 0x2399879099e2db2d}};

class Hasher final : public PackedStore {
 public:
  std::shared_ptr<const std::byte> find(const WeightView&, std::size_t) override { return nullptr; }
  void add(const WeightView&, std::shared_ptr<const std::byte> packed, std::size_t bytes) override {
    for (std::size_t i = 0; i < bytes; ++i) {  // FNV-1a
      hash = (hash ^ static_cast<std::uint64_t>(packed.get()[i])) * 0x100000001b3ULL;
    }
  }
  std::uint64_t hash = 0xcbf29ce484222325ULL;
};

TEST(PackedLayout, TheNameChangesWithTheBytes) {
  constexpr std::size_t kRows = 40;  // one whole panel and a part
  constexpr std::size_t kCols = 512;
  std::vector<NamedBackend> backends = cpu_backends();
  if (const cpu::KernelTable* pairs = emulated_avx512_bf16_kernels(); pairs != nullptr) {
    backends.push_back({pairs->name, *cpu::make_backend(*pairs, {.threads = 2})});
  }
  for (auto& [name, backend] : backends) {
    Hasher hasher;
    backend->use_store(&hasher);
    std::uint64_t seed = 1;
    for (const DType dtype : kAllTypes) {
      std::vector<std::byte> bytes(kRows * row_bytes(dtype, kCols));
      for (std::byte& byte : bytes) {
        seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
        byte = static_cast<std::byte>(seed >> 56U);
      }
      ASSERT_TRUE(backend->pack({dtype, kRows, kCols, bytes})) << info(dtype).name;
    }
    backend->use_store(nullptr);
    const auto known = kKnown.find(backend->packed_layout());
    ASSERT_NE(known, kKnown.end()) << name << ": unknown layout " << backend->packed_layout();
    EXPECT_EQ(hasher.hash, known->second)
        << name << ": packing makes other bytes under the name " << backend->packed_layout() << ": "
        << fmt::format("{:#x}", hasher.hash);
  }
}

}  // namespace
}  // namespace baton::kernels::testing
