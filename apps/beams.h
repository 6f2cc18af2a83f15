/* apps/beams.h - beam search for the commands that write or score texts. */
#ifndef GW_APPS_BEAMS_H
#define GW_APPS_BEAMS_H

#include "apps/common.h"

/* Was beam search asked for, with nothing that it cannot do? *on; exit code. */
int beams_check(const app_options *o, int *on);
/* `godwit run`: the best text behind the prompt is written, then the summary. Exit code. */
int beams_run(const app_options *o, gw_model *model, int32_t n_ctx, const gw_beam_input *input);
/* `godwit logits`: "beam: SCORE ID,..." for each text, best first. Exit code. */
int beams_list(const app_options *o, gw_model *model, int32_t n_ctx, const gw_beam_input *input);

#endif
