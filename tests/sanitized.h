/* tests/sanitized.h - is this a build with AddressSanitizer? Then memory is what is looked at, and
 * a loop that repeats one path for statistics, or for bits that the release build compares, is
 * shorter: each path still runs.
 */
#ifndef GW_TESTS_SANITIZED_H
#define GW_TESTS_SANITIZED_H

#if defined(__SANITIZE_ADDRESS__)
#define TEST_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define TEST_SANITIZED 1
#endif
#endif
#ifndef TEST_SANITIZED
#define TEST_SANITIZED 0
#endif
/* The processor is emulated, wholly or its vector instructions: what the release build compares
 * number by number is compared here and there. */
#if defined(GODWIT_SIMDE) || defined(GODWIT_EMULATED)
#define TEST_EMULATED 1
#else
#define TEST_EMULATED 0
#endif

#endif
