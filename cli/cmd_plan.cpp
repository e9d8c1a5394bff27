// baton plan: how many nodes of each role a workload needs, before any is bought.
#include <fmt/format.h>

#include <memory>
#include <string>
#include <thread>

#include "bench/engine/roofs.h"
#include "cli/command.h"
#include "cli/model_argument.h"
#include "cli/plan/plan.h"
#include "cli/plan/plan_model.h"

namespace baton::cli {
namespace {

struct PlanArguments {
  std::string model = "smollm2-135m-instruct";
  std::string kv_dtype = "i16";
  std::uint32_t block_tokens = 32;
  PlanWorkload load{.input_tokens = 1000, .output_tokens = 200, .requests_per_s = 1};
  double ttft_ms = 2000;
  double itl_ms = 50;
  double gops = 0;
  double read_gb = 0;
  double link_gbit = 0;
  double arena_mb = 512;
  PlanNode node;
  bool json = false;
};

void print_json(const Plan& plan) {
  fmt::print(
      "{{\"prefill_nodes\":{},\"decode_nodes\":{},\"prefill_ms\":{:.3f},\"ttft_p90_ms\":{:.3f},"
      "\"itl_p90_ms\":{:.3f},\"prefill_busy\":{:.4f},\"decode_batch\":{:.2f},"
      "\"decode_batch_p90\":{:.2f},\"blocks_needed\":{},\"blocks\":{},\"kv_bytes_a_prompt\":{},"
      "\"link_bytes_per_s\":{:.0f},\"transfer_tail_ms\":{:.3f},\"rate_headroom\":{:.3f},"
      "\"colocated_nodes\":{},\"disaggregation_pays\":{}}}\n",
      plan.prefill_nodes,
      plan.decode_nodes,
      plan.prefill_s * 1e3,
      plan.ttft_s * 1e3,
      plan.itl_s * 1e3,
      plan.prefill_busy,
      plan.decode_batch,
      plan.decode_batch_high,
      plan.blocks_needed,
      plan.blocks_there,
      plan.kv_bytes,
      plan.link_needed,
      plan.transfer_tail_s * 1e3,
      plan.rate_headroom,
      plan.colocated_nodes ? std::to_string(*plan.colocated_nodes) : "null",
      plan.pays());
}

std::string verdict(const Plan& plan) {
  if (!plan.colocated_nodes) {
    return "pays: nodes that do both phases miss the targets at any number";
  }
  if (plan.pays()) {
    return fmt::format("pays: one pool of nodes that do both needs {}, two pools {}",
                       *plan.colocated_nodes,
                       plan.nodes());
  }
  return fmt::format(
      "does not pay: one pool of {} {} both meets the targets, two pools take {}; set "
      "decode.local_prefill_max_tokens and leave the prefill pool empty",
      *plan.colocated_nodes,
      *plan.colocated_nodes == 1 ? "node that does" : "nodes that do",
      plan.nodes());
}

void print_text(const PlanArguments& arguments, const Plan& plan) {
  const PlanNode& node = arguments.node;
  fmt::print(
      "a node            {:.0f} Gop/s of products ({:.0f} % reached), {:.1f} GB/s of memory "
      "({:.0f} % reached)\n",
      node.ops_per_s / 1e9,
      node.prefill_share * 100,
      node.read_bytes_per_s / 1e9,
      node.decode_share * 100);
  fmt::print("prefill nodes     {}  (busy {:.0f} % of the time)\n",
             plan.prefill_nodes,
             plan.prefill_busy * 100);
  fmt::print("decode nodes      {}  (batch {:.1f} in the mean, {:.1f} at p90)\n",
             plan.decode_nodes,
             plan.decode_batch,
             plan.decode_batch_high);
  fmt::print(
      "TTFT p90          {:.0f} ms, target {:.0f}  (prefill alone {:.0f}, transfer {:.1f})\n",
      plan.ttft_s * 1e3,
      arguments.ttft_ms,
      plan.prefill_s * 1e3,
      plan.transfer_tail_s * 1e3);
  fmt::print("ITL p90           {:.1f} ms, target {:.0f}\n", plan.itl_s * 1e3, arguments.itl_ms);
  fmt::print(
      "KV blocks         {} of {} on a decode node\n", plan.blocks_needed, plan.blocks_there);
  fmt::print(
      "link              {:.2f} Gbit/s a prefill node hide the transfer of {:.1f} MB a "
      "prompt{}\n",
      plan.link_needed * 8 / 1e9,
      static_cast<double>(plan.kv_bytes) / 1e6,
      node.link_bytes_per_s > 0 && node.link_bytes_per_s < plan.link_needed
          ? "; the link is slower, so it adds to TTFT"
          : "");
  fmt::print("headroom          {:.2f} times the rate with the same nodes\n", plan.rate_headroom);
  fmt::print("disaggregation    {}\n", verdict(plan));
}

int run(PlanArguments arguments) {
  const auto path = model_argument(arguments.model);
  if (!path) {
    return report("plan", path.error());
  }
  const auto model = plan_model(*path, arguments.block_tokens, *kv_dtype_named(arguments.kv_dtype));
  if (!model) {
    return report("plan", model.error());
  }
  PlanNode& node = arguments.node;
  node.ops_per_s = arguments.gops * 1e9;
  node.read_bytes_per_s = arguments.read_gb * 1e9;
  node.link_bytes_per_s = arguments.link_gbit * 1e9 / 8;
  node.arena_bytes = static_cast<std::uint64_t>(arguments.arena_mb * 1024 * 1024);
  if (node.ops_per_s <= 0 || node.read_bytes_per_s <= 0) {
    fmt::print(stderr, "measuring this machine as the node (half a second)\n");
    const bench::Roofs roofs =
        bench::measure_roofs(std::max(1U, std::thread::hardware_concurrency()));
    node.ops_per_s = node.ops_per_s > 0 ? node.ops_per_s : roofs.int8_ops_per_s;
    node.read_bytes_per_s =
        node.read_bytes_per_s > 0 ? node.read_bytes_per_s : roofs.read_bytes_per_s;
    fmt::print(stderr,
               "a node like this machine: --gops {:.0f} --read-gb {:.1f} (less when it is busy)\n",
               node.ops_per_s / 1e9,
               node.read_bytes_per_s / 1e9);
  }
  PlanWorkload load = arguments.load;
  load.ttft_s = arguments.ttft_ms / 1e3;
  load.itl_s = arguments.itl_ms / 1e3;
  const auto plan = make_plan(*model, node, load);
  if (!plan) {
    return report("plan", plan.error());
  }
  if (arguments.json) {
    print_json(*plan);
  } else {
    print_text(arguments, *plan);
  }
  return kDone;
}

}  // namespace

void add_plan(CLI::App& app, Action& chosen) {
  auto a = std::make_shared<PlanArguments>();
  CLI::App* command = app.add_subcommand("plan", "How many nodes of each role a workload needs");
  command->add_option("--model", a->model, "Catalogue name, GGUF file or Hugging Face folder")
      ->capture_default_str();
  command->add_option("--isl", a->load.input_tokens, "Input tokens a request")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  command->add_option("--osl", a->load.output_tokens, "Output tokens a request")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  command->add_option("--rate", a->load.requests_per_s, "Requests a second")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  command->add_option("--cached-share", a->load.cached_share, "Share of input found in caches")
      ->capture_default_str();
  command->add_option("--ttft-ms", a->ttft_ms, "Target of nine in ten first tokens")
      ->capture_default_str();
  command->add_option("--itl-ms", a->itl_ms, "Target of nine in ten steps")->capture_default_str();
  command->add_option("--gops", a->gops, "8-bit products of a node in Gop/s; 0: of this machine")
      ->capture_default_str();
  command->add_option("--read-gb", a->read_gb, "Memory of a node in GB/s; 0: of this machine")
      ->capture_default_str();
  command->add_option("--link-gbit", a->link_gbit, "Data link of a node; 0: as fast as needed")
      ->capture_default_str();
  command->add_option("--arena-mb", a->arena_mb, "KV arena of a node in MiB")
      ->capture_default_str();
  command
      ->add_option("--prefill-share", a->node.prefill_share, "Share of --gops that prefill reaches")
      ->capture_default_str();
  command
      ->add_option("--decode-share", a->node.decode_share, "Share of --read-gb that decode reaches")
      ->capture_default_str();
  command->add_option("--block-tokens", a->block_tokens, "Tokens of a KV block")
      ->capture_default_str();
  command->add_option("--kv-dtype", a->kv_dtype, "Type of keys and values")
      ->capture_default_str()
      ->check(CLI::IsMember({"i16", "f16", "f32", "i8", "f8"}));
  command->add_flag("--json", a->json, "Print one JSON line instead of text");
  command->footer(
      "Queues are planned for random arrivals; `baton bench engine` tells the shares that a "
      "machine\n"
      "really reaches. Exit status 1 when no number of nodes meets the targets, with the reason.\n"
      "Examples:\n"
      "  baton plan --isl 200 --osl 100 --rate 0.5 --ttft-ms 5000   # nodes like this machine\n"
      "  baton plan --isl 200 --osl 200 --rate 5 --gops 4000 --read-gb 200 --link-gbit 25 --json");
  command->callback([a, &chosen] { chosen = [a] { return run(*a); }; });
}

}  // namespace baton::cli
