// The parts of the UCX path that need no connection: settings, addresses, lanes, messages.
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/unit/transfer/arena.h"
#include "transfer/ucx/endpoint.h"
#include "transfer/ucx/log.h"
#include "transfer/ucx/settings.h"
#include "transfer/ucx/worker.h"

namespace baton::transfer {
namespace {

TransportOptions options_of(const std::string& transport) {
  TransportOptions options;
  options.transport = transport;
  return options;
}

TEST(UcxSettings, TheTransportChoosesTheLanes) {
  EXPECT_EQ(context_settings(options_of("tcp")).value(), (UcxSettings{{"TLS", "tcp"}}));
  EXPECT_EQ(context_settings(options_of("shm")).value(), (UcxSettings{{"TLS", "posix,sysv,cma"}}));
  EXPECT_EQ(context_settings(options_of("rdma")).value(), (UcxSettings{{"TLS", "ib"}}));
  EXPECT_TRUE(context_settings(options_of("auto")).value().empty());
  const auto refused = context_settings(options_of("carrier-pigeon"));
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::InvalidConfig);
  auto absent = options_of("auto");
  absent.network = "lo,no_such_interface";
  ASSERT_FALSE(context_settings(absent));
  EXPECT_EQ(context_settings(absent).error().code, ErrorCode::InvalidConfig);
  EXPECT_NE(context_settings(absent).error().message.find("no_such_interface"), std::string::npos);
  auto with_network = options_of("tcp");
  with_network.network = "lo";
  EXPECT_EQ(context_settings(with_network).value(),
            (UcxSettings{{"TLS", "tcp"}, {"NET_DEVICES", "lo"}}));
}

TEST(UcxSettings, TheOperatorsEnvironmentWins) {
  ::setenv("UCX_TLS", "tcp,self", 1);
  EXPECT_TRUE(context_settings(options_of("shm")).value().empty());
  ::unsetenv("UCX_TLS");
  ::setenv("UCX_BATON_TEST_A", "mine", 1);
  auto options = options_of("tcp");
  options.ucx = {{"UCX_BATON_TEST_A", "yours"}, {"BATON_TEST_B", "b"}};
  ASSERT_TRUE(apply_environment(options).has_value());
  EXPECT_STREQ(::getenv("UCX_BATON_TEST_A"), "mine");
  EXPECT_STREQ(::getenv("UCX_BATON_TEST_B"), "b");
  EXPECT_NE(::getenv("UCX_KEEPALIVE_INTERVAL"), nullptr);
  ::unsetenv("UCX_BATON_TEST_A");
  ::unsetenv("UCX_BATON_TEST_B");
}

TEST(UcxSettings, NothingIsPutWhereATcpLaneCanBe) {
  const auto paths = [](const std::string& transport, const std::string& path) {
    auto options = options_of(transport);
    options.path = path;
    return put_paths(options);
  };
  for (const char* path : {"auto", "am"}) {
    for (const char* transport : {"auto", "tcp", "shm"}) {
      EXPECT_FALSE(paths(transport, path)->rdma) << transport;
      EXPECT_FALSE(paths(transport, path)->shm) << transport;
    }
  }
  EXPECT_TRUE(paths("shm", "put")->shm);
  EXPECT_TRUE(paths("auto", "put")->shm);
  EXPECT_FALSE(paths("auto", "put")->rdma);  // its lanes may be TCP
  EXPECT_FALSE(paths("shm", "put")->rdma);
  const auto refused = paths("tcp", "put");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::InvalidConfig);
  EXPECT_NE(refused.error().message.find("transfer.transport: tcp"), std::string::npos);
  EXPECT_EQ(paths("auto", "get").error().code, ErrorCode::InvalidConfig);
}

