/* apps/template.c - `godwit template`: the text that a model is really given for a request; and how
 * every command finds the template of its chats. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "apps/chat_answer.h"
#include "apps/common.h"
#include "apps/output.h"
#include "apps/pictures.h"

/* ---- the settings of a chat ------------------------------------------------------------------ */

/* One NAME=JSON as a member of the object. The value is taken as it is spelled: numbers may be of
 * any size. */
static int add_argument(chat_text *b, const char *argument) {
    size_t n = strcspn(argument, "=");
    const char *value = argument + n + 1;
    json_error_t fault;
    if (argument[n] == '\0' || n == 0 || strcspn(argument, "\"\\ \t\n") < n) {
        app_error("--template-arg %.60s: is not of the form NAME=JSON", argument);
        return APP_USAGE;
    }
    json_t *parsed =
        json_loads(value, JSON_DECODE_ANY | JSON_DECODE_INT_AS_REAL | JSON_ALLOW_NUL, &fault);
    if (parsed == NULL) {
        app_error("--template-arg %.*s: the value is no JSON (%s); a text stands in quotes: "
                  "%.*s='\"...\"'",
                  (int)n, argument, fault.text, (int)n, argument);
        return APP_USAGE;
    }
    json_decref(parsed);
    int code = chat_text_add(b, b->bytes == 0 ? "{\"" : ", \"", b->bytes == 0 ? 2 : 3);
    code = code == APP_OK ? chat_text_add(b, argument, n) : code;
    code = code == APP_OK ? chat_text_add(b, "\": ", 3) : code;
    return code == APP_OK ? chat_text_add(b, value, strlen(value)) : code;
}

/* A name has no slash and no dot; what has one is a file. */
static int is_file(const char *name) { return strpbrk(name, "/.") != NULL; }

int app_open_chat(const app_options *o, const gw_model *model, gw_chat **chat) {
    chat_text arguments = {0};
    app_text text = {0};
    gw_chat_settings settings = {
        .name = o->chat_template, .reasoning = o->reasoning, .date = o->date};
    int code = APP_OK;
    if (o->chat_template != NULL && is_file(o->chat_template)) {
        code = app_read_file(o->chat_template, &text);
        settings.name = NULL;
        settings.template_text = text.at;
        settings.template_bytes = text.bytes;
    }
    for (size_t i = 0; i < o->template_args.n && code == APP_OK; i++) {
        code = add_argument(&arguments, o->template_args.at[i]);
    }
    if (code == APP_OK && arguments.bytes > 0) {
        code = chat_text_add(&arguments, "}", 1);
        settings.arguments = arguments.at;
    }
    if (code == APP_OK) {
        gw_status status = gw_chat_open(model, &settings, chat);
        code = status == GW_OK ? APP_OK : app_fail(status);
    }
    free(arguments.at);
    free(text.at);
    return code;
}

/* ---- godwit template ------------------------------------------------------------------------- */

static int print_ids(const gw_chat_text *text) {
    out_text("[");
    for (size_t i = 0; i < text->n_ids; i++) {
        out_print(i == 0 ? "%d" : ",%d", (int)text->ids[i]);
    }
    return out_text("]\n") == 0 ? APP_OK : APP_FAILURE;
}

static int write_request(const app_options *o, const gw_chat *chat) {
    app_text request = {0};
    app_pictures pictures = {0};
    gw_chat_text text = {0};
    int code = pictures_open(&pictures, o);
    code = code == APP_OK ? app_read_file(o->file, &request) : code;
    if (code != APP_OK) {
        pictures_free(&pictures);
        return code;
    }
    gw_status status = pictures.n > 0
                           ? gw_chat_write_images(chat, request.at, request.bytes, pictures.images,
                                                  pictures.at, pictures.n, &text)
                           : gw_chat_write(chat, request.at, request.bytes, &text);
    free(request.at);
    pictures_free(&pictures);
    if (status != GW_OK) { /* of the template or of the request: no matter of usage */
        app_error("%s", gw_error_text());
        return APP_FAILURE;
    }
    if (o->ids_only) {
        code = print_ids(&text);
    } else {
        code = out_write(text.text, text.bytes) == 0 ? APP_OK : APP_FAILURE;
    }
    gw_chat_text_free(&text);
    return code;
}

static int run_template(const app_options *o) {
    gw_model *model = NULL;
    gw_chat *chat = NULL;
    if (o->file == NULL) {
        app_error("give a request with -f: a JSON object with \"messages\"");
        return APP_USAGE;
    }
    if (o->model == NULL && (o->chat_template == NULL || o->ids_only)) {
        app_error(o->ids_only ? "--ids needs a model: give one with -m"
                              : "give a model with -m, or a template with --chat-template");
        return APP_USAGE;
    }
    int code = o->model != NULL ? app_open_model(o, o->model, 1, NULL, &model) : APP_OK;
    code = code == APP_OK ? app_open_chat(o, model, &chat) : code;
    code = code == APP_OK ? write_request(o, chat) : code;
    gw_chat_free(chat);
    gw_model_free(model);
    return code;
}

const app_command command_template = {
    .name = "template",
    .bit = CMD_TEMPLATE,
    .usage = "[-m MODEL] [--chat-template FILE|NAME] -f REQUEST.json [OPTIONS]",
    .summary = "the text that a model is given for a chat request",
    .detail =
        "Prints what the chat template makes of a request, and nothing behind it. Every member of\n"
        "the request is a variable of the template: messages, tools, documents,\n"
        "add_generation_prompt (false unless given), continue_final_message, enable_thinking,\n"
        "bos_token, ... Special tokens are the model's unless given, and undefined without a\n"
        "model. With --ids the tokens are printed: what came with the request never becomes a\n"
        "special token, whatever it spells.\n"
        "With --image, which stands for the parts {\"type\": \"image\"} of the messages in their\n"
        "order, the text has what the model reads for each picture.\n",
    .examples =
        "  godwit template -m model.gguf -f request.json\n"
        "  godwit template --chat-template chat_template.jinja -f request.json\n"
        "  echo '{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}]}' | godwit template "
        "--chat-template chatml -f -\n",
    .run = run_template,
};
