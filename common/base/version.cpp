#include "common/base/version.h"

namespace baton {

const char* version() {
  return BATON_VERSION;
}

}  // namespace baton
