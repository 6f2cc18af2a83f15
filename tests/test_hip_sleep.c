/* tests/test_hip_sleep.c - models that sleep, on the emulator at both wave widths or on the card of
 * this machine; with main memory or a card that has no room. */
#include "tests/sleep_cases.h"

#include "backends/hip/hip.h"
#include "core/engine/run/model_state.h"
#include "tests/hip_drivers.h"

static void on_the_card(void **state) {
    (void)state;
    sc_check("hip", NULL, 1);
}

static void part_of_it(void **state) {
    (void)state;
    sc_check("hip", "2", 1);
}

static struct gw_device *card_of(const gw_model *m) {
    return m->place.devices[m->place.n_devices - 1].device;
}

/* Allocation k fails: pinned memory, for which plain memory stands in; the card's when it is to
 * wake, which then sleeps on; later it wakes, with the same bits. */
static void without_room(void **state) {
    static float before[2 * SC_VOCAB], after[2 * SC_VOCAB];
    gw_sleep_info info;
    gw_model *m = sc_open("hip", "all");
    struct gw_device *card = card_of(m);
    size_t n = sc_logits(m, before), awake = card->reserved;
    (void)state;
    card->fail_alloc = 2;
    nc_ok(gw_model_sleep(m));
    assert_int_equal(card->fail_alloc, 0);
    assert_true(card->reserved < awake);
    for (int k = 1; k < 8; k += 3) {
        card->fail_alloc = k;
        assert_int_equal(gw_model_wake(m), GW_E_NOMEM);
        gw_model_sleep_info(m, &info);
        assert_true(info.asleep);
    }
    card->fail_alloc = 0;
    nc_ok(gw_model_wake(m));
    assert_int_equal(sc_logits(m, after), n);
    assert_memory_equal(before, after, n * sizeof *before);
    gw_model_free(m);
}

static int run_all(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(on_the_card),
        cmocka_unit_test(part_of_it),
        cmocka_unit_test(without_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void) {
    return hip_on_drivers(run_all, GODWIT_EMULATORS "libgodwit_emu32.so",
                          GODWIT_EMULATORS "libgodwit_emu64.so");
}
