// A table of AVX-512 kernels with products and attention of many queries taken over by AMX.
//
// Only AMX translation units include this. Thread: pure. Failure: none.
#pragma once

#include "kernels/cpu/amx_attention.h"
#include "kernels/cpu/amx_bfloat.h"
#include "kernels/cpu/amx_matmul.h"

namespace baton::kernels::cpu {
namespace {

// `kBase`: the AVX-512 table.
template <class Isa, class Tile, const KernelTable* (*kBase)()>
struct AmxTable {
  static void quantise(const QuantiseJob& job) { amx_quantise<Isa>(job, kBase()->quantise); }
  static void matmul(const MatmulJob& job) { amx_matmul<Isa, Tile>(job, kBase()->matmul); }
  static void bfloat_matmul(const MatmulJob& job) {
    job.dtype == DType::BF16 ? amx_bfloat_matmul<Isa, Tile>(job) : matmul(job);
  }
  static void attend_rows(const AttentionJob& job) {
    amx_attend_rows<Isa, Tile>(job, kBase()->attend_rows);
  }

  static KernelTable make(const char* name, bool bfloat) {
    KernelTable table = *kBase();
    table.name = name;
    table.many_rows = kAmxRows;
    table.many_quant_row_tile = kTileRows;
    table.quantise = quantise;
    table.attend_rows = attend_rows;
    table.matmul = bfloat ? bfloat_matmul : matmul;
    table.numerics = bfloat ? kNumericsAmxBf16 : kNumericsExact;
    return table;
  }
};

}  // namespace
}  // namespace baton::kernels::cpu
