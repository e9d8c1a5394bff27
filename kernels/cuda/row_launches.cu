#include "kernels/cuda/launch.h"
#include "kernels/cuda/row_launches.h"

namespace baton::kernels::cuda {
namespace {

constexpr std::size_t kMostRows = 65535;  // of a grid, along y

// Calls `each(first, count)` for runs of rows that one launch can take.
template <class Each>
void for_launches(std::size_t rows, const Each& each) {
  for (std::size_t first = 0; first < rows; first += kMostRows) {
    const std::size_t left = rows - first;
    each(first, static_cast<std::uint32_t>(left < kMostRows ? left : kMostRows));
  }
}

template <class Kernel>
void launch_gated(Stream stream, Kernel kernel, std::size_t rows, const GatedArgs& args) {
  for_launches(rows, [&](std::size_t first, std::uint32_t count) {
    GatedArgs part = args;
    part.gate += first * args.stride;
    part.up += first * args.stride;
    part.out += first * args.stride;
    launch(stream, kernel, pointwise_shape(count, args.dim), part);
  });
}

}  // namespace

void launch_rms_norm(Stream stream, const RmsNormArgs& args) {
  launch(stream, rms_norm, rms_norm_shape(args), args);
}

void launch_rope(Stream stream, const RopeArgs& args) {
  for_launches(args.rows, [&](std::size_t first, std::uint32_t count) {
    RopeArgs part = args;
    part.x += first * args.stride;
    part.positions += first;
    part.rows = count;
    launch(stream, rope, rope_shape(part), part);
  });
}

void launch_hadamard(Stream stream, const HadamardArgs& args) {
  launch(stream, hadamard, hadamard_shape(args), args);
}

void launch_silu_mul(Stream stream, std::size_t rows, const GatedArgs& args) {
  launch_gated(stream, silu_mul, rows, args);
}

void launch_gelu_mul(Stream stream, std::size_t rows, const GatedArgs& args) {
  launch_gated(stream, gelu_mul, rows, args);
}

void launch_add(Stream stream, std::size_t rows, const AddArgs& args) {
  for_launches(rows, [&](std::size_t first, std::uint32_t count) {
    AddArgs part = args;
    part.x += first * args.dim;
    part.y += first * args.y_stride;
    launch(stream, add_rows, pointwise_shape(count, args.dim), part);
  });
}

void launch_softcap(Stream stream, std::size_t rows, const SoftcapArgs& args) {
  for_launches(rows, [&](std::size_t first, std::uint32_t count) {
    SoftcapArgs part = args;
    part.x += first * args.dim;
    launch(stream, softcap_rows, pointwise_shape(count, args.dim), part);
  });
}

void launch_mix_rows(Stream stream, std::size_t rows, const MixArgs& args) {
  for_launches(rows, [&](std::size_t first, std::uint32_t count) {
    MixArgs part = args;
    part.rows += first * args.used;
    part.weights = args.weights == nullptr ? nullptr : args.weights + first * args.used;
    part.out += first * args.dim;
    launch(stream, mix_rows, pointwise_shape(count, args.dim), part);
  });
}

void launch_route(Stream stream, const RouteArgs& args) {
  launch(stream, route_rows, route_shape(args), args);
}

void launch_keep_rows(Stream stream, const KeepRowsArgs& args) {
  launch(stream,
         keep_rows,
         {.x = (args.dim + kKeepThreads - 1) / kKeepThreads, .threads = kKeepThreads},
         args);
}

void launch_write_kv(Stream stream, const KvWriteArgs& args) {
  launch(stream, write_kv, kv_write_shape(args), args);
}

}  // namespace baton::kernels::cuda
