# cmake -D SOURCE=folder -D OUTPUT=page.cpp -P embed.cmake: the page with its style and script inside, as C++.
file(READ "${SOURCE}/page.html" page)
foreach(part IN ITEMS page.css page.js)
  file(READ "${SOURCE}/${part}" text)
  string(REPLACE "@${part}@" "${text}" page "${page}")
endforeach()
file(WRITE "${OUTPUT}" "// Made by embed.cmake.
#include \"gateway/dashboard/page.h\"
namespace baton::gateway {
std::string_view dashboard_page() {
  return R\"BATON_PAGE(${page})BATON_PAGE\";
}
}  // namespace baton::gateway
")
