# Load on a server of the OpenAI API, and clusters that are started to be measured.
baton_library(measured_cluster SRCS measured_cluster.cpp DEPS baton::local_cluster)
baton_library(serve_bench
  SRCS serve/advise.cpp serve/figures.cpp serve/load.cpp serve/page.cpp serve/serve.cpp
  DEPS baton::measured_cluster baton::spread baton::stream_client baton::route_bench)
