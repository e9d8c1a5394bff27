#include "cli/table.h"

#include <fmt/format.h>

#include <algorithm>

namespace baton::cli {

std::string cell(const boost::json::object& fields, const char* key) {
  const boost::json::value* value = fields.if_contains(key);
  if (value == nullptr || value->is_null()) {
    return "-";
  }
  if (value->is_string()) {
    return std::string(value->as_string());
  }
  return boost::json::serialize(*value);
}

double number(const boost::json::object& fields, const char* key) {
  const boost::json::value* value = fields.if_contains(key);
  return value != nullptr && value->is_number() ? value->to_number<double>() : 0;
}

std::vector<const boost::json::object*> objects_of(const boost::json::object& fields,
                                                   const char* key) {
  std::vector<const boost::json::object*> out;
  if (const boost::json::value* list = fields.if_contains(key);
      list != nullptr && list->is_array()) {
    for (const boost::json::value& entry : list->as_array()) {
      if (const boost::json::object* object = entry.if_object()) {
        out.push_back(object);
      }
    }
  }
  return out;
}

void print_columns(const std::vector<Row>& rows) {
  std::vector<std::size_t> widths(rows.front().size(), 0);
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], row[i].size());
    }
  }
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      fmt::print("{:<{}}", row[i], i + 1 < row.size() ? widths[i] + 2 : 0);
    }
    fmt::print("\n");
  }
}

}  // namespace baton::cli
