/* apps/foreign.c - what people type who come from llama.cpp: options without a meaning here are
 * taken, with a line when something else was hoped for; those that would change the text are
 * answered with what to use instead. */
#include "apps/foreign.h"

#include <stddef.h>
#include <string.h>

#include "apps/common.h"
#include "core/base/os.h"

typedef enum answer {
    TAKEN, /* it is how things are here */
    NOTED, /* taken, and a line says what happens instead */
    REFUSED
} answer;

typedef enum operand {
    ALONE,
    SWITCH, /* perhaps on, off, auto, 0, 1 */
    VALUE
} operand;

typedef struct foreign {
    const char *names;
    unsigned commands;
    operand operand;
    answer answer;
    const char *say; /* behind the name and a colon */
} foreign;

static const char maps[] = "weights are read where they lie in the file's cache, which needs no "
                           "option";
static const char rope[] = "the position scaling of the model's own files is used";
static const char talk[] = "'godwit chat' talks with a model";

static const foreign table[] = {
    {"-no-cnv --no-conversation", CMD_RUN, ALONE, TAKEN, ""},
    {"-no-cnv --no-conversation", CMD_CHAT, ALONE, REFUSED, "'godwit run' continues a text"},
    {"-cnv --conversation", CMD_CHAT, ALONE, TAKEN, ""},
    {"-cnv --conversation", CMD_RUN, ALONE, REFUSED, talk},
    {"-i --interactive -if --interactive-first -ins --instruct", CMD_CHAT, ALONE, TAKEN, ""},
    {"-i --interactive -if --interactive-first -ins --instruct", CMD_RUN, ALONE, REFUSED, talk},
    {"--in-prefix --in-suffix", CMD_TEXT, VALUE, REFUSED,
     "'godwit chat' writes messages as the model's template says; --chat-template names another"},
    {"--chat-template-kwargs", CMD_CHAT | CMD_TEMPLATE, VALUE, REFUSED,
     "each of them is --template-arg NAME=JSON"},
    {"--jinja --no-jinja", CMD_TEXT, ALONE, TAKEN, ""},
    {"-fa --flash-attn", CMD_MODEL, SWITCH, TAKEN, ""},
    {"--color -co --log-colors", CMD_TEXT, SWITCH, TAKEN, ""},
    {"--simple-io --no-warmup --warmup --log-disable --no-perf --perf -cb --cont-batching "
     "--no-escape --mmap -kvo --kv-offload --fit",
     CMD_MODEL | CMD_TOKENIZE, SWITCH, TAKEN, ""},
    {"-mmp", CMD_BENCH, VALUE, TAKEN, ""},
    {"--no-mmap", CMD_MODEL, ALONE, NOTED, maps},
    {"--mlock", CMD_MODEL, ALONE, NOTED, maps},
    {"-dio --direct-io", CMD_MODEL, SWITCH, NOTED, maps},
    {"-tb --threads-batch", CMD_MODEL, VALUE, NOTED, "prompts take the threads of -t, too"},
    {"--numa --prio --prio-batch --poll --poll-batch -C --cpu-mask -Cr --cpu-range --cpu-strict",
     CMD_MODEL, VALUE, NOTED,
     "threads stay where 'taskset' or 'numactl' in front puts them, each on one NUMA node"},
    {"-v --verbose --log-verbose --verbose-prompt", CMD_ALL, ALONE, NOTED,
     "'godwit inspect' shows a model, 'godwit tokenize' the tokens of a text"},
    {"-np --parallel", CMD_MODEL & ~(CMD_BENCH | CMD_SERVE), VALUE, NOTED,
     "one text is computed at a time"},
    {"-nopo --no-op-offload", CMD_MODEL, ALONE, NOTED,
     "--prompt-offload off keeps prompts of layers in main memory there"},
    {"-mg --main-gpu", CMD_MODEL, VALUE, REFUSED,
     "--device names the card, as in --device hip:1 ('godwit devices' lists them)"},
    {"-dr --docker-repo", CMD_ALL, VALUE, REFUSED, "models of Hugging Face alone: --hf-repo"},
    {"-hft --hf-token", CMD_ALL, VALUE, REFUSED, "the variable HF_TOKEN, or the hub's token file"},
    {"--lora", CMD_MODEL & ~CMD_LORA, VALUE, REFUSED,
     "adapters are for texts: 'godwit run', 'chat', 'serve', 'bench', 'perplexity', 'logits'"},
    {"--lora-scaled", CMD_MODEL, VALUE, REFUSED, "--lora PATH:SCALE"},
    {"--lora-base", CMD_MODEL, VALUE, REFUSED,
     "--lora changes what the weights give, whatever their format; no other weights are needed"},
    {"--control-vector", CMD_MODEL, VALUE, REFUSED, "vectors that steer a model are not supported"},
    {"--mmproj -mm --image", CMD_MODEL & ~(CMD_RUN | CMD_CHAT | CMD_TEMPLATE | CMD_BENCH), VALUE,
     REFUSED, "pictures are read by 'godwit run', 'chat' and 'serve', which has them in requests"},
    {"--audio", CMD_MODEL, VALUE, REFUSED, "models hear nothing here"},
    {"--rope-scaling --rope-scale --rope-freq-base --rope-freq-scale --yarn-orig-ctx "
     "--yarn-ext-factor --yarn-attn-factor --yarn-beta-slow --yarn-beta-fast",
     CMD_MODEL, VALUE, REFUSED, rope},
    {"-ot --override-tensor", CMD_MODEL, VALUE, REFUSED,
     "--n-cpu-moe N and --cpu-moe keep experts in main memory, --offload-layers N moves layers"},
    {"--override-kv", CMD_MODEL, VALUE, REFUSED, "what the model's file says is used as it is"},
    {"--host --port --api-key", CMD_ALL & ~CMD_SERVE, VALUE, REFUSED,
     "'godwit serve' is the server"},
    {"--metrics --slots --props --webui --ui --jinja --no-jinja --cache-prompt --kv-unified -kvu "
     "--no-context-shift --no-slots",
     CMD_SERVE, ALONE, TAKEN, ""},
    {"--context-shift --swa-full", CMD_SERVE, ALONE, NOTED,
     "a text is never cut here; -c N gives each request more room"},
    {"--slot-save-path -ctxcp --swa-checkpoints --ctx-checkpoints --cache-reuse "
     "-sps --slot-prompt-similarity --threads-http",
     CMD_SERVE, VALUE, NOTED, "requests share one cache of pages: --cache-tokens N sets its size"},
    {"--ssl-key-file --ssl-cert-file", CMD_SERVE, VALUE, REFUSED,
     "a proxy in front (nginx, caddy) speaks TLS: docs/server.md"},
    {"--rpc", CMD_HOSTS, VALUE, REFUSED, "--workers HOST:PORT,... and 'godwit worker' there"},
    {"--models-dir", CMD_SERVE, VALUE, REFUSED, "-m FOLDER serves the models in it"},
    {"-gan --grp-attn-n -gaw --grp-attn-w", CMD_TEXT, VALUE, REFUSED,
     "--context-shift goes on where the context ends"},
    {"--prompt-cache-all", CMD_RUN, ALONE, NOTED, "the cache has the prompt and not the answer"},
    {"-bf --binary-file", CMD_RUN, VALUE, REFUSED, "-f FILE takes any bytes"},
    {"-dt --defrag-thold", CMD_MODEL, VALUE, TAKEN, ""},
    {"--draft-max --draft-n", CMD_TEXT | CMD_BENCH, VALUE, REFUSED, "--draft-length fixed:K"},
    {"--draft-min --draft-n-min --draft-p-min", CMD_TEXT | CMD_BENCH, VALUE, NOTED,
     "--draft-length cost finds out what pays"},
    {"-devd --device-draft", CMD_TEXT | CMD_BENCH, VALUE, REFUSED, "--draft-device NAME"},
    {"-lcs -lcd --lookup-cache-static --lookup-cache-dynamic", CMD_TEXT, VALUE, REFUSED,
     "--draft ngram --draft-file FILE"},
    {"--max-buffer-size", CMD_QUANTIZE, VALUE, REFUSED, "--memory SIZE, as in 64M"},
    {"--nthread --nthreads", CMD_QUANTIZE, VALUE, REFUSED, "-t N"},
    {"--no-ppl", CMD_CALIBRATE, ALONE, TAKEN, ""},
    {"--parse-special", CMD_CALIBRATE | CMD_EVALUATE, ALONE, REFUSED,
     "a text's marks are read as text"},
    {"-ofreq --output-frequency --save-frequency", CMD_CALIBRATE, VALUE, NOTED,
     "the file is written once, when it is whole"},
    {"--output-format", CMD_CALIBRATE, VALUE, REFUSED,
     "the name says it: -o FILE.dat is the older form, any other name GGUF"},
    {"--show-statistics", CMD_CALIBRATE, ALONE, REFUSED, "--show"},
    {"--chunk --from-chunk", CMD_CALIBRATE, VALUE, REFUSED,
     "give the text from there on, as 'tail -c +N' writes it"},
    {"--hellaswag --winogrande --multiple-choice", CMD_SCORE, ALONE, REFUSED,
     "'godwit evaluate --tasks FILE' finds out what the file holds"},
    {"--hellaswag-tasks --winogrande-tasks --multiple-choice-tasks", CMD_SCORE, VALUE, REFUSED,
     "'godwit evaluate --tasks FILE --limit N'"},
    {"--kl-divergence", CMD_EVALUATE, ALONE, TAKEN, ""},
    {"--list-devices", CMD_ALL, ALONE, REFUSED, "'godwit devices' lists them"},
    {NULL, 0, ALONE, TAKEN, ""},
};

