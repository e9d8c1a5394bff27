baton_library(transfer_bench SRCS transfer_bench.cpp raw_ucx.cpp DEPS baton::transfer)
baton_program(baton-transfer-probe SRCS transfer_probe_main.cpp DEPS baton::transfer_bench)
