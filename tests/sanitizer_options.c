/* tests/sanitizer_options.c - a program with UndefinedBehaviorSanitizer ends at its first finding,
 * also where the check could go on: those of cpu/ are compiled so, because clang compiles them
 * several times faster (CMakeLists.txt). In every program of such a build; UBSAN_OPTIONS comes
 * after it.
 */
const char *__ubsan_default_options(void);

const char *__ubsan_default_options(void) { return "halt_on_error=1:print_stacktrace=1"; }
