// What the forward passes share: hyperparameters, weights as they come from a file, activation
// buffers, rotary angles, and the rows of one step.
//
// Owner: one model runner. Thread: the engine thread. Failure: loading gives InvalidModel that
// names the key or tensor; the rest ends the process on an impossible plan.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "engine/model/model_file.h"
#include "engine/runner.h"
#include "kernels/ops.h"

namespace baton::engine {

struct Hyperparameters {
  std::uint32_t layers = 0;
  std::uint32_t dim = 0;  // width of the residual stream
  std::uint32_t ffn = 0;
  std::uint32_t heads = 0;
  std::uint32_t kv_heads = 0;
  std::uint32_t head_dim = 0;
  std::uint32_t context = 0;
  float eps = 0.0F;          // of the norms
  double rope_base = 1e4;    // of layers that see everything
  double rope_factor = 1.0;  // linear scaling: positions are divided by it

  std::size_t q_dim() const { return std::size_t{heads} * head_dim; }
  std::size_t kv_dim() const { return std::size_t{kv_heads} * head_dim; }
};

// Reads `<architecture>.*` and bounds every number.
Result<Hyperparameters> read_hyperparameters(const ModelFile& file);

// Takes tensors from a file, checks their shape and packs them for a backend.
class WeightLoader {
 public:
  WeightLoader(const ModelFile& file, kernels::Backend& backend) : file_(file), backend_(backend) {}

  Result<std::unique_ptr<kernels::PackedMatrix>> matrix(const std::string& name,
                                                        std::size_t rows,
                                                        std::size_t cols);
  // A vector of float32, as norms are.
  Result<std::vector<float>> vector(const std::string& name, std::size_t size);
  const ModelFile& file() const { return file_; }
  kernels::Backend& backend() const { return backend_; }
  std::size_t bytes() const { return bytes_; }          // memory taken so far
  std::uint64_t elements() const { return elements_; }  // of the matrices so far

 private:
  Result<kernels::WeightView> required(const std::string& name) const;

  const ModelFile& file_;
  kernels::Backend& backend_;
  std::size_t bytes_ = 0;
  std::uint64_t elements_ = 0;
};

// Floats, 64-byte aligned and not initialised: memory is touched only as far as steps are wide.
class FloatBuffer {
 public:
  FloatBuffer() = default;
  explicit FloatBuffer(std::size_t size);
  float* data() { return data_.get(); }

 private:
  struct Free {
    void operator()(float* data) const;
  };
  std::unique_ptr<float, Free> data_;
};

// Rotary angles of one step's rows. The table it fills is indexed by row, not by position, so that
// its size does not grow with the context.
class RopeAngles {
 public:
  // `factors`: empty, or one divisor a frequency (Llama 3's long-context scaling). [head_dim / 2]
  RopeAngles(std::size_t head_dim,
             double base,
             double position_scale,
             std::span<const float> factors,
             std::size_t max_rows);
  kernels::RopeTable table_for(std::span<const std::uint32_t> positions);

 private:
  std::vector<double> frequencies_;  // [head_dim / 2]
  FloatBuffer cosines_;              // [max_rows][head_dim / 2]
  FloatBuffer sines_;
};

// The rows of all slices of one step, packed one slice after the other.
class StepRows {
 public:
  explicit StepRows(std::size_t max_rows);

  void clear();
  // `all_wanted`: the hidden state of every row is asked for, not just of a sampled last one.
  void add(const SequenceSlice& slice, std::uint32_t block_tokens, bool all_wanted);

  std::size_t size() const { return ids_.size(); }
  std::span<const TokenId> ids() const { return ids_; }
  std::span<const std::uint32_t> positions() const { return positions_; }
  // 0, 1, 2, …: which row of a RopeAngles table belongs to which row.
  std::span<const std::uint32_t> row_numbers() const { return {row_numbers_.data(), size()}; }
  std::span<const kernels::AttentionSlice> slices() const { return slices_; }
  // Rows whose hidden state is asked for, ascending, and the same rows as slices of their own that
  // lie one after the other: what is left to compute once the last layer's KV is written.
  std::span<const std::uint32_t> wanted() const { return wanted_; }
  std::span<const kernels::AttentionSlice> wanted_slices() const { return wanted_slices_; }

 private:
  std::vector<TokenId> ids_;
  std::vector<std::uint32_t> positions_;
  std::vector<std::uint32_t> row_numbers_;
  std::vector<kernels::AttentionSlice> slices_;
  std::vector<std::uint32_t> wanted_;
  std::vector<kernels::AttentionSlice> wanted_slices_;
};

// Moves the wanted rows of x to its front. x: [rows][dim]
void keep_rows(std::span<const std::uint32_t> wanted, float* x, std::size_t dim);

// One family's layers: from token ids to the hidden states before the final norm.
class ForwardPass {
 public:
  virtual ~ForwardPass() = default;
  // Hidden states of the wanted rows, [wanted][dim], valid until the next call.
  virtual const float* run(const StepRows& rows,
                           const KvArenaView& arena,
                           const LayerDone& layer_done) = 0;
};

// `embedding` outlives the pass.
Result<std::unique_ptr<ForwardPass>> make_llama(WeightLoader& loader,
                                                const Hyperparameters& hyper,
                                                const kernels::PackedMatrix& embedding,
                                                std::size_t max_rows);
Result<std::unique_ptr<ForwardPass>> make_gemma3(WeightLoader& loader,
                                                 const Hyperparameters& hyper,
                                                 const kernels::PackedMatrix& embedding,
                                                 std::size_t max_rows);

}  // namespace baton::engine
