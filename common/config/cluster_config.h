// cluster.yaml as values: every program reads the same file and takes its own section. Names,
// defaults, bounds and help of all keys stand once, in schema.cpp; the loader refuses unknown keys
// and wrong types with file, line and the nearest valid key.
//
// Thread: const after loading. Failure: InvalidConfig with "file:line: key: sentence".
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/base/ids.h"
#include "common/config/gateway_section.h"
#include "common/config/pools_section.h"
#include "common/config/slo_section.h"

namespace baton {

// TLS of the control connections, on both sides: who has no certificate of the cluster's authority
// is turned away before its first byte is looked at.
struct ControlTlsSection {
  std::string certificate;  // PEM files; all or none
  std::string key;
  std::string authority;
  bool is_on() const { return !certificate.empty(); }
};

struct ClusterSection {
  std::string name = "local";
  std::string token;       // shared secret of the control plane; required, here or by token_file
  std::string token_file;  // its first line is the token
  std::chrono::milliseconds heartbeat{250};
  std::uint32_t suspect_after = 3;                      // missed heartbeats: no new work
  std::uint32_t dead_after = 6;                         // missed heartbeats: connection dropped
  std::vector<std::string> gateways{"127.0.0.1:7000"};  // control addresses that nodes dial
  ControlTlsSection tls;
};

struct ModelSection {
  std::string id =
      "smollm2-135m-instruct";        // name clients use; a catalogue name when path is empty
  std::string path;                   // model file; empty: from the catalogue's cache
  std::uint32_t context_length = 0;   // 0: the model's own
  std::string packed_cache = "auto";  // auto: packed/ in the cache; off; a folder
  std::uint32_t packed_cache_mb = 16'384;
  std::uint32_t partial_sums = 0;         // 0: 4 where an engine has several ranks, else 1
  std::string tool_parser = "auto";       // auto, off, hermes, llama3, mistral, gemma
  std::string reasoning_parser = "auto";  // auto, off, think
};

struct KvSection {
  std::uint32_t block_tokens = 32;
  std::string dtype = "i16";     // i16, f16, f32, i8, f8
  std::uint32_t arena_mb = 512;  // memory for keys and values, per node
  bool prefix_cache = true;
  std::string file_tier;  // folder; empty: none
  std::uint32_t file_tier_mb = 4096;
};

struct TransferSection {
  std::string transport = "auto";          // auto, tcp, shm, rdma
  std::string network;                     // interfaces of the data network; empty: all
  std::map<std::string, std::string> ucx;  // UCX_* settings
  std::uint32_t window_mb = 8;
  std::string path = "auto";    // auto, am, put
  std::string digest = "auto";  // auto, off, sample, all
  bool pull = true;
};

struct EngineSection {
  std::string backend = "auto";       // auto, cpu, cuda, reference
  std::uint32_t device = 0;           // number of the GPU
  std::uint32_t threads = 0;          // 0: all cores the process may use
  std::string isa = "auto";           // auto, scalar, avx2, avx512, amx
  std::string float_path = "exact";   // exact, amx_bf16, avx512_bf16
  std::uint32_t tensor_parallel = 1;  // ranks: 1, 2 or 4
  std::string cores;                  // processors the node's process stays on, "0-3,8"; empty: all
};

struct NodeEntry {
  NodeName name;  // unique in the cluster
  std::string control_listen =
      "127.0.0.1:0";                         // port 0: any free one; the node announces what it got
  std::string advertise;                     // host:port others dial; empty: control_listen
  std::string admin_listen = "127.0.0.1:0";  // /metrics, /healthz
  bool any_role = false;                     // run by baton-node; may be given the other role
  EngineSection engine;  // the pool's settings with the node's own on top, merged by the loader
};

struct PrefillSection {
  std::uint32_t chunk_tokens = 512;  // prompt tokens of one request in one step
  std::uint32_t step_tokens = 1024;  // prompt tokens of all requests in one step
  std::uint32_t credits = 4;         // requests a gateway may have outstanding on a node
  EngineSection engine;
  std::vector<NodeEntry> pool;
};

struct SpeculationSection {
  std::string mode = "ngram";    // off, ngram, draft
  std::uint32_t max_tokens = 8;  // drafts of one request in one step
  std::uint32_t min_match = 3;   // tokens that must be found again for an n-gram guess
  std::string draft_model;       // file or catalogue name
  std::uint32_t draft_arena_mb = 256;
};

struct DecodeSection {
  std::uint32_t max_batch = 32;  // sequences in a step
  std::uint32_t local_prefill_max_tokens =
      0;  // prompts up to this are prefilled on the decode node; 0: never
  std::uint32_t expected_output_tokens =
      256;                                  // blocks reserved for an answer; 0: all of max_tokens
  std::uint32_t local_prefill_chunk = 128;  // prompt tokens a decode step may carry
  std::chrono::milliseconds itl_target{0};  // a step's time; 0: no target
  SpeculationSection speculation;
  EngineSection engine;
  std::vector<NodeEntry> pool;
};

struct LogSection {
  std::string level = "info";   // trace, debug, info, warn, error
  std::string format = "text";  // text, json
};

struct ClusterConfig {
  ClusterSection cluster;
  ModelSection model;
  KvSection kv;
  TransferSection transfer;
  PrefillSection prefill;
  DecodeSection decode;
  GatewaySection gateway;
  PoolsSection pools;
  SloSection slo;
  LogSection log;
};

// Reads a file, then applies overrides such as "kv.arena_mb=256" or "decode.pool.0.name=d0".
Result<ClusterConfig> load_config(const std::string& path,
                                  const std::vector<std::string>& overrides);
// The same from text; `name` stands for the file in messages.
Result<ClusterConfig> parse_config(const std::string& text,
                                   const std::string& name,
                                   const std::vector<std::string>& overrides);
// Every key with type, default, bounds and help, as a commented YAML file.
std::string describe_config();

}  // namespace baton
