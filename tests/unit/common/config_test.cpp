// cluster.yaml: what is read, what is refused and with which words, and that the examples and the
// page of keys say what the schema says.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "common/base/random.h"
#include "common/config/changed_keys.h"
#include "common/config/cluster_config.h"
#include "common/config/gateways.h"
#include "common/config/schema.h"

namespace baton {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::string kMinimal = "cluster:\n  token: secret\n";

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream out;
  out << file.rdbuf();
  return out.str();
}

TEST(Config, MinimalFileGivesDefaults) {
  const auto config = parse_config(kMinimal, "c.yaml", {});
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->cluster.token, "secret");
  EXPECT_EQ(config->cluster.heartbeat, std::chrono::milliseconds(250));
  EXPECT_THAT(config->cluster.gateways, ElementsAre("127.0.0.1:7000"));
  EXPECT_EQ(config->kv.arena_mb, 512U);
  EXPECT_TRUE(config->prefill.pool.empty());
}

TEST(Config, TellsWhichKeysDiffer) {
  const auto read = [](const std::string& more) {
    const auto config = parse_config(kMinimal + more, "c.yaml", {});
    EXPECT_TRUE(config) << config.error().message;
    return config.value_or(ClusterConfig());
  };
  const ClusterConfig before = read("");
  EXPECT_TRUE(changed_keys(before, before).empty());
  const ClusterConfig after = read(R"(
slo: {tiers: {default: {ttft_ms: 777}}}
pools: {prefill: {max: 5}, change_roles: dry_run}
transfer: {ucx: {UCX_LOG_LEVEL: info}}
gateway: {cors_origins: ["https://a.example"]}
kv: {prefix_cache: false}
prefill: {pool: [{name: p0}]}
)");
  EXPECT_THAT(changed_keys(before, after),
              ::testing::UnorderedElementsAre("kv.prefix_cache",
                                              "prefill.pool",
                                              "transfer.ucx",
                                              "gateway.cors_origins",
                                              "pools.change_roles",
                                              "pools.prefill.max",
                                              "slo.tiers.default.ttft_ms"));
}

TEST(Config, ReadsEveryType) {
  const auto config = parse_config(R"(
cluster:
  token: "1234"
  heartbeat_ms: 100
  gateways: ["a:1", "[::1]:2"]
kv: {prefix_cache: false}
transfer:
  transport: shm
  ucx: {UCX_LOG_LEVEL: info, UCX_TCP_MAX_CONN_RETRIES: 3}
prefill:
  engine: {threads: 3, isa: avx512, float_path: avx512_bf16}
  pool:
    - name: p0
    - name: p1
      engine: {threads: 1}
)",
                                   "c.yaml",
                                   {});
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->cluster.token, "1234");
  EXPECT_EQ(config->cluster.heartbeat, std::chrono::milliseconds(100));
  EXPECT_THAT(config->cluster.gateways, ElementsAre("a:1", "[::1]:2"));
  EXPECT_FALSE(config->kv.prefix_cache);
  EXPECT_EQ(config->transfer.ucx.at("UCX_TCP_MAX_CONN_RETRIES"), "3");
  ASSERT_EQ(config->prefill.pool.size(), 2U);
  EXPECT_EQ(config->prefill.pool[0].engine.threads, 3U) << "the pool's setting";
  EXPECT_EQ(config->prefill.pool[1].engine.threads, 1U) << "the node's own";
  EXPECT_EQ(config->prefill.pool[1].engine.isa, "avx512");
  EXPECT_EQ(config->prefill.pool[0].engine.float_path, "avx512_bf16");
  EXPECT_EQ(config->prefill.pool[1].engine.float_path, "avx512_bf16");
}