static int has_name(const char *names, const char *name, size_t bytes) {
    for (size_t n; names += strspn(names, " "), (n = strcspn(names, " ")) > 0; names += n) {
        if (n == bytes && memcmp(names, name, n) == 0) {
            return 1;
        }
    }
    return 0;
}

/* What other programs call what is done here. */
static const struct {
    const char *words, *instead;
} commands[] = {
    {"info details", "'godwit inspect MODEL'"},
    {"generate complete completion cli main continue", "'godwit run -p TEXT'"},
    {"talk interactive repl", "'godwit chat'"},
    {"server start daemon api", "'godwit serve'"},
    {"benchmark llama-bench batched-bench", "'godwit bench'"},
    {"ppl", "'godwit perplexity -f TEXT'"},
    {"eval lm-eval", "'godwit evaluate'"},
    {"embedding embeddings", "'godwit embed'"},
    {"reranking score", "'godwit rerank'"},
    {"imatrix", "'godwit calibrate'"},
    {"detokenize", "'godwit tokenize --decode IDS'"},
    {"convert import create", "models run as they come: 'godwit run -m FOLDER'; 'godwit quantize' "
                              "makes smaller ones"},
    {"gguf gguf-split split merge", "'godwit quantize' writes and joins parts (--split-max-size)"},
    {"device gpus gpu", "'godwit devices'"},
    {"check test", "'godwit doctor'"},
    {"ps stop unload load", "'godwit serve' loads and unloads: --idle-unload, GET /models"},
    {"estimate fit", "'godwit plan'"},
    {"login auth", "the variable HF_TOKEN, or the file that 'hf auth login' writes, is read"},
    {"upgrade update", "the package that it came with is what is updated"},
};

