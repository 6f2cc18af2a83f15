/* apps/option_table.c - THE option table: one row per option and meaning.
 *
 * A name may occur twice when no command sees both rows. Spellings of llama.cpp come first where
 * they exist. */
#include "apps/options.h"

#define AT(field) offsetof(app_options, field)
#define INT_MAX_D 2147483647.0

const app_option app_option_table[] = {
    {"-m --model", KIND_TEXT, CMD_ALL & ~(CMD_BENCH | CMD_DEVICES), AT(model), 0, 0, "PATH", NULL,
     "model: a .gguf file or a Hugging Face folder; the built-in one if not given"},
    {"-m --model", KIND_TEXTS, CMD_BENCH, AT(models), 0, 0, "PATH", NULL,
     "model: a .gguf file or a Hugging Face folder; several with several -m"},
    {"--weights", KIND_CHOICE, CMD_MODEL, AT(weights), 0, 0,
     "int8|int4-g32|int4-g64|int4-g128|int4-g256", NULL,
     "requantize float weights while they load"},
    {"-dev --device", KIND_TEXT, CMD_MODEL, AT(device), 0, 0, "NAME", "cpu",
     "where to compute; 'godwit devices' lists the names"},
    {"-t --threads", KIND_INT, CMD_ALL & ~(CMD_BENCH | CMD_TOKENIZE), AT(threads), 1, 1024, "N",
     NULL, "threads; default: the physical cores this process may use"},
    {"-t --threads", KIND_INTS, CMD_BENCH, AT(thread_list), 1, 1024, "N,...", NULL,
     "threads; default: the physical cores this process may use"},
    {"--blas", KIND_FLAG, CMD_MODEL, AT(blas), 0, 0, NULL, NULL,
     "prompts through OpenBLAS when the weights are floats (another order of sums)"},

    {"-c --ctx-size", KIND_INT, CMD_RUN, AT(n_ctx), -1, INT_MAX_D, "N", "-1",
     "context in tokens; 0: what the model was trained for; -1: that, but at most 4096"},
    {"-c --ctx-size", KIND_INT, CMD_PERPLEXITY, AT(n_ctx), 8, INT_MAX_D, "N", "512",
     "tokens of a window"},
    {"-c --ctx-size", KIND_INT, CMD_LOGITS, AT(n_ctx), 0, INT_MAX_D, "N", "0",
     "context in tokens; 0: as many as are needed"},
    {"-b -ub --batch-size --ubatch-size", KIND_INT, CMD_RUN | CMD_PERPLEXITY | CMD_LOGITS,
     AT(batch), 1, GW_CHUNK_MAX, "N", "512", "prompt tokens per pass"},
    {"-b -ub --batch-size --ubatch-size", KIND_INTS, CMD_BENCH, AT(batch_list), 1, GW_CHUNK_MAX,
     "N,...", "512", "prompt tokens per pass"},
    {"--kv-type -ctk -ctv --cache-type-k --cache-type-v", KIND_CHOICE, CMD_MODEL, AT(kv_type), 0, 0,
     "f16|f32", "f16", "format of the KV cache"},

    {"-p --prompt", KIND_TEXT, CMD_RUN | CMD_LOGITS | CMD_TOKENIZE, AT(prompt), 0, 0, "TEXT", NULL,
     "the text; bytes that are not UTF-8 become byte tokens"},
    {"-f --file", KIND_TEXT, CMD_RUN | CMD_PERPLEXITY | CMD_LOGITS | CMD_TOKENIZE, AT(file), 0, 0,
     "FILE", NULL, "read the text from a file; '-' is standard input"},
    {"--ids", KIND_INTS, CMD_LOGITS, AT(ids), 0, INT_MAX_D, "ID,...", NULL,
     "the tokens, instead of a text"},
    {"--special", KIND_FLAG, CMD_RUN | CMD_LOGITS | CMD_TOKENIZE, AT(special), 0, 0, NULL, NULL,
     "spellings of special tokens in the text become these tokens, and are shown in output"},
    {"--no-bos", KIND_FLAG, CMD_LOGITS | CMD_TOKENIZE, AT(no_bos), 0, 0, NULL, NULL,
     "do not put the model's start token first"},

    {"-n --predict --n-predict", KIND_INT, CMD_RUN, AT(n_predict), -1, INT_MAX_D, "N", "-1",
     "tokens to generate; -1: until the text ends or the context is full"},
    {"-s --seed", KIND_SEED, CMD_RUN, AT(seed), 0, 0, "S", "-1",
     "seed of the random draws; -1: a new one, shown in the summary"},
    {"--temp --temperature", KIND_REAL, CMD_RUN, AT(temperature), 0, 1000, "T", "0.8",
     "temperature; 0: always the most probable token"},
    {"--top-k", KIND_INT, CMD_RUN, AT(top_k), 0, INT_MAX_D, "K", "40",
     "only the K most probable tokens; 0: off"},
    {"--top-p", KIND_REAL, CMD_RUN, AT(top_p), 0, 1, "P", "0.95",
     "only the most probable tokens whose probabilities reach P; 1: off"},
    {"--min-p", KIND_REAL, CMD_RUN, AT(min_p), 0, 1, "P", "0.05",
     "only tokens with P times the probability of the best; 0: off"},
    {"--typical --typical-p", KIND_REAL, CMD_RUN, AT(typical), 0, 1, "P", "1",
     "locally typical sampling; 1: off"},
    {"--repeat-penalty", KIND_REAL, CMD_RUN, AT(repeat_penalty), 0.001, 1000, "X", "1",
     "divide the scores of recent tokens; 1: off"},
    {"--repeat-last-n", KIND_INT, CMD_RUN, AT(repeat_last_n), -1, 16777216, "N", "64",
     "how many tokens back are recent; -1: all, 0: none"},
    {"--presence-penalty", KIND_REAL, CMD_RUN, AT(presence_penalty), -1000, 1000, "X", "0",
     "subtract from the scores of recent tokens; 0: off"},
    {"--frequency-penalty", KIND_REAL, CMD_RUN, AT(frequency_penalty), -1000, 1000, "X", "0",
     "subtract for every occurrence of a recent token; 0: off"},
    {"-l --logit-bias", KIND_BIAS, CMD_RUN, AT(bias), 0, INT_MAX_D, "ID=X", NULL,
     "add X to the score of a token, -inf forbids it; may be given several times"},
    {"--samplers", KIND_TEXT, CMD_RUN, AT(samplers), 0, 0, "LIST",
     "penalties;bias;top-k;typical;top-p;min-p;temperature",
     "the stages in the order they run; what is left out is off"},
    {"-md --draft --model-draft", KIND_TEXT, CMD_RUN | CMD_BENCH, AT(draft), 0, 0,
     "MODEL|ngram|auto", NULL,
     "draft tokens and verify several per pass; the text stays the same. A model of the same "
     "vocabulary; 'ngram': what followed the longest earlier copy of the text's end; 'auto': that, "
     "and the largest model beside the target with at most a sixth of its bytes"},
    {"--draft-device", KIND_TEXT, CMD_RUN | CMD_BENCH, AT(draft_device), 0, 0, "NAME", NULL,
     "where the draft model computes; default: where the target does"},
    {"--draft-length", KIND_TEXT, CMD_RUN | CMD_BENCH, AT(draft_length), 0, 0,
     "cost|heuristic|fixed:K", "cost",
     "tokens drafted per pass: what measured times and acceptances say is fastest, none if nothing "
     "is; 5, then 2 more when all are accepted, else 1 fewer; or always K, 1 to 15"},
    {"--draft-accept", KIND_CHOICE, CMD_RUN | CMD_BENCH, AT(draft_accept), 0, 0,
     "exact|rejection|pool", "exact",
     "exact: the text is the same as without drafts; rejection: another text of the same "
     "distribution, which also depends on the draft lengths; pool: any draft that passes the "
     "filters is taken, which CHANGES the distribution"},
    {"--draft-file", KIND_TEXT, CMD_RUN | CMD_BENCH, AT(draft_file), 0, 0, "FILE", NULL,
     "text that 'ngram' and 'auto' search besides the context"},
    {"--draft-greedy", KIND_FLAG, CMD_RUN | CMD_BENCH, AT(draft_greedy), 0, 0, NULL, NULL,
     "draft the most probable token instead of drawing with the target's noise (to compare)"},
    {"--assume-acceptance", KIND_REAL, CMD_BENCH, AT(assume_acceptance), 0, 1, "P", "0",
     "accept each draft with probability P whatever the target says: speeds of models without "
     "trained weights; 0: off"},
    {"--ignore-eos", KIND_FLAG, CMD_RUN, AT(ignore_eos), 0, 0, NULL, NULL, "never end the text"},
    {"--no-display-prompt", KIND_FLAG, CMD_RUN, AT(no_display_prompt), 0, 0, NULL, NULL,
     "print only what was generated"},
    {"--no-stats", KIND_FLAG, CMD_RUN, AT(no_stats), 0, 0, NULL, NULL,
     "no summary, and no measurement of the memory after the text"},

    {"--stats", KIND_CHOICE, CMD_RUN, AT(stats), 0, 0, "text|json", "text",
     "form of the summary on stderr: lines, or one JSON object (which leaves the memory "
     "unmeasured)"},

    {"-p --n-prompt", KIND_INTS, CMD_BENCH, AT(n_prompt), 0, 1048576, "N,...", "512",
     "prompt tests: tokens; 0: none"},
    {"-n --n-gen", KIND_INTS, CMD_BENCH, AT(n_gen), 0, 1048576, "N,...", "128",
     "generation tests: tokens; 0: none"},
    {"-pg", KIND_INTS, CMD_BENCH, AT(pg), 1, 1048576, "PP,TG", NULL,
     "tests of a prompt of PP tokens and TG generated ones together: pairs"},
    {"-r --repetitions", KIND_INT, CMD_BENCH, AT(repetitions), 1, 10000, "N", "5",
     "how often a test is timed, after a warm-up"},
    {"-o --output", KIND_CHOICE, CMD_BENCH, AT(format), 0, 0, "md|csv|json|jsonl", "md",
     "format of the table"},
    {"--ops", KIND_FLAG, CMD_BENCH, AT(ops), 0, 0, NULL, NULL,
     "time, bytes and share of the roof of every kernel (another, timed pass)"},

    {"--greedy", KIND_INT, CMD_LOGITS, AT(greedy), 0, 1048576, "N", "0",
     "continue with the N most probable tokens and print their ids"},
    {"--rows", KIND_TEXT, CMD_LOGITS, AT(rows), 0, 0, "HOW", "prefill",
     "how the tokens are fed: 'prefill' (a prompt, in passes of -b), 'decode' (one by one) or a "
     "width from 1 to 16 (as drafted tokens are verified)"},
    {"-o --out", KIND_TEXT, CMD_LOGITS, AT(out), 0, 0, "FILE", NULL,
     "write the logits [T, V] as safetensors"},

    {"--ids", KIND_FLAG, CMD_TOKENIZE, AT(ids_only), 0, 0, NULL, NULL,
     "only the list; without it the pieces are shown on stderr as well"},
    {"--decode", KIND_INTS, CMD_TOKENIZE, AT(decode), 0, INT_MAX_D, "ID,...", NULL,
     "print the text of these tokens and a newline"},

    {"--measure", KIND_FLAG, CMD_DEVICES, AT(measure), 0, 0, NULL, NULL,
     "measure read bandwidth and peaks (about a second)"},

    {"-q --quiet", KIND_FLAG, CMD_ALL, AT(quiet), 0, 0, NULL, NULL, "nothing on stderr but errors"},
    {"-h --help", KIND_FLAG, CMD_ALL, AT(help), 0, 0, NULL, NULL, "this text"},
    {NULL, KIND_FLAG, 0, 0, 0, 0, NULL, NULL, NULL},
};
