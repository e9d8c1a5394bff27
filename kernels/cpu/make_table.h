// Fills a table with the kernels of one instruction set.
//
// Only instruction-set translation units include this. Thread: pure. Failure: none.
#pragma once

#include "kernels/cpu/attention_kernels.h"
#include "kernels/cpu/expert_ops.h"
#include "kernels/cpu/float_matmul.h"
#include "kernels/cpu/quant_matmul.h"
#include "kernels/cpu/row_ops.h"

namespace baton::kernels::cpu {
namespace {

template <class Isa>
void matmul(const MatmulJob& job) {
  switch (job.dtype) {
    case DType::F32:
      return float_matmul<Isa, DType::F32>(job);
    case DType::F16:
      return float_matmul<Isa, DType::F16>(job);
    case DType::BF16:
      return float_matmul<Isa, DType::BF16>(job);
    case DType::Q4_0:
      return quant_matmul<Isa, DType::Q4_0>(job);
    case DType::Q4_1:
      return quant_matmul<Isa, DType::Q4_1>(job);
    case DType::Q5_0:
      return quant_matmul<Isa, DType::Q5_0>(job);
    case DType::Q5_1:
      return quant_matmul<Isa, DType::Q5_1>(job);
    case DType::Q8_0:
      return quant_matmul<Isa, DType::Q8_0>(job);
    case DType::Q4_K:
      return quant_matmul<Isa, DType::Q4_K>(job);
    case DType::Q5_K:
      return quant_matmul<Isa, DType::Q5_K>(job);
    case DType::Q6_K:
      return quant_matmul<Isa, DType::Q6_K>(job);
  }
}

template <class Isa>
constexpr KernelTable make_table() {
  KernelTable table{};
  table.name = Isa::kName;
  table.numerics = kNumericsExact;
  table.quant_row_tile = Isa::kQuantRows;
  table.many_rows = SIZE_MAX;
  table.float_row_tile = Isa::kFloatRows;
  table.quantise = quantise<Isa>;
  table.matmul = matmul<Isa>;
  table.rms_norm = rms_norm<Isa>;
  table.rope_interleaved = rope_interleaved<Isa>;
  table.rope_halves = rope_halves<Isa>;
  table.hadamard = hadamard<Isa>;
  table.silu_mul = gated<Isa, SiluOp<Isa>>;
  table.gelu_mul = gated<Isa, GeluOp<Isa>>;
  table.add = add_rows<Isa>;
  table.softcap = softcap<Isa>;
  table.mix_rows = mix_rows<Isa>;
  table.to_half = to_half<Isa>;
  table.attend_rows = attend_rows<Isa>;
  table.attend_chunk = attend_chunk<Isa>;
  table.merge_chunks = merge_chunks<Isa>;
  return table;
}

}  // namespace
}  // namespace baton::kernels::cpu
