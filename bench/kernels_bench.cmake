# The machine's roofs, and the kernels beside them.
baton_library(roofs SRCS roofs.cpp DEPS Threads::Threads)
baton_program(kernels_bench SRCS kernels_bench.cpp DEPS baton::roofs baton::kernels fmt::fmt CLI11::CLI11)
