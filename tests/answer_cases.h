/* tests/answer_cases.h - answers in every form, as the templates of /templates write them, and what
 * is in them; for test_answer and the seeds of fuzz_answer. */
#ifndef GW_TESTS_ANSWER_CASES_H
#define GW_TESTS_ANSWER_CASES_H

#include <stddef.h>

/* Tools of the cases: get_weather and search_files of templates/conversations.json, and some that
 * are awkward. */
#define CASE_TOOLS                                                                                 \
    "[{\"type\":\"function\",\"function\":{\"name\":\"get_weather\",\"parameters\":{\"type\":"     \
    "\"object\",\"properties\":{\"city\":{\"type\":\"string\"},\"unit\":{\"type\":\"string\","     \
    "\"enum\":[\"celsius\",\"fahrenheit\"]},\"days\":{\"type\":\"integer\",\"minimum\":1,"         \
    "\"maximum\":7},\"where\":{\"type\":\"object\",\"properties\":{\"lat\":{\"type\":\"number\"}," \
    "\"lon\":{\"type\":[\"number\",\"null\"]},\"tags\":{\"type\":\"array\",\"items\":{\"type\":"   \
    "\"string\"}}},\"required\":[\"lat\",\"lon\"]}},\"required\":[\"city\"]}}},"                   \
    "{\"type\":\"function\",\"function\":{\"name\":\"search_files\",\"parameters\":{\"type\":"     \
    "\"object\",\"properties\":{\"pattern\":{\"type\":\"string\"},\"limit\":{\"type\":"            \
    "\"integer\"},\"hidden\":{\"type\":\"boolean\"},\"note\":{\"type\":[\"string\",\"null\"]},"    \
    "\"size\":{\"anyOf\":[{\"type\":\"number\"},{\"$ref\":\"#/$defs/word\"}]}},"                   \
    "\"required\":[\"pattern\",\"limit\"],\"$defs\":{\"word\":{\"enum\":[\"any\",\"big\"]}}}}},"   \
    "{\"type\":\"function\",\"function\":{\"name\":\"now\",\"description\":null,\"parameters\":"   \
    "null}}]"

#define W                                                                                          \
    "{\"city\": \"Z\xC3\xBCrich\", \"unit\": \"celsius\", \"days\": 3, \"where\": {\"lat\": "      \
    "47.37, \"lon\": null, \"tags\": [\"a\", \"b\\\"c\"]}}"
#define S "{\"pattern\": \"*.c\", \"limit\": 5, \"hidden\": false}"
#define WC "get_weather " W
#define SC "search_files " S
#define WHERE "{\"lat\": 47.37, \"lon\": null, \"tags\": [\"a\", \"b\\\"c\"]}"
#define PY_WHERE "{'lat': 47.37, 'lon': None, 'tags': ['a', 'b\"c']}"

/* U+FF5C and U+2581 of DeepSeek's tokens. */
#define BAR "\xEF\xBD\x9C"
#define US "\xE2\x96\x81"
#define DS(word) "<" BAR word BAR ">"
#define DSML BAR "DSML" BAR
#define GCML BAR "GCML" BAR

typedef struct answer_case {
    const char *tools, *reasoning; /* forms */
    const char *prompt;            /* what the prompt ends with */
    const char *answer;
    const char *text, *thought; /* expected */
    const char *calls[3];       /* "NAME ARGUMENTS" */
} answer_case;

#define OLD_OBJ(name, args) "{\"name\": \"" name "\", \"arguments\": " args "}"
#define LLAMA_OBJ(name, args) "{\"name\": \"" name "\", \"parameters\": " args "}"
#define HERMES(name, args) "<tool_call>\n" OLD_OBJ(name, args) "\n</tool_call>"

#define QWEN_W                                                                                     \
    "<tool_call>\n<function=get_weather>\n<parameter=city>\nZ\xC3\xBCrich\n</parameter>\n"         \
    "<parameter=unit>\ncelsius\n</parameter>\n<parameter=days>\n3\n</parameter>\n"                 \
    "<parameter=where>\n" WHERE "\n</parameter>\n</function>\n</tool_call>"
#define QWEN_S                                                                                     \
    "<tool_call>\n<function=search_files>\n<parameter=pattern>\n*.c\n</parameter>\n"               \
    "<parameter=limit>\n5\n</parameter>\n<parameter=hidden>\nFalse\n</parameter>\n"                \
    "</function>\n</tool_call>"

