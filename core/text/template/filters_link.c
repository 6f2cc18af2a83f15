/* core/text/template/filters_link.c - urlize: links around what looks like one, by the rules of
 * jinja2.utils.urlize; its expressions are in PCRE2's words.
 */
#include <string.h>

#include "core/text/template/render.h"
#include "core/text/template/tree.h"
#include "core/text/regex.h"
#include "core/text/utf8.h"

static const char http_like[] =
    "^(?i:(?:https?://|www\\.)(?:(?:[\\w%-]+\\.)+)?(?:[a-z]{2,63}|xn--[\\w%]{2,59})"
    "|(?:[\\w%-]{2,63}\\.)+(?:com|net|int|edu|gov|org|info|mil)"
    "|https?://(?:[\\d]{1,3}(?:\\.[\\d]{1,3}){3}"
    "|\\[(?:[\\da-f]{0,4}:){2}(?:[\\da-f]{0,4}:?){1,6}\\]))"
    "(?::[\\d]{1,5})?(?:[/?#]\\S*)?$";
static const char mail_like[] = "^\\S+@\\w[\\w.-]*\\.\\w+$";

typedef struct word {
    gw_tv head, middle, tail; /* head and tail: brackets and punctuation around it */
    int http, mail;           /* middle, or what is behind its "mailto:", looks like one */
} word;

static int begins(gw_tv text, const char *with) {
    size_t n = strlen(with);
    return n <= text.n && memcmp(text.text, with, n) == 0;
}

static int ends(gw_tv text, const char *with) {
    size_t n = strlen(with);
    return n <= text.n && memcmp(text.text + text.n - n, with, n) == 0;
}

static size_t count(gw_tv text, const char *what) {
    size_t n = strlen(what), found = 0;
    for (size_t at = 0; at + n <= text.n;) {
        int hit = memcmp(text.text + at, what, n) == 0;
        found += (size_t)hit;
        at += hit ? n : 1;
    }
    return found;
}

/* Brackets in front, punctuation behind; brackets that the middle opens stay with it. */
static word take_apart(gw_tv text) {
    static const char *const front[] = {"(", "<", "&lt;"};
    static const char *const back[] = {")", ">", ".", ",", "\n", "&gt;"};
    static const char *const pairs[][2] = {{"(", ")"}, {"<", ">"}, {"&lt;", "&gt;"}};
    size_t head = 0, tail = text.n;
    for (size_t i = 0; i < 3; i++) {
        if (begins(gw_tv_cut(text, head, text.n - head), front[i])) {
            head += strlen(front[i]);
            i = SIZE_MAX;
        }
    }
    for (size_t i = 0; i < 6; i++) {
        if (ends(gw_tv_cut(text, head, tail - head), back[i])) {
            tail -= strlen(back[i]);
            i = SIZE_MAX;
        }
    }
    for (size_t i = 0; i < 3; i++) {
        gw_tv middle = gw_tv_cut(text, head, tail - head);
        size_t opened = count(middle, pairs[i][0]);
        if (opened <= count(middle, pairs[i][1])) {
            continue;
        }
        for (; opened > 0 && tail < text.n; opened--) {
            size_t n = strlen(pairs[i][1]);
            const char *hit = memmem(text.text + tail, text.n - tail, pairs[i][1], n);
            if (hit == NULL) {
                break;
            }
            tail = (size_t)(hit - text.text) + n;
        }
    }
    return (word){.head = gw_tv_cut(text, 0, head),
                  .middle = gw_tv_cut(text, head, tail - head),
                  .tail = gw_tv_cut(text, tail, text.n - tail)};
}

static int matches(const gw_regex *regex, gw_regex_work *work, gw_tv text) {
    size_t start, end;
    int found = 0; /* what backtracks without end is no link */
    if (gw_utf8_span(text.text, text.n) < text.n) {
        return 0;
    }
    gw_status status = gw_regex_find(regex, work, text.text, text.n, 0, &found, &start, &end);
    return status == GW_OK && found;
}

