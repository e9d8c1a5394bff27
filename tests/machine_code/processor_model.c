/* Preloaded under simulate.py. bochscpu's simulated processor is an older one without VNNI, and
   nothing in its interface changes that; but it makes its model through a symbol that can be
   replaced, here by its Sapphire Rapids. And it was linked to a newer C library than Debian 12 has,
   for number parsing. */
#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* The extension module is loaded privately, so it is asked by its path. */
void* _Z23create_corei3_cnl_cpuidP8BX_CPU_C(void* processor) {
  void* module = dlopen(getenv("BOCHSCPU_MODULE"), RTLD_NOLOAD | RTLD_LAZY);
  void* (*create)(void*) =
      module == NULL
          ? NULL
          : (void* (*)(void*))dlsym(module, "_Z28create_sapphire_rapids_cpuidP8BX_CPU_C");
  if (create == NULL) {
    fprintf(stderr, "bochscpu has no Sapphire Rapids\n");
    abort();
  }
  return create(processor);
}

unsigned long long __isoc23_strtoull(const char* text, char** end, int base) {
  return strtoull(text, end, base);
}
int __isoc23_sscanf(const char* text, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const int count = vsscanf(text, format, arguments);
  va_end(arguments);
  return count;
}
