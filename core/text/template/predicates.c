/* core/text/template/predicates.c - the tests: what stands behind `is`. One row each. */
#include <string.h>

#include "core/text/template/number.h"
#include "core/text/template/render.h"

#define TEST(name, condition)                                                                      \
    static gw_tv name(gw_tpl *r, gw_tv v, const gw_tv *a) {                                        \
        (void)r;                                                                                   \
        (void)a;                                                                                   \
        return gw_tv_bool(condition);                                                              \
    }

static int cased(gw_tpl *r, gw_tv v, int how, int other) {
    gw_tv text = gw_tv_str(r, v);
    return gw_tv_equal(r, text, gw_tpl_case(r, text, how)) &&
           !gw_tv_equal(r, text, gw_tpl_case(r, text, other));
}

static int same_object(gw_tv a, gw_tv b) {
    if (a.kind != b.kind) {
        return 0;
    }
    switch (a.kind) {
    case GW_TV_NONE:
        return 1;
    case GW_TV_BOOL:
    case GW_TV_INT:
        return a.i == b.i;
    case GW_TV_FLOAT:
        return a.f == b.f;
    case GW_TV_TEXT:
        return a.text == b.text && a.n == b.n;
    default:
        return a.object == b.object;
    }
}

static int is_callable(gw_tv v) {
    return v.kind == GW_TV_FUNCTION || v.kind == GW_TV_METHOD || v.kind == GW_TV_MACRO ||
           v.kind == GW_TV_LOOP || v.kind == GW_TV_JOINER || v.kind == GW_TV_UNDEFINED;
}

/* What has a length and items by number or key. */
static int is_sequence(gw_tv v) {
    return v.kind == GW_TV_TEXT || v.kind == GW_TV_LIST || v.kind == GW_TV_TUPLE ||
           v.kind == GW_TV_DICT || v.kind == GW_TV_RANGE || v.kind == GW_TV_UNDEFINED;
}

/* What could be a name at all. */
static gw_tv hashable(gw_tpl *r, gw_tv v) {
    if (v.kind == GW_TV_LIST || v.kind == GW_TV_DICT) {
        gw_tpl_raise(r, GW_E_TYPE, "unhashable type: '%s'", gw_tv_type(v));
    }
    return v;
}

static int is_integer(gw_tv v) { return v.kind == GW_TV_INT || v.kind == GW_TV_BIG; }

TEST(t_boolean, v.kind == GW_TV_BOOL)
TEST(t_callable, is_callable(v))
TEST(t_defined, v.kind != GW_TV_UNDEFINED)
TEST(t_divisibleby, gw_tv_equal(r, gw_tpl_binary(r, v, '%', a[0]), gw_tv_int(0)))
TEST(t_eq, gw_tv_equal(r, v, a[0]))
TEST(t_escaped, v.kind == GW_TV_TEXT && v.safe)
TEST(t_even, gw_tv_equal(r, gw_tpl_binary(r, v, '%', gw_tv_int(2)), gw_tv_int(0)))
TEST(t_false, v.kind == GW_TV_BOOL && !v.i)
TEST(t_filter, hashable(r, v).kind == GW_TV_TEXT && gw_tpl_filter(v.text, v.n) != NULL)
TEST(t_float, v.kind == GW_TV_FLOAT)
TEST(t_ge, gw_tpl_compare(r, v, GW_OP_GE, a[0]))
TEST(t_gt, gw_tpl_compare(r, v, '>', a[0]))
TEST(t_in, gw_tpl_contains(r, a[0], v))
TEST(t_integer, is_integer(v))
TEST(t_iterable, gw_tv_iterable(v))
TEST(t_le, gw_tpl_compare(r, v, GW_OP_LE, a[0]))
TEST(t_lower, cased(r, v, GW_TPL_LOWER, GW_TPL_UPPER))
TEST(t_lt, gw_tpl_compare(r, v, '<', a[0]))
TEST(t_mapping, v.kind == GW_TV_DICT)
TEST(t_ne, !gw_tv_equal(r, v, a[0]))
TEST(t_none, v.kind == GW_TV_NONE)
TEST(t_number, gw_tv_is_number(v))
TEST(t_odd, gw_tv_equal(r, gw_tpl_binary(r, v, '%', gw_tv_int(2)), gw_tv_int(1)))
TEST(t_sameas, same_object(v, a[0]))
TEST(t_sequence, is_sequence(v))
TEST(t_string, v.kind == GW_TV_TEXT)
TEST(t_test, hashable(r, v).kind == GW_TV_TEXT && gw_tpl_test(v.text, v.n) != NULL)
TEST(t_true, v.kind == GW_TV_BOOL && v.i)
TEST(t_undefined, v.kind == GW_TV_UNDEFINED)
TEST(t_upper, cased(r, v, GW_TPL_UPPER, GW_TPL_LOWER))

const gw_tpl_builtin *gw_tpl_test(const char *name, size_t n) {
    static const gw_tpl_builtin rows[] = {{"!=", "other", t_ne},
                                          {"<", "other", t_lt},
                                          {"<=", "other", t_le},
                                          {"==", "other", t_eq},
                                          {">", "other", t_gt},
                                          {">=", "other", t_ge},
                                          {"boolean", "", t_boolean},
                                          {"callable", "", t_callable},
                                          {"defined", "", t_defined},
                                          {"divisibleby", "num", t_divisibleby},
                                          {"eq", "other", t_eq},
                                          {"equalto", "other", t_eq},
                                          {"escaped", "", t_escaped},
                                          {"even", "", t_even},
                                          {"false", "", t_false},
                                          {"filter", "", t_filter},
                                          {"float", "", t_float},
                                          {"ge", "other", t_ge},
                                          {"greaterthan", "other", t_gt},
                                          {"gt", "other", t_gt},
                                          {"in", "seq", t_in},
                                          {"integer", "", t_integer},
                                          {"iterable", "", t_iterable},
                                          {"le", "other", t_le},
                                          {"lessthan", "other", t_lt},
                                          {"lower", "", t_lower},
                                          {"lt", "other", t_lt},
                                          {"mapping", "", t_mapping},
                                          {"ne", "other", t_ne},
                                          {"none", "", t_none},
                                          {"number", "", t_number},
                                          {"odd", "", t_odd},
                                          {"sameas", "other", t_sameas},
                                          {"sequence", "", t_sequence},
                                          {"string", "", t_string},
                                          {"test", "", t_test},
                                          {"true", "", t_true},
                                          {"undefined", "", t_undefined},
                                          {"upper", "", t_upper},
                                          {NULL, NULL, NULL}};
    return gw_tpl_find_row(rows, name, n);
}