TEST(Config, OverridesReachEveryPlace) {
  const auto config = parse_config(kMinimal + "prefill: {pool: [{name: p0}]}\n",
                                   "c.yaml",
                                   {"kv.arena_mb=64",
                                    "decode.max_batch=3",
                                    "prefill.pool.0.name=other",
                                    "prefill.pool.1.name=p1",
                                    "decode.pool.0.name=d0",
                                    "cluster.gateways=[a:1, b:2]",
                                    "cluster.gateways.1=c:3",
                                    "transfer.ucx.UCX_TLS=tcp",
                                    "cluster.token=a=b",
                                    "model.path="});
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->kv.arena_mb, 64U);
  EXPECT_EQ(config->decode.max_batch, 3U);
  EXPECT_EQ(config->prefill.pool.at(0).name, "other");
  EXPECT_EQ(config->prefill.pool.at(1).name, "p1");
  EXPECT_EQ(config->decode.pool.at(0).name, "d0");
  EXPECT_THAT(config->cluster.gateways, ElementsAre("a:1", "c:3"));
  EXPECT_EQ(config->transfer.ucx.at("UCX_TLS"), "tcp");
  EXPECT_EQ(config->cluster.token, "a=b");
  EXPECT_EQ(config->model.path, "");
}

constexpr const char* kTwoGateways =
    "cluster: {token: a-secret-token, gateways: [\"h1:7000\", \"h2:7000\"]}\n"
    "gateway:\n  listen: 0.0.0.0:8000\n  control_listen: h2:7000\n  admin_listen: 0.0.0.0:9400\n";

std::vector<std::string> told(const std::vector<GatewayEntry>& gateways) {
  std::vector<std::string> out;
  for (const GatewayEntry& entry : gateways) {
    out.push_back(entry.name + " " + entry.control_listen + " " + admin_address(entry));
  }
  return out;
}

TEST(Gateways, AreListedWithNamesThatDiffer) {
  const auto one = parse_config("cluster: {token: t}\ngateway: {admin_listen: a:1}", "c.yaml", {});
  ASSERT_TRUE(one) << one.error().message;
  EXPECT_THAT(told(gateways_of(*one)), ElementsAre("gateway 127.0.0.1:7000 a:1"));

  const auto two = parse_config(kTwoGateways, "c.yaml", {});
  ASSERT_TRUE(two) << two.error().message;
  EXPECT_THAT(told(gateways_of(*two)),
              ElementsAre("gateway-0 h1:7000 h1:9400", "gateway-1 h2:7000 h2:9400"));

  const auto pool = parse_config(
      std::string(kTwoGateways) + "  pool:\n    - {name: a}\n    - {name: b, admin_listen: h:1}\n",
      "c.yaml",
      {"gateway.pool.0.control_listen=h1:7000"});
  ASSERT_TRUE(pool) << pool.error().message;
  EXPECT_THAT(told(gateways_of(*pool)), ElementsAre("a h1:7000 h1:9400", "b h2:7000 h:1"));
}

std::string name_of(const std::string& text, const std::string& name) {
  const auto config = parse_config(text, "c.yaml", {});
  const auto chosen = config ? as_gateway(*config, name, "alpha.example.org") : config;
  return chosen ? chosen->gateway.name + " " + chosen->gateway.control_listen
                : chosen.error().message;
}

TEST(Gateways, ANameChoosesOneOfThePool) {
  EXPECT_EQ(name_of("cluster: {token: t}", ""), "gateway 127.0.0.1:7000");
  EXPECT_EQ(name_of("cluster: {token: t}", "mine"), "mine 127.0.0.1:7000");
  EXPECT_EQ(name_of("cluster: {token: t}", "a b"),
            "--name: 'a b' is no name: 1 to 64 letters, digits, '-', '_' or '.'");
  EXPECT_EQ(name_of(kTwoGateways, ""), "gateway-1 h2:7000");
  EXPECT_EQ(name_of("cluster: {token: t, gateways: [\"h1:1\", \"h2:1\"]}\n"
                    "gateway: {control_listen: \"0.0.0.0:1\"}",
                    ""),
            "gateway-alpha 0.0.0.0:1");
  const std::string pool = std::string(kTwoGateways) +
                           "  pool:\n    - {name: a, control_listen: h1:7000}\n    - {name: b}\n";
  EXPECT_EQ(name_of(pool, "a"), "a h1:7000");
  EXPECT_EQ(name_of(pool, "b"), "b h2:7000");
  EXPECT_EQ(name_of(pool, ""), "gateway.pool has several gateways; --name must be one of: a, b");
  EXPECT_EQ(name_of(pool, "c"), "gateway.pool has no gateway 'c'; --name must be one of: a, b");
}