/* Nothing here raises: PCRE2's memory is held meanwhile. */
static gw_status look_at(word *words, size_t n) {
    gw_regex *http = NULL, *mail = NULL;
    gw_regex_work *work = NULL;
    gw_status status = gw_regex_new("urlize", http_like, 0, &http);
    if (status == GW_OK) {
        status = gw_regex_new("urlize", mail_like, 0, &mail);
    }
    if (status == GW_OK) {
        status = gw_regex_work_new(&work);
    }
    for (size_t i = 0; status == GW_OK && i < n; i++) {
        gw_tv m = words[i].middle;
        if (memchr(m.text, '.', m.n) == NULL && memchr(m.text, ':', m.n) == NULL) {
            continue;
        }
        words[i].http = matches(http, work, m);
        if (!words[i].http && memchr(m.text, '@', m.n) != NULL) {
            size_t skip = begins(m, "mailto:") ? 7 : 0;
            words[i].mail = matches(mail, work, gw_tv_cut(m, skip, m.n - skip));
        }
    }
    gw_regex_work_free(work);
    gw_regex_free(mail);
    gw_regex_free(http);
    return status;
}

typedef struct linker {
    gw_tpl *r;
    gw_tpl_out *out;
    int64_t limit; /* of characters that are shown, below 0 from the end; INT64_MAX: none */
    gw_tv rel, target, schemes;
} linker;

static void put_link(linker *l, const char *scheme, gw_tv to, gw_tv shown, int attributes) {
    gw_tpl *r = l->r;
    gw_tpl_out_words(r, l->out, "<a href=\"");
    gw_tpl_out_words(r, l->out, scheme);
    gw_tpl_out_text(r, l->out, to);
    gw_tpl_out_words(r, l->out, "\"");
    if (attributes && gw_tv_truth(r, l->rel)) {
        gw_tpl_out_words(r, l->out, " rel=\"");
        gw_tpl_out_text(r, l->out, gw_tpl_escape(r, l->rel));
        gw_tpl_out_words(r, l->out, "\"");
    }
    if (attributes && gw_tv_given(l->target) && gw_tv_truth(r, l->target)) {
        gw_tpl_out_words(r, l->out, " target=\"");
        gw_tpl_out_text(r, l->out, gw_tpl_escape(r, l->target));
        gw_tpl_out_words(r, l->out, "\"");
    }
    gw_tpl_out_words(r, l->out, ">");
    gw_tpl_out_text(r, l->out, shown);
    gw_tpl_out_words(r, l->out, "</a>");
}

static gw_tv shortened(linker *l, gw_tv text) {
    int64_t n = (int64_t)gw_tv_chars(l->r, text), kept = l->limit < 0 ? l->limit + n : l->limit;
    if (n <= l->limit) {
        return text;
    }
    gw_tv cut = gw_tv_cut(text, 0, gw_tpl_at_char(l->r, text, kept > 0 ? (size_t)kept : 0));
    return gw_tv_join2(l->r, cut, gw_tv_words("..."));
}

static void put_middle(linker *l, const word *w) {
    gw_tv m = w->middle;
    if (w->http) {
        int whole = begins(m, "https://") || begins(m, "http://");
        put_link(l, whole ? "" : "https://", m, shortened(l, m), 1);
        return;
    }
    if (begins(m, "mailto:") && w->mail) {
        put_link(l, "", m, gw_tv_cut(m, 7, m.n - 7), 0);
        return;
    }
    if (w->mail && !begins(m, "www.") && !begins(m, "@") && memchr(m.text, ':', m.n) == NULL) {
        put_link(l, "mailto:", m, m, 0);
        return;
    }
    gw_tpl_walk schemes = gw_tpl_walk_over(l->r, l->schemes);
    for (size_t i = 0; i < schemes.n; i++) {
        gw_tv scheme = gw_tpl_walk_at(&schemes, i);
        if (scheme.n < m.n && memcmp(scheme.text, m.text, scheme.n) == 0) {
            put_link(l, "", m, m, 1);
            return;
        }
    }
    gw_tpl_out_text(l->r, l->out, m);
}

/* [\w.+-]{2,}:(/){0,2} */
static void check_scheme(gw_tpl *r, gw_tv scheme) {
    size_t at = 0, chars = 0;
    while (scheme.kind == GW_TV_TEXT && at < scheme.n) {
        uint32_t cp = 0;
        size_t n = gw_utf8_next(scheme.text + at, scheme.n - at, &cp);
        if (!gw_tpl_is_word(cp) && cp != '.' && cp != '+' && cp != '-') {
            break;
        }
        at += n > 0 ? n : 1;
        chars++;
    }
    gw_tv rest = gw_tv_cut(scheme, at, scheme.kind == GW_TV_TEXT ? scheme.n - at : 0);
    if (chars < 2 || !(gw_tv_same_text(rest, ":") || gw_tv_same_text(rest, ":/") ||
                       gw_tv_same_text(rest, "://"))) {
        gw_tv shown = gw_tv_repr(r, scheme);
        gw_tpl_raise(r, GW_E_TYPE, "%.*s is not a valid URI scheme prefix.",
                     (int)(shown.n > 80 ? 80 : shown.n), shown.text);
    }
}

