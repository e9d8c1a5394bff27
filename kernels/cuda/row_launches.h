// Launches of the operations on rows: norms, rotary embedding, activations, sums, experts, and
// writing keys and values. Pointers are the device's.
//
// Thread: the stream's owner. Failure: none.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/row_args.h"
#include "kernels/cuda/stream.h"

namespace baton::kernels::cuda {

void launch_rms_norm(Stream stream, const RmsNormArgs& args);
void launch_rope(Stream stream, const RopeArgs& args);
void launch_hadamard(Stream stream, const HadamardArgs& args);
void launch_silu_mul(Stream stream, std::size_t rows, const GatedArgs& args);
void launch_gelu_mul(Stream stream, std::size_t rows, const GatedArgs& args);
void launch_add(Stream stream, std::size_t rows, const AddArgs& args);
void launch_softcap(Stream stream, std::size_t rows, const SoftcapArgs& args);
void launch_mix_rows(Stream stream, std::size_t rows, const MixArgs& args);
void launch_route(Stream stream, const RouteArgs& args);
void launch_keep_rows(Stream stream, const KeepRowsArgs& args);
void launch_write_kv(Stream stream, const KvWriteArgs& args);

}  // namespace baton::kernels::cuda
