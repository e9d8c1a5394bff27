baton_library(transfer_probe
  SRCS raw_put.cpp raw_ucx.cpp transfer_arena.cpp transfer_probe.cpp
  DEPS baton::transfer baton::spread PkgConfig::XXHASH)
baton_program(baton-transfer-probe SRCS transfer_probe_main.cpp DEPS baton::transfer_probe)
baton_library(transfer_bench
  SRCS transfer_bench.cpp transfer_layerwise.cpp transfer_pair.cpp transfer_peers.cpp transfer_process.cpp
  DEPS baton::transfer_probe baton::kv baton::step baton::model baton::config baton::cli_support PkgConfig::XXHASH)
