// The model catalogue: the real file reads, broken ones say where.
#include "common/config/catalogue.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

constexpr const char* kGood = R"(models:
  small:
    file: small.gguf
    bytes: 10
    sha256: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa
    licence: MIT
    note: tiny
    parts:
      - {package: p, version: 1.0, member: p/small.gguf}
)";

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  text.replace(text.find(from), from.size(), to);
  return text;
}

TEST(Catalogue, TheTreesOwn) {
  const auto models = load_catalogue("configs/models.yaml");
  ASSERT_TRUE(models) << models.error().message;
  const auto model = find_model(*models, "smollm2-135m-instruct");
  ASSERT_TRUE(model);
  EXPECT_EQ(model->bytes, 98'362'432U);
  EXPECT_EQ(model->parts.size(), 1U);
  const auto unknown = find_model(*models, "gpt-5");
  ASSERT_FALSE(unknown);
  EXPECT_NE(unknown.error().message.find("smollm2-135m-instruct"), std::string::npos);
}

TEST(Catalogue, ErrorsNameThePlace) {
  ASSERT_TRUE(parse_catalogue(kGood, "m.yaml"));
  const struct {
    const char* from;
    const char* to;
    const char* message;
  } cases[] = {
      {"bytes: 10", "bytes: ten", "m.yaml:3: model small: `bytes` must be a whole number"},
      {"sha256: aa", "sha256: ZZ", "m.yaml:5: sha256 must be 64"},
      {"licence: MIT", "license: MIT", "model small needs a text `licence`"},
      {"note: tiny", "note: tiny\n    colour: red", "unknown key `colour`"},
      {"file: small.gguf", "file: ../small.gguf", "m.yaml:3: file must be a plain file name"},
      {"package: p", "package: --evil", "m.yaml:9: package, version and member must be plain"},
      {"member: p/small.gguf", "member: /etc/passwd", "must be plain names"},
      {"models:", "modells:", "m.yaml:1: needs a mapping `models`"},
      {"bytes: 10", "bytes: [", "m.yaml:"},
  };
  for (const auto& broken : cases) {
    const auto models = parse_catalogue(replaced(kGood, broken.from, broken.to), "m.yaml");
    ASSERT_FALSE(models) << broken.to;
    EXPECT_NE(models.error().message.find(broken.message), std::string::npos)
        << models.error().message;
  }
}

TEST(Catalogue, ModelThatIsNotThereNamesThePull) {
  CataloguePlaces places;
  places.cache = "/nonexistent";
  places.catalogue = "configs/models.yaml";
  ModelSection model;
  const auto path = resolve_model_path(model, places);
  ASSERT_FALSE(path);
  EXPECT_NE(path.error().message.find("baton pull smollm2-135m-instruct"), std::string::npos);
  model.path = "configs/models.yaml";
  EXPECT_EQ(resolve_model_path(model, places).value_or(""), "configs/models.yaml");
}

}  // namespace
}  // namespace baton
