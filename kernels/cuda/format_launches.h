// Launches of the kernels that are compiled once for each format of quantised weights. Each .cu
// file that defines them (quant_*_launches.cu) instantiates a few formats, so that nvcc works on
// several files at once.
//
// Thread: the stream's owner. Failure: none.
#pragma once

#include "kernels/cuda/launch.h"
#include "kernels/cuda/matmul_layout.h"

namespace baton::kernels::cuda {

template <class Format>
struct FormatLaunches {
  static void matmul(Stream stream, const LaunchShape& shape, const QuantMatmulArgs& args);
  static void read_rows(Stream stream, const LaunchShape& shape, const ReadRowsArgs& args);
};

}  // namespace baton::kernels::cuda
