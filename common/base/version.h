// The version of Baton that a program was built from.
//
// Thread: any. Failure: none.
#pragma once

namespace baton {

// As "0.1.0".
const char* version();

}  // namespace baton
