/* core/text/answer/answer_forms.c - the forms of reasoning and of tool calls, a row each; see
 * answer.h. A row with more marks stands before one whose marks it has too. */
#include <string.h>

#include "core/text/answer/answer.h"

#define JSON_CALL "{{\"name\": \"%n\", \"arguments\": %a}"
#define LLAMA_CALL "{{\"name\": \"%n\", \"parameters\": %a}"

static const gw_tool_form tool_forms[] = {
    {.name = "harmony",
     .models = "gpt-oss",
     .detect = {"<|channel|>", "<|message|>", "<|call|>"},
     .call = "{<|channel|>}commentary to=functions.%n {<|constrain|>}json{<|message|>}%a",
     .flags = GW_TOOLS_ONE},
    {.name = "muse",
     .models = "Muse Glimmer",
     .detect = {"<atem:function_calls>"},
     .call = "<atem:function_calls>\n<atem:invoke name=\"%n\">\n%p</atem:invoke>\n"
             "</atem:function_calls>",
     .param = "<atem:parameter name=\"%k\">%v</atem:parameter>\n"},
    {.name = "kimi-k3",
     .models = "Kimi K3",
     .detect = {"<|open|>", "<|sep|>", "'argument'"},
     .begin = "{<|open|>}tools{<|sep|>}",
     .call = "{<|open|>}call tool=\"%n\" index=\"%d\"{<|sep|>}%p{<|close|>}call{<|sep|>}",
     .end = "{<|close|>}tools{<|sep|>}",
     .param = "{<|open|>}argument key=\"%k\" type=\"%t\"{<|sep|>}%v{<|close|>}argument{<|sep|>}"},
    {.name = "kimi-k2",
     .models = "Kimi K2, K2 Thinking",
     .detect = {"<|tool_calls_section_begin|>"},
     .begin = "{<|tool_calls_section_begin|>}",
     .call = "{<|tool_call_begin|>}%n{<|tool_call_argument_begin|>}%a"
             "{<|tool_call_end|>}",
     .end = "{<|tool_calls_section_end|>}",
     .flags = GW_TOOLS_NUMBERED},
    {.name = "deepseek-v3.2",
     .models = "DeepSeek V3.2",
     .detect = {"DSML", "function_calls"},
     .begin = "<{\xEF\xBD\x9C"
              "DSML\xEF\xBD\x9C}function_calls>\n",
     .call = "<{\xEF\xBD\x9C"
             "DSML\xEF\xBD\x9C}invoke name=\"%n\">\n%p</{\xEF\xBD\x9C"
             "DSML\xEF\xBD\x9C}invoke>\n",
     .end = "</{\xEF\xBD\x9C"
            "DSML\xEF\xBD\x9C}function_calls>",
     .param = "<{\xEF\xBD\x9C"
              "DSML\xEF\xBD\x9C}parameter name=\"%k\" string=\"%s\">%v</{\xEF\xBD\x9C"
              "DSML\xEF\xBD\x9C}parameter>\n"},
    {.name = "deepseek-v4",
     .models = "DeepSeek V4",
     .detect = {"DSML"},
     .begin = "<{\xEF\xBD\x9C"
              "DSML\xEF\xBD\x9C}tool_calls>\n",
     .call = "<{\xEF\xBD\x9C"
             "DSML\xEF\xBD\x9C}invoke name=\"%n\">\n%p</{\xEF\xBD\x9C"
             "DSML\xEF\xBD\x9C}invoke>\n",
     .end = "</{\xEF\xBD\x9C"
            "DSML\xEF\xBD\x9C}tool_calls>",
     .param = "<{\xEF\xBD\x9C"
              "DSML\xEF\xBD\x9C}parameter name=\"%k\" string=\"%s\">%v</{\xEF\xBD\x9C"
              "DSML\xEF\xBD\x9C}parameter>\n"},
    {.name = "gigachat-3.5",
     .models = "GigaChat 3.5",
     .detect = {"GCML"},
     .begin = "<{\xEF\xBD\x9C"
              "GCML\xEF\xBD\x9C}tool_calls>\n",
     .call = "<{\xEF\xBD\x9C"
             "GCML\xEF\xBD\x9C}invoke name=\"%n\">\n%p</{\xEF\xBD\x9C"
             "GCML\xEF\xBD\x9C}invoke>\n",
     .end = "</{\xEF\xBD\x9C"
            "GCML\xEF\xBD\x9C}tool_calls>",
     .param = "<{\xEF\xBD\x9C"
              "GCML\xEF\xBD\x9C}parameter name=\"%k\" string=\"%s\">%v</{\xEF\xBD\x9C"
              "GCML\xEF\xBD\x9C}parameter>\n"},
    {.name = "deepseek-r1",
     .models = "DeepSeek V3, R1 and what is distilled from it",
     .detect = {"<\xEF\xBD\x9Ctool\xE2\x96\x81"
                "call\xE2\x96\x81"
                "begin\xEF\xBD\x9C>",
                "```json"},
     .begin = "{<\xEF\xBD\x9Ctool\xE2\x96\x81"
              "calls\xE2\x96\x81"
              "begin\xEF\xBD\x9C>}",
     .call = "{<\xEF\xBD\x9Ctool\xE2\x96\x81"
             "call\xE2\x96\x81"
             "begin\xEF\xBD\x9C>}function{<\xEF\xBD\x9Ctool\xE2\x96\x81"
             "sep\xEF\xBD\x9C>}%n\n```json\n%a\n```{<\xEF\xBD\x9Ctool\xE2\x96\x81"
             "call\xE2\x96\x81"
             "end\xEF\xBD\x9C>}",
     .between = "\n",
     .end = "{<\xEF\xBD\x9Ctool\xE2\x96\x81"
            "calls\xE2\x96\x81"
            "end\xEF\xBD\x9C>}"},
    {.name = "deepseek-v3.1",
     .models = "DeepSeek V3.1",
     .detect = {"<\xEF\xBD\x9Ctool\xE2\x96\x81"
                "call\xE2\x96\x81"
                "begin\xEF\xBD\x9C>"},
     .begin = "{<\xEF\xBD\x9Ctool\xE2\x96\x81"
              "calls\xE2\x96\x81"
              "begin\xEF\xBD\x9C>}",
     .call = "{<\xEF\xBD\x9Ctool\xE2\x96\x81"
             "call\xE2\x96\x81"
             "begin\xEF\xBD\x9C>}%n{<\xEF\xBD\x9Ctool\xE2\x96\x81"
             "sep\xEF\xBD\x9C>}%a{<\xEF\xBD\x9Ctool\xE2\x96\x81"
             "call\xE2\x96\x81"
             "end\xEF\xBD\x9C>}",
     .end = "{<\xEF\xBD\x9Ctool\xE2\x96\x81"
            "calls\xE2\x96\x81"
            "end\xEF\xBD\x9C>}"},
    {.name = "gemma-4",
     .models = "Gemma 4",
     .detect = {"<|tool_call>call:"},
     .call = "{<|tool_call>}call:%n%g{<tool_call|>}"},
    {.name = "mistral-id",
     .models = "Mistral Small 3.2",
     .detect = {"[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"},
     .call = "{[TOOL_CALLS]}%n{[CALL_ID]}%i{[ARGS]}%a"},
    {.name = "mistral",
     .models = "Ministral 3, Magistral, Devstral, Mistral Large 3",
     .detect = {"[TOOL_CALLS]", "[ARGS]"},
     .call = "{[TOOL_CALLS]}%n{[ARGS]}%a"},
    {.name = "mistral-list",
     .models = "Mistral Nemo, Mistral 7B v0.3, Mistral Small 3.1",
     .detect = {"[TOOL_CALLS]"},
     .call = "{[TOOL_CALLS]}%l",
     .object = "{{\"name\": \"%n\", \"arguments\": %a, \"id\": \"%i\"}"},
    {.name = "command-r7b",
     .models = "Command R7B, Command A",
     .detect = {"<|START_ACTION|>"},
     .call = "{<|START_ACTION|>}%l{<|END_ACTION|>}",
     .object = "{{\"tool_call_id\": \"%d\", \"tool_name\": \"%n\", \"parameters\": %a}"},
    {.name = "command-r",
     .models = "Command R, R+",
     .detect = {"Action:", "```json", "tool_name"},
     .call = "Action:\n```json\n%l```",
     .object = "{{\n        \"tool_name\": \"%n\",\n        \"parameters\": %a\n    }",
     .flags = GW_TOOLS_LISTED},
    {.name = "apertus",
     .models = "Apertus",
     .detect = {"<|tools_prefix|>"},
     .call = "{<|tools_prefix|>}%l{<|tools_suffix|>}",
     .object = "{{\"%n\": %a}",
     .flags = GW_TOOLS_KEYED},
    {.name = "lfm2-json",
     .models = "LFM2 as llama.cpp's template has it",
     .detect = {"<|tool_call_start|>", "{\"name\": \"", "\"arguments\": "},
     .call = "{<|tool_call_start|>}%l{<|tool_call_end|>}",
     .object = JSON_CALL},
    {.name = "lfm2",
     .models = "LFM2, LFM2.5",
     .detect = {"<|tool_call_start|>"},
     .call = "{<|tool_call_start|>}[%y]{<|tool_call_end|>}"},
    {.name = "lfm2",
     .models = "LFM2, LFM2.5",
     .detect = {"<|tool_list_start|>"},
     .call = "{<|tool_call_start|>}[%y]{<|tool_call_end|>}"},
    {.name = "solar",
     .models = "Solar Open",
     .detect = {"<|tool_call:begin|>"},
     .begin = "{<|tool_calls|>}",
     .call = "{<|tool_call:begin|>}%i{<|tool_call:name|>}%n{<|tool_call:args|>}%a"
             "{<|tool_call:end|>}"},
    {.name = "seed-oss",
     .models = "Seed-OSS",
     .detect = {"<seed:tool_call>"},
     .call = "{<seed:tool_call>}\n<function=%n>\n%p</function>\n{</seed:tool_call>}",
     .between = "\n",
     .param = "<parameter=%k>%v</parameter>\n",
     .flags = GW_TOOLS_PYTHON},
    {.name = "minimax-m2",
     .models = "MiniMax M2",
     .detect = {"minimax:tool_call>"},
     .begin = "{<minimax:tool_call>}\n",
     .call = "<invoke name=\"%n\">\n%p</invoke>\n",
     .end = "{</minimax:tool_call>}",
     .param = "<parameter name=\"%k\">%v</parameter>\n"},
    {.name = "hy3",
     .models = "Hy3",
     .detect = {"<tool_sep", "<arg_key", ":opensource"},
     .begin = "{<tool_calls:opensource>}\n",
     .call = "{<tool_call:opensource>}%n{<tool_sep:opensource>}\n%p{</tool_call:opensource>}\n",
     .end = "{</tool_calls:opensource>}",
     .param = "{<arg_key:opensource>}%k{</arg_key:opensource>}\n"
              "{<arg_value:opensource>}%v{</arg_value:opensource>}\n"},
    {.name = "glm-4.7",
     .models = "GLM 4.7 and later",
     .detect = {"</arg_key><arg_value>", "<tool_call>"},
     .call = "{<tool_call>}%n%p{</tool_call>}",
     .param = "{<arg_key>}%k{</arg_key>}{<arg_value>}%v{</arg_value>}"},
    {.name = "glm-4.5",
     .models = "GLM 4.5, 4.6",
     .detect = {"<arg_key>", "<arg_value>"},
     .call = "{<tool_call>}%n\n%p{</tool_call>}",
     .between = "\n",
     .param = "{<arg_key>}%k{</arg_key>}\n{<arg_value>}%v{</arg_value>}\n"},
    {.name = "minicpm5",
     .models = "MiniCPM 5",
     .detect = {"<function name=\"", "<param name=\""},
     .call = "<function name=\"%n\">%p</function>",
     .between = "\n",
     .param = "<param name=\"%k\">%v</param>",
     .raw_end = "<",
     .flags = GW_TOOLS_PYTHON},
    {.name = "qwen3-coder",
     .models = "Qwen3-Coder, Qwen3.5, Nemotron 3, Step 3.5",
     .detect = {"<function=", "<parameter="},
     .call = "{<tool_call>}\n<function=%n>\n%p</function>\n{</tool_call>}",
     .between = "\n",
     .param = "<parameter=%k>\n%v\n</parameter>\n"},
    {.name = "functionary-3.1",
     .models = "Functionary 3.1, Llama 3.1 with custom tools",
     .detect = {"<function="},
     .call = "<function=%n>%a</function>"},
    {.name = "functionary-3.2",
     .models = "Functionary 3.2",
     .detect = {">>>", "recipient"},
     .call = ">>>%n\n%a",
     .flags = GW_TOOLS_OPENED | GW_TOOLS_LISTED},
    {.name = "firefunction",
     .models = "FireFunction 2",
     .detect = {"functools["},
     .call = " functools%l",
     .object = JSON_CALL,
     .flags = GW_TOOLS_LISTED},
    {.name = "nemotron-v2",
     .models = "Nemotron Nano 2, Llama Nemotron",
     .detect = {"<TOOLCALL>"},
     .call = "<TOOLCALL>%l</TOOLCALL>",
     .object = JSON_CALL},
    {.name = "tool-calls",
     .models = "Apriel, Jamba, Hunyuan",
     .detect = {"<tool_calls>"},
     .call = "{<tool_calls>}%l{</tool_calls>}",
     .object = JSON_CALL},
    {.name = "phi-4-mini",
     .models = "Phi-4-mini",
     .detect = {"<|tool_call|>", "<|/tool_call|>"},
     .call = "{<|tool_call|>}%o{<|/tool_call|>}",
     .object = JSON_CALL},
    {.name = "granite-3.3",
     .models = "Granite 3",
     .detect = {"<|tool_call|>"},
     .call = "{<|tool_call|>}%l",
     .object = JSON_CALL},
    {.name = "gigachat-3.1",
     .models = "GigaChat 3.1",
     .detect = {"<|function_call|>"},
     .call = "{<|function_call|>}%o",
     .object = JSON_CALL,
     .flags = GW_TOOLS_ONE},
    {.name = "gigachat-3",
     .models = "GigaChat 3",
     .detect = {"function call", "role_sep"},
     .call = "function call{<|role_sep|>}\n%o",
     .object = JSON_CALL,
     .flags = GW_TOOLS_ONE},
    {.name = "internlm",
     .models = "InternLM 2.5, 3",
     .detect = {"<|action_start|>"},
     .call = "{<|action_start|>}{<|plugin|>}%o{<|action_end|>}",
     .object = LLAMA_CALL,
     .flags = GW_TOOLS_ONE},
    {.name = "hermes",
     .models = "Hermes 2 and 3, Qwen 2.5 and 3, Granite 4, EXAONE 4, Reka Edge, MiMo, Ernie",
     .detect = {"<tool_call>"},
     .call = "{<tool_call>}\n%o\n{</tool_call>}",
     .between = "\n",
     .object = JSON_CALL},
    {.name = "olmo-3",
     .models = "OLMo 3",
     .detect = {"<function_calls>"},
     .call = "<function_calls>\n%y\n</function_calls>"},
    {.name = "llama-3",
     .models = "Llama 3.1, 3.2, 3.3",
     .detect = {"<|python_tag|>"},
     .call = "{<|python_tag|>}%o",
     .between = "; ",
     .object = LLAMA_CALL,
     .flags = GW_TOOLS_BARE | GW_TOOLS_LISTED},
    {.name = "llama-3",
     .models = "Llama 3.1, 3.2, 3.3",
     .detect = {"dictionary of argument name and its value"},
     .call = "{<|python_tag|>}%o",
     .between = "; ",
     .object = LLAMA_CALL,
     .flags = GW_TOOLS_BARE | GW_TOOLS_LISTED},
    {.name = "pythonic",
     .models = "Llama 4, Llama 3.2 in Python's form",
     .detect = {"func_name1("},
     .call = "[%y]",
     .flags = GW_TOOLS_LISTED},
    {.name = "json",
     .models = "templates without a mark of their own",
     .call = "%o",
     .between = "\n",
     .object = JSON_CALL,
     .flags = GW_TOOLS_BARE | GW_TOOLS_LISTED},
    {.name = "none", .models = "calls are text"},
};

