/* apps/option_table.c - THE option table: one row per option and meaning.
 *
 * A name may occur twice when no command sees both rows. Spellings of llama.cpp come first where
 * they exist. */
#include "apps/options.h"

#define AT(field) offsetof(app_options, field)
#define INT_MAX_D 2147483647.0

const app_option app_option_table[] = {
    {"-m --model", KIND_TEXT, CMD_ALL & ~(CMD_BENCH | CMD_DEVICES | CMD_DOCTOR), AT(model), 0, 0,
     "PATH", NULL, "model: a .gguf file or a Hugging Face folder; the built-in one if not given"},
    {"-m --model", KIND_TEXTS, CMD_BENCH, AT(models), 0, 0, "PATH", NULL,
     "model: a .gguf file or a Hugging Face folder; several with several -m"},
    {"--weights", KIND_CHOICE, CMD_MODEL, AT(weights), 0, 0,
     "float|int8|int4-g32|int4-g64|int4-g128|int4-g256", NULL,
     "requantize float weights while they load; 'float': quantized ones as floats, larger and "
     "slower, and activations are not rounded"},
    {"-dev --device", KIND_TEXT, CMD_MODEL, AT(device), 0, 0, "NAME,...", NULL,
     "where to compute; default: the first graphics card that works, else the cpu. 'godwit "
     "devices' lists the names, and a part of a device's own name does too; several share the "
     "layers"},
    {"-ngl --gpu-layers --n-gpu-layers --offload-layers", KIND_TEXT, CMD_MODEL, AT(offload_layers),
     0, 0, "N|all|auto", NULL,
     "the last N blocks, and with them the output head, run on the device and the rest on the CPU; "
     "'auto': the fastest N that fits; default: all when a device is named, else auto"},
    {"-ts --tensor-split --split", KIND_TEXT, CMD_MODEL, AT(split), 0, 0, "X,...", NULL,
     "shares of the offloaded blocks for each of several devices; default: by their free memory"},
    {"-ncmoe --n-cpu-moe", KIND_INT, CMD_MODEL, AT(n_cpu_moe), 0, 100000, "N", NULL,
     "the experts of the first N layers stay in main memory, and the cpu computes them; default: "
     "with --offload-layers auto as many as are fastest, else none"},
    {"-cmoe --cpu-moe", KIND_FLAG, CMD_MODEL, AT(cpu_moe), 0, 0, NULL, NULL,
     "the experts of all layers stay in main memory, the rest runs on the device"},
    {"--vram-budget", KIND_BYTES, CMD_MODEL, AT(vram_budget), 1, 1e18, "SIZE", NULL,
     "most memory to use on a device, as in 6G or 900M; what does not fit is refused"},
    {"-t --threads", KIND_INT, CMD_ALL & ~(CMD_BENCH | CMD_TOKENIZE | CMD_INSPECT), AT(threads), 1,
     1024, "N", NULL, "threads; default: the physical cores this process may use"},
    {"-t --threads", KIND_INTS, CMD_BENCH, AT(thread_list), 1, 1024, "N,...", NULL,
     "threads; default: the physical cores this process may use"},
    {"--blas", KIND_FLAG, CMD_MODEL, AT(blas), 0, 0, NULL, NULL,
     "prompts through OpenBLAS on the CPU and CLBlast on OpenCL devices, where they are installed "
     "and the weights are floats (another order of sums)"},
    {"--no-graph", KIND_FLAG, CMD_RUN | CMD_BENCH | CMD_LOGITS, AT(no_graph), 0, 0, NULL, NULL,
     "launch the kernels of a GPU one by one instead of as one graph (to compare)"},
    {"--exact", KIND_FLAG, CMD_MODEL, AT(exact), 0, 0, NULL, NULL,
     "on a GPU, prompts with float weights to the CPU's bits instead of on 16-bit matrix units"},

    {"-c --ctx-size", KIND_INT, CMD_TEXT | CMD_PLAN, AT(n_ctx), -1, INT_MAX_D, "N", "-1",
     "context in tokens; 0: what the model was trained for; -1: that, but at most 4096"},
    {"-c --ctx-size", KIND_INT, CMD_PERPLEXITY, AT(n_ctx), 8, INT_MAX_D, "N", "512",
     "tokens of a window"},
    {"-c --ctx-size", KIND_INT, CMD_LOGITS, AT(n_ctx), 0, INT_MAX_D, "N", "0",
     "context in tokens; 0: as many as are needed"},
    {"-b -ub --batch-size --ubatch-size", KIND_INT,
     CMD_TEXT | CMD_PERPLEXITY | CMD_LOGITS | CMD_PLAN, AT(batch), 1, GW_CHUNK_MAX, "N", "512",
     "prompt tokens per pass"},
    {"-b -ub --batch-size --ubatch-size", KIND_INTS, CMD_BENCH, AT(batch_list), 1, GW_CHUNK_MAX,
     "N,...", "512", "prompt tokens per pass"},
    {"--kv-type -ctk -ctv --cache-type-k --cache-type-v", KIND_CHOICE, CMD_MODEL, AT(kv_type), 0, 0,
     "f16|f32|q8_0", "f16", "format of the KV cache; q8_0 takes half the memory of f16"},

    {"--context-shift", KIND_FLAG, CMD_TEXT, AT(context_shift), 0, 0, NULL, NULL,
     "when the context is full, forget the older half of the text and go on; what stays is read "
     "again"},
    {"--keep", KIND_INT, CMD_TEXT, AT(keep), -1, INT_MAX_D, "N", "0",
     "tokens of the prompt that --context-shift never forgets; -1: all; the start token always "
     "stays, in a chat the system message as well"},
    {"--prompt-cache", KIND_TEXT, CMD_RUN, AT(prompt_cache), 0, 0, "FILE", NULL,
     "keep what the prompt was turned into in FILE and begin there the next time, as far as the "
     "prompts are alike; the text stays the same"},
    {"--prompt-cache-ro", KIND_FLAG, CMD_RUN, AT(prompt_cache_ro), 0, 0, NULL, NULL,
     "read the file of --prompt-cache, never write it"},

    {"-p --prompt", KIND_TEXT, CMD_RUN | CMD_LOGITS | CMD_TOKENIZE, AT(prompt), 0, 0, "TEXT", NULL,
     "the text; bytes that are not UTF-8 become byte tokens"},
    {"-p --prompt", KIND_TEXT, CMD_CHAT, AT(prompt), 0, 0, "TEXT", NULL,
     "the first message; those that are typed or come down a pipe follow"},
    {"-f --file", KIND_TEXT, CMD_TEXT | CMD_PERPLEXITY | CMD_LOGITS | CMD_TOKENIZE, AT(file), 0, 0,
     "FILE", NULL, "read the text from a file; '-' is standard input"},
    {"-e --escape", KIND_FLAG, CMD_TEXT | CMD_LOGITS | CMD_TOKENIZE, AT(escape), 0, 0, NULL, NULL,
     "\\n, \\t, \\r, \\\\, \\\", \\' and \\xHH in the text stand for characters"},
    {"--ids", KIND_INTS, CMD_LOGITS, AT(ids), 0, INT_MAX_D, "ID,...", NULL,
     "the tokens, instead of a text"},
    {"--special", KIND_FLAG, CMD_RUN | CMD_LOGITS | CMD_TOKENIZE, AT(special), 0, 0, NULL, NULL,
     "spellings of special tokens in the text become these tokens, and are shown in output"},
    {"--spec", KIND_TEXT, CMD_MODEL, AT(spec), 0, 0, "FILE", NULL,
     "the family of the model as a text file: numbers, weights, blocks "
     "(core/model/specs/README.md)"},
    {"--pretokenizer", KIND_TEXT, CMD_MODEL | CMD_TOKENIZE, AT(pretokenizer), 0, 0, "NAME", NULL,
     "cut texts into words as the models of this name in tokenizer.ggml.pre do, whatever the file "
     "says: gpt-2, llama-bpe, qwen2, tekken, ..."},
    {"--no-bos", KIND_FLAG, CMD_LOGITS | CMD_TOKENIZE, AT(no_bos), 0, 0, NULL, NULL,
     "do not put the model's start token first"},

    {"-n --predict --n-predict", KIND_INT, CMD_TEXT, AT(n_predict), -1, INT_MAX_D, "N", "-1",
     "tokens to generate; -1: until the text ends or the context is full"},
    {"-s --seed", KIND_SEED, CMD_TEXT, AT(seed), 0, 0, "S", "-1",
     "seed of the random draws; -1: a new one, shown in the summary"},
    {"--temp --temperature", KIND_REAL, CMD_TEXT, AT(temperature), 0, 1000, "T", "0.8",
     "temperature; 0: always the most probable token"},
    {"--top-k", KIND_INT, CMD_TEXT, AT(top_k), 0, INT_MAX_D, "K", "40",
     "only the K most probable tokens; 0: off"},
    {"--top-p", KIND_REAL, CMD_TEXT, AT(top_p), 0, 1, "P", "0.95",
     "only the most probable tokens whose probabilities reach P; 1: off"},
    {"--min-p", KIND_REAL, CMD_TEXT, AT(min_p), 0, 1, "P", "0.05",
     "only tokens with P times the probability of the best; 0: off"},
    {"--typical --typical-p", KIND_REAL, CMD_TEXT, AT(typical), 0, 1, "P", "1",
     "locally typical sampling; 1: off"},
    {"--repeat-penalty", KIND_REAL, CMD_TEXT, AT(repeat_penalty), 0.001, 1000, "X", "1",
     "divide the scores of recent tokens; 1: off"},
    {"--repeat-last-n", KIND_INT, CMD_TEXT, AT(repeat_last_n), -1, 16777216, "N", "64",
     "how many tokens back are recent; -1: all, 0: none"},
    {"--presence-penalty", KIND_REAL, CMD_TEXT, AT(presence_penalty), -1000, 1000, "X", "0",
     "subtract from the scores of recent tokens; 0: off"},
    {"--frequency-penalty", KIND_REAL, CMD_TEXT, AT(frequency_penalty), -1000, 1000, "X", "0",
     "subtract for every occurrence of a recent token; 0: off"},
    {"-l --logit-bias", KIND_BIAS, CMD_TEXT, AT(bias), 0, INT_MAX_D, "ID=X", NULL,
     "add X to the score of a token, -inf forbids it; may be given several times"},
    {"--dynatemp-range", KIND_REAL, CMD_TEXT, AT(dynatemp_range), 0, 1000, "X", "0",
     "temperature from T - X (the model is sure) to T + X (it is not), by entropy; 0: off"},
    {"--dynatemp-exp", KIND_REAL, CMD_TEXT, AT(dynatemp_exp), 0, 100, "X", "1",
     "exponent of the entropy in --dynatemp-range"},
    {"--top-nsigma --top-n-sigma", KIND_REAL, CMD_TEXT, AT(top_n_sigma), -1, 1000, "N", "-1",
     "only scores within N standard deviations of the best; 0 or less: off"},
    {"--tfs --tfs-z", KIND_REAL, CMD_TEXT, AT(tfs), 0, 1, "Z", "1",
     "tail-free: cut where the sorted probabilities have made Z of their bends; 1: off"},
    {"--xtc-probability", KIND_REAL, CMD_TEXT, AT(xtc_probability), 0, 1, "P", "0",
     "XTC: how often the top choices are left out; 0: off"},
    {"--xtc-threshold", KIND_REAL, CMD_TEXT, AT(xtc_threshold), 0, 1, "P", "0.1",
     "XTC: of the tokens with probability P only the least probable stays; over 0.5: off"},
    {"--mirostat", KIND_INT, CMD_TEXT, AT(mirostat), 0, 2, "N", "0",
     "hold the surprise per token at --mirostat-ent: 1: by Zipf's law, 2: by a cut; replaces the "
     "other filters unless --samplers says otherwise; 0: off"},
    {"--mirostat-ent", KIND_REAL, CMD_TEXT, AT(mirostat_ent), 0, 100, "BITS", "5",
     "mirostat: surprise wanted per token (tau)"},
    {"--mirostat-lr", KIND_REAL, CMD_TEXT, AT(mirostat_lr), 0, 10, "X", "0.1",
     "mirostat: how fast it corrects (eta)"},
    {"--dry-multiplier", KIND_REAL, CMD_TEXT, AT(dry_multiplier), 0, 1000, "X", "0",
     "DRY: subtract X * BASE^(length - N) from tokens that go on with a repetition; 0: off"},
    {"--dry-base", KIND_REAL, CMD_TEXT, AT(dry_base), 1, 1000, "BASE", "1.75",
     "DRY: growth with every repeated token"},
    {"--dry-allowed-length", KIND_INT, CMD_TEXT, AT(dry_allowed_length), 1, 1048576, "N", "2",
     "DRY: repetitions under N tokens are free"},
    {"--dry-penalty-last-n", KIND_INT, CMD_TEXT, AT(dry_last_n), -1, 1048576, "N", "-1",
     "DRY: how many tokens back it looks; -1: all, 0: off"},
    {"--dry-sequence-breaker", KIND_TEXTS, CMD_TEXT, AT(dry_breakers), 0, 0, "TEXT", NULL,
     "DRY: no repetition is longer than from the last TEXT on; may be given several times, instead "
     "of newline, ':', '\"' and '*'; 'none': none"},
    {"--fsd", KIND_REAL, CMD_TEXT, AT(fsd), 0, 1, "ALPHA", "0",
     "frustratingly simple decoding: the best (1 - ALPHA) p - ALPHA q, q from the n-grams of the "
     "text so far; the paper takes 0.5; 0: off"},
    {"--fsd-n", KIND_INT, CMD_TEXT, AT(fsd_n), 1, 8, "N", "3", "FSD: longest n-gram"},
    {"--fsd-k", KIND_INT, CMD_TEXT, AT(fsd_k), 1, 100, "K", "6",
     "FSD: chooses among the K most probable"},
    {"--fsd-random", KIND_INT, CMD_TEXT, AT(fsd_random), 0, INT_MAX_D, "T", "0",
     "FSD: in the first T tokens of the answer a coin decides between it and sampling; the paper "
     "takes 10"},
    {"--samplers", KIND_TEXT, CMD_TEXT, AT(samplers), 0, 0, "LIST", NULL,
     "the stages in the order they run, as in 'penalties;top-k;temperature'; what is left out is "
     "off. Default: penalties; dry; bias; fsd; top-n-sigma; top-k; tail-free; typical; top-p; "
     "min-p; xtc; temperature, with --mirostat: penalties; dry; bias; temperature; mirostat"},
    {"-md --draft --model-draft", KIND_TEXT, CMD_TEXT | CMD_BENCH, AT(draft), 0, 0,
     "MODEL|ngram|auto", NULL,
     "draft tokens and verify several per pass; the text stays the same. A model of the same "
     "vocabulary; 'ngram': what followed the longest earlier copy of the text's end; 'auto': that, "
     "and the largest model beside the target with at most a sixth of its bytes"},
    {"--draft-device", KIND_TEXT, CMD_TEXT | CMD_BENCH, AT(draft_device), 0, 0, "NAME", NULL,
     "where the draft model computes; default: where the target does"},
    {"-ngld --gpu-layers-draft --n-gpu-layers-draft --draft-offload-layers", KIND_TEXT,
     CMD_TEXT | CMD_BENCH, AT(draft_offload_layers), 0, 0, "N|all|auto", NULL,
     "as --offload-layers, for the draft model; default: all, when it has a device of its own"},
    {"--draft-length", KIND_TEXT, CMD_TEXT | CMD_BENCH, AT(draft_length), 0, 0,
     "cost|heuristic|fixed:K", "cost",
     "tokens drafted per pass: what measured times and acceptances say is fastest, none if nothing "
     "is; 5, then 2 more when all are accepted, else 1 fewer; or always K, 1 to 15"},
    {"--draft-accept", KIND_CHOICE, CMD_TEXT | CMD_BENCH, AT(draft_accept), 0, 0,
     "exact|rejection|pool", "exact",
     "exact: the text is the same as without drafts; rejection: another text of the same "
     "distribution, which also depends on the draft lengths; pool: any draft that passes the "
     "filters is taken, which CHANGES the distribution"},
    {"--draft-file", KIND_TEXT, CMD_TEXT | CMD_BENCH, AT(draft_file), 0, 0, "FILE", NULL,
     "text that 'ngram' and 'auto' search besides the context"},
    {"--draft-greedy", KIND_FLAG, CMD_TEXT | CMD_BENCH, AT(draft_greedy), 0, 0, NULL, NULL,
     "draft the most probable token instead of drawing with the target's noise (to compare)"},
    {"--assume-acceptance", KIND_REAL, CMD_BENCH, AT(assume_acceptance), 0, 1, "P", "0",
     "accept each draft with probability P whatever the target says: speeds of models without "
     "trained weights; 0: off"},
    {"--ignore-eos", KIND_FLAG, CMD_TEXT, AT(ignore_eos), 0, 0, NULL, NULL, "never end the text"},
    {"--stop -r --reverse-prompt", KIND_TEXTS, CMD_TEXT, AT(stops), 0, 0, "TEXT", NULL,
     "end the text before TEXT would come; may be given several times"},
    {"--ban", KIND_TEXTS, CMD_TEXT, AT(bans), 0, 0, "TEXT", NULL,
     "TEXT, exactly these bytes, never occurs in what is generated: where it would, the text goes "
     "back to where it began and takes another way; may be given several times"},
    {"--grammar --grammar-file", KIND_TEXT, CMD_TEXT, AT(grammar), 0, 0, "FILE|TEXT", NULL,
     "only texts of this grammar, in the GBNF of llama.cpp: a file, or the rules themselves, as in "
     "'root ::= \"yes\" | \"no\"'"},
    {"-j --json-schema -jf --json-schema-file", KIND_TEXT, CMD_TEXT, AT(json_schema), 0, 0,
     "FILE|TEXT", NULL,
     "only JSON that this schema accepts: a file, or the schema itself, as in "
     "'{\"type\": \"object\"}'"},
    {"--no-display-prompt", KIND_FLAG, CMD_RUN, AT(no_display_prompt), 0, 0, NULL, NULL,
     "print only what was generated"},
    {"--no-stats", KIND_FLAG, CMD_TEXT, AT(no_stats), 0, 0, NULL, NULL,
     "no summary, and no measurement of the memory after the text"},

    {"--stats", KIND_CHOICE, CMD_RUN, AT(stats), 0, 0, "text|json", "text",
     "form of the summary on stderr: lines, or one JSON object (which leaves the memory "
     "unmeasured)"},

    {"-p --n-prompt", KIND_INTS, CMD_BENCH, AT(n_prompt), 0, 1048576, "N,...", "512",
     "prompt tests: tokens; 0: none"},
    {"-n --n-gen", KIND_INTS, CMD_BENCH, AT(n_gen), 0, 1048576, "N,...", "128",
     "generation tests: tokens; 0: none"},
    {"-d --n-depth", KIND_INTS, CMD_BENCH, AT(n_depth), 0, 1048576, "N,...", "0",
     "tokens of a text in front of each test, which are not timed"},
    {"-pg", KIND_INTS, CMD_BENCH, AT(pg), 1, 1048576, "PP,TG", NULL,
     "tests of a prompt of PP tokens and TG generated ones together: pairs"},
    {"-npl --parallel", KIND_INTS, CMD_BENCH, AT(parallel), 1, 128, "N,...", NULL,
     "so many texts at once instead, each with a prompt of -p and an answer of -n tokens, as "
     "llama-batched-bench does"},
    {"-r --repetitions", KIND_INT, CMD_BENCH, AT(repetitions), 1, 10000, "N", "5",
     "how often a test is timed, after a warm-up"},
    {"-o --output", KIND_CHOICE, CMD_BENCH, AT(format), 0, 0, "md|csv|json|jsonl", "md",
     "format of the table"},
    {"-o --output", KIND_CHOICE, CMD_PLAN, AT(format), 0, 0, "md|csv|json", "md",
     "format of the table"},
    {"--ops", KIND_FLAG, CMD_BENCH, AT(ops), 0, 0, NULL, NULL,
     "time, bytes and share of the roof of every kernel (another, timed pass)"},
    {"--gemm", KIND_TEXT, CMD_BENCH, AT(gemm), 0, 0, "FORMAT:K=,N=[,M=,...]", NULL,
     "one product alone instead: a made-up matrix of N rows and K columns times M rows, such as "
     "int4-g128:K=14336,N=21504,M=1,16"},

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
    {"--decode-file", KIND_TEXT, CMD_TOKENIZE, AT(decode_file), 0, 0, "FILE", NULL,
     "the same of the tokens in a file, between brackets, commas or spaces; '-' is standard input"},
    {"--pair", KIND_TEXT, CMD_TOKENIZE, AT(pair), 0, 0, "TEXT", NULL,
     "a second text: the pair as a reranker takes it, with a second list of the tokens' segments"},

    {"-sys --system --system-prompt", KIND_TEXT, CMD_CHAT, AT(system), 0, 0, "TEXT", NULL,
     "what the model is told before the conversation"},
    {"--chat-template", KIND_TEXT, CMD_CHAT, AT(chat_template), 0, 0, "NAME", NULL,
     "how the conversation is written: chatml, llama2, llama3, mistral, zephyr, gemma, phi3, "
     "deepseek, ..., or plain; default: as the model's own template says"},
    {"-st --single-turn", KIND_FLAG, CMD_CHAT, AT(single_turn), 0, 0, NULL, NULL,
     "end after the first answer"},
    {"--load", KIND_TEXT, CMD_CHAT, AT(load), 0, 0, "FILE", NULL,
     "go on with a conversation that /save wrote"},

    {"--json", KIND_FLAG, CMD_INSPECT, AT(json), 0, 0, NULL, NULL, "one JSON object on stdout"},
    {"--check-tensors", KIND_FLAG, CMD_INSPECT, AT(check_tensors), 0, 0, NULL, NULL,
     "read every weight and look for infinities and NaN"},

    {"--measure", KIND_FLAG, CMD_DEVICES, AT(measure), 0, 0, NULL, NULL,
     "measure read bandwidth and peaks (about a second)"},

    {"-q --quiet", KIND_FLAG, CMD_ALL, AT(quiet), 0, 0, NULL, NULL, "nothing on stderr but errors"},
    {"-h --help", KIND_FLAG, CMD_ALL, AT(help), 0, 0, NULL, NULL, "this text"},
    {NULL, KIND_FLAG, 0, 0, 0, 0, NULL, NULL, NULL},
};
