// UCX's own messages. By itself UCX writes them to standard output, where they would mix with
// figures and answers; here they go to standard error, one line each, without the warnings about
// settings that Baton ships and this UCX has no use for. Those that an operator or the
// configuration has misspelt are still named.
//
// Thread: any. Failure: none.
#pragma once

#include <string>

namespace baton::transfer {

// Once a process; UCX has one log for all its contexts.
void redirect_ucx_log();
// Drops the shipped names from UCX's warning about unused settings; empty when none is left. Other
// messages come back as they are.
std::string filter_unused_settings(const std::string& message);

}  // namespace baton::transfer