static const gw_reasoning_form reasoning_forms[] = {
    {.name = "harmony",
     .models = "gpt-oss",
     .detect = {"<|channel|>", "<|message|>", "<|start|>"},
     .kind = GW_REASONING_HARMONY},
    {.name = "muse",
     .models = "Muse Glimmer",
     .detect = {"to=self", "<|message|>", "<|eom|>"},
     .kind = GW_REASONING_MUSE},
    {.name = "kimi-k3",
     .models = "Kimi K3",
     .detect = {"<|open|>", "<|sep|>", "'think'"},
     .open = "{<|open|>}think{<|sep|>}",
     .close = "{<|close|>}think{<|sep|>}",
     .drop = {"{<|open|>}response{<|sep|>}", "{<|close|>}response{<|sep|>}",
              "{<|close|>}message{<|sep|>}"}},
    {.name = "gemma-4",
     .models = "Gemma 4",
     .detect = {"<|channel>thought"},
     .open = "{<|channel>}thought\n",
     .close = "{<channel|>}"},
    {.name = "command-r7b",
     .models = "Command R7B, Command A",
     .detect = {"<|START_THINKING|>"},
     .open = "{<|START_THINKING|>}",
     .close = "{<|END_THINKING|>}",
     .drop = {"{<|START_RESPONSE|>}", "{<|END_RESPONSE|>}"}},
    {.name = "apertus",
     .models = "Apertus",
     .detect = {"<|inner_prefix|>"},
     .open = "{<|inner_prefix|>}",
     .close = "{<|inner_suffix|>}"},
    {.name = "magistral",
     .models = "Magistral, Ministral 3",
     .detect = {"[THINK]"},
     .open = "{[THINK]}",
     .close = "{[/THINK]}"},
    {.name = "seed-oss",
     .models = "Seed-OSS",
     .detect = {"<seed:think>"},
     .open = "{<seed:think>}",
     .close = "{</seed:think>}"},
    {.name = "hy3",
     .models = "Hy3",
     .detect = {"<think", "</think", ":opensource"},
     .open = "{<think:opensource>}",
     .close = "{</think:opensource>}"},
    {.name = "solar",
     .models = "Solar Open",
     .detect = {"<|think|>", "<|content|>", "<|begin|>"},
     .open = "{<|think|>}",
     .close = "{<|end|>}",
     .drop = {"{<|begin|>}assistant", "{<|content|>}"}},
    {.name = "apriel",
     .models = "Apriel 1.5, 1.6",
     .detect = {"[BEGIN FINAL RESPONSE]"},
     .open = "Here are my reasoning steps:",
     .close = "[BEGIN FINAL RESPONSE]",
     .drop = {"[END FINAL RESPONSE]"}},
    {.name = "granite-3.3",
     .models = "Granite 3.2, 3.3",
     .detect = {"<think>", "<response></response>"},
     .open = "{<think>}",
     .close = "{</think>}",
     .drop = {"{<response>}", "{</response>}"}},
    {.name = "hunyuan",
     .models = "Hunyuan A13B",
     .detect = {"<think>", "<answer>"},
     .open = "{<think>}",
     .close = "{</think>}",
     .drop = {"{<answer>}", "{</answer>}"}},
    {.name = "think",
     .models = "Qwen 3, DeepSeek, GLM, Kimi K2, MiniMax, Nemotron, LFM2.5, SmolLM3, most others",
     .detect = {"</think>"},
     .open = "{<think>}",
     .close = "{</think>}"},
    {.name = "think",
     .models = "Qwen 3, DeepSeek, GLM, Kimi K2, MiniMax, Nemotron, LFM2.5, SmolLM3, most others",
     .detect = {"<think>"},
     .open = "{<think>}",
     .close = "{</think>}"},
    {.name = "none", .models = "nothing is set off"},
};

