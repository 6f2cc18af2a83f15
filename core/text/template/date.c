/* core/text/template/date.c - strftime_now: a calendar in the C locale, at a given time. */
#include <stdio.h>
#include <string.h>
#include <time.h>

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

/* The conversions that are texts or whole dates; -1: another. */
static int convert_text(const gw_template_time *t, char how, char out[80]) {
    int weekday = day_of_week(t), year;
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
    case 'f':
        return snprintf(out, 80, "000000");
    case 'F':
        return snprintf(out, 80, "%d-%02d-%02d", t->year, t->month, t->day);
    case 'G':
        iso_week(t, &year);
        return snprintf(out, 80, "%d", year);
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
    case 'u':
        return snprintf(out, 80, "%d", weekday == 0 ? 7 : weekday);
    case 'w':
        return snprintf(out, 80, "%d", weekday);
    case 'Y':
        return snprintf(out, 80, "%d", t->year);
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

/* One conversion; flag '-', '_' or 0. -1: there is no such one. */
static int convert(const gw_template_time *t, char how, char flag, char out[80]) {
    int weekday = day_of_week(t), yday = day_of_year(t), number, width = 2, year;
    int n = convert_text(t, how, out);
    if (n >= 0) {
        return n;
    }
    switch (how) {
    case 'C':
        number = t->year / 100;
        break;
    case 'd':
    case 'e':
        number = t->day;
        break;
    case 'g':
        iso_week(t, &year);
        number = year % 100;
        break;
    case 'H':
    case 'k':
        number = t->hour;
        break;
    case 'I':
    case 'l':
        number = hour_of_half(t);
        break;
    case 'j':
        number = yday;
        width = 3;
        break;
    case 'm':
        number = t->month;
        break;
    case 'M':
        number = t->minute;
        break;
    case 'S':
        number = t->second;
        break;
    case 'U':
        number = (yday + 6 - weekday) / 7;
        break;
    case 'V':
        number = iso_week(t, &year);
        break;
    case 'W':
        number = (yday + 6 - (weekday + 6) % 7) / 7;
        break;
    case 'y':
        number = t->year % 100;
        break;
    default:
        return -1;
    }
    if (flag == 0 && (how == 'e' || how == 'k' || how == 'l')) {
        flag = '_';
    }
    if (flag == '-') {
        return snprintf(out, 80, "%d", number);
    }
    return snprintf(out, 80, flag == '_' ? "%*d" : "%0*d", width, number);
}

gw_tv gw_tpl_date(gw_tpl *r, gw_tv format) {
    if (format.kind != GW_TV_TEXT) {
        gw_tpl_raise(r, GW_E_TYPE, "strftime_now: the format must be str, not %s",
                     gw_tv_type(format));
    }
    gw_tpl_out *out = gw_tpl_out_open(r);
    for (size_t at = 0; at < format.n; at++) {
        char word[80], flag = 0;
        size_t begin = at;
        if (format.text[at] == '%' && at + 1 < format.n) {
            at++;
            if (memchr("-_0", format.text[at], 3) != NULL && at + 1 < format.n) {
                flag = format.text[at++];
            }
            int n = convert(&r->options->time, format.text[at], flag, word);
            gw_tpl_charge(r, 20);
            if (n >= 0) {
                gw_tpl_out_add(r, out, word, (size_t)n, 0);
                continue;
            }
        }
        gw_tpl_out_text(r, out, gw_tv_cut(format, begin, at - begin + 1));
    }
    return gw_tpl_out_close(r, out);
}
