baton_library(loaded_model SRCS loaded_model.cpp DEPS baton::model baton::kv)
baton_library(perplexity SRCS perplexity.cpp DEPS baton::loaded_model baton::tokenizer)
baton_library(tokenizer_bench SRCS tokenizer_bench.cpp
  DEPS baton::model_file baton::tokenizer baton::cli_support simdjson::simdjson)
baton_library(engine_bench SRCS engine_bench.cpp peer.cpp
  DEPS baton::loaded_model baton::roofs baton::cli_support simdjson::simdjson)
