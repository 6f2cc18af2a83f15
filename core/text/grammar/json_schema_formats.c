/* core/text/grammar/json_schema_formats.c - the formats of JSON Schema as patterns; see
 * json_schema_parts.h.
 *
 * Each is a part of what the format allows that everybody agrees on: what is written under one is
 * of the format, not all that is of the format is written (RFC 3339, 3986, 5321, 1123, 4291, 6570,
 * 6901, 9562). Lengths are kept short of what names and labels may have.
 */
#include "core/text/grammar/json_schema_parts.h"

#define YEAR "(?:[1-9]\\d{3}|0[1-9]\\d\\d|00[1-9]\\d|000[1-9])"
#define LEAP "(?:\\d\\d(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)"
#define MONTH_DAY                                                                                  \
    "(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)|02-(?:0["  \
    "1-9]|1\\d|2[0-8]))"
#define DATE "(?:" YEAR "-" MONTH_DAY "|" LEAP "-02-29)"
#define HOUR_MINUTE "(?:[01]\\d|2[0-3]):[0-5]\\d"
#define TIME HOUR_MINUTE ":[0-5]\\d(?:\\.\\d{1,6})?(?:Z|[+-]" HOUR_MINUTE ")"
#define TIMES "(?:T(?:\\d{1,4}H(?:\\d{1,4}M(?:\\d{1,4}S)?)?|\\d{1,4}M(?:\\d{1,4}S)?|\\d{1,4}S))"
#define DAYS "(?:\\d{1,4}Y(?:\\d{1,4}M(?:\\d{1,4}D)?)?|\\d{1,4}M(?:\\d{1,4}D)?|\\d{1,4}D)"
#define LABEL "[a-z0-9]{1,15}(?:-[a-z0-9]{1,15})?"
#define HOST LABEL "(?:\\." LABEL "){0,2}\\.[a-z]{2,12}"
#define OCTET "(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"
#define IPV4 OCTET "(?:\\." OCTET "){3}"
#define H "[0-9a-f]{1,4}"
#define IPV6                                                                                       \
    "(?:(?:" H ":){7}" H "|::(?:" H "(?::" H "){0,6})?|" H "::(?:" H "(?::" H "){0,5})?|" H ":" H  \
    "::(?:" H "(?::" H "){0,4})?|(?:" H ":){2}" H "::(?:" H "(?::" H "){0,3})?|(?:" H ":){3}" H    \
    "::(?:" H "(?::" H "){0,2})?|(?:" H ":){4}" H "::(?:" H "(?::" H ")?)?|(?:" H ":){5}" H        \
    "::(?:" H ")?)"
#define CHAR "(?:[A-Za-z0-9._~!$&'()*+,;=@-]|%[0-9A-F]{2})"
#define SEGMENTS "(?:/(?:" CHAR "|:)*)*"
#define QUERY "(?:\\?(?:" CHAR "|[:/?])*)?(?:#(?:" CHAR "|[:/?])*)?"
#define AUTHORITY HOST "(?::[1-9]\\d{0,3})?"
#define URI "[a-z][a-z0-9+.-]{1,15}:(?://" AUTHORITY "|(?:" CHAR "|:)+)" SEGMENTS QUERY
#define POINTER "(?:/(?:[^~/]|~[01])*)*"
#define ATOM "[A-Za-z0-9_+-]{1,20}"
#define REGEX_ATOM                                                                                 \
    "(?:[A-Za-z0-9 _,:;=@/&%!<>-]|\\.|\\\\[dDwWsS.*+?()|^$/\\\\-]|\\[\\^?(?:[a-zA-Z0-9_]|a-z|A-Z|" \
    "0-9|\\\\[dws])+\\])[*+?]?"

const char *gw_schema_format(const char *name) {
    static const struct {
        const char *name, *pattern;
    } formats[] = {
        {"date", "^" DATE "$"},
        {"time", "^" TIME "$"},
        {"date-time", "^" DATE "T" TIME "$"},
        {"duration", "^P(?:" DAYS TIMES "?|" TIMES "|\\d{1,4}W)$"},
        {"email", "^" ATOM "(?:\\." ATOM "){0,2}@" HOST "$"},
        {"idn-email", "^" ATOM "(?:\\." ATOM "){0,2}@" HOST "$"},
        {"hostname", "^" HOST "$"},
        {"idn-hostname", "^" HOST "$"},
        {"ipv4", "^" IPV4 "$"},
        {"ipv6", "^" IPV6 "$"},
        {"uri", "^" URI "$"},
        {"iri", "^" URI "$"},
        {"uri-reference", "^(?:" URI "|(?:/(?:" CHAR "|:)+|" CHAR "+)?" SEGMENTS QUERY ")$"},
        {"iri-reference", "^(?:" URI "|(?:/(?:" CHAR "|:)+|" CHAR "+)?" SEGMENTS QUERY ")$"},
        {"uri-template", "^(?:" CHAR "|[:/?]|\\{[+#./;?&]?[A-Za-z0-9_]+\\})*$"},
        {"uuid", "^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$"},
        {"json-pointer", "^" POINTER "$"},
        {"relative-json-pointer", "^(?:0|[1-9]{1,3})(?:#|" POINTER ")$"},
        {"regex", "^\\^?(?:" REGEX_ATOM "|\\((?:\\?:)?(?:" REGEX_ATOM ")+(?:\\|(?:" REGEX_ATOM
                  ")+)?\\)[*+?]?)*\\$?$"},
    };
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
        if (strcmp(name, formats[i].name) == 0) {
            return formats[i].pattern;
        }
    }
    return NULL;
}
