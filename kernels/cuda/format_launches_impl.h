// What FormatLaunches does, for the files that instantiate it.
//
// Thread: the stream's owner. Failure: none.
#pragma once

#include "kernels/cuda/format_launches.h"
#include "kernels/cuda/quant_matmul.h"

namespace baton::kernels::cuda {

template <class Format>
void FormatLaunches<Format>::matmul(Stream stream,
                                    const LaunchShape& shape,
                                    const QuantMatmulArgs& args) {
  launch(stream, quant_matmul<Format>, shape, args);
}

template <class Format>
void FormatLaunches<Format>::read_rows(Stream stream,
                                       const LaunchShape& shape,
                                       const ReadRowsArgs& args) {
  launch(stream, read_quant_rows<Format>, shape, args);
}

}  // namespace baton::kernels::cuda
