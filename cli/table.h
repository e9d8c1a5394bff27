// Answers of a gateway as text: cells of JSON objects, rows as a table.
//
// Thread: pure functions; printing is main's. Failure: what is missing shows as "-" or 0.
#pragma once

#include <boost/json.hpp>
#include <string>
#include <vector>

namespace baton::cli {

using Row = std::vector<std::string>;

std::string cell(const boost::json::object& fields, const char* key);
double number(const boost::json::object& fields, const char* key);
// Those of the list under `key`; none where there is no list.
std::vector<const boost::json::object*> objects_of(const boost::json::object& fields,
                                                   const char* key);
// Each column as wide as its widest cell. REQUIRES: a first row, none longer than it.
void print_columns(const std::vector<Row>& rows);

}  // namespace baton::cli
