// peer_logits MODEL TOKEN...: logits of all positions of one sequence, computed by llama.cpp in
// float32, printed one row a line. make_family_goldens.py builds and runs it; nothing else does.
#include <llama.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fputs("usage: peer_logits MODEL TOKEN...\n", stderr);
    return 2;
  }
  llama_log_set(
      [](ggml_log_level level, const char* text, void*) {
        if (level >= GGML_LOG_LEVEL_ERROR) {
          std::fputs(text, stderr);
        }
      },
      nullptr);
  llama_backend_init();
  llama_model_params model_params = llama_model_default_params();
  model_params.n_gpu_layers = 0;
  llama_model* model = llama_model_load_from_file(argv[1], model_params);
  if (model == nullptr) {
    return 1;
  }
  std::vector<llama_token> tokens;
  for (int i = 2; i < argc; ++i) {
    tokens.push_back(std::atoi(argv[i]));
  }
  llama_context_params params = llama_context_default_params();
  params.n_ctx = 0;  // the model's own
  params.n_batch = params.n_ubatch = 512;
  params.n_threads = params.n_threads_batch = 1;
  params.type_k = params.type_v = GGML_TYPE_F32;
  params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
  llama_context* context = llama_init_from_model(model, params);
  if (context == nullptr) {
    return 1;
  }
  const auto count = static_cast<int>(tokens.size());
  llama_batch batch = llama_batch_init(count, 0, 1);
  batch.n_tokens = count;
  for (int i = 0; i < count; ++i) {
    batch.token[i] = tokens[i];
    batch.pos[i] = i;
    batch.n_seq_id[i] = 1;
    batch.seq_id[i][0] = 0;
    batch.logits[i] = 1;
  }
  if (llama_decode(context, batch) != 0) {
    return 1;
  }
  const int vocab = llama_vocab_n_tokens(llama_model_get_vocab(model));
  for (int i = 0; i < count; ++i) {
    const float* row = llama_get_logits_ith(context, i);
    for (int token = 0; token < vocab; ++token) {
      std::printf("%.7g%c", static_cast<double>(row[token]), token + 1 == vocab ? '\n' : ' ');
    }
  }
  llama_batch_free(batch);
  llama_free(context);
  llama_model_free(model);
  return 0;
}
