// Weights kept packed: the same bits from a mapped file as from packing, files that are broken or
// of others are refused and made anew, folders that cannot be used are no failure.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>

#include "engine/model/model.h"
#include "engine/model/packed_file.h"
#include "tests/support/tiny_model.h"
#include "tests/unit/engine_model/backends.h"
#include "tests/unit/engine_model/sequence_fixture.h"

namespace baton::engine {
namespace {

namespace fs = std::filesystem;
using kernels::DType;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::TestWithParam;

struct Started {
  std::vector<float> logits;
  std::vector<std::string> notes;
};

class PackedCacheTest : public ::testing::Test {
 protected:
  PackedCacheTest()
      : root_(fs::path(::testing::TempDir()) / ("packed_cache_test." + std::to_string(::getpid()))),
        folder_(root_ / "packed") {
    fs::remove_all(root_);
    fs::create_directories(root_);
  }
  ~PackedCacheTest() override { fs::remove_all(root_); }

  std::string model(DType dtype = DType::Q4_1) {
    const std::string path = (root_ / (std::string(kernels::info(dtype).name) + ".gguf")).string();
    if (!fs::exists(path)) {
      baton::testing::write_tiny_model(path, baton::testing::tiny_model_for("llama", dtype));
    }
    return path;
  }

  // A start of a process: loads and computes.
  Started start(const std::string& model_file,
                const fs::path& folder,
                std::uint64_t limit = std::uint64_t{1} << 30) const {
    Started out;
    const auto file = ModelFile::open(model_file);
    const auto backend = testing::make_backend("cpu2");
    RunnerOptions options{.max_step_tokens = 64};
    options.packed_cache.folder = folder.string();
    options.packed_cache.limit_bytes = limit;
    options.packed_cache.note = [&out](std::string_view line) { out.notes.emplace_back(line); };
    auto runner = make_runner(**file, *backend, options);
    EXPECT_TRUE(runner) << runner.error().message;
    if (runner) {
      const std::vector<TokenId> tokens{1, 2, 3, 4, 5, 6, 7};
      testing::Sequences sequences(**runner, 1, tokens.size());
      out.logits = sequences.logits(0, tokens, 64);
    }
    return out;
  }
  std::vector<fs::path> files() const {
    std::vector<fs::path> out;
    for (const auto& file : fs::directory_iterator(folder_)) {
      if (file.path().extension() != "" || file.path().filename() != "lock") {
        out.push_back(file.path());
      }
    }
    std::sort(out.begin(), out.end());
    return out;
  }

