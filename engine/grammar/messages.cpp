#include "engine/grammar/messages.h"

#include <stdexcept>

#include "common/base/check.h"

namespace baton::engine {
namespace {

thread_local WarningWatch* watch = nullptr;

}  // namespace

WarningWatch::WarningWatch() {
  BATON_CHECK(watch == nullptr, "one watch a thread");
  watch = this;
}

WarningWatch::~WarningWatch() {
  watch = nullptr;
}

void note_warning(const std::string& message) {
  if (watch != nullptr && watch->first_.empty()) {
    watch->first_ = message;
  }
}

}  // namespace baton::engine

// What the library calls; its headers for this are internal.
namespace xgrammar {

constexpr int kWarning = 2;

[[noreturn]] void LogFatalImpl(const std::string& file, int line, const std::string& message);
void LogMessageImpl(const std::string& file, int line, int level, const std::string& message);

void LogFatalImpl(const std::string& /*file*/, int /*line*/, const std::string& message) {
  throw std::runtime_error(message);
}

void LogMessageImpl(const std::string& /*file*/,
                    int /*line*/,
                    int level,
                    const std::string& message) {
  if (level >= kWarning) {
    baton::engine::note_warning(message);
  }
}

}  // namespace xgrammar
