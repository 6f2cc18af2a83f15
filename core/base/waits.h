/* core/base/waits.h - which calls of drivers are under way: they look at no flag, and one of a
 * broken driver never returns. A program that was told to end asks here whether it waits for such a
 * call alone, from a signal handler as well.
 */
#ifndef GW_BASE_WAITS_H
#define GW_BASE_WAITS_H

/* What a call returns that waits for a device, or compiles for one: an int, on any thread. */
#define GW_WAITED(call) gw_wait_end((gw_wait_begin(), (int)(call)))
void gw_wait_begin(void);
int gw_wait_end(int result);

/* A call is under way, and since the last question with the same `seen`, which is updated, none has
 * ended. Safe in signal handlers. */
int gw_wait_stands_still(unsigned *seen);

#endif
