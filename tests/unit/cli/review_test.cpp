// What `baton check` finds beside wrong keys.
#include "cli/check/review.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace baton::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Weight = Finding::Weight;

MachineFacts machine() {
  MachineFacts facts;
  facts.can_read = [](const std::string& path) { return path.starts_with("/there/"); };
  facts.interfaces = {"eth0", "lo", "mlx5_0"};
  facts.models = {"smollm2-135m-instruct"};
  return facts;
}

ClusterConfig good() {
  ClusterConfig config;
  config.cluster.token = "0f4b6e0a7c5d4b1f9e22";
  config.cluster.gateways = {"10.0.0.1:7000"};
  config.decode.pool = {NodeEntry{.name = "d0"}};
  return config;
}

// The one finding: its key, how heavy it is and what it says.
void expect_one(const ClusterConfig& config,
                const MachineFacts& facts,
                const char* key,
                Weight weight,
                const char* says) {
  const auto found = review(config, facts);
  ASSERT_EQ(found.size(), 1U) << key;
  EXPECT_EQ(found[0].key, key);
  EXPECT_EQ(found[0].weight, weight) << key;
  EXPECT_THAT(found[0].text, HasSubstr(says));
}

TEST(Review, AGoodClusterHasNothingToTell) {
  EXPECT_THAT(review(good(), machine()), IsEmpty());
}

TEST(Review, NoNodesAndUnknownModels) {
  ClusterConfig config = good();
  config.decode.pool.clear();
  expect_one(config, machine(), "decode.pool", Weight::Wrong, "at least one decode node");
  config = good();
  config.model.id = "gpt";
  expect_one(config, machine(), "model.id", Weight::Wrong, "smollm2-135m-instruct");
  MachineFacts without_catalogue = machine();
  without_catalogue.models.clear();
  EXPECT_THAT(review(config, without_catalogue), IsEmpty());
  config.model.path = "/there/model.gguf";
  EXPECT_THAT(review(config, machine()), IsEmpty());
  config.model.path = "/gone/model.gguf";
  expect_one(config, machine(), "model.path", Weight::Wrong, "/gone/model.gguf");
}

TEST(Review, SecretsThatEverybodyKnows) {
  for (const char* token :
       {"replace-this-with-a-secret-of-your-own", "a-long-secret", "CHANGE-ME-please"}) {
    ClusterConfig config = good();
    config.cluster.token = token;
    expect_one(config, machine(), "cluster.token", Weight::BeforeStart, "placeholder");
    config.cluster.gateways = {"127.0.0.1:7000"};  // nobody else can dial it
    EXPECT_THAT(review(config, machine()), IsEmpty());
  }
  ClusterConfig config = good();
  config.cluster.token = "abc123";
  expect_one(config, machine(), "cluster.token", Weight::BeforeStart, "6 characters");
  config = good();
  config.gateway.keys = {
      {.name = "a", .sha256 = "6b28002379411358e1adf91f916a794e5f01c5ecb0424b82c3de97d88e45e9df"}};
  expect_one(config, machine(), "gateway.keys.0.sha256", Weight::BeforeStart, "example");
}

TEST(Review, FilesAndInterfacesThatAreNotThere) {
  ClusterConfig config = good();
  config.gateway.tls = {.certificate = "/there/c.pem", .key = "/gone/k.pem"};
  expect_one(config, machine(), "gateway.tls.key", Weight::BeforeStart, "/gone/k.pem");
  config = good();
  config.gateway.keys_file = "/gone/keys.yaml";
  expect_one(config, machine(), "gateway.keys_file", Weight::BeforeStart, "/gone/keys.yaml");
  config = good();
  config.transfer.network = "eth0,mlx5_0:1,ib7";
  expect_one(config, machine(), "transfer.network", Weight::BeforeStart, "'ib7'; there are eth0");
}

TEST(Review, ListenersThatOtherHostsCannotReach) {
  ClusterConfig config = good();
  EXPECT_THAT(review(config, machine()), IsEmpty()) << "there is nobody who would dial it";
  config.prefill.pool = {NodeEntry{.name = "p0"}};
  expect_one(
      config, machine(), "decode.pool.0.control_listen", Weight::Doubtful, "could not reach d0");
  config.decode.pool[0].advertise = "10.0.0.2:7100";
  EXPECT_THAT(review(config, machine()), IsEmpty());
  config.prefill.pool[0].any_role = true;
  expect_one(
      config, machine(), "prefill.pool.0.control_listen", Weight::Doubtful, "could not reach p0");
  config.cluster.gateways = {"127.0.0.1:7000"};
  EXPECT_THAT(review(config, machine()), IsEmpty());
}

TEST(Review, GpusThatTheMachineLacks) {
  ClusterConfig config = good();
  MachineFacts facts = machine();
  facts.lacks_cuda = [](const EngineSection& engine) {
    return engine.device < 2 ? std::string() : std::string("there are 2 GPUs");
  };
  config.decode.pool[0].engine = {.backend = "cuda", .device = 1};
  EXPECT_THAT(review(config, facts), IsEmpty());
  config.decode.pool[0].engine.device = 2;
  config.decode.pool.push_back(config.decode.pool[0]);
  expect_one(
      config, facts, "decode.pool.0.engine.backend", Weight::BeforeStart, "there are 2 GPUs");
  config.decode.pool[0].engine.backend = config.decode.pool[1].engine.backend = "auto";
  EXPECT_THAT(review(config, facts), IsEmpty());
}

TEST(Review, RdmaNeedsMemoryThatMayBeLocked) {
  ClusterConfig config = good();
  config.transfer.transport = "rdma";
  config.kv.arena_mb = 64;
  MachineFacts facts = machine();
  EXPECT_THAT(review(config, facts), IsEmpty());
  facts.lockable_bytes = 8U << 20U;
  expect_one(config, facts, "kv.arena_mb", Weight::BeforeStart, "may lock 8");
}

}  // namespace
}  // namespace baton::cli