TEST(UcxSettings, AnImpossibleNameIsRefused) {
  for (const char* name : {"", "UCX_", "tls", "A=B", "A B", "PATH/../X"}) {
    auto options = options_of("tcp");
    options.ucx = {{name, "x"}};
    const auto status = apply_environment(options);
    ASSERT_FALSE(status.has_value()) << name;
    EXPECT_EQ(status.error().code, ErrorCode::InvalidConfig);
  }
}

TEST(UcxLog, UnusedSettingsAreNamedWithoutTheShippedOnes) {
  const std::string hint = " (set UCX_WARN_UNUSED_ENV_VARS=n to suppress this warning)";
  EXPECT_EQ(filter_unused_settings("unused env variable: UCX_MM_ERROR_HANDLING" + hint), "");
  EXPECT_EQ(filter_unused_settings("unused env variables: UCX_RC_TIMEOUT,UCX_TYPO,UCX_NO" + hint),
            "settings that this UCX does not know or use: UCX_TYPO, UCX_NO");
  EXPECT_EQ(filter_unused_settings("connect failed"), "connect failed");
  // As UCX 1.22 words it.
  const std::string later = "\n(set UCX_WARN_UNUSED_ENV_VARS=n to suppress this warning)";
  EXPECT_EQ(filter_unused_settings("unused environment variable: UCX_RC_TIMEOUT" + later), "");
  EXPECT_EQ(filter_unused_settings("unused environment variables: UCX_TLSS (maybe: UCX_TLS, "
                                   "UCX_DLS?); UCX_RC_TIMEOUT; UCX_NO" +
                                   later),
            "settings that this UCX does not know or use: UCX_TLSS (maybe: UCX_TLS, UCX_DLS?), "
            "UCX_NO");
}

TEST(UcxLane, IsReadFromUcxsDescription) {
  const auto info = [](const std::string& lanes) {
    return "#\n# UCP endpoint \n#               peer: <no debug data>\n" + lanes +
           "#                 am_send: 0..<egr/short>..93\n";
  };
  const auto bulk = [&](const std::string& lanes) { return parse_lanes(info(lanes)).bulk; };
  EXPECT_EQ(bulk("#   lane[0]:  3:sysv/memory.0 md[2]  -> md[2]/sysv/sysdev[255] am am_bw#0 "
                 "keepalive\n"),
            Lane::Shm);
  EXPECT_EQ(bulk("#   lane[0]:  1:tcp/lo.0 md[0]  -> md[0]/tcp/sysdev[255] am am_bw#0 keepalive "
                 "wireup\n"),
            Lane::Tcp);
  EXPECT_EQ(bulk("#   lane[0]:  0:posix/memory.0 md[0] -> md[0]/posix am am_bw#0\n"
                 "#   lane[1]:  9:cma/memory.0 md[3] -> md[3]/cma rma_bw#0\n"),
            Lane::Shm);
  const std::string rc =
      "#   lane[0]:  0:ud_verbs/rxe0:1.0 md[0] -> md[0]/ud_verbs wireup\n"
      "#   lane[1]:  9:rc_verbs/rxe0:1.0 md[3] -> md[3]/rc_verbs rma#0 rma_bw#0 "
      "am am_bw#0\n";
  EXPECT_EQ(bulk(rc), Lane::Rc);
  EXPECT_EQ(bulk("# lane[0]: 9:rc_mlx5/mlx5_0:1.0 md[3] -> md[3]/ib am am_bw#0\n"), Lane::RcMlx5);
  EXPECT_EQ(parse_lanes("").bulk, Lane::Unknown);
  EXPECT_EQ(parse_lanes("lane[0]").bulk, Lane::Unknown);
}

