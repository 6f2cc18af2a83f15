/* core/engine/placing/place_modes.c - --split-mode auto: which devices compute a layer together, by
 * a forecast of each way. Takes no part in how layers are spread. */
#include <stdio.h>
#include <string.h>

#include "core/engine/placing/gauge.h"

double gw_place_token_seconds(const gw_place *place, const gw_place_sizes *sizes,
                              const gw_gauge *gauges, gw_where *room) {
    gw_place trial = *place;
    if (trial.hosting == GW_HOST_AUTO) { /* that is for where all layers fit in no way */
        trial.hosting = GW_HOST_NONE;
    }
    gw_place_use use[GW_MAX_DEVICES];
    double prompt = 0.0, token = 0.0;
    int fits = 0;
    for (int home = place->grouped; home < 2 && !fits; home++) {
        trial.tables_home = home; /* of n-grams: in main memory, if that is what it takes */
        gw_place_spread(&trial, sizes, trial.n_layers, room);
        fits = gw_place_fits(&trial, sizes, room, use, NULL);
    }
    if (!fits) {
        return -1.0;
    }
    gw_gauge_predict(&trial, sizes, gauges, room, &prompt, &token);
    return token;
}

int gw_place_fastest(const double *seconds, int n) {
    int best = -1;
    for (int i = 0; i < n; i++) {
        best = seconds[i] >= 0.0 && (best < 0 || seconds[i] < seconds[best]) ? i : best;
    }
    return best;
}

/* Of one way; -1: all layers do not fit, or are of a kind that cards do not share. */
static gw_status weigh(gw_place *place, const gw_place_sizes *sizes, const gw_arrangement *way,
                       gw_gauge *gauges, gw_where *room, double *seconds) {
    GW_TRY(gw_place_arrange(place, way));
    gw_status status = gw_gauge_groups(place, sizes, gauges);
    *seconds = status == GW_OK ? gw_place_token_seconds(place, sizes, gauges, room) : -1.0;
    return status == GW_E_UNSUPPORTED && place->grouped ? GW_OK : status;
}

/* "tokens/s by the forecast: tensor 31.5, layer 20.2, hybrid 0,1;2,3 40.1 (taken)" */
static void note_choice(gw_place *place, const gw_arrangement *ways, const double *seconds, int n,
                        int best) {
    char text[384] = "";
    for (int i = 0; i < n; i++) {
        size_t used = strlen(text);
        char speed[32] = "does not fit";
        if (seconds[i] > 0.0) {
            snprintf(speed, sizeof speed, "%.3g", 1.0 / seconds[i]);
        }
        snprintf(text + used, sizeof text - used, "%s%s %s%s", used > 0 ? ", " : "", ways[i].name,
                 speed, i == best ? " (taken)" : "");
    }
    char note[sizeof text + 40];
    snprintf(note, sizeof note, "tokens/s by the forecast: %s", text);
    gw_place_add_note(place, note);
}

gw_status gw_place_choose(gw_place *place, const gw_place_sizes *sizes, gw_where *room) {
    gw_arrangement ways[GW_ARRANGEMENTS];
    gw_gauge gauges[GW_GAUGES];
    double seconds[GW_ARRANGEMENTS];
    int n = gw_place_arrangements(place, ways), alone = 0;
    GW_TRY(gw_gauge_devices(place, sizes, gauges));
    for (int i = 0; i < n; i++) {
        GW_TRY(weigh(place, sizes, &ways[i], gauges, room, &seconds[i]));
        alone = place->grouped ? alone : i;
    }
    int best = gw_place_fastest(seconds, n);
    note_choice(place, ways, seconds, n, best);
    return gw_place_arrange(place, &ways[best >= 0 ? best : alone]);
}
