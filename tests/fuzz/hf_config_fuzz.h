// Text of a config.json: settings within bounds, or an error that names the file.
#pragma once

#include <cmath>

#include "engine/model/hf_config.h"
#include "engine/model/hf_names.h"
#include "tests/fuzz/fuzz_target.h"

namespace baton::fuzz {

struct HfConfigFuzz {
  static constexpr std::string_view kName = "hf_config";

  static void run(std::span<const std::uint8_t> bytes) {
    const auto doc = JsonDoc::parse(as_text(bytes), "config.json");
    if (!doc) {
      fuzz_check(doc.error().message.find("config.json") != std::string::npos);
      return;
    }
    const auto config = engine::read_hf_config(doc->root(), std::nullopt);
    if (!config) {
      fuzz_check(config.error().code == ErrorCode::InvalidModel);
      fuzz_check(config.error().message.find("config.json") != std::string::npos);
      return;
    }
    fuzz_check(config->layers >= 1 && config->layers <= 1024);
    fuzz_check(config->heads >= 1 && config->kv_heads >= 1 && config->head_dim >= 1);
    for (const auto& [name, factors] : config->rope_factors) {
      fuzz_check(factors.size() <= 1024);
      for (const float factor : factors) {
        fuzz_check(std::isfinite(factor) && factor > 0);
      }
    }
    if (config->layers * std::uint64_t{config->experts + 1U} > 4096) {
      return;  // a table of names as large as it says
    }
    const engine::HfNames names(*config);
    const auto source = names.source_of("blk.0.attn_q.weight");
    fuzz_check(!source || names.is_known(source->base));
  }

  static std::vector<std::string> seeds() {
    return {
        R"({"model_type":"llama","hidden_size":64,"intermediate_size":96,"num_hidden_layers":2,)"
        R"("num_attention_heads":4,"num_key_value_heads":2,"vocab_size":300,"rope_theta":5e5,)"
        R"("max_position_embeddings":2048,"eos_token_id":[1,2],"rope_scaling":{"rope_type":)"
        R"("llama3","factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0,)"
        R"("original_max_position_embeddings":512}})",
        R"({"model_type":"gemma3","text_config":{"model_type":"gemma3_text","hidden_size":64,)"
        R"("intermediate_size":96,"num_hidden_layers":7,"layer_types":["sliding_attention",)"
        R"("full_attention"],"sliding_window":512,"query_pre_attn_scalar":256}})",
        R"({"model_type":"qwen3_moe","hidden_size":64,"intermediate_size":96,)"
        R"("num_hidden_layers":2,"num_attention_heads":4,"vocab_size":300,"num_experts":8,)"
        R"("max_position_embeddings":2048,"num_experts_per_tok":2,"moe_intermediate_size":32,)"
        R"("norm_topk_prob":true,"rope_scaling":{"type":"yarn","factor":4.0},"quantization_config":{"quant_method":"gptq","bits":4,)"
        R"("group_size":128}})",
        R"({"model_type":"phi3","hidden_size":64,"intermediate_size":96,"num_hidden_layers":2,)"
        R"("num_attention_heads":4,"vocab_size":300,"max_position_embeddings":2048,)"
        R"("original_max_position_embeddings":512,"rope_scaling":{"type":"longrope",)"
        R"("short_factor":[1.0,1.1],"long_factor":[2.0,4]}})"};
  }
};

}  // namespace baton::fuzz