TEST(UcxLane, OnlyRdmaLanesAloneArePutOver) {
  const auto puts = [](const std::string& lanes) { return parse_lanes(lanes).puts_by_rdma; };
  const std::string rc = "# lane[0]: 9:rc_verbs/rxe0:1.0 md[3] -> md[3]/ib rma#0 rma_bw#0 am\n";
  EXPECT_TRUE(puts(rc));
  EXPECT_TRUE(puts("# lane[0]: 9:dc_mlx5/mlx5_0:1.0 md[3] -> md[3]/ib rma_bw#0 am\n"));
  EXPECT_FALSE(puts(""));
  EXPECT_FALSE(puts("# lane[0]: 9:rc_verbs/rxe0:1.0 md[3] -> md[3]/ib am am_bw#0\n"));
  EXPECT_FALSE(puts(rc + "# lane[1]: 2:posix/memory.0 md[1] -> md[1]/posix rma#1\n"));
  EXPECT_FALSE(puts("# lane[0]: 1:tcp/lo.0 md[0] -> md[0]/tcp rma#0 am am_bw#0\n"));
}

TEST(UcxAddress, OnlyAnIntactOneOfTheSameVersionIsOpened) {
  const auto context = std::move(UcxContext::create(options_of("tcp"))).value();
  const auto worker = std::move(UcxWorker::create(*context)).value();
  const std::vector<std::byte> good = worker->address();
  EXPECT_TRUE(open_address(good).has_value());
  for (std::size_t i = 0; i < good.size(); ++i) {
    auto bad = good;
    bad[i] ^= std::byte{1};
    const auto refused = open_address(bad);
    ASSERT_FALSE(refused.has_value()) << "byte " << i;
    const bool is_version = i >= 4 && i < 8;
    EXPECT_EQ(refused.error().code, is_version ? ErrorCode::Mismatch : ErrorCode::ProtocolError);
  }
  for (std::size_t length = 0; length < good.size(); ++length) {
    EXPECT_FALSE(open_address(std::span(good).first(length)).has_value());
  }
}

TEST(UcxTransport, RdmaWithoutADeviceSaysWhatThereIs) {
  if (!rdma_devices().empty()) {
    GTEST_SKIP() << "this machine has an RDMA device";
  }
  testing::TestArena arena(testing::small_layout(), 4);
  const auto refused = Transport::create(options_of("rdma"), arena.view());
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::Unavailable);
  for (const char* part : {"transport rdma was asked for", "no rc, dc or ud", "machine: none"}) {
    EXPECT_NE(refused.error().message.find(part), std::string::npos) << refused.error().message;
  }
}

TEST(UcxTransport, ArenasLieInHostMemory) {
  testing::TestArena arena(testing::small_layout(), 4);
  auto options = options_of("tcp");
  const auto context = std::move(UcxContext::create(options)).value();
  const auto memory =
      std::move(
          UcxMemory::create(*context, arena.view().base, arena.view().bytes(), options.memory))
          .value();
  EXPECT_EQ(memory->type(), UCS_MEMORY_TYPE_HOST);
  EXPECT_TRUE(Transport::create(options, arena.view()).has_value());
  options.memory = MemoryKind::Device;
  const auto refused = Transport::create(options, arena.view());
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::Unavailable);
  EXPECT_NE(refused.error().message.find("device memory needs"), std::string::npos)
      << refused.error().message;
}

TEST(UcxTransport, ImpossibleOptionsAreRefused) {
  testing::TestArena arena(testing::small_layout(), 4);
  auto window = options_of("tcp");
  window.window_bytes = 0;
  EXPECT_EQ(Transport::create(window, arena.view()).error().code, ErrorCode::InvalidConfig);
  window.window_bytes = std::size_t{33} << 20;
  EXPECT_EQ(Transport::create(window, arena.view()).error().code, ErrorCode::InvalidConfig);
  EXPECT_EQ(Transport::create(options_of("x"), arena.view()).error().code,
            ErrorCode::InvalidConfig);
  EXPECT_FALSE(Transport::create(options_of("tcp"), KvArenaView{}).has_value());
  auto nowhere = options_of("tcp");
  nowhere.network = "no_such_interface";
  const auto refused = Transport::create(nowhere, arena.view());
  ASSERT_FALSE(refused.has_value());
  EXPECT_FALSE(refused.error().message.empty());
}

}  // namespace
}  // namespace baton::transfer
