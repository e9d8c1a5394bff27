// A library that is no plug-in at all.
extern "C" int baton_unrelated() {
  return 1;
}
