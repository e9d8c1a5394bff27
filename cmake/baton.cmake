# Build rules of Baton: baton_library, baton_program and baton_test, the only ways a target is made,
# so that every target has the same language level, warnings and sanitizers.

set(CMAKE_CXX_STANDARD 23)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(BATON_SANITIZE "" CACHE STRING "Sanitizers to build with: address,undefined or thread")
option(BATON_TORTURE "Poison freed blocks and shrink queues to find misuse" OFF)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
find_program(BATON_CCACHE ccache)
if(BATON_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${BATON_CCACHE})
endif()

find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
find_package(Protobuf REQUIRED)
find_package(Boost 1.81 REQUIRED)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(yaml-cpp REQUIRED)
find_package(OpenSSL REQUIRED)
find_package(GTest REQUIRED)
find_package(CLI11 REQUIRED)
find_package(simdjson REQUIRED)
find_package(prometheus-cpp REQUIRED)
pkg_check_modules(UCX REQUIRED IMPORTED_TARGET ucx)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(UTF8PROC REQUIRED IMPORTED_TARGET libutf8proc)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)
pkg_check_modules(HTTPLIB REQUIRED IMPORTED_TARGET cpp-httplib)
include(cmake/xgrammar.cmake)

add_library(baton_flags INTERFACE)
target_include_directories(baton_flags INTERFACE ${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR})
# Floating-point contraction stays off: a kernel says `fma` where it means it, on every instruction set.
target_compile_options(baton_flags INTERFACE
  -Wall -Wextra $<$<CXX_COMPILER_ID:GNU>:-Werror> -Wnon-virtual-dtor -Woverloaded-virtual -Wno-missing-field-initializers
  -ffp-contract=off -fno-omit-frame-pointer)
if(CMAKE_UNITY_BUILD)
  # GCC takes the sources that an object is made of for headers: their anonymous types seem shared.
  target_compile_options(baton_flags INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
endif()
if(BATON_SANITIZE)
  target_compile_options(baton_flags INTERFACE -fsanitize=${BATON_SANITIZE} -fno-sanitize-recover=all
    $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  target_link_options(baton_flags INTERFACE -fsanitize=${BATON_SANITIZE})
  if(BATON_SANITIZE STREQUAL "thread")
    # Asio has stand-alone fences, which this sanitizer does not see; what they order, mutexes do too.
    target_compile_options(baton_flags INTERFACE -Wno-tsan)
  endif()
endif()
if(BATON_TORTURE)
  target_compile_definitions(baton_flags INTERFACE BATON_TORTURE=1)
endif()

# baton_library(name SRCS a.cpp ... DEPS baton::x ...): a target baton_<name> with the alias baton::<name>.
function(baton_library name)
  cmake_parse_arguments(arg "" "" "SRCS;DEPS" ${ARGN})
  if(arg_SRCS)
    add_library(baton_${name} STATIC ${arg_SRCS})
    target_link_libraries(baton_${name} PUBLIC baton_flags ${arg_DEPS})
  else()
    add_library(baton_${name} INTERFACE)
    target_link_libraries(baton_${name} INTERFACE baton_flags ${arg_DEPS})
  endif()
  add_library(baton::${name} ALIAS baton_${name})
endfunction()

# baton_program(name SRCS main.cpp DEPS ...): an executable in build/<preset>/bin.
function(baton_program name)
  cmake_parse_arguments(arg "" "" "SRCS;DEPS" ${ARGN})
  add_executable(${name} ${arg_SRCS})
  target_link_libraries(${name} PRIVATE baton_flags ${arg_DEPS})
endfunction()

# Sources that compute little: optimised less in a release, as they take a third less time to compile.
# What they link is optimised as ever.
function(baton_compile_quickly name)
  target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O1>)
endfunction()

# baton_test(name [COMPUTES] SRCS ... DEPS ... [LABELS ...] [TIMEOUT s]): a GoogleTest program; ctest runs
# it whole. COMPUTES: its own sources are worth optimising.
function(baton_test name)
  cmake_parse_arguments(arg "COMPUTES" "TIMEOUT" "SRCS;DEPS;LABELS" ${ARGN})
  add_executable(${name} ${arg_SRCS})
  target_link_libraries(${name} PRIVATE baton_flags GTest::gtest GTest::gmock GTest::gtest_main ${arg_DEPS})
  if(NOT arg_COMPUTES)
    baton_compile_quickly(${name})
  endif()
  add_test(NAME ${name} COMMAND ${name} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300)
  endif()
  set_tests_properties(${name} PROPERTIES TIMEOUT ${arg_TIMEOUT} LABELS "${arg_LABELS}")
endfunction()

enable_testing()
