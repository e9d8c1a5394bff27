// 4-bit weights of GPTQ and AWQ folders, laid out anew as the blocks that kernels stream.
//
// Both keep a matrix transposed and eight codes in a word: value = scale * (code - zero), scale and
// zero for each output and group of inputs. Nothing is lost on the way:
//  - all zeros 8 (symmetric): Q4_0 blocks, whose value is scale * (code - 8);
//  - other zeros: Q5_0 blocks, since code - zero lies in [-16, 15], which five bits hold.
// Only where inputs of one block of 32 belong to several groups (desc_act), no block can say it:
// then every value is rounded to F16, as the formats' own code computes it.
//
// Sources: Frantar et al. 2022 (GPTQ) and Lin et al. 2023 (AWQ), with the layouts of AutoGPTQ's
// and AutoAWQ's GEMM files. Thread: pure functions. Failure: InvalidModel with tensor and reason.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "common/base/error.h"
#include "engine/model/hf_config.h"
#include "engine/model/safetensors.h"
#include "kernels/ops.h"

namespace baton::engine {

// The tensors of one matrix of [outputs][inputs]; g_idx and the zeros may be absent.
struct Int4Parts {
  const SafeTensor* qweight =
      nullptr;                         // I32: GPTQ [inputs / 8][outputs], AWQ [inputs][outputs / 8]
  const SafeTensor* qzeros = nullptr;  // I32 [groups][outputs / 8]
  const SafeTensor* scales = nullptr;  // F16, BF16 or F32 [groups][outputs]
  const SafeTensor* g_idx = nullptr;   // I32 [inputs]: the group of each; GPTQ only
  std::string place;                   // file and tensor, for messages
};

// What the parts come to, before anything is converted.
struct Int4Plan {
  kernels::DType dtype = kernels::DType::Q4_0;  // Q4_0, Q5_0 or F16
  std::uint64_t rows = 0;                       // outputs
  std::uint64_t cols = 0;                       // inputs
  std::uint64_t groups = 0;
};

// Checks every type, shape, size and group number.
Result<Int4Plan> plan_int4(const Int4Scheme& scheme, const Int4Parts& parts);

// The matrix as `plan.dtype` blocks, row after row.
// `row_from`: which stored row each row is; empty: as they are.
Result<std::shared_ptr<std::byte[]>> convert_int4(const Int4Scheme& scheme,
                                                  const Int4Parts& parts,
                                                  const Int4Plan& plan,
                                                  std::span<const std::uint32_t> row_from);

}  // namespace baton::engine