struct WrongFile {
  const char* text;  // behind the minimal file's two lines
  const char* message;
};

TEST(Config, RefusesWithPlaceAndReason) {
  const std::vector<WrongFile> files{
      {"decode:\n  max_bach: 3\n",
       "c.yaml:4: unknown key 'max_bach' in 'decode'; did you mean 'max_batch'?"},
      {"decoder: {}\n", "c.yaml:3: unknown key 'decoder'; did you mean 'decode'?"},
      {"max_batch: 3\n", "c.yaml:3: unknown key 'max_batch'; did you mean 'decode.max_batch'?"},
      {"log:\n  quux: 1\n", "c.yaml:4: unknown key 'quux' in 'log'; it may hold level, format"},
      {"decode:\n  max_batch: many\n",
       "c.yaml:4: decode.max_batch: expected a whole number, got 'many'"},
      {"decode:\n  max_batch: \"3\"\n",
       "c.yaml:4: decode.max_batch: expected a whole number, got the text '3'"},
      {"decode:\n  max_batch: 3.5\n",
       "c.yaml:4: decode.max_batch: expected a whole number, got '3.5'"},
      {"decode:\n  max_batch: [3]\n",
       "c.yaml:4: decode.max_batch: expected a whole number, got a list"},
      {"decode:\n  max_batch:\n",
       "c.yaml:4: decode.max_batch: expected a whole number, got nothing"},
      {"decode:\n  max_batch: 0\n",
       "c.yaml:4: decode.max_batch: must be between 1 and 4096, got 0"},
      {"decode:\n  max_batch: -1\n",
       "c.yaml:4: decode.max_batch: must be between 1 and 4096, got -1"},
      {"decode:\n  max_batch: 99999999999999999999\n",
       "c.yaml:4: decode.max_batch: must be between 1 and 4096, got 99999999999999999999"},
      {"gateway:\n  queue_timeout_ms: 1s\n",
       "c.yaml:4: gateway.queue_timeout_ms: expected a whole number, got '1s'"},
      {"kv:\n  prefix_cache: yes\n",
       "c.yaml:4: kv.prefix_cache: expected true or false, got 'yes'"},
      {"transfer:\n  transport: roce\n",
       "c.yaml:4: transfer.transport: must be one of auto, tcp, shm, rdma; got 'roce'"},
      {"transfer:\n  transport: tcp\n  path: put\n",
       "c.yaml:5: transfer.path: put cannot go over transfer.transport: tcp, where nothing would "
       "check what is written; use am or auto, or another transport"},
      {"transfer:\n  ucx: {TLS: tcp}\n", "c.yaml:4: transfer.ucx: key 'TLS' must begin with UCX_"},
      {"gateway:\n  listen: nowhere\n",
       "c.yaml:4: gateway.listen: 'nowhere' is no address of the form host:port: the port is "
       "missing"},
      {"gateway:\n  listen: \"\"\n", "c.yaml:4: gateway.listen: is required"},
      {"gateway:\n  cors_origins: [https://a.example/x]\n",
       "c.yaml:4: gateway.cors_origins.0: 'https://a.example/x' is no origin: a scheme and a host "
       "as in https://chat.example, without a path, or \"*\""},
      {"gateway:\n  cors_origins: [3, [4]]\n",
       "c.yaml:4: gateway.cors_origins.0: '3' is no origin: a scheme and a host as in "
       "https://chat.example, without a path, or \"*\"\n"
       "c.yaml:4: gateway.cors_origins.1: expected a text, got a list"},
      {"gateway:\n  tls:\n    key: k.pem\n",
       "c.yaml:5: gateway.tls: certificate and key belong together; one of them is missing"},
      {"gateway:\n  tiers:\n    default: {share_percent: 30}\n    flex: {share_percnt: 3}\n",
       "c.yaml:6: unknown key 'share_percnt' in 'gateway.tiers.flex'; did you mean "
       "'share_percent'?"},
      {"gateway:\n  listen: 127.0.0.1:7\n  control_listen: 127.0.0.1:7\n",
       "c.yaml:5: gateway.control_listen: 127.0.0.1:7 is the address of gateway.listen, too"},
      {"gateway:\n  pool:\n    - name: a\n    - {name: b, control_listen: h:1, admin_listen: "
       "h:2}\n",
       "c.yaml:6: gateway.pool.1.listen: 127.0.0.1:8000 is the address of gateway.pool.0.listen, "
       "too"},
      {"gateway:\n  listen: 0.0.0.0:8000\n  pool:\n    - name: a\n    - {name: a, control_listen: "
       "h:1}\n",
       "c.yaml:7: gateway.pool.1.name: 'a' is the name of two programs"},
      {"prefill:\n  pool:\n    - name: a\n      control_listen: h:1\n    - name: b\n"
       "      control_listen: h:1\n",
       "c.yaml:8: prefill.pool.1.control_listen: h:1 is the address of "
       "prefill.pool.0.control_listen, too"},
      {"gateway: 3\n", "c.yaml:3: gateway: expected a map, got '3'"},
      {"decode: {pool: d0}\n", "c.yaml:3: decode.pool: expected a list, got 'd0'"},
      {"prefill:\n  pool:\n    - control_listen: a:1\n",
       "c.yaml:5: prefill.pool.0.name: is required"},
      {"prefill:\n  pool:\n    - name: a b\n",
       "c.yaml:5: prefill.pool.0.name: 'a b' is no name: 1 to 64 letters, digits, '-', '_' or '.'"},
      {"prefill:\n  pool:\n    - name: a\ndecode:\n  pool:\n    - name: a\n",
       "c.yaml:8: decode.pool.0.name: 'a' is the name of two nodes"},
      {"prefill:\n  pool:\n    - name: a\n      control_listen: 0.0.0.0:1\n",
       "c.yaml:6: prefill.pool.0.control_listen: 0.0.0.0:1 is no address that others can dial; say "
       "in advertise which is"},
      {"prefill:\n  pool:\n    - name: a\n      engine:\n        thread: 1\n",
       "c.yaml:7: unknown key 'thread' in 'prefill.pool.0.engine'; did you mean 'threads'?"},
      {"decode:\n  pool: [{name: d0}]\n",
       "c.yaml:4: decode.local_prefill_max_tokens: 0 needs at least one node in prefill.pool; "
       "nothing could compute prompts"},
      {"kv:\n  block_tokens: 40\n", "c.yaml:4: kv.block_tokens: must be a multiple of 16, got 40"},
      {"kv:\n  file_tier: /tmp\n  prefix_cache: false\n",
       "c.yaml:4: kv.file_tier: needs kv.prefix_cache: true; it keeps what falls out of that "
       "cache"},
      {"prefill:\n  chunk_tokens: 2000\n  step_tokens: 1000\n",
       "c.yaml:5: prefill.step_tokens: 1000 is below chunk_tokens, 2000"},
      {"prefill:\n  engine: {float_path: avx512_bf16}\n  pool: [{name: p}]\ndecode:\n  pool: "
       "[{name: d}]\n",
       "c.yaml:7: decode.pool.0.engine.float_path: exact, where prefill.pool.0.engine.float_path "
       "is "
       "avx512_bf16; all nodes must compute alike"},
      {"prefill:\n  engine: {float_path: avx512_bf16, isa: avx2}\n  pool: [{name: p}]\n",
       "c.yaml:5: prefill.pool.0.engine.float_path: avx512_bf16 needs isa auto or avx512, not "
       "avx2"},
      {"kv: {}\nkv: {}\n", "c.yaml:4: key 'kv' is given twice"},
      {"kv: &a {}\n", "c.yaml:3: anchors and aliases are not supported"},
      {"kv: !!map {}\n", "c.yaml:3: tags are not supported: tag:yaml.org,2002:map"},
      {"? [a]\n: b\n", "c.yaml:3: a key must be a text; is a bracket left open?"},
      {"kv: {\n", "c.yaml:4: not valid YAML: end of map flow not found"},
      {"kv:\n\tarena_mb: 5\n",
       "c.yaml:4: a tab stands in the indentation, where YAML allows spaces alone"},
      {"kv:\n  arena_mb: 5\n\tblock_tokens: 16\n",
       "c.yaml:5: a tab stands in the indentation, where YAML allows spaces alone"},
      {"kv:\n  \tarena_mb: 5\n",
       "c.yaml:4: a tab stands in the indentation, where YAML allows spaces alone"},
      {"decode:\n  pool:\n\t- name: a\n",
       "c.yaml:5: a tab stands in the indentation, where YAML allows spaces alone"},
      {"---\nkv: {}\n", "c.yaml: holds more than one YAML document"},
      {"kv:\n  arena_mb: x\n  block_tokens: y\n",
       "c.yaml:4: kv.arena_mb: expected a whole number, got 'x'\n"
       "c.yaml:5: kv.block_tokens: expected a whole number, got 'y'"},
      {"log:\n  level: loud\n\n\n\n\nkv:\n  arena_bm: 1\ngatewy: {}\n",
       "c.yaml:4: log.level: must be one of trace, debug, info, warn, error; got 'loud'\n"
       "c.yaml:10: unknown key 'arena_bm' in 'kv'; did you mean 'arena_mb'?\n"
       "c.yaml:11: unknown key 'gatewy'; did you mean 'gateway'?"},
  };
  for (const auto& file : files) {
    const auto config = parse_config(kMinimal + file.text, "c.yaml", {});
    ASSERT_FALSE(config) << file.text;
    EXPECT_EQ(config.error().code, ErrorCode::InvalidConfig);
    EXPECT_EQ(config.error().message, file.message) << file.text;
  }
}

