// The dashboard's page: one HTML text with its style and script inside, made of page.html, page.css
// and page.js when Baton is built. It asks `dashboard/data` and `metrics` of the same port.
//
// Thread: any. Failure: none.
#pragma once

#include <string_view>

namespace baton::gateway {

std::string_view dashboard_page();

}  // namespace baton::gateway