/* The words of rel, nofollow and noopener, each once, by the alphabet. */
static gw_tv rel_of(gw_tpl *r, gw_tv rel, int nofollow) {
    gw_tv all = gw_tv_list(r, 0), one = gw_tv_list(r, 0);
    size_t at = 0;
    gw_tpl_add(r, all, gw_tv_words("noopener"));
    if (nofollow) {
        gw_tpl_add(r, all, gw_tv_words("nofollow"));
    }
    while (rel.kind == GW_TV_TEXT && at < rel.n) {
        size_t from = at;
        while (at < rel.n && !gw_tpl_is_space((unsigned char)rel.text[at])) {
            at++;
        }
        if (at > from) {
            gw_tpl_add(r, all, gw_tv_cut(rel, from, at - from));
        }
        at++;
    }
    gw_tpl_sort(r, all.list->at, all.list->at, all.list->n, 0);
    for (size_t i = 0; i < all.list->n; i++) {
        if (i == 0 || !gw_tv_equal(r, all.list->at[i - 1], all.list->at[i])) {
            gw_tpl_add(r, one, all.list->at[i]);
        }
    }
    return gw_tpl_join(r, gw_tv_words(" "), one, 0);
}

/* The text in words and the space between them, in turn; text is well-formed UTF-8. */
static size_t cut_words(gw_tpl *r, gw_tv text, word **out) {
    size_t n = 0, room = 16;
    word *words = gw_tpl_array(r, room, sizeof *words);
    for (size_t at = 0, from = 0; from < text.n; from = at) {
        int space = -1;
        while (at < text.n) {
            uint32_t cp = 0;
            size_t size = gw_utf8_next(text.text + at, text.n - at, &cp);
            int now = gw_tpl_is_space(cp);
            if (space >= 0 && now != space) {
                break;
            }
            space = now;
            at += size > 0 ? size : 1;
        }
        if (n == room) {
            word *more = gw_tpl_array(r, room *= 2, sizeof *more);
            memcpy(more, words, n * sizeof *more);
            words = more;
        }
        gw_tv piece = gw_tv_cut(text, from, at - from), nothing = gw_tv_cut(text, from, 0);
        words[n++] = space ? (word){.head = nothing, .middle = nothing, .tail = piece}
                           : take_apart(piece);
        gw_tpl_charge(r, 4 + (at - from) / 2);
    }
    *out = words;
    return n;
}

/* a: trim_url_limit, nofollow, target, rel, extra_schemes */
gw_tv gw_tpl_urlize(gw_tpl *r, gw_tv v, const gw_tv *a) {
    word *words;
    gw_tv text = gw_tpl_escape(r, v);
    linker l = {.r = r, .limit = INT64_MAX, .target = a[2]};
    l.rel = rel_of(r, a[3], gw_tv_truth(r, a[1]));
    if (gw_tv_given(a[0]) && a[0].kind != GW_TV_NONE) {
        l.limit = gw_tpl_int(r, a[0], "trim_url_limit");
    }
    l.schemes = gw_tv_given(a[4]) && gw_tv_truth(r, a[4]) ? a[4] : gw_tv_list(r, 0);
    gw_tpl_walk schemes = gw_tpl_walk_over(r, l.schemes);
    for (size_t i = 0; i < schemes.n; i++) {
        check_scheme(r, gw_tpl_walk_at(&schemes, i));
    }
    size_t n = cut_words(r, text, &words);
    gw_tpl_charge(r, 500);
    if (look_at(words, n) != GW_OK) {
        gw_tpl_raise(r, GW_E_NOMEM, "urlize: out of memory");
    }
    l.out = gw_tpl_out_open(r);
    for (size_t i = 0; i < n; i++) {
        gw_tpl_out_text(r, l.out, words[i].head);
        put_middle(&l, &words[i]);
        gw_tpl_out_text(r, l.out, words[i].tail);
    }
    gw_tv linked = gw_tpl_out_close(r, l.out);
    linked.safe = r->escapes != 0;
    return linked;
}
