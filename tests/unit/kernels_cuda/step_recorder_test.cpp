// Recordings of steps over the emulated device: which steps are of one shape, how many are kept,
// and that a launch which would repeat what the host had in an older step is found.
#include "kernels/cuda/step_recorder.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <vector>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/row_launches.h"
#include "tests/support/emulated_device.h"

namespace baton::kernels::cuda {
namespace {

using baton::testing::EmulatedCounts;
using baton::testing::make_emulated_device;

constexpr KvLayout kLayout{1, 1, 16, 16, KvDType::F16};

// Slices of one token each, of sequences that are so long.
struct Step {
  explicit Step(std::vector<std::uint32_t> positions, std::byte* arena = nullptr)
      : blocks(1024), view{arena, kLayout, 1024} {
    for (const std::uint32_t position : positions) {
      slices.push_back({slices.size(), 1, position, blocks});
    }
  }
  StepInputs inputs(const StepRecords& records) {
    ids.assign(records.rows_for(slices), 0);
    attention = {slices, 0};
    return {.arena = view, .ids = ids, .slices = slices, .attentions = {&attention, 1}};
  }

  std::vector<BlockId> blocks;
  KvArenaView view;
  std::vector<AttentionSlice> slices;
  std::vector<TokenId> ids;
  StepInputs::Attention attention;
};

class CudaStepRecorder : public ::testing::Test {
 protected:
  // The largest step comes first: no buffer grows later.
  CudaStepRecorder() { run(Step(std::vector<std::uint32_t>(256, 64 * kRangeTokens - 1))); }
  ~CudaStepRecorder() override { device_->release(x_); }
  // A launch that adds something to a number.
  void run(Step step) {
    recorder_.run(step.inputs(recorder_), [&] {
      auto* const x = reinterpret_cast<float*>(x_);
      launch_add(device_->stream(), 1, {x, x, 0, 1});
    });
  }

