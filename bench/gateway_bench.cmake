# The gateway under load, and the processes around it.
baton_library(gateway_probe SRCS bare_server.cpp scripted_nodes.cpp
  DEPS baton::rpc baton::obs baton::model_file baton::tokenizer Boost::headers Threads::Threads)
baton_program(baton-gateway-probe SRCS gateway_probe_main.cpp DEPS baton::gateway_probe CLI11::CLI11)
baton_library(gateway_bench
  SRCS chat_bodies.cpp gateway_bench.cpp gateway_overload.cpp gateway_report.cpp gateway_rig.cpp gateway_soak.cpp
    load_client.cpp response_reader.cpp
  DEPS baton::spread baton::stream_client baton::cli_support)