  const fs::path root_;
  const fs::path folder_;
};

TEST_F(PackedCacheTest, SecondStartMapsWhatTheFirstOneWrote) {
  const Started plain = start(model(), "");
  ASSERT_FALSE(plain.logits.empty());
  const Started first = start(model(), folder_);
  ASSERT_EQ(files().size(), 1U);
  const auto written = fs::last_write_time(files()[0]);
  fs::last_write_time(files()[0], written - std::chrono::hours(1));
  const Started second = start(model(), folder_);
  EXPECT_EQ(first.logits, plain.logits);
  EXPECT_EQ(second.logits, plain.logits);
  EXPECT_THAT(first.notes, IsEmpty());
  EXPECT_THAT(second.notes, IsEmpty());
  EXPECT_GE(fs::last_write_time(files()[0]), written) << "a file that was used counts as young";
}

TEST_F(PackedCacheTest, WeightsAreTheFilesPages) {
  start(model(), folder_);
  const auto file = ModelFile::open(model());
  const auto backend = testing::make_backend("cpu1");
  RunnerOptions options{.max_step_tokens = 64};
  options.packed_cache.folder = folder_.string();
  const auto runner = make_runner(**file, *backend, options);
  ASSERT_TRUE(runner);
  std::ifstream maps("/proc/self/maps");
  const std::string text{std::istreambuf_iterator<char>(maps), {}};
  EXPECT_THAT(text, HasSubstr(files()[0].string()));
}

TEST_F(PackedCacheTest, StartsAtTheSameTimeMakeOneFile) {
  const std::string path = model();
  const Started plain = start(path, "");
  std::vector<Started> got(3);
  {
    std::vector<std::jthread> threads;
    for (Started& each : got) {
      threads.emplace_back([&] { each = start(path, folder_); });
    }
  }
  for (const Started& each : got) {
    EXPECT_EQ(each.logits, plain.logits);
    EXPECT_THAT(each.notes, IsEmpty());
  }
  EXPECT_EQ(files().size(), 1U);
}

TEST_F(PackedCacheTest, OldestFilesGoAndStrangersStay) {
  start(model(DType::Q4_1), folder_);
  const fs::path oldest = files().at(0);
  const std::uint64_t size = fs::file_size(oldest);
  fs::last_write_time(oldest, fs::file_time_type::clock::now() - std::chrono::hours(2));
  std::ofstream(folder_ / "notes.bin") << "not ours";
  start(model(DType::Q4_0), folder_, 2 * size + size / 2);
  EXPECT_TRUE(fs::exists(oldest));
  start(model(DType::Q5_1), folder_, 2 * size + size / 2);
  EXPECT_FALSE(fs::exists(oldest));
  EXPECT_EQ(files().size(), 3U);
  EXPECT_TRUE(fs::exists(folder_ / "notes.bin"));
}

TEST_F(PackedCacheTest, AModelLargerThanTheLimitIsNotKept) {
  const Started got = start(model(), folder_, 1000);
  EXPECT_THAT(got.notes, ElementsAre(HasSubstr("packed_cache_mb")));
  EXPECT_EQ(got.logits, start(model(), "").logits);
  EXPECT_THAT(files(), IsEmpty());
}

TEST_F(PackedCacheTest, AFolderThatCannotBeUsedIsOneNote) {
  std::ofstream(root_ / "file") << "x";
  const Started got = start(model(), root_ / "file" / "packed");
  EXPECT_THAT(got.notes, ElementsAre(HasSubstr("not kept")));
  EXPECT_EQ(got.logits, start(model(), "").logits);
}

TEST_F(PackedCacheTest, ABrokenModelFileIsStillItsOwnError) {
  const std::string path = model();
  const auto file = ModelFile::open(path);
  const auto backend = testing::make_backend("cpu1");
  RunnerOptions options{.max_step_tokens = 0};
  options.packed_cache.folder = folder_.string();
  const auto runner = make_runner(**file, *backend, options);
  ASSERT_FALSE(runner);
  EXPECT_THAT(runner.error().message, HasSubstr("max_step_tokens"));
  EXPECT_THAT(files(), IsEmpty());
}

// What happens to a file between two starts.
struct Harm {
  std::string name;
  std::function<void(std::string& bytes)> change;
};
void PrintTo(const Harm& harm, std::ostream* out) {
  *out << harm.name;
}

class HarmedCacheTest : public PackedCacheTest, public ::testing::WithParamInterface<Harm> {};

TEST_P(HarmedCacheTest, IsRefusedAndMadeAnew) {
  const Started plain = start(model(), folder_);
  const fs::path path = files().at(0);
  std::string bytes;
  {
    std::ifstream in(path, std::ios::binary);
    bytes.assign(std::istreambuf_iterator<char>(in), {});
  }
  const std::string whole = bytes;
  GetParam().change(bytes);
  ASSERT_NE(bytes, whole);
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
  const Started again = start(model(), folder_);
  EXPECT_THAT(again.notes, ElementsAre(HasSubstr("made anew")));
  EXPECT_EQ(again.logits, plain.logits);
  std::ifstream in(path, std::ios::binary);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(in), {}), whole);
  EXPECT_THAT(start(model(), folder_).notes, IsEmpty());
}

void flip(std::string& bytes, std::size_t at) {
  bytes[at] = static_cast<char>(bytes[at] ^ 0x20);
}

