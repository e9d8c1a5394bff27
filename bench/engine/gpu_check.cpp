// gpu_check: what a backend gives on this machine: its operations beside the reference, the speed
// of its products, and prefill and decode of the models named. Ends with one line of JSON.
// tools/gpu-check runs it on a GPU.
//
// Thread: one, and the backend's own. Failure: a backend or model that is not to be had ends it
// with a sentence and status 1; an operation that disagrees with the reference, with status 2.
#include <fmt/core.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "bench/engine/loaded_model.h"
#include "kernels/half.h"
#include "kernels/ops.h"
#include "kernels/step.h"

namespace baton::bench {
namespace {

using kernels::Backend;
using kernels::DType;
using kernels::MatmulOut;

constexpr DType kTypes[] = {DType::Q4_0, DType::Q4_K, DType::Q8_0, DType::F16};
constexpr float kTolerance = 0.02F;  // activations beside quantised weights are rounded to 8 bits

struct Arguments {
  std::string backend = "cuda";
  std::uint32_t device = 0;
  std::vector<std::string> models;
  std::vector<std::size_t> batches{1, 16, 64, 256};
  std::uint32_t prefill = 2048;
  std::uint32_t context = 512;
  std::size_t width = 4096;  // of the products that are timed
  double seconds = 0.2;      // that a figure is measured for
};

Result<std::unique_ptr<Backend>> make_backend(const Arguments& arguments) {
  if (arguments.backend == "cuda") {
    return kernels::make_cuda_backend({.device = arguments.device});
  }
  if (arguments.backend == "cpu") {
    return kernels::make_cpu_backend({});
  }
  return kernels::make_reference_backend();
}

std::vector<float> random_floats(std::size_t count, std::mt19937& rng) {
  std::normal_distribution<float> normal;
  std::vector<float> out(count);
  std::ranges::generate(out, [&] { return normal(rng); });
  return out;
}

// Any code; scales, which are the halves among the bytes, stay small and finite.
std::vector<std::byte> random_weight(DType dtype,
                                     std::size_t rows,
                                     std::size_t cols,
                                     std::mt19937& rng) {
  std::vector<std::byte> bytes(rows * kernels::row_bytes(dtype, cols));
  for (std::byte& byte : bytes) {
    byte = static_cast<std::byte>(rng() & 0xFFU);
  }
  const std::size_t block = kernels::info(dtype).block_bytes;
  for (std::size_t at = 0; at < bytes.size(); at += block) {
    for (std::size_t half = 0; half < (dtype == DType::Q4_K ? 2U : 1U); ++half) {
      const std::uint16_t scale = kernels::float_to_half(0.001F * static_cast<float>(rng() % 16));
      std::memcpy(bytes.data() + at + 2 * half, &scale, sizeof(scale));
    }
  }
  return bytes;
}

// A backend's memory with what the host has.
std::shared_ptr<float> on(Backend& backend, const std::vector<float>& values) {
  const std::shared_ptr<float> memory = backend.allocate(values.size());
  backend.upload(values.data(), values.size(), memory.get());
  return memory;
}

struct Agreement {
  std::string operation;
  float error = 0;  // the largest, as a share of the largest result
};

// Runs an operation from x to `size` results on both backends.
Agreement compare(Backend& backend,
                  std::string name,
                  const std::vector<float>& x,
                  std::size_t size,
                  const std::function<void(Backend&, const float*, float*)>& operation) {
  const std::unique_ptr<Backend> reference = kernels::make_reference_backend();
  std::array<std::vector<float>, 2> results;
  std::size_t i = 0;
  for (Backend* const by : {reference.get(), &backend}) {
    const std::shared_ptr<float> in = on(*by, x);
    const std::shared_ptr<float> out = by->allocate(size);
    operation(*by, in.get(), out.get());
    results[i].resize(size);
    by->download(out.get(), size, results[i++].data());
  }
  Agreement agreement{std::move(name)};
  float largest = 1e-30F;
  for (std::size_t k = 0; k < size; ++k) {
    largest = std::max(largest, std::fabs(results[0][k]));
    const float error = std::fabs(results[0][k] - results[1][k]);
    agreement.error = error <= agreement.error ? agreement.error : error;  // a NaN is the largest
  }
  agreement.error /= largest;
  return agreement;
}

std::vector<Agreement> compare_all(Backend& backend) {
  constexpr std::size_t kRows = 37;
  constexpr std::size_t kDim = 1280;
  constexpr std::size_t kFeatures = 200;
  std::mt19937 rng(1);
  const std::vector<float> x = random_floats(kRows * kDim, rng);
  std::vector<Agreement> out;
  for (const DType dtype : kTypes) {
    const std::vector<std::byte> bytes = random_weight(dtype, kFeatures, kDim, rng);
    out.push_back(compare(backend,
                          fmt::format("product {}", kernels::info(dtype).name),
                          x,
                          kRows * kFeatures,
                          [&](Backend& by, const float* in, float* y) {
                            const auto w = by.pack({dtype, kFeatures, kDim, bytes});
                            if (w) {
                              by.matmul(in, kRows, std::array{MatmulOut{w->get(), y}});
                              by.settle();
                            }
                          }));
  }
  out.push_back(compare(backend, "norm", x, x.size(), [](Backend& by, const float* in, float* y) {
    by.rms_norm(in, kRows, kDim, in, 1e-5F, y);
  }));
  out.push_back(
      compare(backend, "silu_mul", x, x.size(), [](Backend& by, const float* in, float* y) {
        by.silu_mul(in, in, kRows, kDim, kDim, y);
      }));
  out.push_back(
      compare(backend, "gelu_mul", x, x.size(), [](Backend& by, const float* in, float* y) {
        by.gelu_mul(in, in, kRows, kDim, kDim, y);
      }));
  return out;
}

template <class Work>
double seconds_of(Backend& backend, double budget, const Work& work) {
  work();  // what is first used is first made
  backend.settle();
  const auto begin = std::chrono::steady_clock::now();
  std::size_t turns = 0;
  double took = 0;
  do {
    work();
    ++turns;
    if (turns % 8 == 0 || budget == 0) {
      backend.settle();
      took = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    }
  } while (took < budget || turns % 8 != 0);
  return took / static_cast<double>(turns);
}

struct Speed {
  std::string dtype;
  std::size_t rows = 0;  // of x
  double microseconds = 0;
  double weight_gb_s = 0;
  double teraops = 0;
};

Result<std::vector<Speed>> time_products(Backend& backend, const Arguments& arguments) {
  std::mt19937 rng(2);
  const std::size_t width = arguments.width;
  std::vector<Speed> out;
  for (const DType dtype : kTypes) {
    const std::vector<std::byte> bytes = random_weight(dtype, width, width, rng);
    BATON_ASSIGN(const auto weight, backend.pack({dtype, width, width, bytes}));
    for (const std::size_t rows : arguments.batches) {
      const std::shared_ptr<float> x = on(backend, random_floats(rows * width, rng));
      const std::shared_ptr<float> y = backend.allocate(rows * width);
      const double seconds = seconds_of(backend, arguments.seconds, [&] {
        backend.matmul(x.get(), rows, std::array{MatmulOut{weight.get(), y.get()}});
      });
      out.push_back({std::string(kernels::info(dtype).name),
                     rows,
                     seconds * 1e6,
                     static_cast<double>(weight->bytes()) / seconds / 1e9,
                     2.0 * static_cast<double>(rows * width * width) / seconds / 1e12});
    }
  }
  return out;
}

struct ModelSpeed {
  std::string model;
  double prefill = 0;              // tokens a second
  std::vector<double> decode;      // of each batch
  std::vector<double> unrecorded;  // the same without graphs, where a backend has any
  kernels::StepCounts steps;       // of `decode`
};

constexpr std::size_t kSteps = 32;   // of decode that are timed
constexpr std::size_t kWarmUps = 2;  // in which buffers grow and graphs are made

Result<LoadedModel> load(const std::string& path, const Arguments& arguments, bool record_steps) {
  const std::size_t room =
      std::max<std::size_t>(arguments.prefill, arguments.context + kSteps + kWarmUps + 1);
  return LoadedModel::load({.model = path,
                            .backend = arguments.backend,
                            .sequences = *std::ranges::max_element(arguments.batches),
                            .tokens = room,
                            .kv_dtype = KvDType::F16,
                            .record_steps = record_steps});
}

// Tokens a second of each batch.
std::vector<double> time_decode(LoadedModel& model, const Arguments& arguments) {
  using Clock = std::chrono::steady_clock;
  const SamplingParams greedy{.temperature = 0.0F};
  const std::vector<TokenId> context(arguments.context, TokenId{5});
  for (std::size_t i = 0; i < *std::ranges::max_element(arguments.batches); ++i) {
    model.prefill(i, context, 0, nullptr);
  }
  const std::vector<TokenId> token{TokenId{7}};
  std::vector<double> out;
  for (const std::size_t batch : arguments.batches) {
    Clock::time_point begin;
    for (std::size_t step = 0; step < kWarmUps + kSteps; ++step) {
      begin = step == kWarmUps ? Clock::now() : begin;
      engine::StepPlan plan;
      for (std::size_t i = 0; i < batch; ++i) {
        plan.slices.push_back(model.slice(i, token, arguments.context + step));
        plan.slices.back().sample = true;
        plan.slices.back().sampling = &greedy;
      }
      model.runner().run(plan, model.arena(), {});
    }
    out.push_back(static_cast<double>(batch * kSteps) /
                  std::chrono::duration<double>(Clock::now() - begin).count());
  }
  return out;
}

Result<ModelSpeed> time_model(const std::string& path, const Arguments& arguments) {
  using Clock = std::chrono::steady_clock;
  ModelSpeed out{.model = path};
  {
    BATON_ASSIGN(LoadedModel model, load(path, arguments, true));
    const SamplingParams greedy{.temperature = 0.0F};
    const std::vector<TokenId> prompt(arguments.prefill, TokenId{5});
    model.prefill(0, prompt, 0, &greedy);
    const auto begin = Clock::now();
    model.prefill(0, prompt, 0, &greedy);
    out.prefill = arguments.prefill / std::chrono::duration<double>(Clock::now() - begin).count();
    out.decode = time_decode(model, arguments);
    out.steps = model.backend().step_counts();
  }
  if (out.steps.steps > 0) {
    BATON_ASSIGN(LoadedModel model, load(path, arguments, false));
    out.unrecorded = time_decode(model, arguments);
  }
  return out;
}

void print(const std::string& description,
           const Arguments& arguments,
           const std::vector<Agreement>& agreements,
           const std::vector<Speed>& speeds,
           const std::vector<ModelSpeed>& models) {
  fmt::print("{}\n\n| operation | largest error |\n|---|---|\n", description);
  std::vector<std::string> json;
  for (const Agreement& each : agreements) {
    fmt::print("| {} | {:.1e} |\n", each.operation, each.error);
    json.push_back(fmt::format(R"("{}":{:.3e})", each.operation, each.error));
  }
  std::string line =
      fmt::format(R"({{"backend":"{}","errors":{{{}}})", description, fmt::join(json, ","));
  fmt::print("\n| {0} x {0} | rows | µs | GB/s of weights | Top/s |\n|---|---|---|---|---|\n",
             arguments.width);
  json.clear();
  for (const Speed& each : speeds) {
    fmt::print("| {} | {} | {:.1f} | {:.1f} | {:.2f} |\n",
               each.dtype,
               each.rows,
               each.microseconds,
               each.weight_gb_s,
               each.teraops);
    json.push_back(
        fmt::format(R"({{"dtype":"{}","rows":{},"us":{:.2f},"gb_s":{:.2f},"top_s":{:.3f}}})",
                    each.dtype,
                    each.rows,
                    each.microseconds,
                    each.weight_gb_s,
                    each.teraops));
  }
  line += fmt::format(R"(,"products":[{}])", fmt::join(json, ","));
  if (!models.empty()) {
    fmt::print(
        "\n| model | prefill, tokens/s | decode at batch {}, tokens/s | without CUDA graphs "
        "| steps by graphs |\n|---|---|---|---|---|\n",
        fmt::join(arguments.batches, ", "));
  }
  json.clear();
  for (const ModelSpeed& each : models) {
    fmt::print("| {} | {:.0f} | {:.0f} | {:.0f} | {} of {}, {} graphs |\n",
               each.model,
               each.prefill,
               fmt::join(each.decode, ", "),
               fmt::join(each.unrecorded, ", "),
               each.steps.repeated,
               each.steps.steps,
               each.steps.recordings);
    json.push_back(fmt::format(
        R"({{"model":"{}","prefill":{:.1f},"decode":[{:.1f}],"without_graphs":[{:.1f}],"graphs":{},"repeated":{}}})",
        each.model,
        each.prefill,
        fmt::join(each.decode, ","),
        fmt::join(each.unrecorded, ","),
        each.steps.recordings,
        each.steps.repeated));
  }
  fmt::print("\n{},\"models\":[{}]}}\n", line, fmt::join(json, ","));
}

Result<bool> check(const Arguments& arguments) {
  BATON_ASSIGN(const auto backend, make_backend(arguments));
  const std::vector<Agreement> agreements = compare_all(*backend);
  BATON_ASSIGN(const std::vector<Speed> speeds, time_products(*backend, arguments));
  std::vector<ModelSpeed> models;
  for (const std::string& path : arguments.models) {
    BATON_ASSIGN(auto speed, time_model(path, arguments));
    models.push_back(std::move(speed));
  }
  print(backend->description(), arguments, agreements, speeds, models);
  return std::ranges::all_of(agreements,
                             [](const Agreement& each) { return each.error <= kTolerance; });
}

}  // namespace
}  // namespace baton::bench

int main(int argc, char** argv) {
  baton::bench::Arguments arguments;
  CLI::App app("Operations of a backend beside the reference, and their speed", "gpu_check");
  app.add_option("--backend", arguments.backend)
      ->check(CLI::IsMember({"cuda", "cpu", "reference"}))
      ->capture_default_str();
  app.add_option("--device", arguments.device, "Number of the GPU")->capture_default_str();
  app.add_option("--model", arguments.models, "GGUF files")->delimiter(',');
  app.add_option("--batch", arguments.batches, "Rows of products, and sequences of decode")
      ->delimiter(',')
      ->capture_default_str();
  app.add_option("--prefill", arguments.prefill, "Tokens of the prompt")->capture_default_str();
  app.add_option("--context", arguments.context, "Tokens before decode")->capture_default_str();
  app.add_option("--width", arguments.width, "Rows and columns of the products' weights")
      ->check(CLI::Range(256, 65536))
      ->capture_default_str();
  app.add_option("--seconds", arguments.seconds, "For each figure of products")
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  const auto agrees = baton::bench::check(arguments);
  if (!agrees) {
    fmt::print(stderr, "gpu_check: {}\n", agrees.error().message);
    return 1;
  }
  return *agrees ? 0 : 2;
}