TEST(Config, SaysHowManyFaultsItLeavesOut) {
  std::string text = kMinimal;
  for (int i = 0; i < 23; ++i) {
    text += fmt::format("zz{}: 1\n", i);
  }
  const std::string message = parse_config(text, "c.yaml", {}).error().message;
  EXPECT_TRUE(message.ends_with("\n... and 3 more")) << message;
  EXPECT_EQ(std::ranges::count(message, '\n'), 20);
}

TEST(Config, RefusesMissingToken) {
  EXPECT_EQ(parse_config("", "c.yaml", {}).error().message, "c.yaml: cluster.token: is required");
  EXPECT_EQ(parse_config("cluster:\n  name: x\n", "c.yaml", {}).error().message,
            "c.yaml:2: cluster.token: is required");
  EXPECT_EQ(parse_config("- a\n", "c.yaml", {}).error().message.substr(0, 50),
            "c.yaml:1: expected a map of sections, got a list\nc");
  EXPECT_EQ(parse_config("cluster: {token: t, suspect_after: 6}", "c.yaml", {}).error().message,
            "c.yaml:1: cluster.dead_after: must be above suspect_after");
}

TEST(Config, TheTokenMayStandInAFile) {
  const std::string path = ::testing::TempDir() + "baton_token";
  std::ofstream(path) << "  hush hush \nmore\n";
  const std::string set = "cluster.token_file=" + path;
  const auto config = parse_config("", "c.yaml", {set});
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->cluster.token, "hush hush");
  EXPECT_EQ(parse_config(kMinimal, "c.yaml", {set}).error().message,
            "c.yaml:2: cluster.token: there is cluster.token_file, too; keep one");
  EXPECT_EQ(parse_config("", "c.yaml", {"cluster.token_file=/nowhere/token"}).error().message,
            "--set cluster.token_file: cluster.token_file: cannot read a line from /nowhere/token");
  std::ofstream(path) << "\n";
  EXPECT_EQ(
      parse_config("", "c.yaml", {set}).error().message,
      "--set cluster.token_file: cluster.token_file: the first line of " + path + " is empty");
}

