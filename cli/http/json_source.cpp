// Boost.JSON is header-only here: this file alone compiles its source.
#include <boost/json/src.hpp>
