#include <cstdlib>

#include "kernels/cuda/activation_codes.h"
#include "kernels/cuda/float_matmul.h"
#include "kernels/cuda/format_launches.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/matmul_launches.h"
#include "kernels/cuda/quant_matmul.h"

namespace baton::kernels::cuda {
namespace {

constexpr unsigned pieces(std::size_t count, std::size_t each) {
  return static_cast<unsigned>((count + each - 1) / each);
}

// Calls `with` with a value of the format in which a quantised type lies.
template <class With>
void for_format(DType dtype, const With& with) {
  switch (dtype) {
    case DType::Q4_0:
      return with(FormatQ4_0{});
    case DType::Q4_1:
      return with(FormatQ4_1{});
    case DType::Q4_K:
      return with(FormatQ4_K{});
    case DType::Q5_0:
    case DType::Q8_0:
      return with(FormatQ8_0{});
    case DType::Q5_1:
      return with(FormatQ5_1{});
    case DType::Q5_K:
      return with(FormatQ5_K{});
    case DType::Q6_K:
      return with(FormatQ6_K{});
    case DType::F32:
    case DType::F16:
    case DType::BF16:
      break;
  }
  std::abort();  // packing refuses what is no format
}

LaunchShape shape_of(const MatmulTarget& out, unsigned rows, unsigned parts) {
  return {.x = pieces(rows, kBlockTiles * kTileRows),
          .y = pieces(out.m, kBlockTokens),
          .z = out.parts == nullptr ? 1 : parts,
          .threads = kMatmulThreads};
}

void launch_join(Stream stream, const MatmulTarget& out, unsigned rows, unsigned parts) {
  if (out.parts == nullptr) {
    return;
  }
  launch(stream,
         join_parts,
         {.x = pieces(std::size_t{out.m} * rows, kJoinThreads), .threads = kJoinThreads},
         JoinArgs{out, rows, parts});
}

}  // namespace

void launch_quantise(Stream stream, const QuantiseArgs& args) {
  launch(stream,
         quantise_rows,
         {.x = pieces(args.groups, kQuantiseThreads / kWarp), .threads = kQuantiseThreads},
         args);
}

void launch_split(Stream stream, FloatFormat format, unsigned m, const SplitArgs& args) {
  const LaunchShape shape{.x = m, .threads = kSplitThreads};
  if (format == FloatFormat::Half) {
    launch(stream, split_rows<FloatFormat::Half>, shape, args);
  } else {
    launch(stream, split_rows<FloatFormat::Bfloat>, shape, args);
  }
}

void launch_quant_matmul(Stream stream, DType dtype, const QuantMatmulArgs& args) {
  const unsigned parts = parts_of(args.w.cols);
  for_format(dtype, [&](auto format) {
    FormatLaunches<decltype(format)>::matmul(stream, shape_of(args.out, args.w.rows, parts), args);
  });
  launch_join(stream, args.out, args.w.rows, parts);
}

void launch_float_matmul(Stream stream, FloatFormat format, const FloatMatmulArgs& args) {
  const unsigned parts = parts_of(args.padded);
  const LaunchShape shape = shape_of(args.out, args.w.rows, parts);
  switch (format) {
    case FloatFormat::Half:
      launch(stream, float_matmul<FloatFormat::Half>, shape, args);
      break;
    case FloatFormat::Bfloat:
      launch(stream, float_matmul<FloatFormat::Bfloat>, shape, args);
      break;
    case FloatFormat::E4m3:
      launch(stream, float_matmul<FloatFormat::E4m3>, shape, args);
      break;
  }
  launch_join(stream, args.out, args.w.rows, parts);
}

void launch_plain_matmul(Stream stream, const PlainMatmulArgs& args) {
  launch(stream,
         plain_matmul,
         {.x = pieces(args.rows, kPlainThreads / kWarp),
          .y = pieces(args.out.m, kPlainRows),
          .threads = kPlainThreads},
         args);
}

void launch_read_rows(Stream stream, DType dtype, unsigned count, const ReadRowsArgs& args) {
  const LaunchShape shape{.x = count, .threads = kReadThreads};
  if (dtype == DType::F16) {
    return launch(stream, read_float_rows<FloatFormat::Half>, shape, args);
  }
  if (dtype == DType::BF16) {
    return launch(stream, read_float_rows<FloatFormat::Bfloat>, shape, args);
  }
  for_format(dtype, [&](auto format) {
    FormatLaunches<decltype(format)>::read_rows(stream, shape, args);
  });
}

void launch_read_plain_rows(Stream stream, unsigned count, const ReadPlainRowsArgs& args) {
  launch(stream, read_plain_rows, {.x = count, .threads = kReadThreads}, args);
}

}  // namespace baton::kernels::cuda