TEST(Config, ObjectivesHaveATargetForEachTier) {
  const auto config =
      parse_config(kMinimal + "slo:\n  tiers:\n    flex: {itl_ms: 750}\n", "c.yaml", {});
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->slo.tiers[2].itl, std::chrono::milliseconds(750));
  EXPECT_EQ(config->slo.tiers[1].itl, std::chrono::milliseconds(100));
}

TEST(Config, RefusesWrongOverrides) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"kv.arena_mb",
       "--set kv.arena_mb: an override has the form key=value, such as "
       "kv.arena_mb=256"},
      {"=3", "--set : an override has the form key=value, such as kv.arena_mb=256"},
      {"kv..arena_mb=1", "--set kv..arena_mb: a name between the dots is missing"},
      {"kv.arena_bm=1",
       "--set kv.arena_bm: unknown key 'arena_bm' in 'kv'; did you mean 'arena_mb'?"},
      {"kv.arena_mb=0", "--set kv.arena_mb: kv.arena_mb: must be between 1 and 4194304, got 0"},
      {"decode.pool.1.name=x", "--set decode.pool.1.name: the list has 0 entries"},
      {"cluster.gateways.x=a:1",
       "--set cluster.gateways.x: cluster.gateways: expected a list, got "
       "a map"},
      {"cluster.token.x=1", "--set cluster.token.x: 'x' lies inside a plain value"},
      {"kv.arena_mb=[", "--set kv.arena_mb:1: a key must be a text; is a bracket left open?"},
      {"kv=&a {}", "--set kv:1: anchors and aliases are not supported"},
  };
  for (const auto& [assignment, message] : cases) {
    const auto config = parse_config(kMinimal, "c.yaml", {assignment});
    ASSERT_FALSE(config) << assignment;
    EXPECT_EQ(config.error().message, message);
  }
}

