// A weight in the fast backend's layout (weight_codecs.h) and how it is made.
//
// Thread: const after packing. Failure: none; sizes are checked before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "kernels/cpu/memory.h"
#include "kernels/ops.h"

namespace baton::kernels::cpu {

// Raise it with every change of the bytes that packing makes, of any type: packed weights that were
// kept on disk are then made anew. packed_layout_test compares it with the bytes.
inline constexpr std::uint32_t kPackedLayoutRevision = 1;

class CpuMatrix final : public PackedMatrix {
 public:
  // `memory`: panels() * panel_bytes(), zeroed. `pairs`: BF16 as [K / 2][32 features][2].
  CpuMatrix(DType dtype,
            std::size_t rows,
            std::size_t cols,
            std::shared_ptr<std::byte> memory,
            bool pairs = false);

  std::size_t rows() const override { return rows_; }
  std::size_t cols() const override { return cols_; }
  std::size_t bytes() const override { return panels() * panel_bytes_; }

  DType dtype() const { return dtype_; }
  std::size_t panels() const;
  std::size_t panel_bytes() const { return panel_bytes_; }
  const std::byte* data() const { return memory_.get(); }

  static std::size_t panel_bytes(DType dtype, std::size_t cols, bool pairs = false);

  // Writes one panel from the file's rows. Panels may be packed in parallel.
  void pack_panel(const WeightView& weight, std::size_t panel);

  // One row as float32, times `scale`. out: [cols]
  void read_row(std::size_t row, float scale, float* out) const;

 private:
  void pack_float_panel(const WeightView& weight,
                        std::size_t first_row,
                        std::size_t count,
                        std::byte* out) const;
  void pack_pair_panel(const WeightView& weight,
                       std::size_t first_row,
                       std::size_t count,
                       std::byte* out) const;
  void pack_quant_panel(const WeightView& weight,
                        std::size_t first_row,
                        std::size_t count,
                        std::byte* out) const;

  DType dtype_;
  std::size_t rows_;
  std::size_t cols_;
  bool pairs_;  // BF16 only
  std::size_t panel_bytes_;
  std::shared_ptr<std::byte> memory_;
};

}  // namespace baton::kernels::cpu
