// A weight on a device, packed for its kernels (packed_weight.h).
//
// Owner: whoever packed it. Thread: const. Failure: a weight of another backend ends the process.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

#include "common/base/check.h"
#include "kernels/cuda/packed_weight.h"
#include "kernels/ops.h"

namespace baton::kernels::cuda {

class CudaMatrix final : public PackedMatrix {
 public:
  CudaMatrix(const WeightView& weight, std::size_t bytes, std::shared_ptr<std::byte> data)
      : dtype_(weight.dtype),
        rows_(weight.rows),
        cols_(weight.cols),
        bytes_(bytes),
        data_(std::move(data)) {}
  std::size_t rows() const override { return rows_; }
  std::size_t cols() const override { return cols_; }
  std::size_t bytes() const override { return bytes_; }

  DType dtype() const { return dtype_; }
  QuantMatrix quant() const { return quant_matrix(dtype_, rows_, cols_, data_.get()); }
  FloatMatrix floats() const { return float_matrix(rows_, cols_, data_.get()); }
  const float* plain() const { return reinterpret_cast<const float*>(data_.get()); }

 private:
  const DType dtype_;
  const std::size_t rows_;
  const std::size_t cols_;
  const std::size_t bytes_;
  const std::shared_ptr<const std::byte> data_;
};

inline const CudaMatrix& own(const PackedMatrix* matrix) {
  const auto* mine = dynamic_cast<const CudaMatrix*>(matrix);
  BATON_CHECK(mine != nullptr, "a weight packed by another backend");
  return *mine;
}

}  // namespace baton::kernels::cuda