enum {
    TOOL_FORMS = sizeof tool_forms / sizeof tool_forms[0],
    REASONING_FORMS = sizeof reasoning_forms / sizeof reasoning_forms[0]
};

const gw_tool_form *gw_tool_form_at(size_t i) { return i < TOOL_FORMS ? &tool_forms[i] : NULL; }

const gw_reasoning_form *gw_reasoning_form_at(size_t i) {
    return i < REASONING_FORMS ? &reasoning_forms[i] : NULL;
}

const gw_tool_form *gw_tool_form_named(const char *name) {
    for (size_t i = 0; i < TOOL_FORMS; i++) {
        if (strcmp(tool_forms[i].name, name) == 0) {
            return &tool_forms[i];
        }
    }
    return NULL;
}

const gw_reasoning_form *gw_reasoning_form_named(const char *name) {
    for (size_t i = 0; i < REASONING_FORMS; i++) {
        if (strcmp(reasoning_forms[i].name, name) == 0) {
            return &reasoning_forms[i];
        }
    }
    return NULL;
}

static int has(const char *text, size_t bytes, const char *word) {
    size_t n = strlen(word);
    for (const char *at = text; n <= bytes - (size_t)(at - text);) {
        at = memchr(at, word[0], bytes - (size_t)(at - text) - n + 1);
        if (at == NULL) {
            return 0;
        }
        if (memcmp(at, word, n) == 0) {
            return 1;
        }
        at++;
    }
    return 0;
}

static int matches(const char *text, size_t bytes, const char *const detect[3]) {
    for (int i = 0; i < 3 && detect[i] != NULL; i++) {
        if (!has(text, bytes, detect[i])) {
            return 0;
        }
    }
    return 1;
}

const gw_tool_form *gw_tool_form_of(const char *text, size_t bytes) {
    for (size_t i = 0; i < TOOL_FORMS && text != NULL; i++) {
        if (tool_forms[i].detect[0] != NULL && matches(text, bytes, tool_forms[i].detect)) {
            return &tool_forms[i];
        }
    }
    return gw_tool_form_named("json");
}

const gw_reasoning_form *gw_reasoning_form_of(const char *text, size_t bytes) {
    for (size_t i = 0; i < REASONING_FORMS && text != NULL; i++) {
        if (reasoning_forms[i].detect[0] != NULL &&
            matches(text, bytes, reasoning_forms[i].detect)) {
            return &reasoning_forms[i];
        }
    }
    return gw_reasoning_form_named("none");
}
