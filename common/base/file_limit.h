// Open files: a process that holds many connections asks for as many as the system lets it have,
// and keeps the numbers of the standard ones.
//
// Thread: any, best at the start of main. Failure: none; what was stays.
#pragma once

namespace baton {

// Raises the soft limit of this process, and of those it starts, to the hard one.
void raise_file_limit();
// Opens /dev/null for standard files that are closed: no connection is to take their numbers, or
// it would get what is meant for people.
void keep_standard_files();

}  // namespace baton
