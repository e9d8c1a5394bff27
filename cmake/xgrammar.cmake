# Finds xgrammar (structured output), which tools/libraries/xgrammar builds into the cache folder: no
# Debian package has it. Any compiler links what g++ has built.
set(baton_cache "$ENV{BATON_CACHE}")
if(NOT baton_cache)
  set(baton_cache "$ENV{HOME}/.cache/baton")
endif()
execute_process(COMMAND g++ -dumpversion OUTPUT_VARIABLE gcc_version OUTPUT_STRIP_TRAILING_WHITESPACE)
set(BATON_XGRAMMAR "${baton_cache}/libraries/xgrammar-0.2.9-gcc${gcc_version}")
if(NOT EXISTS "${BATON_XGRAMMAR}/lib/libxgrammar.a")
  message(FATAL_ERROR "xgrammar is not at ${BATON_XGRAMMAR}. Run tools/setup: it fetches and builds it once, in about 3 minutes.")
endif()
add_library(xgrammar::xgrammar STATIC IMPORTED)
set_target_properties(xgrammar::xgrammar PROPERTIES
  IMPORTED_LOCATION "${BATON_XGRAMMAR}/lib/libxgrammar.a"
  INTERFACE_INCLUDE_DIRECTORIES "${BATON_XGRAMMAR}/include"
  INTERFACE_LINK_LIBRARIES "baton_grammar_messages;Threads::Threads")  # it calls engine/grammar/messages.cpp
