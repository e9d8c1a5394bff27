// Launches of the products' kernels, each choosing its kernel by the weight's type and its grid by
// the shapes. Pointers are the device's.
//
// Thread: the stream's owner. Failure: an impossible type ends the process.
#pragma once

#include <cstddef>

#include "kernels/cuda/matmul_layout.h"
#include "kernels/cuda/stream.h"
#include "kernels/dtype.h"

namespace baton::kernels::cuda {

void launch_quantise(Stream stream, const QuantiseArgs& args);
// `m`: rows.
void launch_split(Stream stream, FloatFormat format, unsigned m, const SplitArgs& args);

// With `args.out.parts` set each part of K has blocks of its own and the parts are joined behind
// them; the bits are the same.
void launch_quant_matmul(Stream stream, DType dtype, const QuantMatmulArgs& args);
void launch_float_matmul(Stream stream, FloatFormat format, const FloatMatmulArgs& args);
void launch_plain_matmul(Stream stream, const PlainMatmulArgs& args);

// `count`: ids.
void launch_read_rows(Stream stream, DType dtype, unsigned count, const ReadRowsArgs& args);
void launch_read_plain_rows(Stream stream, unsigned count, const ReadPlainRowsArgs& args);

}  // namespace baton::kernels::cuda
