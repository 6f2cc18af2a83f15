/* core/engine/run/pair_form.h - how a reranker made of a causal language model is given a query
 * and a document: as a conversation of these two roles, by its own template (LogitScore of
 * sentence-transformers; core/model/sentence.h).
 */
#ifndef GW_ENGINE_PAIR_FORM_H
#define GW_ENGINE_PAIR_FORM_H

#include "core/engine/run/model.h"

typedef struct gw_pair_form gw_pair_form;

/* *out NULL: pairs of this model are its tokenizer's matter. What is wrong with its template is
 * said by gw_pair_form_write: the model may be of use without. model must outlive *out. */
gw_status gw_pair_form_open(const gw_model *model, gw_pair_form **out);
void gw_pair_form_free(gw_pair_form *p); /* accepts NULL */

/* Any thread. *ids malloc'd [*n]. */
gw_status gw_pair_form_write(const gw_pair_form *p, const char *query, size_t query_bytes,
                         const char *document, size_t document_bytes, int32_t **ids, size_t *n);

#endif
