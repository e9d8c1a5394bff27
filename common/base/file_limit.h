// Open files: a process that holds many connections asks for as many as the system lets it have.
//
// Thread: any, best at the start of main. Failure: none; the limit then stays what it was.
#pragma once

namespace baton {

// Raises the soft limit of this process, and of those it starts, to the hard one.
void raise_file_limit();

}  // namespace baton