INSTANTIATE_TEST_SUITE_P(
    All,
    HarmedCacheTest,
    ::testing::Values(
        Harm{"Empty", [](std::string& bytes) { bytes.clear(); }},
        Harm{"OnlyAHead", [](std::string& bytes) { bytes.resize(72); }},
        Harm{"HalfAHead", [](std::string& bytes) { bytes.resize(30); }},
        Harm{"CutShort", [](std::string& bytes) { bytes.resize(bytes.size() - 4096); }},
        Harm{"GrownLonger", [](std::string& bytes) { bytes += std::string(4096, '\0'); }},
        Harm{"OtherMagic", [](std::string& bytes) { flip(bytes, 0); }},
        Harm{"OtherVersion", [](std::string& bytes) { flip(bytes, 8); }},
        Harm{"MoreEntries", [](std::string& bytes) { flip(bytes, 12); }},
        Harm{"VeryManyEntries", [](std::string& bytes) { bytes.replace(12, 4, 4, '\xff'); }},
        Harm{"OtherModel", [](std::string& bytes) { flip(bytes, 16); }},
        Harm{"OtherLayout", [](std::string& bytes) { flip(bytes, 24); }},
        Harm{"OtherSize", [](std::string& bytes) { flip(bytes, 60); }},
        Harm{"EntryElsewhere", [](std::string& bytes) { flip(bytes, 72 + 24 + 6); }},
        Harm{"FirstWeightDiffers",
             [](std::string& bytes) {
               std::uint64_t offset = 0;
               std::memcpy(&offset, bytes.data() + 72 + 24, sizeof(offset));
               flip(bytes, offset);
             }}),
    [](const auto& info) { return info.param.name; });

class PackedFileTest : public PackedCacheTest {
 protected:
  const PackedKey key_{7, "test"};
  std::vector<std::byte> source_ = std::vector<std::byte>(64 * 512 * 4, std::byte{3});
  const kernels::WeightView weight_{DType::F32, 64, 512, source_};
  std::shared_ptr<const std::byte> packed_{source_.data(), [](const std::byte*) {}};

  PackedRecord record() const {
    PackedRecord out;
    out.add(weight_, packed_, source_.size());
    out.add(weight_, packed_, source_.size());
    return out;
  }
};

TEST_F(PackedFileTest, AFullDiskIsAnError) {
  const Status status = record().write("/dev/full", key_);
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message, HasSubstr("/dev/full"));
}

TEST_F(PackedFileTest, VerifyReadsEveryByte) {
  const std::string path = (root_ / "x.bin").string();
  ASSERT_TRUE(record().write(path, key_));
  EXPECT_TRUE((*PackedFile::open(path, key_))->verify());
  {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(72 + 2 * 64 + 30'000);  // between the first weight's samples
    file.put('x');
  }
  const auto opened = PackedFile::open(path, key_);
  ASSERT_TRUE(opened) << opened.error().message;
  EXPECT_FALSE((*opened)->verify());
}

TEST_F(PackedFileTest, FitsOnlyTheSameWeightsInTheSameOrder) {
  const std::string path = (root_ / "x.bin").string();
  ASSERT_TRUE(record().write(path, key_));
  const std::size_t size = source_.size();
  const auto open = [&] { return std::move(*PackedFile::open(path, key_)); };
  const auto whole = open();
  EXPECT_NE(whole->find(weight_, size), nullptr);
  EXPECT_FALSE(whole->fits()) << "one was not asked for";
  EXPECT_NE(whole->find(weight_, size), nullptr);
  EXPECT_TRUE(whole->fits());
  EXPECT_EQ(whole->find(weight_, size), nullptr) << "there are two";
  EXPECT_FALSE(whole->fits());

  auto other = source_;
  other.back() = std::byte{4};
  EXPECT_EQ(open()->find({DType::F32, 64, 512, other}, size), nullptr);
  EXPECT_EQ(open()->find({DType::F32, 512, 64, source_}, size), nullptr);
  EXPECT_EQ(open()->find(weight_, size - 64), nullptr);
  EXPECT_FALSE(PackedFile::open(path, {8, "test"}));
  EXPECT_FALSE(PackedFile::open(path, {7, "test2"}));
}

}  // namespace
}  // namespace baton::engine
