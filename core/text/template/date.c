/* core/text/template/date.c - strftime_now: a calendar in the C locale, at a given time. */
#include <stdio.h>
#include <string.h>

#include "core/base/os.h"
#include "core/text/template/render.h"

static const char *const days[] = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                   "Thursday", "Friday", "Saturday"};
static const char *const months[] = {"January",   "February", "March",    "April",
                                     "May",       "June",     "July",     "August",
                                     "September", "October",  "November", "December"};

static int days_in(int year, int month) {
    static const int length[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    int leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    return length[month - 1] + (month == 2 && leap);
}

static int day_of_year(const gw_template_time *t) { /* 1..366 */
    int day = t->day;
    for (int month = 1; month < t->month; month++) {
        day += days_in(t->year, month);
    }
    return day;
}

static int day_of_week(const gw_template_time *t) { /* 0: Sunday */
    int before = t->year - 1;
    return (before * 365 + before / 4 - before / 100 + before / 400 + day_of_year(t)) % 7;
}

gw_status gw_template_time_read(const char *text, gw_template_time *out) {
    gw_template_time t = {0};
    int end = 0;
    int n = sscanf(text, "%4d-%2d-%2d%n", &t.year, &t.month, &t.day, &end);
    if (n == 3 && text[end] != '\0') {
        int more = 0;
        n += sscanf(text + end, "%*1[ T]%2d:%2d:%2d%n", &t.hour, &t.minute, &t.second, &more);
        end += more;
    }
    int fits = (n == 3 || n == 6) && text[end] == '\0' && t.year >= 1 && t.month >= 1 &&
               t.month <= 12 && t.day >= 1 && t.day <= days_in(t.year, t.month) && t.hour >= 0 &&
               t.hour < 24 && t.minute >= 0 && t.minute < 60 && t.second >= 0 && t.second < 60;
    if (!fits) {
        return gw_fail(GW_E_ARGUMENT, "date",
                       "'%.40s' is no date; one looks like \"2026-11-26 10:20:30\"", text);
    }
    *out = t;
    return GW_OK;
}

void gw_template_time_now(gw_template_time *out) {
    time_t now = time(NULL);
    struct tm fields = {0};
    localtime_r(&now, &fields);
    *out = (gw_template_time){fields.tm_year + 1900, fields.tm_mon + 1, fields.tm_mday,
                              fields.tm_hour,        fields.tm_min,     fields.tm_sec};
}

static int iso_weeks(int year) { /* 52 or 53 */
    gw_template_time last = {.year = year, .month = 12, .day = 31};
    gw_template_time first = {.year = year, .month = 1, .day = 1};
    return day_of_week(&first) == 4 || day_of_week(&last) == 4 ? 53 : 52;
}

static int iso_week(const gw_template_time *t, int *year) {
    int weekday = (day_of_week(t) + 6) % 7; /* 0: Monday */
    int week = (day_of_year(t) - 1 - weekday + 10) / 7;
    *year = t->year;
    if (week < 1) {
        *year = t->year - 1;
        return iso_weeks(*year);
    }
    if (week > iso_weeks(t->year)) {
        *year = t->year + 1;
        return 1;
    }
    return week;
}

static const char *half(const gw_template_time *t) { return t->hour < 12 ? "AM" : "PM"; }

static int hour_of_half(const gw_template_time *t) { return t->hour % 12 == 0 ? 12 : t->hour % 12; }

/* Flags, width and modifier of a conversion, as the C library of GNU knows them. */
typedef struct conversion {
    char pad; /* '-', '_', '0'; 0: its own */
    int upper, swap;
    size_t width;
    char how;
} conversion;

/* The conversions that are texts or whole dates; -1: another. */
static int convert_text(const gw_template_time *t, char how, char out[80]) {
    int weekday = day_of_week(t);
    switch (how) {
    case 'a':
        return snprintf(out, 80, "%.3s", days[weekday]);
    case 'A':
        return snprintf(out, 80, "%s", days[weekday]);
    case 'b':
    case 'h':
        return snprintf(out, 80, "%.3s", months[t->month - 1]);
    case 'B':
        return snprintf(out, 80, "%s", months[t->month - 1]);
    case 'c':
        return snprintf(out, 80, "%.3s %.3s %2d %02d:%02d:%02d %d", days[weekday],
                        months[t->month - 1], t->day, t->hour, t->minute, t->second, t->year);
    case 'D':
    case 'x':
        return snprintf(out, 80, "%02d/%02d/%02d", t->month, t->day, t->year % 100);
    case 'F':
        return snprintf(out, 80, "%d-%02d-%02d", t->year, t->month, t->day);
    case 'n':
        return snprintf(out, 80, "\n");
    case 'p':
        return snprintf(out, 80, "%s", half(t));
    case 'P':
        return snprintf(out, 80, "%s", t->hour < 12 ? "am" : "pm");
    case 'r':
        return snprintf(out, 80, "%02d:%02d:%02d %s", hour_of_half(t), t->minute, t->second,
                        half(t));
    case 'R':
        return snprintf(out, 80, "%02d:%02d", t->hour, t->minute);
    case 't':
        return snprintf(out, 80, "\t");
    case 'T':
    case 'X':
        return snprintf(out, 80, "%02d:%02d:%02d", t->hour, t->minute, t->second);
    case 'z':
    case 'Z': /* a time without a zone */
        out[0] = '\0';
        return 0;
    case '%':
        return snprintf(out, 80, "%%");
    default:
        return -1;
    }
}

/* Seconds since 1970, as if the time were UTC's. */
static int64_t seconds_of(const gw_template_time *t) {
    int64_t before = t->year - 1;
    int64_t day = before * 365 + before / 4 - before / 100 + before / 400 + day_of_year(t) - 719163;
    return ((day * 24 + t->hour) * 60 + t->minute) * 60 + t->second;
}

/* The conversions that are numbers: the number, and how many digits it has at least; 0: none. */
static int convert_number(const gw_template_time *t, char how, int64_t *out) {
    int weekday = day_of_week(t), yday = day_of_year(t), year;
    switch (how) {
    case 'C':
        *out = t->year / 100;
        return 2;
    case 'd':
    case 'e':
        *out = t->day;
        return 2;
    case 'g':
        iso_week(t, &year);
        *out = year % 100;
        return 2;
    case 'G':
        iso_week(t, &year);
        *out = year;
        return 1;
    case 'H':
    case 'k':
        *out = t->hour;
        return 2;
    case 'I':
    case 'l':
        *out = hour_of_half(t);
        return 2;
    case 'j':
        *out = yday;
        return 3;
    case 'm':
        *out = t->month;
        return 2;
    case 'M':
        *out = t->minute;
        return 2;
    case 's':
        *out = seconds_of(t);
        return 1;
    case 'S':
        *out = t->second;
        return 2;
    case 'u':
        *out = weekday == 0 ? 7 : weekday;
        return 1;
    case 'U':
        *out = (yday + 6 - weekday) / 7;
        return 2;
    case 'V':
        *out = iso_week(t, &year);
        return 2;
    case 'w':
        *out = weekday;
        return 1;
    case 'W':
        *out = (yday + 6 - (weekday + 6) % 7) / 7;
        return 2;
    case 'y':
        *out = t->year % 100;
        return 2;
    case 'Y':
        *out = t->year;
        return 1;
    default:
        return 0;
    }
}

/* What stands behind a '%' at `at`; the bytes that it takes, 0 when it is no conversion. */
static size_t read_conversion(gw_tv format, size_t at, conversion *out) {
    size_t begin = at;
    char modifier = 0;
    *out = (conversion){0};
    for (; at < format.n && memchr("-_0^#", format.text[at], 5) != NULL; at++) {
        char c = format.text[at];
        out->upper |= c == '^';
        out->swap |= c == '#';
        out->pad = c == '^' || c == '#' ? out->pad : c;
    }
    for (; at < format.n && format.text[at] >= '0' && format.text[at] <= '9'; at++) {
        size_t digit = (size_t)(format.text[at] - '0');
        out->width = out->width < 1u << 30 ? out->width * 10 + digit : out->width;
    }
    if (at < format.n && (format.text[at] == 'E' || format.text[at] == 'O')) {
        modifier = format.text[at++];
    }
    if (at == format.n) {
        return 0;
    }
    out->how = format.text[at];
    const char *fits = modifier == 'E'   ? "cCxXyYnPpRrsTtuzZ"
                       : modifier == 'O' ? "bdeghHIjklmMnpPrRsStTuUVwWyzZBCG"
                                         : NULL;
    if (fits != NULL && (out->how == '\0' || strchr(fits, out->how) == NULL)) {
        return 0;
    }
    return at + 1 - begin;
}

static void put_padding(gw_tpl *r, gw_tpl_out *out, size_t wanted, size_t n, char pad) {
    if (wanted > n) {
        gw_tpl_out_repeat(r, out, gw_tv_words(pad == '0' ? "0" : " "), wanted - n);
    }
}

/* 0: there is no such conversion. */
static int put_conversion(gw_tpl *r, gw_tpl_out *out, const conversion *c) {
    char word[80];
    int64_t number = 0;
    int n = convert_text(&r->options->time, c->how, word);
    if (n >= 0) {
        int upper = c->upper || (c->swap && memchr("aAbBh", c->how, 5) != NULL);
        for (int i = 0; i < n; i++) {
            int lower = c->swap && c->how == 'p';
            word[i] = (char)(lower                                       ? word[i] | 32
                             : upper && word[i] >= 'a' && word[i] <= 'z' ? word[i] & ~32
                                                                         : word[i]);
        }
        put_padding(r, out, c->how == 'z' ? 0 : c->width, (size_t)n, c->pad);
        gw_tpl_out_add(r, out, word, (size_t)n, 0);
        return 1;
    }
    size_t digits = (size_t)convert_number(&r->options->time, c->how, &number);
    if (digits == 0) {
        return 0;
    }
    char pad = c->pad != 0 ? c->pad : memchr("ekl", c->how, 3) != NULL ? '_' : '0';
    n = snprintf(word, sizeof word, "%lld", (long long)number);
    put_padding(r, out, pad == '-' || c->width > digits ? c->width : digits, (size_t)n, pad);
    gw_tpl_out_add(r, out, word, (size_t)n, 0);
    return 1;
}

gw_tv gw_tpl_date(gw_tpl *r, gw_tv format) {
    if (format.kind != GW_TV_TEXT) {
        gw_tpl_raise(r, GW_E_TYPE, "strftime_now: the format must be str, not %s",
                     gw_tv_type(format));
    }
    gw_tpl_out *out = gw_tpl_out_open(r);
    for (size_t at = 0; at < format.n;) {
        conversion c;
        size_t n = 1;
        if (format.text[at] == '%') {
            gw_tpl_charge(r, 20);
            n += read_conversion(format, at + 1, &c);
            if (n == 2 && c.how == 'f') { /* Python's own */
                gw_tpl_out_words(r, out, "000000");
                at += n;
                continue;
            }
            if (n > 1 && put_conversion(r, out, &c)) {
                at += n;
                continue;
            }
        }
        gw_tpl_out_text(r, out, gw_tv_cut(format, at, n));
        at += n;
    }
    return gw_tpl_out_close(r, out);
}