#define DS_PARAM(mark, key, is, value)                                                             \
    "<" mark "parameter name=\"" key "\" string=\"" is "\">" value "</" mark "parameter>\n"
#define DS_CALLS(mark)                                                                             \
    "<" mark "invoke name=\"get_weather\">\n" DS_PARAM(mark, "city", "true", "Z\xC3\xBCrich")      \
        DS_PARAM(mark, "unit", "true", "celsius") DS_PARAM(mark, "days", "false", "3") DS_PARAM(   \
            mark, "where", "false",                                                                \
            WHERE) "</" mark "invoke>\n"                                                           \
                   "<" mark                                                                        \
                   "invoke name=\"search_files\">\n" DS_PARAM(mark, "pattern", "true", "*.c")      \
                       DS_PARAM(mark, "limit", "false", "5")                                       \
                           DS_PARAM(mark, "hidden", "false", "false") "</" mark "invoke>\n"

#define KEY_VALUE(tail, nl, key, value)                                                            \
    "<arg_key" tail ">" key "</arg_key" tail ">" nl "<arg_value" tail ">" value "</arg_value" tail \
    ">" nl
#define GLM_W(tail, nl)                                                                            \
    KEY_VALUE(tail, nl, "city", "Z\xC3\xBCrich")                                                   \
    KEY_VALUE(tail, nl, "unit", "celsius")                                                         \
    KEY_VALUE(tail, nl, "days", "3") KEY_VALUE(tail, nl, "where", WHERE)
#define GLM_S(tail, nl)                                                                            \
    KEY_VALUE(tail, nl, "pattern", "*.c")                                                          \
    KEY_VALUE(tail, nl, "limit", "5") KEY_VALUE(tail, nl, "hidden", "false")

#define K3_ARG(key, type, value)                                                                   \
    "<|open|>argument key=\"" key "\" type=\"" type "\"<|sep|>" value "<|close|>argument<|sep|>"