  EmulatedCounts counts_;
  const std::unique_ptr<Device> device_ = make_emulated_device({.counts = &counts_});
  StepImage image_{*device_};
  StepCounts step_counts_;
  StepRecorder recorder_{*device_, image_, step_counts_};
  std::byte* const x_ = *device_->allocate(sizeof(float));
};

TEST_F(CudaStepRecorder, RowsGoToTheNextBucket) {
  const auto rows = [&](std::size_t count) {
    return recorder_.rows_for(Step(std::vector<std::uint32_t>(count)).slices);
  };
  EXPECT_EQ(rows(0), 0U);
  EXPECT_EQ(rows(1), 1U);
  EXPECT_EQ(rows(3), 4U);
  EXPECT_EQ(rows(33), 64U);
  EXPECT_EQ(rows(64), 64U);
  EXPECT_EQ(rows(65), 128U);
  EXPECT_EQ(rows(129), 192U);
  EXPECT_EQ(rows(256), 256U);
  EXPECT_EQ(rows(257), 0U);
  Step prompt({0});
  prompt.slices[0].num_rows = 17;
  EXPECT_EQ(recorder_.rows_for(prompt.slices), 0U);
}

TEST_F(CudaStepRecorder, StepsOfOneShapeShareARecording) {
  run(Step({5, 300, 20}));  // four ranges
  run(Step({800}));         // four ranges, one row
  run(Step({0, 0, 0}));     // three ranges go to four
  EXPECT_EQ(counts_.recordings, 1U);
  run(Step({400, 700}));        // five go to eight, two rows
  run(Step({511, 17, 16, 1}));  // five go to eight
  EXPECT_EQ(step_counts_.repeated, 1U);
  run(Step({7, 8, 9, 1}));
  EXPECT_EQ(step_counts_.repeated, 2U);
  std::byte other{};
  run(Step({7, 8, 9, 1}, &other));
  EXPECT_EQ(step_counts_.repeated, 2U);
}

TEST_F(CudaStepRecorder, KeepsThoseThatWereUsedLast) {
  std::vector<Step> steps;
  for (std::uint32_t rows = 1; rows <= 256; rows *= 2) {
    for (std::uint32_t ranges = 1; ranges <= 64; ranges *= 2) {
      steps.emplace_back(std::vector<std::uint32_t>(rows, ranges * kRangeTokens - 1));
    }
  }
  ASSERT_GT(steps.size(), kMostRecordings);
  for (const Step& step : steps) {
    run(step);
    run(step);
    run(steps.front());
    EXPECT_LE(counts_.recordings, kMostRecordings);
  }
  EXPECT_EQ(counts_.recordings, kMostRecordings);
  const std::uint64_t recorded = step_counts_.recordings;
  run(steps.front());
  run(steps.back());
  EXPECT_EQ(step_counts_.recordings, recorded);
  run(steps[1]);
  run(steps[1]);
  EXPECT_EQ(step_counts_.recordings, recorded + 1);
}

TEST_F(CudaStepRecorder, MemoryThatIsGivenBackEndsAllRecordings) {
  run(Step({1}));
  run(Step({1}));
  run(Step({1, 2}));
  run(Step({1, 2}));
  EXPECT_EQ(counts_.recordings, 2U);
  device_->release(*device_->allocate(16));
  run(Step({1}));
  EXPECT_EQ(counts_.recordings, 0U);
  run(Step({1}));
  EXPECT_EQ(counts_.recordings, 1U);
}

// A step whose operations take something else from the host than its inputs.
class CudaStepMistakes : public ::testing::Test {
 protected:
  CudaStepMistakes() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
  template <class Work>
  static void run_three(const Work& work) {
    const auto backend = *make_backend(make_emulated_device(), 1);
    const auto records = backend->make_step_records();
    const std::shared_ptr<float> x = backend->allocate(64);
    const std::vector<float> zeros(64);
    backend->upload(zeros.data(), zeros.size(), x.get());
    for (std::uint32_t step = 0; step < 3; ++step) {
      Step one({step});
      const StepInputs inputs = one.inputs(*records);
      records->run(inputs, [&] { work(*backend, inputs, x.get(), step); });
    }
    backend->settle();
  }
};

TEST_F(CudaStepMistakes, AnArgumentOfAnOlderStepIsFound) {
  const auto run = [](bool changes) {
    run_three([changes](Backend& backend, const StepInputs&, float* x, std::uint32_t step) {
      backend.softcap(x, 8, changes ? 1.0F + static_cast<float>(step) : 1.0F);
    });
  };
  run(false);
  EXPECT_DEATH(run(true), "launch 0 of a replayed step has arguments of an older one");
}

TEST_F(CudaStepMistakes, AGridOfAnOlderStepIsFound) {
  EXPECT_DEATH(run_three([](Backend& backend, const StepInputs&, float* x, std::uint32_t step) {
                 backend.add_bias(x, 1 + step, 8, x + 32);
               }),
               "launch 0 of a replayed step would be another now");
}

TEST_F(CudaStepMistakes, ALaunchTooManyIsFound) {
  EXPECT_DEATH(run_three([](Backend& backend, const StepInputs&, float* x, std::uint32_t step) {
                 for (std::uint32_t i = 0; i <= step; ++i) {
                   backend.softcap(x, 8, 1.0F);
                 }
               }),
               "a replayed step has 2 launches, it would have 3 now");
}

TEST_F(CudaStepMistakes, WhatIsNotAmongTheInputsIsFound) {
  const auto run = [](bool is_input) {
    run_three([is_input](Backend& backend, const StepInputs& inputs, float* x, std::uint32_t) {
      const std::array<std::uint32_t, 1> elsewhere{0};
      const auto* const ids = reinterpret_cast<const std::uint32_t*>(inputs.ids.data());
      backend.gather_rows(
          x, 8, is_input ? std::span(ids, inputs.ids.size()) : std::span(elsewhere), x + 16);
    });
  };
  run(true);
  EXPECT_DEATH(run(false), "something is copied from the host while the device records");
}

TEST_F(CudaStepMistakes, WaitingForTheDeviceIsFound) {
  EXPECT_DEATH(run_three([](Backend& backend, const StepInputs&, float* x, std::uint32_t) {
                 float out = 0;
                 backend.download(x, 1, &out);
               }),
               "something is copied to the host while the device records");
}

}  // namespace
}  // namespace baton::kernels::cuda
