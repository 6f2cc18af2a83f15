/* core/text/template/prepare.c - what transformers does to a conversation before it renders it, and
 * to the text behind it when the last message is to be continued.
 */
#include <string.h>

#include "core/text/template/render.h"

/* Put behind the last message's content; the text ends where it comes out. */
static const char mark[] = "CONTINUE_FINAL_MESSAGE_TAG ";

static void preset(gw_tpl *r, gw_tpl_dict *variables, const char *name, gw_tv value) {
    if (gw_tpl_find_word(r, variables, name, strlen(name)) == NULL) {
        gw_tpl_put(r, variables, gw_tv_words(name), value);
    }
}

/* Templates make markers of roles ('<|' + role + '|>'). A role that is one plain word counts as
 * theirs: alone it spells no marker. */
static gw_tv role_of(gw_tv role) {
    for (size_t i = 0; role.kind == GW_TV_TEXT && i < role.n; i++) {
        char c = role.text[i];
        if (c != '_' && c != '-' && !(c >= '0' && c <= '9') &&
            !((c | 32) >= 'a' && (c | 32) <= 'z')) {
            return role;
        }
    }
    role.all_typed = 0;
    role.typed = role.kind == GW_TV_TEXT ? NULL : role.typed;
    return role;
}

/* A message without members that are null; what was thought has two names. */
static gw_tv clean_message(gw_tpl *r, gw_tv message, size_t number) {
    if (message.kind != GW_TV_DICT) {
        gw_tpl_raise(r, GW_E_ARGUMENT, "message %zu is no object", number);
    }
    gw_tv clean = gw_tv_dict(r);
    for (size_t i = 0; i < message.dict->n; i++) {
        if (message.dict->at[i].value.kind != GW_TV_NONE) {
            gw_tpl_put(r, clean.dict, message.dict->at[i].key, message.dict->at[i].value);
        }
    }
    gw_tv *role = gw_tpl_find_word(r, clean.dict, "role", 4);
    if (role != NULL) {
        *role = role_of(*role);
    }
    gw_tv *thought = gw_tpl_find_word(r, clean.dict, "reasoning_content", 17);
    if (thought != NULL) {
        preset(r, clean.dict, "thinking", *thought);
    }
    return clean;
}

/* The text with which a message ends: its content, or the last part of it that is text. */
static gw_tv *last_text(gw_tpl *r, gw_tv message) {
    gw_tv *content = gw_tpl_find_word(r, message.dict, "content", 7);
    if (content == NULL) {
        return NULL;
    }
    for (size_t i = content->kind == GW_TV_LIST ? content->list->n : 0; i-- > 0;) {
        gw_tv part = content->list->at[i];
        gw_tv *text = part.kind == GW_TV_DICT ? gw_tpl_find_word(r, part.dict, "text", 4) : NULL;
        if (text != NULL) {
            return text;
        }
    }
    return content->kind == GW_TV_TEXT ? content : NULL;
}

static void set_own(gw_tv v, int own);

static void set_own_dict(gw_tpl_dict *dict, int own) {
    dict->own = own;
    for (size_t i = 0; i < dict->n; i++) {
        set_own(dict->at[i].value, own);
    }
}

static void set_own(gw_tv v, int own) {
    if (v.kind == GW_TV_DICT) {
        set_own_dict(v.dict, own);
    } else if (v.kind == GW_TV_LIST) {
        v.list->own = own;
        for (size_t i = 0; i < v.list->n; i++) {
            set_own(v.list->at[i], own);
        }
    }
}

void gw_tpl_protect(gw_tpl_dict *variables) { set_own_dict(variables, 0); }

void gw_tpl_prepare(gw_tpl *r, gw_tpl_dict *variables, int *goes_on) {
    gw_tv *messages = gw_tpl_find_word(r, variables, "messages", 8);
    gw_tv *flag = gw_tpl_find_word(r, variables, "continue_final_message", 22);
    gw_tv *opens = gw_tpl_find_word(r, variables, "add_generation_prompt", 21);
    *goes_on = flag != NULL && gw_tv_truth(r, *flag);
    if (*goes_on && opens != NULL && gw_tv_truth(r, *opens)) {
        gw_tpl_raise(r, GW_E_ARGUMENT,
                     "continue_final_message and add_generation_prompt exclude each other");
    }
    gw_tpl_remove(r, variables, gw_tv_words("continue_final_message"));
    messages = gw_tpl_find_word(r, variables, "messages", 8);
    if (messages != NULL && messages->kind == GW_TV_LIST) {
        gw_tv clean = gw_tv_list(r, messages->list->n);
        for (size_t i = 0; i < messages->list->n; i++) {
            gw_tpl_add(r, clean, clean_message(r, messages->list->at[i], i + 1));
        }
        *messages = clean;
    } else if (messages != NULL) {
        gw_tpl_raise(r, GW_E_ARGUMENT, "\"messages\" is no list");
    }
    preset(r, variables, "tools", gw_tv_none());
    preset(r, variables, "documents", gw_tv_none());
    preset(r, variables, "add_generation_prompt", gw_tv_bool(0));
    if (!*goes_on) {
        return;
    }
    size_t n = messages != NULL ? messages->list->n : 0;
    gw_tv *text = n > 0 ? last_text(r, messages->list->at[n - 1]) : NULL;
    if (text == NULL) {
        gw_tpl_raise(r, GW_E_ARGUMENT,
                     "continue_final_message: the last message has no text to go on with");
    }
    preset(r, variables, " final", *text); /* no name that a template could have */
    *text = gw_tv_join2(r, *text, gw_tv_words(mark));
}

void gw_tpl_cut_at_mark(gw_tpl *r, gw_tpl_out *out, gw_tpl_dict *variables) {
    gw_tv final = *gw_tpl_find_word(r, variables, " final", 6);
    gw_tv last = gw_tpl_strip(r, final, gw_tv_none(), 1, 1);
    size_t n = sizeof mark - 2, at = out->n + 1; /* without the blank at its end */
    while (at-- > 0) {
        if (out->n - at >= n && memcmp(out->data + at, mark, n) == 0) {
            break;
        }
    }
    if (at == SIZE_MAX || memmem(out->data, out->n, last.text, last.n) == NULL) {
        gw_tpl_raise(r, GW_E_ARGUMENT,
                     "continue_final_message: the template leaves the last message "
                     "out, or changes it");
    }
    int kept = out->n - at > n && out->data[at + n] == ' ';
    out->n = at;
    if (!kept) { /* the template strips white space: what stood before the mark would be gone */
        gw_tv text = gw_tv_text(out->data, out->n);
        out->n = gw_tpl_strip(r, text, gw_tv_none(), 0, 1).n;
    }
}
