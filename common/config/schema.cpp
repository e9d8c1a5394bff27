#include "common/config/schema.h"

namespace baton {
namespace {

using namespace text_rules;
using Form = TextRule::Form;

const TextRule kOptionalAddress{Form::Address, false, {}};
const TextRule kCores{Form::Cores, false, {}};

TextRule one_of(std::vector<std::string> choices) {
  return TextRule{Form::Choice, true, std::move(choices)};
}

void visit_cluster(ClusterSection& s, ConfigVisitor& v) {
  v.begin_section("cluster", "What all processes of the cluster share.");
  v.text("name", s.name, kName, "Name of the cluster, for logs.");
  v.text("token_file", s.token_file, kAny, "File whose first line is the token, in its place.");
  v.text("token",
         s.token,
         s.token_file.empty() ? kRequired : kAny,
         "Secret that every control connection must show. Make one with `openssl rand -hex 16`.");
  v.millis("heartbeat_ms", s.heartbeat, 10, 60'000, "Pause between two heartbeats of a node.");
  v.number("suspect_after",
           s.suspect_after,
           1,
           1000,
           "Missed heartbeats after which a node gets no new requests.");
  v.number("dead_after",
           s.dead_after,
           2,
           10'000,
           "Missed heartbeats after which a node counts as dead; above suspect_after.");
  v.addresses("gateways", s.gateways, "Control addresses of the gateways; every node dials each.");
  v.begin_section(
      "tls",
      "Mutual TLS of the control connections (docs/security.md). The files are read again "
      "when they change.");
  v.text(
      "certificate",
      s.tls.certificate,
      kAny,
      "PEM file: this process's certificate, then those that lead to the authority. Empty: plain "
      "TCP.");
  v.text("key", s.tls.key, kAny, "PEM file with the certificate's private key.");
  v.text("authority",
         s.tls.authority,
         kAny,
         "PEM file: the cluster's own authority. Whoever has a certificate of it is let in.");
  v.end_section();
  v.end_section();
}

void visit_model(ModelSection& s, ConfigVisitor& v) {
  v.begin_section("model", "The model that this cluster serves.");
  v.text("id",
         s.id,
         kRequired,
         "Name that clients use; when path is empty, also the name in configs/models.yaml.");
  v.text(
      "path",
      s.path,
      kAny,
      "GGUF file or Hugging Face folder (docs/models.md). Empty: the catalogue's file, fetched by "
      "`baton pull`.");
  v.number("context_length",
           s.context_length,
           0,
           1U << 20U,
           "Most tokens of prompt and answer together. 0: as many as the model was made for.");
  v.text(
      "packed_cache",
      s.packed_cache,
      kAny,
      "Folder of weights as the engine packs them, shared by the processes of a machine and kept "
      "for the next start. auto: packed in the cache's folder; off: none.");
  v.number("packed_cache_mb",
           s.packed_cache_mb,
           1,
           1U << 24U,
           "Most MiB in that folder; the least recently used files are removed.");
  v.number(
      "partial_sums",
      s.partial_sums,
      0,
      4,
      "Pieces that the sums which ranks share out are made of. 4 gives the same answers for "
      "tensor_parallel 1, 2 and 4; 1 is for tensor_parallel 1 alone. 0: 4 where a node of this "
      "file has tensor_parallel above 1, else 1.");
  v.text("tool_parser",
         s.tool_parser,
         one_of({"auto", "off", "hermes", "llama3", "mistral", "gemma"}),
         "How the model writes calls of tools (docs/tools.md). auto: by its chat template. off: "
         "requests with tools are refused.");
  v.text("reasoning_parser",
         s.reasoning_parser,
         one_of({"auto", "off", "think"}),
         "How the model marks its reasoning, which answers give apart. think: <think> tags. auto: "
         "by its chat template. off: the tags stay in the text.");
  v.end_section();
}

void visit_kv(KvSection& s, ConfigVisitor& v) {
  v.begin_section("kv", "Memory for keys and values.");
  v.number("block_tokens", s.block_tokens, 16, 256, "Tokens a block; a multiple of 16.");
  v.text("dtype",
         s.dtype,
         one_of({"i16", "f16", "f32", "i8", "f8"}),
         "Type of keys and values. i16, whole numbers with a scale for each head and token, is as "
         "exact as f16 and faster. i8 takes half of the memory and is "
         "faster in batches; perplexity rises by about 0.1 %. f8 (FP8 E4M3) costs more.");
  v.number("arena_mb", s.arena_mb, 1, 1U << 22U, "Size of each node's arena in MiB.");
  v.flag("prefix_cache",
         s.prefix_cache,
         "Keep the blocks of old prompts for prompts that begin alike.");
  v.text("file_tier",
         s.file_tier,
         kAny,
         "Folder on a local disk for a file of old prompts' blocks, of each prefill node, that its "
         "arena has no room for. Nothing of it outlives the node. Empty: none.");
  v.number("file_tier_mb",
           s.file_tier_mb,
           1,
           1U << 24U,
           "Size of that file in MiB, taken from the disk when the node starts.");
  v.end_section();
}

void visit_transfer(TransferSection& s, ConfigVisitor& v) {
  v.begin_section("transfer", "How blocks travel from prefill to decode nodes (UCX).");
  v.text(
      "transport",
      s.transport,
      one_of({"auto", "tcp", "shm", "rdma"}),
      "Lanes that UCX may use. shm works between processes of one host only; rdma needs a device.");
  v.text("network",
         s.network,
         kAny,
         "Interfaces of the data network, such as eth0. Empty: UCX chooses.");
  v.text_map("ucx",
             s.ucx,
             "UCX_",
             "Further UCX settings, such as UCX_LOG_LEVEL: info. The process's environment wins.");
  v.number("window_mb", s.window_mb, 1, 32, "Most MiB of a request that may be on their way.");
  v.text("path",
         s.path,
         one_of({"auto", "am", "put"}),
         "How bytes are written. auto: put over RDMA, checked messages elsewhere. put: also over "
         "shm.");
  v.text("digest",
         s.digest,
         one_of({"auto", "off", "sample", "all"}),
         "Which blocks are compared with the sender's digest before decode reads them.");
  v.flag("pull",
         s.pull,
         "Fetch a prefix that the decode node holds when that is cheaper than computing it.");
  v.end_section();
}

void visit_engine(EngineSection& s, ConfigVisitor& v, std::string_view help) {
  v.begin_section("engine", help);
  v.text("backend",
         s.backend,
         one_of({"auto", "cpu", "cuda", "reference"}),
         "What computes the model. auto: cuda where it can, else cpu; the log says why.");
  v.number("device", s.device, 0, 255, "GPU of the cuda backend, as the driver counts them.");
  v.number("threads", s.threads, 0, 1024, "Threads that compute. 0: one for each usable core.");
  v.text("isa",
         s.isa,
         one_of({"auto", "scalar", "avx2", "avx512", "amx"}),
         "Instruction set of the cpu backend. auto: the best this machine has.");
  v.text("float_path",
         s.float_path,
         one_of({"exact", "amx_bf16", "avx512_bf16"}),
         "Arithmetic of BF16 weights. The others: faster prefill by AMX-BF16 or AVX512-BF16, other "
         "bits; the same on all nodes.");
  v.number("tensor_parallel",
           s.tensor_parallel,
           1,
           4,
           "Ranks that compute the model together, each with a share of the threads: 1, 2 or 4.");
  v.text("cores",
         s.cores,
         kCores,
         "Processors that all threads of the node's process stay on, such as 0-3,8. Empty: any.");
  v.end_section();
}

void visit_node(NodeEntry& s, ConfigVisitor& v) {
  v.text("name", s.name, kName, "Name of the node, unique in the cluster; `--name` chooses by it.");
  v.text("control_listen",
         s.control_listen,
         kAddress,
         "Where prefill nodes dial a decode node; prefill nodes listen nowhere. Port 0: any free.");
  v.text("advertise",
         s.advertise,
         kOptionalAddress,
         "host:port that prefill nodes dial, when it is not control_listen.");
  v.text("admin_listen",
         s.admin_listen,
         kAddress,
         "Where /metrics, /livez and /readyz are served. Port 0: any free one.");
  v.flag("any_role",
         s.any_role,
         "It is run by baton-node, which can take the other role, too (pools.change_roles); this "
         "pool's is its first.");
  visit_engine(s.engine, v, "Settings of this node alone, in place of the pool's.");
}

void visit_pool(std::vector<NodeEntry>& pool,
                const EngineSection& engine,
                ConfigVisitor& v,
                std::string_view help) {
  NodeEntry fresh;
  fresh.engine = engine;
  v.entries("pool",
            "list of nodes",
            walk_of(
                pool, [&v](NodeEntry& entry) { visit_node(entry, v); }, fresh),
            help);
}

void visit_prefill(PrefillSection& s, ConfigVisitor& v) {
  v.begin_section("prefill", "Nodes that compute prompts.");
  v.number(
      "chunk_tokens", s.chunk_tokens, 1, 65'536, "Most prompt tokens of one request in one step.");
  v.number("step_tokens",
           s.step_tokens,
           1,
           1U << 20U,
           "Most prompt tokens of all requests in one step; at least chunk_tokens.");
  v.number("credits", s.credits, 1, 4096, "Requests that one gateway may have in work on a node.");
  visit_engine(s.engine, v, "What computes on the prefill nodes.");
  visit_pool(s.pool, s.engine, v, "The prefill nodes.");
  v.end_section();
}

void visit_speculation(SpeculationSection& s, ConfigVisitor& v) {
  v.begin_section("speculation",
                  "Guesses of the next tokens, checked in one step. The answers stay the same.");
  v.text(
      "mode",
      s.mode,
      one_of({"off", "ngram", "draft"}),
      "ngram: what followed the last tokens earlier in the same text. draft: what draft_model "
      "says. Trades computing for speed: it pays for few running answers, ngram for such as "
      "repeat or quote. Guesses make no step longer than itl_target_ms, or else the least itl_ms "
      "of the tiers.");
  v.number("max_tokens", s.max_tokens, 1, 64, "Most guessed tokens of one request in one step.");
  v.number(
      "min_match",
      s.min_match,
      1,
      64,
      "ngram: last tokens that must stand earlier in the text. Fewer: more guesses, fewer right "
      "ones.");
  v.text(
      "draft_model",
      s.draft_model,
      kAny,
      "draft: a smaller model with the same tokenizer, GGUF file or name in configs/models.yaml.");
  v.number(
      "draft_arena_mb",
      s.draft_arena_mb,
      1,
      1U << 22U,
      "draft: memory for its keys and values in MiB. Too little: texts are read again and again.");
  v.end_section();
}

void visit_decode(DecodeSection& s, ConfigVisitor& v) {
  v.begin_section("decode", "Nodes that generate answers.");
  v.number("max_batch", s.max_batch, 1, 4096, "Most requests in one step.");
  v.number("local_prefill_max_tokens",
           s.local_prefill_max_tokens,
           0,
           1U << 20U,
           "Prompts up to this length are computed on the decode node itself. 0: none; 1048576: "
           "all, which needs no prefill nodes.");
  v.number("expected_output_tokens",
           s.expected_output_tokens,
           0,
           1U << 20U,
           "Answer tokens for which blocks are reserved beforehand. 0: all of max_tokens.");
  v.number("local_prefill_chunk",
           s.local_prefill_chunk,
           1,
           65'536,
           "Most prompt tokens that such a step carries beside the running answers.");
  v.millis(
      "itl_target_ms",
      s.itl_target,
      0,
      60'000,
      "Longest step to plan for, as steps so far tell. Trades requests at once and speed of local "
      "prompts for an even pace. 0: none.");
  visit_speculation(s.speculation, v);
  visit_engine(s.engine, v, "What computes on the decode nodes.");
  visit_pool(s.pool, s.engine, v, "The decode nodes.");
  v.end_section();
}

void visit_log(LogSection& s, ConfigVisitor& v) {
  v.begin_section("log", "Log lines on stderr. They never hold text of prompts or answers.");
  v.text("level",
         s.level,
         one_of({"trace", "debug", "info", "warn", "error"}),
         "The least important lines that are written.");
  v.text("format", s.format, one_of({"text", "json"}), "text, or one JSON object a line.");
  v.end_section();
}

}  // namespace

void visit_config(ClusterConfig& config, ConfigVisitor& visitor) {
  visit_cluster(config.cluster, visitor);
  visit_model(config.model, visitor);
  visit_kv(config.kv, visitor);
  visit_transfer(config.transfer, visitor);
  visit_prefill(config.prefill, visitor);
  visit_decode(config.decode, visitor);
  visit_gateway(config.gateway, visitor);
  visit_pools(config.pools, visitor);
  visit_slo(config.slo, visitor);
  visit_log(config.log, visitor);
}

}  // namespace baton
