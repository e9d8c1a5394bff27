#include "kernels/cuda/self_check.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/half.h"

namespace baton::kernels::cuda {
namespace {

constexpr std::size_t kRows = 5;  // of x
constexpr std::size_t kDim = 256;
constexpr std::size_t kFeatures = 70;
constexpr float kTolerance = 0.02F;  // activations beside quantised weights are rounded to 8 bits

// Numbers between -1 and 1, always the same.
class Numbers {
 public:
  float next() {
    state_ = state_ * 1664525U + 1013904223U;
    return static_cast<float>(state_ >> 8U) / 8388608.0F - 1.0F;
  }
  std::vector<float> many(std::size_t count) {
    std::vector<float> out(count);
    for (float& x : out) {
      x = next();
    }
    return out;
  }

 private:
  std::uint32_t state_ = 1;
};

// Runs `operation(backend, device x, device out)` and brings the result.
template <class Operation>
std::vector<float> result_of(Backend& backend,
                             const std::vector<float>& x,
                             std::size_t size,
                             const Operation& operation) {
  const std::shared_ptr<float> in = backend.allocate(x.size());
  const std::shared_ptr<float> out = backend.allocate(size);
  backend.upload(x.data(), x.size(), in.get());
  operation(backend, in.get(), out.get());
  std::vector<float> host(size);
  backend.download(out.get(), size, host.data());
  return host;
}

template <class Operation>
Status compare(Backend& backend,
               const char* name,
               const std::vector<float>& x,
               std::size_t size,
               const Operation& operation) {
  const std::unique_ptr<Backend> reference = make_reference_backend();
  const std::vector<float> want = result_of(*reference, x, size, operation);
  const std::vector<float> got = result_of(backend, x, size, operation);
  float largest = 0.0F;
  for (const float value : want) {
    largest = std::fmax(largest, std::fabs(value));
  }
  for (std::size_t i = 0; i < size; ++i) {
    if (!(std::fabs(got[i] - want[i]) <= kTolerance * largest)) {
      return fail(
          ErrorCode::Unavailable,
          fmt::format("no CUDA: the GPU computes {} wrong: {} where {} is right; look at its "
                      "driver and its memory",
                      name,
                      got[i],
                      want[i]));
    }
  }
  return {};
}

std::vector<std::byte> bytes_of(const std::vector<float>& values, DType dtype) {
  std::vector<std::byte> out;
  const auto put = [&](std::uint16_t half) {
    out.push_back(static_cast<std::byte>(half & 0xFFU));
    out.push_back(static_cast<std::byte>(half >> 8U));
  };
  if (dtype == DType::F16) {
    for (const float x : values) {
      put(float_to_half(x));
    }
    return out;
  }
  for (std::size_t first = 0; first < values.size(); first += 32) {  // Q8_0
    put(float_to_half(1.0F / 127.0F));
    for (std::size_t i = first; i < first + 32; ++i) {
      out.push_back(static_cast<std::byte>(static_cast<std::int8_t>(std::lround(values[i] * 127))));
    }
  }
  return out;
}

}  // namespace

Status self_check(Backend& backend) {
  Numbers numbers;
  const std::vector<float> x = numbers.many(kRows * kDim);
  const std::vector<float> weights = numbers.many(kFeatures * kDim);
  for (const DType dtype : {DType::F16, DType::Q8_0}) {
    const std::vector<std::byte> bytes = bytes_of(weights, dtype);
    Status packing;
    BATON_TRY(compare(backend,
                      dtype == DType::F16 ? "products of F16" : "products of Q8_0",
                      x,
                      kRows * kFeatures,
                      [&](Backend& by, const float* in, float* out) {
                        const auto packed = by.pack({dtype, kFeatures, kDim, bytes});
                        if (!packed) {
                          packing = std::unexpected(packed.error());
                          return;
                        }
                        by.matmul(in, kRows, std::array{MatmulOut{packed->get(), out}});
                        by.settle();
                      }));
    BATON_TRY(packing);
  }
  return compare(backend, "norms", x, x.size(), [](Backend& by, const float* in, float* out) {
    by.rms_norm(in, kRows, kDim, in, 1e-5F, out);
  });
}

}  // namespace baton::kernels::cuda
