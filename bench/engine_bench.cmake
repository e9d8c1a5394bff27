baton_library(loaded_model SRCS loaded_model.cpp DEPS baton::model baton::kv)
baton_program(gpu_check SRCS gpu_check.cpp DEPS baton::loaded_model fmt::fmt CLI11::CLI11)
baton_library(perplexity SRCS perplexity.cpp DEPS baton::loaded_model baton::tokenizer)
baton_library(bench_peer SRCS peer.cpp DEPS baton::cli_support simdjson::simdjson)
baton_library(engine_bench SRCS engine_bench.cpp engine_report.cpp engine_turn.cpp
  DEPS baton::loaded_model baton::roofs baton::bench_peer baton::spread)
baton_library(stream_client SRCS stream_client.cpp thread_times.cpp DEPS baton::cli_support)
baton_library(interference SRCS interference.cpp
  DEPS baton::bench_peer baton::measured_cluster baton::serve_bench baton::spread)
baton_library(tokenizer_bench SRCS tokenizer_bench.cpp
  DEPS baton::model_file baton::spread baton::tokenizer baton::cli_support simdjson::simdjson)
baton_library(grammar_bench SRCS grammar_bench.cpp
  DEPS baton::model_file baton::spread baton::tokenizer baton::grammar fmt::fmt)