int foreign_command(const char *word) {
    size_t n = strlen(word);
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        if (n > 0 && has_name(commands[i].words, word, n)) {
            app_error("'%s' is no command here: %s", word, commands[i].instead);
            return 1;
        }
    }
    if (word[0] == '-') {
        app_error("'%.60s' comes before a command: 'godwit run %.60s ...' or 'godwit chat ...' "
                  "('godwit --help' lists them)",
                  word, word);
        return 1;
    }
    if (gw_os_last_slash(word) != NULL || (n > 5 && strcmp(word + n - 5, ".gguf") == 0) ||
        (n > 0 && access(word, F_OK) == 0)) {
        app_error("'%.200s' is no command: 'godwit run -m %.200s' or 'godwit chat -m %.200s'", word,
                  word, word);
        return 1;
    }
    return 0;
}

static int is_switch(const char *text) {
    static const char *const words[] = {"on", "off", "auto", "0", "1", "enabled", "disabled"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (strcmp(text, words[i]) == 0) {
            return 1;
        }
    }
    return 0;
}

int foreign_take(app_options *o, const app_command *command, const char *name, size_t bytes,
                 int argc, char **argv, int *i) {
    const char *value = name[bytes] == '=' ? name + bytes + 1 : NULL;
    const foreign *row = table;
    while (row->names != NULL &&
           !((row->commands & command->bit) != 0 && has_name(row->names, name, bytes))) {
        row++;
    }
    if (row->names == NULL) {
        return -1;
    }
    if (row->answer == REFUSED) {
        app_error("%.*s is no option here: %s", (int)bytes, name, row->say);
        return APP_USAGE;
    }
    operand wants = row->operand;
    if (value == NULL && *i + 1 < argc &&
        (wants == VALUE || (wants == SWITCH && is_switch(argv[*i + 1])))) {
        value = argv[++*i];
    }
    if (value == NULL && wants == VALUE) {
        app_error("%.*s needs a value", (int)bytes, name);
        return APP_USAGE;
    }
    return row->answer == NOTED
               ? options_note(o, "%.*s changes nothing: %s", (int)bytes, name, row->say)
               : 0;
}
