// Memory nodes read from a made-up /sys, and the policy asked of this machine's kernel.
#include "kernels/cpu/numa.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <filesystem>
#include <fstream>

#include "kernels/cpu/memory.h"
#include "kernels/cpu/thread_pool.h"

namespace baton::kernels::cpu {
namespace {

using Cores = std::vector<int>;

// A folder like /sys/devices/system/node, gone with the object.
class FakeNodes {
 public:
  FakeNodes() {
    std::string pattern = ::testing::TempDir() + "nodes_XXXXXX";
    root_ = mkdtemp(pattern.data());
  }
  FakeNodes(const FakeNodes&) = delete;
  FakeNodes& operator=(const FakeNodes&) = delete;
  ~FakeNodes() { std::filesystem::remove_all(root_); }

  void write(const std::string& name, const std::string& text) const {
    const std::filesystem::path path = std::filesystem::path(root_) / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text << "\n";
  }
  const std::string& root() const { return root_; }

 private:
  std::string root_;
};

TEST(Numa, CoreListsAreReadAsTheKernelWritesThem) {
  EXPECT_EQ(parse_core_list("0-3,8,10-11\n"), (Cores{0, 1, 2, 3, 8, 10, 11}));
  EXPECT_EQ(parse_core_list("5"), (Cores{5}));
  for (const char* wrong :
       {"", "\n", "x", "3-1", "1,", ",1", "1-", "-1", "1 2", "1-2-3", "99999999999", "0-70000"}) {
    EXPECT_EQ(parse_core_list(wrong), Cores{}) << wrong;
  }
}

TEST(Numa, NodesAreThoseOfTheProcesssCores) {
  const FakeNodes fake;
  fake.write("online", "0-2,4");
  fake.write("node0/cpulist", "0-3,16-19");
  fake.write("node1/cpulist", "4-7");
  fake.write("node2/cpulist", "");  // memory alone
  fake.write("node4/cpulist", "8-15");
  EXPECT_EQ(memory_nodes(fake.root(), {0, 5, 18}), (Cores{0, 1}));
  EXPECT_EQ(memory_nodes(fake.root(), {4, 5}), (Cores{1}));
  EXPECT_EQ(memory_nodes(fake.root(), {15, 0}), (Cores{0, 4}));
  EXPECT_EQ(memory_nodes(fake.root(), {99}), Cores{});
  EXPECT_EQ(memory_nodes(fake.root() + "/absent", {0}), Cores{});
}

TEST(Numa, TheKernelTakesThePolicyAndOneNodeNeedsNone) {
  constexpr std::size_t kBytes = std::size_t{1} << 20;
  void* place = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(place, MAP_FAILED);
  EXPECT_FALSE(spread_over_nodes(place, kBytes, {}));
  EXPECT_FALSE(spread_over_nodes(place, kBytes, {0}));
  // The kernel drops nodes that are not there; some containers forbid the call altogether.
  if (spread_over_nodes(place, kBytes, {0, 1})) {
    EXPECT_FALSE(spread_over_nodes(place, kBytes, {1000, 1001}));
  }
  static_cast<char*>(place)[kBytes - 1] = 1;
  munmap(place, kBytes);
}

TEST(Numa, WeightsOfAMachineOfTwoNodesAreStillZeroedMemory) {
  WeightMemory memory({0, 1});
  const auto piece = memory.take(100);
  ASSERT_TRUE(piece);
  for (std::size_t i = 0; i < 100; ++i) {
    EXPECT_EQ((*piece).get()[i], std::byte{0});
  }
}

}  // namespace
}  // namespace baton::kernels::cpu
