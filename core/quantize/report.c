/* core/quantize/report.c - --report: what every tensor became, as JSON. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/save.h"
#include "core/quantize/make.h"

static json_t *tensor_of(const gw_item *it) {
    json_t *o = json_pack("{s:s,s:s,s:s,s:I,s:b,s:b}", "name", it->t->name, "from",
                          gw_format_of(it->t->fmt)->name, "type", gw_format_of(it->to)->name,
                          "bytes", (json_int_t)it->bytes, "importance", it->importance != NULL,
                          "feedback", it->by_feedback > 0);
    if (it->size > 0.0) {
        json_object_set_new(o, "relative_error", json_real(sqrt(it->error / it->size)));
    }
    if (it->wanted != it->to) {
        json_object_set_new(o, "instead_of", json_string(gw_format_of(it->wanted)->name));
    }
    if (it->kept != NULL) {
        json_object_set_new(o, "kept", json_string(it->kept));
    }
    return o;
}

gw_status gw_write_report(const gw_making *m, double seconds) {
    json_t *list = json_array();
    double weights = 0.0, bytes = 0.0;
    for (size_t i = 0; i < m->source.n; i++) {
        json_array_append_new(list, tensor_of(&m->list[i]));
        weights += (double)(m->list[i].t->rows * m->list[i].t->cols);
        bytes += (double)m->list[i].bytes;
    }
    json_t *root = json_pack("{s:s,s:s,s:f,s:f,s:f,s:o}", "type", m->mixture.name, "out", m->o->out,
                             "bits_per_weight", 8.0 * bytes / weights, "bytes", bytes, "seconds",
                             seconds, "tensors", list);
    char *text = root != NULL ? json_dumps(root, JSON_INDENT(1) | JSON_REAL_PRECISION(9)) : NULL;
    gw_save save;
    gw_status status = text != NULL ? gw_save_begin(&save, m->o->report, 0666, 0)
                                    : gw_fail(GW_E_NOMEM, m->o->report, "no memory for the report");
    if (status == GW_OK) {
        status = gw_save_write(&save, text, strlen(text));
        status = status == GW_OK ? gw_save_write(&save, "\n", 1) : status;
        if (status == GW_OK) {
            status = gw_save_end(&save);
        } else {
            gw_save_drop(&save);
        }
    }
    free(text);
    json_decref(root);
    return status;
}