static const answer_case answer_cases[] = {
    {"hermes",
     "think",
     "<|im_start|>assistant\n",
     "<think>\nTwo calls.\n</think>\n\nLet me look.\n" HERMES("get_weather",
                                                              W) "\n" HERMES("search_files", S),
     "Let me look.",
     "Two calls.",
     {WC, SC}},
    {"hermes",
     "think",
     "<|im_start|>assistant\n<think>\n",
     "I think\n</think>\n\nHello \n",
     "Hello \n",
     "I think",
     {0}},
    {"hermes",
     "think",
     "<|im_start|>assistant\n<think>\n\n</think>\n\n",
     "Hello",
     "Hello",
     "",
     {0}},
    {"hermes",
     "none",
     "",
     "<tool_call>\n{\"arguments\": {\"pattern\": \"\\u00e9</tool_call>\\\"}{\\n\", \"limit\": 1}, "
     "\"name\": \"search_files\"}\n</tool_call>",
     "",
     "",
     {"search_files {\"pattern\": \"\xC3\xA9</tool_call>\\\"}{\\n\", \"limit\": 1}"}},
    {"hermes",
     "none",
     "",
     "<tool_call>{\"name\": \"search_files\", \"arguments\": \"{\\\"pattern\\\": "
     "\\\"a\\\\\\\"b\\\", "
     "\\\"limit\\\": 2}\"}</tool_call> and <tool_call>[{\"name\":\"now\"}]</tool_call>",
     "and",
     "",
     {"search_files {\"pattern\": \"a\\\"b\", \"limit\": 2}", "now {}"}},
    {"hermes",
     "think",
     "",
     "<tool_call>{\"name\": \"now\", \"arguments\": \"\"}</tool_call>",
     "",
     "",
     {"now {}"}},
    {"hermes", "think", "", "a <tool_call> b", "a <tool_call> b", "", {0}},
    {"hermes",
     "think",
     "",
     "<tool_call>\n{\"name\": 3}\n</tool_call>",
     "<tool_call>\n{\"name\": 3}\n</tool_call>",
     "",
     {0}},
    {"hermes",
     "think",
     "",
     "<tool_call><tool_call>\n{\"name\": \"now\"}</tool_call>.",
     "<tool_call>.",
     "",
     {"now {}"}},
    {"hermes",
     "think",
     "",
     "<tool_call>{\"name\": \"now\", \"arguments\": {\"a\": 1e5, \"b\": [tru]}}</tool_call>",
     "<tool_call>{\"name\": \"now\", \"arguments\": {\"a\": 1e5, \"b\": [tru]}}</tool_call>",
     "",
     {0}},
    {"qwen3-coder", "none", "", "I will.\n\n" QWEN_W "\n" QWEN_S, "I will.", "", {WC, SC}},
    {"qwen3-coder",
     "think",
     "<think>\n",
     "Two calls.\n</think>\n\n" QWEN_W "\n" QWEN_S "\n",
     "",
     "Two calls.",
     {WC, SC}},
    {"qwen3-coder",
     "none",
     "",
     "<tool_call>\n<function=search_files>\n<parameter=pattern>\n\n  a\n\"b\"\\\xF0\x9F\x90\xA6\n"
     "</param>\n\n</parameter>\n<parameter=limit>\n12\n</parameter>\n<parameter=note>\nnull\n"
     "</parameter>\n<parameter=size>\nbig\n</parameter>\n</function>\n</tool_call>",
     "",
     "",
     {"search_files {\"pattern\": \"\\n  a\\n\\\"b\\\"\\\\\xF0\x9F\x90\xA6\\n</param>\\n\", "
      "\"limit\": 12, \"note\": null, \"size\": \"big\"}"}},
    {"qwen3-coder",
     "none",
     "",
     "<tool_call>\n<function=search_files>\n<parameter=pattern>\nnull\n</parameter>\n"
     "<parameter=note>\n5\n</parameter>\n<parameter=size>\n5.5\n</parameter>\n"
     "<parameter=other>\n[1, {\"a\": None}]\n</parameter>\n</function>\n</tool_call>",
     "",
     "",
     {"search_files {\"pattern\": \"null\", \"note\": \"5\", \"size\": 5.5, \"other\": [1, {\"a\": "
      "null}]}"}},
    {"qwen3-coder",
     "none",
     "",
     "<tool_call>\n<function=now>\n</function>\n</tool_call>",
     "",
     "",
     {"now {}"}},
    {"qwen3-coder",
     "none",
     "",
     "<tool_call>\n<function=now>\nwhat\n</function>\n</tool_call>",
     "<tool_call>\n<function=now>\nwhat\n</function>\n</tool_call>",
     "",
     {0}},
    {"seed-oss",
     "seed-oss",
     "",
     "<seed:think>Two calls.</seed:think>\n<seed:tool_call>\n<function=get_weather>\n"
     "<parameter=city>Z\xC3\xBCrich</parameter>\n<parameter=unit>celsius</parameter>\n"
     "<parameter=days>3</parameter>\n<parameter=where>" PY_WHERE "</parameter>\n</function>\n"
     "</seed:tool_call>\n<seed:tool_call>\n<function=search_files>\n<parameter=pattern>*.c"
     "</parameter>\n<parameter=limit>5</parameter>\n<parameter=hidden>False</parameter>\n"
     "</function>\n</seed:tool_call>",
     "",
     "Two calls.",
     {WC, SC}},
    {"minimax-m2",
     "think",
     "<think>\n",
     "Two.\n</think>\n\nYes.\n<minimax:tool_call>\n<invoke name=\"get_weather\">\n<parameter "
     "name=\"city\">Z\xC3\xBCrich</parameter>\n<parameter name=\"unit\">celsius</parameter>\n"
     "<parameter name=\"days\">3</parameter>\n<parameter name=\"where\">" WHERE "</parameter>\n"
     "</invoke>\n<invoke name=\"search_files\">\n<parameter name=\"pattern\">*.c</parameter>\n"
     "<parameter name=\"limit\">5</parameter>\n<parameter name=\"hidden\">false</parameter>\n"
     "</invoke>\n</minimax:tool_call>\n",
     "Yes.",
     "Two.",
     {WC, SC}},
    {"muse",
     "muse",
     "<|start|>assistant",
     " to=self<|message|>Two calls.<|eom|><|start|>assistant to=get_weather<|message|>"
     "<atem:function_calls>\n<atem:invoke name=\"get_weather\">\n<atem:parameter name=\"city\">"
     "Z\xC3\xBCrich</atem:parameter>\n<atem:parameter name=\"unit\">celsius</atem:parameter>\n"
     "<atem:parameter name=\"days\">3</atem:parameter>\n<atem:parameter name=\"where\">" WHERE
     "</atem:parameter>\n</atem:invoke>\n</atem:function_calls><|eom|><|start|>assistant "
     "to=search_files<|message|><atem:function_calls>\n<atem:invoke name=\"search_files\">\n"
     "<atem:parameter name=\"pattern\">*.c</atem:parameter>\n<atem:parameter name=\"limit\">5"
     "</atem:parameter>\n<atem:parameter name=\"hidden\">false</atem:parameter>\n</atem:invoke>\n"
     "</atem:function_calls><|eot|>",
     "",
     "Two calls.",
     {WC, SC}},
    {"muse", "muse", "<|start|>assistant", " to=user<|message|>Done.", "Done.", "", {0}},
    {"deepseek-v4",
     "think",
     DS("Assistant") "</think>",
     "Yes\n\n<" DSML "tool_calls>\n" DS_CALLS(DSML) "</" DSML "tool_calls>",
     "Yes",
     "",
     {WC, SC}},
    {"deepseek-v3.2",
     "think",
     "<think>",
     "hm</think>\n\n<" DSML "function_calls>\n" DS_CALLS(DSML) "</" DSML "function_calls>",
     "",
     "hm",
     {WC, SC}},
    {"gigachat-3.5",
     "none",
     "",
     "<" GCML "tool_calls>\n" DS_CALLS(GCML) "</" GCML "tool_calls>",
     "",
     "",
     {WC, SC}},
    {"deepseek-v3.1",
     "think",
     DS("Assistant") "</think>",
     "Two: " DS("tool" US "calls" US "begin") DS("tool" US "call" US "begin") "get_weather" DS(
         "tool" US "sep") W DS("tool" US "call" US "end")
         DS("tool" US "call" US "begin") "search_files" DS("tool" US "sep")
             S DS("tool" US "call" US "end") DS("tool" US "calls" US "end"),
     "Two:",
     "",
     {WC, SC}},
    {"deepseek-r1",
     "think",
     "<think>\n",
     "Hm.\n</think>\n" DS("tool" US "calls" US "begin")
         DS("tool" US "call" US "begin") "function" DS(
             "tool" US
             "sep") "get_weather\n```json\n" W
                    "\n```" DS("tool" US "call" US "end") "\n" DS(
                        "tool" US "call" US
                        "begin") "function" DS("tool" US "sep") "search_files\n```json\n" S
                                                                "\n```" DS("tool" US "call" US
                                                                           "end")
                                                                    DS("tool" US "calls" US "end"),
     "",
     "Hm.",
     {WC, SC}},
    {"kimi-k2",
     "think",
     "",
     "<think>Two</think>Ok<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0"
     "<|tool_call_argument_begin|>" W "<|tool_call_end|><|tool_call_begin|>"
     "functions.search_files:1<|tool_call_argument_begin|>" S
     "<|tool_call_end|><|tool_calls_section_end|>",
     "Ok",
     "Two",
     {WC, SC}},
    {"kimi-k3",
     "kimi-k3",
     "<|open|>message role=\"assistant\"<|sep|><|open|>think<|sep|>",
     "Two.<|close|>think<|sep|><|open|>response<|sep|>Yes.<|close|>response<|sep|><|open|>tools"
     "<|sep|><|open|>call tool=\"get_weather\" index=\"1\"<|sep|>" K3_ARG("city", "string",
                                                                          "Z\xC3\xBCrich")
         K3_ARG("unit", "string", "celsius") K3_ARG("days", "number", "3") K3_ARG(
             "where", "object", WHERE) "<|close|>call<|sep|><|open|>call tool=\"search_files\" "
                                       "index=\"2\"<|sep|>" K3_ARG("pattern", "string", "*.c")
                                           K3_ARG("limit", "number", "5")
                                               K3_ARG("hidden", "boolean",
                                                      "false") "<|close|>call<|sep|><|close|>tools<"
                                                               "|sep|><|close|>message<|sep|>",
     "Yes.",
     "Two.",
     {WC, SC}},
    {"gemma-4",
     "gemma-4",
     "<|turn>model\n",
     "<|channel>thought\nTwo.\n<channel|><|tool_call>call:get_weather{city:<|\"|>Z\xC3\xBCrich<|\"|"
     ">"
     ",days:3,unit:<|\"|>celsius<|\"|>,where:{lat:47.37,lon:None,tags:[<|\"|>a<|\"|>,<|\"|>b\"c"
     "<|\"|>]}}<tool_call|><|tool_call>call:search_files{hidden:false,limit:5,pattern:<|\"|>*.c"
     "<|\"|>}<tool_call|>",
     "",
     "Two.",
     {WC, SC}},
    {"gemma-4",
     "gemma-4",
     "<|channel>thought\n<channel|>",
     "So: <|tool_call>call:search_files{\"pattern\": \"a}\\\"{\", \"limit\": 5}<tool_call|>",
     "So:",
     "",
     {"search_files {\"pattern\": \"a}\\\"{\", \"limit\": 5}"}},
    {"mistral",
     "magistral",
     "[/INST]",
     "[THINK]Two.[/THINK]Ok[TOOL_CALLS]get_weather[ARGS]" W "[TOOL_CALLS]search_files[ARGS]" S,
     "Ok",
     "Two.",
     {WC, SC}},
    {"mistral-id",
     "none",
     "",
     "[TOOL_CALLS]get_weather[CALL_ID]abcdefghi[ARGS]" W
     "[TOOL_CALLS]search_files[CALL_ID]123456789[ARGS]" S,
     "",
     "",
     {WC, SC}},
    {"mistral",
     "none",
     "",
     "[TOOL_CALLS]get_weather" W "[TOOL_CALLS][" OLD_OBJ("search_files", S) "]",
     "",
     "",
     {WC, SC}},
    {"mistral-list",
     "none",
     "",
     "[TOOL_CALLS][{\"name\": \"get_weather\", \"arguments\": " W
     ", \"id\": \"abcdefghi\"}, {\"name\": \"search_files\", \"arguments\": " S
     ", \"id\": \"123456789\"}]",
     "",
     "",
     {WC, SC}},
    {"command-r7b",
     "command-r7b",
     "<|CHATBOT_TOKEN|>",
     "<|START_THINKING|>Two calls.<|END_THINKING|><|START_ACTION|>[\n    {\"tool_call_id\": \"0\", "
     "\"tool_name\": \"get_weather\", \"parameters\": " W
     "},\n    {\"tool_call_id\": \"1\", \"tool_name\": \"search_files\", \"parameters\": " S
     "}\n]<|END_ACTION|>",
     "",
     "Two calls.",
     {WC, SC}},
    {"command-r7b",
     "command-r7b",
     "<|START_THINKING|><|END_THINKING|>",
     "<|START_RESPONSE|>Done.<|END_RESPONSE|>",
     "Done.",
     "",
     {0}},
    {"command-r",
     "none",
     "",
     "Ok.\nAction:\n```json\n[\n    {\n        \"tool_name\": \"get_weather\",\n        "
     "\"parameters\": " W "\n    },\n    {\n        \"tool_name\": \"search_files\",\n        "
     "\"parameters\": " S "\n    }\n]```\n",
     "Ok.",
     "",
     {WC, SC}},
    {"apertus",
     "apertus",
     "<|assistant_start|>",
     "<|inner_prefix|>Two.<|inner_suffix|>Ok <|tools_prefix|>[{\"get_weather\": " W
     "}, {\"search_files\": " S "}]<|tools_suffix|>",
     "Ok",
     "Two.",
     {WC, SC}},
    {"lfm2",
     "think",
     "",
     "<think>Two.</think>Ok<|tool_call_start|>[get_weather(city='Z\xC3\xBCrich', unit='celsius', "
     "days=3, where=" WHERE
     "), search_files(pattern='*.c', limit=5, hidden=False)]<|tool_call_end|>",
     "Ok",
     "Two.",
     {WC, SC}},
    {"lfm2",
     "none",
     "",
     "<|tool_call_start|>[" OLD_OBJ("get_weather", W) ", " OLD_OBJ("search_files",
                                                                   S) "]<|tool_call_end|>More",
     "More",
     "",
     {WC, SC}},
    {"lfm2-json",
     "none",
     "",
     "<|tool_call_start|>[" OLD_OBJ("get_weather", W) ", " OLD_OBJ("search_files",
                                                                   S) "]<|tool_call_end|>",
     "",
     "",
     {WC, SC}},
    {"lfm2",
     "none",
     "",
     "<|tool_call_start|>[search_files(\"it's (\\\"so\\\") \\u00e9\", limit = 5)]<|tool_call_end|>",
     "",
     "",
     {"search_files {\"pattern\": \"it's (\\\"so\\\") \xC3\xA9\", \"limit\": 5}"}},
    {"solar",
     "solar",
     "<|begin|>assistant",
     "<|think|>Two.<|end|><|begin|>assistant<|tool_calls|><|tool_call:begin|>abcdefghi"
     "<|tool_call:name|>get_weather<|tool_call:args|>" W "<|tool_call:end|><|tool_call:begin|>"
     "jklmnopqr<|tool_call:name|>search_files<|tool_call:args|>" S "<|tool_call:end|>",
     "",
     "Two.",
     {WC, SC}},
    {"hy3",
     "hy3",
     "<think:opensource></think:opensource>",
     "Ok<tool_calls:opensource>\n<tool_call:opensource>get_weather<tool_sep:opensource>\n" GLM_W(
         ":opensource", "\n") "</tool_call:opensource>\n<tool_call:opensource>search_files"
                              "<tool_sep:opensource>\n" GLM_S(
                                  ":opensource",
                                  "\n") "</tool_call:opensource>\n</tool_calls:opensource>",
     "Ok",
     "",
     {WC, SC}},
    {"glm-4.5",
     "think",
     "<|assistant|>",
     "\n<think>Two.</think>\nOk\n<tool_call>get_weather\n" GLM_W(
         "", "\n") "</tool_call>\n<tool_call>"
                   "search_files\n" GLM_S("", "\n") "</tool_call>",
     "Ok",
     "Two.",
     {WC, SC}},
    {"glm-4.7",
     "think",
     "<|assistant|><think>",
     "Two.</think>Ok<tool_call>get_weather" GLM_W(
         "", "") "</tool_call><tool_call>search_files" GLM_S("", "") "</tool_call>",
     "Ok",
     "Two.",
     {WC, SC}},
    {"minicpm5",
     "think",
     "",
     "Ok\n<function name=\"get_weather\"><param name=\"city\">Z\xC3\xBCrich</param><param "
     "name=\"unit\">celsius</param><param name=\"days\">3</param><param name=\"where\">" PY_WHERE
     "</param></function>\n<function name=\"search_files\"><param name=\"pattern\"><![CDATA[*.c]]>"
     "</param><param name=\"limit\">5</param><param name=\"hidden\">False</param></function>",
     "Ok",
     "",
     {WC, SC}},
    {"minicpm5",
     "think",
     "",
     "<function name=\"search_files\"><param name=\"pattern\"><![CDATA[a </param> & \n]]></param>"
     "<param name=\"limit\">5</param></function>",
     "",
     "",
     {"search_files {\"pattern\": \"a </param> & \\n\", \"limit\": 5}"}},
    {"functionary-3.1",
     "none",
     "",
     "<function=get_weather>" W "</function><function=search_files>" S "</function>",
     "",
     "",
     {WC, SC}},
    {"functionary-3.2",
     "none",
     ">>>",
     "all\nTwo.>>>get_weather\n" W ">>>search_files\n" S,
     "Two.",
     "",
     {WC, SC}},
    {"functionary-3.2", "none", ">>>", "get_weather\n" W ">>>search_files\n" S, "", "", {WC, SC}},
    {"firefunction",
     "none",
     "",
     " functools[" OLD_OBJ("get_weather", W) ", " OLD_OBJ("search_files", S) "]",
     "",
     "",
     {WC, SC}},
    {"nemotron-v2",
     "think",
     "<think>\n\n",
     "Two.\n</think>\n\n<TOOLCALL>[" OLD_OBJ("get_weather", W) ", " OLD_OBJ("search_files",
                                                                            S) "]</TOOLCALL>",
     "",
     "Two.",
     {WC, SC}},
    {"tool-calls",
     "apriel",
     "Here are my reasoning steps:\n",
     "Two.\n[BEGIN FINAL RESPONSE]\nOk\n<tool_calls>[" OLD_OBJ("get_weather", W) ", " OLD_OBJ(
         "search_files", S) "]</tool_calls>\n[END FINAL RESPONSE]",
     "Ok",
     "Two.",
     {WC, SC}},
    {"phi-4-mini",
     "none",
     "",
     "<|tool_call|>" OLD_OBJ("get_weather", W) "<|/tool_call|><|tool_call|>" OLD_OBJ(
         "search_files", S) "<|/tool_call|>",
     "",
     "",
     {WC, SC}},
    {"granite-3.3",
     "granite-3.3",
     "",
     "<think>Two.</think><response>Ok.</response><|tool_call|>[" OLD_OBJ(
         "get_weather", W) ", " OLD_OBJ("search_files", S) "]",
     "Ok.",
     "Two.",
     {WC, SC}},
    {"gigachat-3",
     "none",
     "",
     "Ok\nfunction call<|role_sep|>\n" OLD_OBJ("get_weather", W),
     "Ok",
     "",
     {WC}},
    {"gigachat-3.1", "none", "", "<|function_call|>" OLD_OBJ("get_weather", W), "", "", {WC}},
    {"internlm",
     "none",
     "",
     "Ok<|action_start|><|plugin|>" LLAMA_OBJ("get_weather", W) "<|action_end|>",
     "Ok",
     "",
     {WC}},
    {"olmo-3",
     "none",
     "",
     "Ok <function_calls>\nget_weather(city=\"Z\xC3\xBCrich\", unit=\"celsius\", days=3, "
     "where=" PY_WHERE ")\nsearch_files(pattern=\"*.c\", limit=5, hidden=false)\n</function_calls>",
     "Ok",
     "",
     {WC, SC}},
    {"llama-3",
     "none",
     "",
     LLAMA_OBJ("get_weather", W) "; " LLAMA_OBJ("search_files", S),
     "",
     "",
     {WC, SC}},
    {"llama-3",
     "none",
     "",
     "<|python_tag|>get_weather.call(city=\"Z\xC3\xBCrich\", unit=\"celsius\", days=3, "
     "where=" PY_WHERE ")",
     "",
     "",
     {WC}},
    {"llama-3", "none", "", "<|python_tag|>" LLAMA_OBJ("search_files", S), "", "", {SC}},
    {"llama-3",
     "none",
     "",
     "{\"name\": \"Bob\", \"age\": 3}",
     "{\"name\": \"Bob\", \"age\": 3}",
     "",
     {0}},
    {"llama-3",
     "none",
     "",
     "So: " LLAMA_OBJ("search_files", S),
     "So: " LLAMA_OBJ("search_files", S),
     "",
     {0}},
    {"pythonic",
     "none",
     "",
     "[get_weather(city='Z\xC3\xBCrich', unit='celsius', days=3, where=" PY_WHERE
     "), search_files(pattern='*.c', limit=5, hidden=False)]",
     "",
     "",
     {WC, SC}},
    {"pythonic",
     "none",
     "",
     "See [this](http://x) and f(x) [1].",
     "See [this](http://x) and f(x) [1].",
     "",
     {0}},
    {"json",
     "think",
     "",
     "[" OLD_OBJ("get_weather", W) ",\n" OLD_OBJ("search_files", S) "]",
     "",
     "",
     {WC, SC}},
    {"json", "think", "", "{\"name\": \"get_weather\"}", "{\"name\": \"get_weather\"}", "", {0}},
    {"harmony",
     "harmony",
     "<|start|>assistant",
     "<|channel|>analysis<|message|>Two calls.<|end|><|start|>assistant<|channel|>commentary"
     "<|message|>I look.<|end|><|start|>assistant<|channel|>commentary to=functions.get_weather "
     "<|constrain|>json<|message|>" W "<|call|>",
     "I look.",
     "Two calls.",
     {WC}},
    {"harmony",
     "harmony",
     "<|start|>assistant",
     " to=functions.search_files<|channel|>commentary json<|message|>" S "<|call|>",
     "",
     "",
     {SC}},
    {"harmony",
     "harmony",
     "<|start|>assistant",
     "<|channel|>analysis<|message|>Hm.\n<|end|><|start|>assistant<|channel|>final<|message|>Hello "
     "{\"a\": 1}\n<|return|>",
     "Hello {\"a\": 1}",
     "Hm.",
     {0}},
    {"harmony", "harmony", "<|start|>assistant", "Plain words.", "Plain words.", "", {0}},
    {"none",
     "hunyuan",
     "",
     "<think>\nHm.\n</think>\n<answer>\nHello\n</answer>",
     "Hello\n",
     "Hm.",
     {0}},
    {"none", "think", "", HERMES("get_weather", W), HERMES("get_weather", W), "", {0}},
};

enum { ANSWER_CASES = sizeof answer_cases / sizeof answer_cases[0] };

#endif
