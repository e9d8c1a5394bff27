baton_library(pools_bench
  SRCS pools/load.cpp pools/pools_bench.cpp pools/sim_pools.cpp
  DEPS baton::pool_policy fmt::fmt)
