baton_library(route_bench
  SRCS route/block_cache.cpp route/decision_cost.cpp route/replay.cpp route/route_bench.cpp
    route/sim_nodes.cpp route/trace.cpp
  DEPS baton::routing simdjson::simdjson)