TEST(Config, FaultsOfOverridesComeLast) {
  EXPECT_EQ(parse_config("log:\n  level: loud\n", "c.yaml", {"kv.arena_mb=x"}).error().message,
            "c.yaml:2: log.level: must be one of trace, debug, info, warn, error; got 'loud'\n"
            "c.yaml: cluster.token: is required\n"
            "--set kv.arena_mb: kv.arena_mb: expected a whole number, got 'x'");
}

TEST(Config, MessagesNeverShowTheToken) {
  const auto config =
      parse_config("cluster:\n  token: hush\n  name: a b\n  x: 1\n", "c", {"kv.x=1"});
  ASSERT_FALSE(config);
  EXPECT_THAT(config.error().message, ::testing::Not(HasSubstr("hush")));
}

TEST(Config, BoundsSizeDepthAndCount) {
  EXPECT_THAT(parse_config(std::string(300'000, '#'), "c", {}).error().message,
              HasSubstr("at most 262144 are allowed"));
  std::string deep;
  for (int i = 0; i < 40; ++i) {
    deep += fmt::format("{}a:\n", std::string(static_cast<std::size_t>(i), ' '));
  }
  EXPECT_THAT(parse_config(deep, "c", {}).error().message, HasSubstr("nested deeper than 16"));
  EXPECT_FALSE(parse_config(std::string(200'000, '['), "c", {}));
  EXPECT_FALSE(parse_config("a: " + std::string(200'000, '{'), "c", {}));
  std::string many = "a: [";
  for (int i = 0; i < 30'000; ++i) {
    many += "1,";
  }
  EXPECT_THAT(parse_config(many + "]", "c", {}).error().message,
              HasSubstr("more than 20000 values"));
  // The "billion laughs".
  EXPECT_THAT(parse_config("a: &a [x]\nb: [*a,*a]\n", "c", {}).error().message,
              HasSubstr("anchors and aliases"));
}

TEST(Config, RandomDamageNeverCrashes) {
  const auto good = describe_config();
  for (std::uint64_t seed = 1; seed <= 1500; ++seed) {
    auto random = seeded_random(seed);
    auto text = good;
    for (int i = 0; i < 3; ++i) {
      const auto at = random() % text.size();
      switch (random() % 3) {
        case 0:
          text[at] = static_cast<char>(random());
          break;
        case 1:
          text.erase(at, random() % 40);
          break;
        default:
          text.insert(at, std::string(1 + random() % 3, "{}[]:-&*\n \"'"[random() % 12]));
      }
    }
    if (const auto config = parse_config(text, "c", {}); !config) {
      EXPECT_EQ(config.error().code, ErrorCode::InvalidConfig) << "seed " << seed;
      EXPECT_FALSE(config.error().message.empty());
    }
  }
}

class KeyFile : public ::testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(path); }
  Result<std::vector<ApiKeyEntry>> load(const std::string& text) {
    std::ofstream(path, std::ios::trunc) << text;
    return load_api_keys(path);
  }
  const std::string path = ::testing::TempDir() + "/baton_keys_" + std::to_string(::getpid());
  const std::string hash = std::string(63, 'a');  // one digit short
};

TEST_F(KeyFile, ReadsEntries) {
  const auto keys = load("keys:\n  - name: a\n    sha256: " + hash +
                         "1\n    tokens_per_minute: 4000000000\n    tiers: [flex, default]\n" +
                         "    models: [m]\n  - {name: b, admin: true, sha256: " + hash + "2}\n");
  ASSERT_TRUE(keys) << keys.error().message;
  ASSERT_EQ(keys->size(), 2U);
  EXPECT_EQ(keys->at(0).tokens_per_minute, 4'000'000'000U);
  EXPECT_EQ(keys->at(0).tiers, (std::vector<std::string>{"flex", "default"}));
  EXPECT_EQ(keys->at(0).models, std::vector<std::string>{"m"});
  EXPECT_FALSE(keys->at(0).admin);
  EXPECT_TRUE(keys->at(1).admin);
  EXPECT_EQ(keys->at(1).sha256, hash + "2");
  EXPECT_TRUE(load("")->empty());
}

TEST_F(KeyFile, RefusesWithPlaceAndNeverShowsTheValue) {
  const std::vector<std::pair<std::string, std::string>> files{
      {"keys: [{name: a, sha256: " + hash + "}]", ":1: keys.0.sha256: must be 64 hexadecimal"},
      {"keys: [{name: a, sha256: " + hash + "A}]", ":1: keys.0.sha256: must be 64 hexadecimal"},
      {"keys:\n- name: a\n", ":2: keys.0.sha256: is required"},
      {"keys:\n- {name: a, sha256: " + hash + "1}\n- {name: a, sha256: " + hash + "2}\n",
       ":3: keys.1.name: 'a' is the name of two keys"},
      {"keys:\n- {name: a, sha256: " + hash + "1}\n- {name: b, sha256: " + hash + "1}\n",
       ":3: keys.1.sha256: is the hash of another key in the list, too"},
      {"keys: [{name: a, sha256: " + hash + "1, tiers: [gold]}]",
       ":1: keys.0.tiers.0: must be one of priority, default, flex; got 'gold'"},
      {"key: []", ":1: unknown key 'key'; did you mean 'keys'?"},
  };
  for (const auto& [text, message] : files) {
    const auto keys = load(text);
    ASSERT_FALSE(keys) << text;
    EXPECT_THAT(keys.error().message, HasSubstr(path + message));
    EXPECT_THAT(keys.error().message, ::testing::Not(HasSubstr(hash)));
  }
}

TEST(Config, MissingFileIsNamed) {
  const auto config = load_config("/no/such.yaml", {});
  ASSERT_FALSE(config);
  EXPECT_EQ(config.error().code, ErrorCode::InvalidConfig);
  EXPECT_THAT(config.error().message, HasSubstr("/no/such.yaml"));
}

TEST(Config, DescriptionIsAValidFileOfDefaults) {
  const auto described = parse_config(describe_config(), "described", {});
  ASSERT_TRUE(described) << described.error().message;
  EXPECT_EQ(described->gateway.client_buffer_kb, GatewaySection().client_buffer_kb);
  EXPECT_EQ(described->prefill.pool.at(0).name, "prefill-0");
  for (const auto& key : config_keys()) {
    const auto name = key.path.substr(key.path.rfind('.') + 1);
    EXPECT_THAT(describe_config(), HasSubstr(name + ":")) << key.path;
  }
}

TEST(Config, Pools) {
  const std::string text =
      "cluster:\n  token: t\ndecode:\n  pool:\n    - name: d\n      any_role: ";
  const auto good = parse_config(
      text + "true\npools:\n  change_roles: on\n  ratio: \"2:3\"\n  decode: {min: 2}\n",
      "c",
      {"decode.local_prefill_max_tokens=100"});
  ASSERT_TRUE(good) << good.error().message;
  EXPECT_EQ(parse_ratio(good->pools.ratio), std::pair(2U, 3U));
  EXPECT_EQ(good->pools.decode.min, 2U);
  EXPECT_TRUE(good->decode.pool[0].any_role);
  for (const auto& [entry, problem] : std::map<std::string, std::string>{
           {"false\npools:\n  change_roles: on\n", "c:8: pools.change_roles: on needs"},
           {"true\npools:\n  change_roles: yes\n", "must be one of off, dry_run, on"},
           {"true\npools:\n  ratio: \"1:0\"\n", "c:8: pools.ratio: must be auto, or"},
           {"true\npools:\n  ratio: 1:2:3\n", "pools.ratio: must be auto, or"},
           {"true\npools:\n  ratio: half\n", "pools.ratio: must be auto, or"},
           {"true\npools:\n  prefill: {min: 4, max: 3}\n", "pools.prefill.max: 3 is below min, 4"},
           {"true\npools:\n  decode: {min: 0}\n", "pools.decode.min"}}) {
    const auto bad = parse_config(text + entry, "c", {"decode.local_prefill_max_tokens=100"});
    ASSERT_FALSE(bad) << entry;
    EXPECT_THAT(bad.error().message, HasSubstr(problem));
  }
}

TEST(Config, NamesOfModelsAndRouting) {
  const std::string text =
      "cluster:\n  token: t\ngateway:\n  routing:\n    policy: prefix\n  models:\n";
  const auto good = parse_config(text +
                                     "    - id: chat\n      revisions:\n        - model: old\n"
                                     "          weight: 90\n        - model: new\n",
                                 "c",
                                 {});
  ASSERT_TRUE(good) << good.error().message;
  EXPECT_EQ(good->gateway.routing.policy, "prefix");
  ASSERT_EQ(good->gateway.models.size(), 1U);
  EXPECT_EQ(good->gateway.models[0].revisions[0].weight, 90U);
  EXPECT_EQ(good->gateway.models[0].revisions[1].weight, 100U);
  for (const auto& [entry, problem] : std::map<std::string, std::string>{
           {"    - id: a\n", "gateway.models.0.revisions: needs at least one"},
           {"    - id: a\n      revisions: [{model: x, weight: 0}]\n", "with a weight above 0"},
           {"    - id: a\n      revisions: [{model: x}, {model: x}]\n", "'x' stands twice"},
           {"    - id: a\n      revisions: [{weight: 3}]\n", "revisions.0.model: is required"},
           {"    - id: a\n      revisions: [{model: x}]\n    - id: a\n"
            "      revisions: [{model: x}]\n",
            "gateway.models.1.id: 'a' stands twice"}}) {
    const auto bad = parse_config(text + entry, "c", {});
    ASSERT_FALSE(bad) << entry;
    EXPECT_THAT(bad.error().message, HasSubstr(problem));
  }
}

// Every example of a cluster loads, and each of its keys has a comment right above it.
TEST(Config, ExamplesLoadAndEveryKeyIsCommented) {
  int found = 0;
  for (const auto& file : std::filesystem::directory_iterator("configs")) {
    if (file.path().extension() != ".yaml" || file.path().filename() == "models.yaml") {
      continue;
    }
    ++found;
    const auto config = load_config(file.path().string(), {});
    EXPECT_TRUE(config) << config.error().message;
    std::istringstream lines(read_file(file.path()));
    std::string line;
    std::string before;
    for (int number = 1; std::getline(lines, line); ++number) {
      EXPECT_LE(line.size(), 100U) << file.path() << ":" << number;
      const auto start = line.find_first_not_of(' ');
      if (start != std::string::npos && line[start] != '#') {
        const auto comment = before.find_first_not_of(' ');
        EXPECT_TRUE(comment != std::string::npos && before[comment] == '#')
            << file.path() << ":" << number << ": a key without a comment: " << line;
      }
      before = line;
    }
  }
  EXPECT_GE(found, 3);
}

TEST(Config, PageOfKeysEqualsTheSchema) {
  const auto page = read_file("docs/configuration.md");
  EXPECT_THAT(page, HasSubstr(config_keys_markdown()))
      << "docs/configuration.md is behind the schema; put this table into it:\n"
      << config_keys_markdown();
}

}  // namespace
}  // namespace baton
