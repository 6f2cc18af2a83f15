/* tests/test_json_schema.c - JSON schemas: what each keyword accepts and refuses, how errors read,
 * long references, hostile schemas. */
#include "core/text/grammar/json_schema.h"

#include "tests/grammar_rig.h"

static const struct {
    const char *schema, *whole[6], *wrong[6];
} schemas[] = {
    {"{\"type\":\"integer\",\"minimum\":-12,\"maximum\":105}",
     {"-12", "-9", "0", "7", "99", "105"},
     {"-13", "106", "00", "-0", "1000", "1.0"}},
    {"{\"type\":\"integer\",\"exclusiveMinimum\":9.5,\"exclusiveMaximum\":1001}",
     {"10", "99", "999", "1000"},
     {"9", "1001", "-10", "10000"}},
    {"{\"type\":\"integer\",\"maximum\":-5}",
     {"-5", "-6", "-10", "-123456"},
     {"-4", "5", "0", "-05"}},
    {"{\"type\":\"integer\",\"minimum\":9007199254740993,\"maximum\":9007199254740995}",
     {"9007199254740993", "9007199254740994", "9007199254740995"},
     {"9007199254740992", "9007199254740996"}},
    {"{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}",
     {"\"ab\"", "\"\xE2\x82\xAC\\n\\u00e9\"", "\"\\ud83d\\ude00x\""},
     {"\"a\"", "\"abcd\"", "\"\\ud83d\"", "\"\\x\"", "\"a\nb\""}},
    {"{\"type\":\"string\",\"pattern\":\"^[A-Z]{2}-\\\\d+$\"}",
     {"\"AB-1\"", "\"ZZ-123\""},
     {"\"A-1\"", "\"AB-\"", "\"AB-1 \"", "\"xAB-1\""}},
    {"{\"type\":\"string\",\"pattern\":\"a\\\"|^\\\\\\\\$\"}",
     {"\"a\\\"\"", "\"xa\\\"y\"", "\"\\\\\""},
     {"\"a\"", "\"\\\\\\\\\"", "\"b\""}},
    {"{\"type\":\"string\",\"pattern\":\"^(ab|c?.)*?[^x\\\\s]$\"}",
     {"\"ab\"", "\"q\""},
     {"\"x\"", "\"\""}},
    {"{\"type\":\"string\",\"format\":\"date\"}",
     {"\"2024-02-28\"", "\"1999-12-31\""},
     {"\"2024-13-01\"", "\"2024-04-31\"", "\"2024-02-30\"", "\"0000-01-01\""}},
    {"{\"format\":\"date-time\"}",
     {"\"2024-02-28T23:59:59Z\"", "\"1999-12-31T00:00:00.25+01:00\""},
     {"\"2024-02-28\"", "\"2024-02-28T24:00:00Z\"", "\"2024-02-28T23:59:59\""}},
    {"{\"format\":\"uuid\"}", {"\"01234567-89ab-cdef-0123-456789abcdef\""}, {"\"0123\""}},
    {"{\"type\":[\"boolean\",\"null\"]}", {"true", "false", "null"}, {"1", "\"\"", "[]"}},
    {"{\"enum\":[\"a\",1,null,{\"b\":[1,2]},\"q\\\"\\n\"]}",
     {"\"a\"", "1", "null", "{\"b\":[1,2]}", "\"q\\\"\\n\""},
     {"2", "\"b\"", "{\"b\": [1,2]}"}},
    {"{\"const\":\"\xC3\xA9\"}", {"\"\xC3\xA9\""}, {"\"e\""}},
    {"{\"const\":\"a\\u0000b\"}", {"\"a\\u0000b\""}, {"\"a\"", "\"ab\"", "\"a\\u0001b\""}},
    {"{\"type\":\"array\",\"items\":{\"enum\":[\"\\u0000\",\"x\\u0000\\u0000\"],\"title\":"
     "\"\\u0000\"},"
     "\"default\":[\"\\u0000\"]}",
     {"[\"\\u0000\"]", "[\"x\\u0000\\u0000\",\"\\u0000\"]"},
     {"[\"\"]", "[\"x\"]", "[\"x\\u0000\"]"}},
    {"{\"anyOf\":[{\"const\":\"a\\u0000\"},{\"allOf\":[{\"enum\":[\"a\",\"a\\u0000b\"]},"
     "{\"enum\":[\"a\\u0000b\",\"a\\u0000\"]}]}]}",
     {"\"a\\u0000\"", "\"a\\u0000b\""},
     {"\"a\""}},
    {"{\"oneOf\":[{\"const\":\"a\\u0000\"},{\"const\":\"a\"}]}",
     {"\"a\"", "\"a\\u0000\""},
     {"\"\""}},
    {"{\"pattern\":\"^x\\u0000?[\\u0000-\\u0002]$\"}",
     {"\"x\\u0000\"", "\"x\\u0000\\u0002\""},
     {"\"x\"", "\"x\\u0003\"", "\"x\\u0000\\u0000\\u0000\""}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{},\"c\":{\"const\":"
     "1}},"
     "\"required\":[\"b\"]}",
     {"{\"b\":[]}", "{\"a\": 1, \"b\": null, \"c\": 1}", "{\"b\":{\"x\":1},\"c\":1}"},
     {"{}", "{\"a\":1}", "{\"b\":1,\"a\":1}", "{\"b\":1,}", "{\"b\":1,\"d\":1}",
      "{\"b\":1,\"c\":2}"}},
    {"{\"type\":\"object\",\"properties\":{\"ab\":{\"const\":1},\"a\":{\"const\":2}},"
     "\"additionalProperties\":{\"type\":\"boolean\"}}",
     {"{}", "{\"ab\":1,\"a\":2}", "{\"x\":true}", "{\"a\":2,\"abc\":true,\"b\":false}",
      "{\"\":true}"},
     {"{\"a\":true}", "{\"ab\":true}", "{\"x\":1}", "{\"a\":1}", "{\"\\u0061\":true}", "{,}"}},
    {"{\"type\":\"object\",\"required\":[\"k\"],\"additionalProperties\":{\"type\":\"null\"}}",
     {"{\"k\":null}", "{\"k\":null,\"j\":null}"},
     {"{}", "{\"k\":1}", "{\"k\":null,\"k\":null}"}},
    {"{\"type\":\"array\",\"items\":{\"type\":\"boolean\"},\"minItems\":1,\"maxItems\":2}",
     {"[true]", "[ false, true]"},
     {"[]", "[true,true,true]", "[1]", "[true,]"}},
    {"{\"type\":\"array\",\"prefixItems\":[{\"const\":1},{\"const\":2}],\"items\":{\"const\":3},"
     "\"minItems\":1,\"maxItems\":3}",
     {"[1]", "[1,2]", "[1,2,3]"},
     {"[]", "[2]", "[1,3]", "[1,2,3,3]"}},
    {"{\"type\":\"array\",\"prefixItems\":[{\"const\":1}],\"items\":false}",
     {"[]", "[1]"},
     {"[1,1]"}},
    {"{\"type\":\"array\",\"maxItems\":0}", {"[]"}, {"[1]"}},
    {"{\"type\":\"array\",\"items\":false}", {"[]"}, {"[1]"}},
    {"{\"$defs\":{\"n\":{\"type\":\"object\",\"properties\":{\"v\":{\"type\":\"integer\"},\"next\":"
     "{\"anyOf\":[{\"$ref\":\"#/$defs/n\"},{\"type\":\"null\"}]}},\"required\":[\"v\",\"next\"]}},"
     "\"$ref\":\"#/$defs/n\"}",
     {"{\"v\":1,\"next\":null}", "{\"v\":1,\"next\":{\"v\":2,\"next\":null}}"},
     {"{\"v\":1}", "null", "{\"v\":1,\"next\":1}"}},
    {"{\"allOf\":[{\"type\":\"integer\",\"minimum\":3},{\"maximum\":5}]}", {"3", "5"}, {"2", "6"}},
    {"{\"definitions\":{\"a "
     "b\":{\"properties\":{\"x\":{\"type\":\"integer\"}},\"required\":[\"x\"]}},"
     "\"allOf\":[{\"$ref\":\"#/definitions/a%20b\"},{\"properties\":{\"y\":{\"const\":1}}}]}",
     {"{\"x\":1}", "{\"x\":2,\"y\":1}"},
     {"{\"y\":1}", "{}"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"const\":1},\"b\":{\"const\":2}},"
     "\"anyOf\":[{\"required\":[\"a\"]},{\"required\":[\"b\"]}]}",
     {"{\"a\":1}", "{\"b\":2}", "{\"a\":1,\"b\":2}"},
     {"{}"}},
    {"{\"oneOf\":[{\"type\":\"integer\"},{\"type\":\"number\"}]}",
     {"1.5", "-0.25"},
     {"1", "2.0", "-0"}},
    {"{\"type\":\"number\",\"not\":{\"type\":\"integer\"}}",
     {"0.5", "12.25"},
     {"3", "3.0", "3.000", "1e2"}},
    {"{\"type\":\"integer\",\"not\":{\"multipleOf\":3}}", {"1", "-4", "10"}, {"0", "3", "-9"}},
    {"{\"type\":\"number\",\"not\":{\"multipleOf\":0.5}}", {"0.25", "1.3"}, {"0.5", "2", "1.50"}},
    {"{\"not\":{\"pattern\":\"^a\"}}", {"\"b\""}, {"\"ab\"", "1", "null", "[]"}},
    {"{\"type\":\"object\",\"oneOf\":[{\"properties\":{\"a\":{\"type\":\"string\"}},"
     "\"additionalProperties\":false},{\"properties\":{\"b\":{\"type\":\"array\"}},"
     "\"additionalProperties\":false}]}",
     {"{\"a\":\"x\"}", "{\"b\":[]}"},
     {"{}", "{\"a\":\"x\",\"b\":[]}", "{\"b\":1}"}},
    {"{\"type\":\"object\",\"oneOf\":[{\"required\":[\"a\"]},{\"required\":[\"b\"]}],"
     "\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{\"type\":\"integer\"}}}",
     {"{\"a\":1}", "{\"b\":2}"},
     {"{}", "{\"a\":1,\"b\":2}"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{}},\"not\":{"
     "\"required\":[\"a\"],\"dependencies\":{\"b\":[\"a\"]}}}",
     {"{}", "{\"b\":true}"},
     {"{\"a\":1}"}},
    {"{\"if\":{\"properties\":{\"k\":{\"const\":1}},\"required\":[\"k\"]},\"then\":{\"required\":["
     "\"a\"]},\"properties\":{\"k\":{\"enum\":[1,2]},\"a\":{\"type\":\"null\"}},\"type\":"
     "\"object\",\"additionalProperties\":false}",
     {"{\"k\":1,\"a\":null}", "{\"k\":2}"},
     {"{\"k\":1}"}},
    {"{\"allOf\":[{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}},"
     "\"patternProperties\":{\"^x-\":{\"type\":\"boolean\"}}},{\"type\":\"object\","
     "\"additionalProperties\":{\"type\":[\"integer\",\"boolean\"]}}]}",
     {"{\"a\":1,\"x-b\":true}", "{\"a\":1}"},
     {"{\"x-b\":1}", "{\"a\":null}", "{\"x-b\":\"c\"}"}},
    {"{\"allOf\":[{\"patternProperties\":{\"^x-\":{}},\"properties\":{\"a\":{}},"
     "\"additionalProperties\":false},{\"additionalProperties\":{\"type\":\"integer\"},"
     "\"properties\":{\"a\":{\"type\":\"string\"}}}],\"type\":\"object\"}",
     {"{\"a\":\"b\",\"x-y\":3}", "{\"x-\":1}"},
     {"{\"x-y\":\"z\"}", "{\"b\":1}", "{\"a\":1}"}},
    {"{\"type\":\"object\",\"patternProperties\":{\"^a\":{\"const\":1},\"^b\":{\"const\":2},\"^c\":"
     "{\"const\":3},\"^d\":{\"const\":4},\"^e\":{\"const\":5},\"^f\":{\"const\":6},\"g$\":{"
     "\"minimum\":3}},\"additionalProperties\":false}",
     {"{\"a\":1,\"fx\":6,\"eg\":5}"},
     {"{\"ag\":1}", "{\"h\":1}", "{\"f\":5}"}},
    {"{\"type\":\"object\",\"additionalProperties\":false,\"properties\":{\"a\":{\"$ref\":\"#"
     "small\"},\"b\":{\"$ref\":\"http://x.test/s.json#/definitions/"
     "t\"},\"c\":{\"$ref\":\"other.json\"},\"d\":{\"$ref\":\"#anchor\"}},\"$id\":\"http://x.test/"
     "s.json\",\"definitions\":{\"s\":{\"$id\":\"#small\",\"const\":1},\"t\":{\"const\":2},\"u\":{"
     "\"$id\":\"other.json\",\"const\":3},\"v\":{\"$anchor\":\"anchor\",\"const\":4}}}",
     {"{\"a\":1,\"b\":2,\"c\":3,\"d\":4}"},
     {"{\"a\":2}", "{\"d\":3}"}},
    {"{\"$schema\":\"http://json-schema.org/draft-04/schema#\",\"id\":\"http://x.test/"
     "\",\"type\":\"array\",\"items\":{\"$ref\":\"#s\"},\"definitions\":{\"s\":{\"id\":\"#s\","
     "\"const\":1}}}",
     {"[1,1]", "[]"},
     {"[2]"}},
    {"{\"type\":\"array\",\"uniqueItems\":true,\"items\":{\"type\":\"object\",\"properties\":{"
     "\"id\":{\"type\":\"string\"},\"n\":{\"type\":\"integer\"}},\"required\":[\"id\"],"
     "\"additionalProperties\":false}}",
     {"[{\"id\":\"a1\"},{\"id\":\"f2\",\"n\":3}]", "[]", "[{\"id\":\"\"}]"},
     {"[{\"id\":\"a\"},{\"id\":\"a\"}]", "[{\"n\":1}]"}},
    {"{\"type\":\"array\",\"uniqueItems\":true,\"items\":{\"anyOf\":[{\"type\":\"string\"},{"
     "\"type\":\"object\"},{\"type\":\"null\"}]}}",
     {"[\"a\",\"b\",{},null]", "[null]"},
     {"[null,null]", "[\"a\",\"a\"]"}},
    {"{\"type\":\"array\",\"uniqueItems\":true}",
     {"[\"a\",1,true,null]"},
     {"[1,1]", "[\"a\",\"a\"]"}},
    {"{\"type\":\"object\",\"propertyNames\":{\"anyOf\":[{\"enum\":[\"a\",\"b\"]},{\"pattern\":\"^"
     "x\"}]},\"additionalProperties\":{\"type\":\"integer\"}}",
     {"{\"a\":1,\"xy\":2}"},
     {"{\"c\":1}"}},
    {"{\"items\":{\"type\":\"integer\"},\"type\":\"array\",\"allOf\":[{\"contains\":{\"const\":1}},"
     "{\"contains\":{\"const\":2}}]}",
     {"[1,2]", "[1,2,7]"},
     {"[1]", "[2]", "[]"}},
    {"{\"enum\":[\"q000\",\"q001\",\"q002\",\"q003\",\"q004\",\"q005\",\"q006\",\"q007\",\"q008\","
     "\"q009\",\"q010\",\"q011\",\"q012\",\"q013\",\"q014\",\"q015\",\"q016\",\"q017\",\"q018\","
     "\"q019\",\"q020\",\"q021\",\"q022\",\"q023\",\"q024\",\"q025\",\"q026\",\"q027\",\"q028\","
     "\"q029\",\"q030\",\"q031\",\"q032\",\"q033\",\"q034\",\"q035\",\"q036\",\"q037\",\"q038\","
     "\"q039\",1.5,1.5,null,\"\\u20ac\\u20ad\",\"\\u20ac\"],\"not\":{\"enum\":[\"q007\"]},"
     "\"maxLength\":4}",
     {"\"q000\"", "\"q039\"", "1.5", "null", "\"\u20ac\"", "\"\u20ac\u20ad\""},
     {"\"q007\"", "\"q04\"", "\"q0\"", "1", "\"\u20ae\"", "1.500"}},
    {"{\"enum\":[3,6,7,0.3],\"multipleOf\":3}", {"3", "6"}, {"7", "0.3"}},
    {"{\"oneOf\":[{\"type\":\"string\"},{\"type\":\"array\",\"items\":{\"type\":\"string\"}}]}",
     {"\"a\"", "[\"a\",\"\"]"},
     {"1", "[1]"}},
    /* a root of any kind, a mark at the beginning */
    {"true", {"1", "{\"a\":[]}"}, {"tru"}},
    {"﻿{\"type\":\"null\"}", {"null"}, {"1"}},
    /* numbers as they are written */
    {"{\"const\":0.10}", {"0.10"}, {"0.1", "0.100"}},
    {"{\"const\":123456789012345678901234567890}",
     {"123456789012345678901234567890"},
     {"123456789012345680000000000000"}},
    {"{\"type\":\"integer\",\"enum\":[1,1.5,2.0,\"x\"]}", {"1", "2.0"}, {"1.5", "\"x\""}},
    {"{\"enum\":[1,2,3.5],\"minimum\":2}", {"2", "3.5"}, {"1"}},
    {"{\"type\":\"number\",\"minimum\":0.1,\"exclusiveMaximum\":0.3}",
     {"0.1", "0.2", "0.29999"},
     {"0", "0.3", "0.09", "1", "-0.2", "2e-1"}},
    {"{\"type\":\"number\",\"exclusiveMinimum\":-1.5,\"maximum\":20}",
     {"-1.4", "-0.5", "0", "20", "19.75"},
     {"-1.5", "-2", "20.1", "21", "-0"}},
    {"{\"type\":\"integer\",\"minimum\":18446744073709551614,\"maximum\":18446744073709551615}",
     {"18446744073709551614", "18446744073709551615"},
     {"18446744073709551616", "18446744073709551613", "1"}},
    {"{\"type\":\"integer\",\"format\":\"uint8\"}", {"0", "255"}, {"-1", "256"}},
    {"{\"type\":\"integer\",\"multipleOf\":7,\"maximum\":100}",
     {"0", "7", "98", "-14"},
     {"1", "8", "105"}},
    {"{\"type\":\"number\",\"multipleOf\":0.25,\"minimum\":0}",
     {"0.25", "0.5", "3", "12.75"},
     {"0.3", "0.125"}},
    {"{\"allOf\":[{\"type\":\"integer\",\"multipleOf\":2},{\"multipleOf\":3}]}",
     {"6", "12"},
     {"2", "3"}},
    {"{\"type\":\"integer\",\"minimum\":1,\"maximum\":4,\"not\":{\"enum\":[2,3]}}",
     {"1", "4"},
     {"2", "3", "0"}},
    /* texts: pattern, length and format at once */
    {"{\"type\":\"string\",\"pattern\":\"^a\",\"minLength\":3,\"maxLength\":4}",
     {"\"abc\"", "\"abcd\""},
     {"\"ab\"", "\"abcde\"", "\"xbc\""}},
    {"{\"type\":\"string\",\"pattern\":\"b$\",\"maxLength\":2}",
     {"\"b\"", "\"ab\""},
     {"\"ba\"", "\"aab\""}},
    {"{\"pattern\":\"^a{b$\"}", {"\"a{b\""}, {"\"ab\""}},
    {"{\"pattern\":\"^\\\\p{Lu}\\\\P{L}[^\\\\p{N}]$\"}",
     {"\"A1x\"", "\"É-é\""},
     {"\"a1x\"", "\"AAx\"", "\"A11\""}},
    {"{\"pattern\":\"^(?=.*\\\\d)(?!.*x)[a-z0-9]{2,3}$\"}",
     {"\"a1\"", "\"1bc\""},
     {"\"ab\"", "\"x1\"", "\"a\""}},
    {"{\"pattern\":\"^(on|off)\\\\b.*$\",\"maxLength\":6}",
     {"\"on\"", "\"off x\""},
     {"\"one\"", "\"of\""}},
    {"{\"pattern\":\"^[\\\\u0061-\\\\x63]{2}$\"}", {"\"ac\""}, {"\"ad\""}},
    {"{\"allOf\":[{\"pattern\":\"a\"},{\"pattern\":\"b\"}]}",
     {"\"xbxa\"", "\"ab\""},
     {"\"a\"", "\"b\""}},
    {"{\"type\":\"string\",\"not\":{\"pattern\":\"a\"},\"maxLength\":2}",
     {"\"\"", "\"bc\""},
     {"\"a\"", "\"ba\"", "\"bcd\""}},
    {"{\"enum\":[\"a\",\"bb\",\"ccc\"],\"minLength\":2,\"pattern\":\"^[ab]\"}",
     {"\"bb\""},
     {"\"a\"", "\"ccc\""}},
    {"{\"type\":\"string\",\"maxLength\":1000000}", {"\"\"", "\"a\""}, {"1"}},
    {"{\"type\":\"string\",\"format\":\"email\",\"maxLength\":9}",
     {"\"a.b@c.de\""},
     {"\"a@b\"", "\"ab@cdef.gh\"", "\"a\""}},
    {"{\"type\":\"string\",\"format\":\"uri\"}",
     {"\"https://example.org/a?b=%20#c\"", "\"urn:isbn:12\""},
     {"\"example.org\"", "\"http://a b\"", "\"h://%2\""}},
    {"{\"type\":\"string\",\"format\":\"ipv4\"}",
     {"\"127.0.0.1\""},
     {"\"256.0.0.1\"", "\"1.2.3\"", "\"01.2.3.4\""}},
    {"{\"type\":\"string\",\"format\":\"ipv6\"}",
     {"\"::1\"", "\"fe80::1:2\"", "\"1:2:3:4:5:6:7:8\""},
     {"\"1::2::3\"", "\"12345::\"", "\"1:2:3\""}},
    {"{\"type\":\"string\",\"format\":\"date\"}",
     {"\"2024-02-29\"", "\"2000-02-29\""},
     {"\"2023-02-29\"", "\"1900-02-29\""}},
    {"{\"type\":\"string\",\"format\":\"shade of blue\",\"maxLength\":1}", {"\"x\""}, {"\"xy\""}},
    /* members by pattern, name and number */
    {"{\"type\":\"object\",\"patternProperties\":{\"^x-\":{\"type\":\"boolean\"}},"
     "\"additionalProperties\":false}",
     {"{}", "{\"x-\":true}", "{\"x-a\":true,\"x-b\":false}"},
     {"{\"a\":true}", "{\"x-a\":1}"}},
    {"{\"type\":\"object\",\"patternProperties\":{\"^a\":{\"minimum\":3},\"b$\":{\"type\":"
     "\"integer\"}},\"additionalProperties\":{\"type\":\"null\"}}",
     {"{\"a\":4}", "{\"ab\":5}", "{\"b\":0,\"c\":null}"},
     {"{\"ab\":1}", "{\"b\":null}", "{\"c\":1}"}},
    {"{\"type\":\"object\",\"propertyNames\":{\"pattern\":\"^[a-z]{2}$\"},\"additionalProperties\":"
     "{\"const\":1}}",
     {"{}", "{\"ab\":1}"},
     {"{\"a\":1}", "{\"ab\":2}"}},
    {"{\"type\":\"object\",\"propertyNames\":{\"enum\":[\"de\",\"en\"]},\"additionalProperties\":{"
     "\"const\":1},\"minProperties\":1}",
     {"{\"de\":1}", "{\"de\":1,\"en\":1}", "{\"en\":1}"},
     {"{}", "{\"fr\":1}"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"const\":1},\"b\":{\"const\":2},\"c\":{"
     "\"const\":3}},\"minProperties\":2,\"maxProperties\":2}",
     {"{\"a\":1,\"b\":2}", "{\"a\":1,\"c\":3}", "{\"b\":2,\"c\":3}"},
     {"{}", "{\"a\":1}", "{\"a\":1,\"b\":2,\"c\":3}"}},
    {"{\"type\":\"object\",\"minProperties\":2,\"additionalProperties\":{\"const\":1}}",
     {"{\"a\":1,\"bb\":1}", "{\"bb\":1,\"a\":1,\"c\":1}"},
     {"{}", "{\"a\":1}", "{\"a\":1,\"a\":1}", "{\"a\":1,\"b\":1}"}},
    /* no element twice, some of a kind */
    {"{\"type\":\"array\",\"items\":{\"enum\":[\"a\",\"b\",\"c\"]},\"uniqueItems\":true,"
     "\"minItems\":2}",
     {"[\"a\",\"b\"]", "[\"c\",\"a\",\"b\"]"},
     {"[\"a\",\"a\"]", "[\"a\"]"}},
    {"{\"type\":\"array\",\"items\":{\"enum\":[1,2,3,4,5,6,7]},\"uniqueItems\":true}",
     {"[]", "[1,7]", "[2,3,5]"},
     {"[1,1]", "[8]"}},
    {"{\"type\":\"array\",\"items\":{\"type\":\"string\",\"maxLength\":3},\"uniqueItems\":true,"
     "\"minItems\":2}",
     {"[\"a\",\"b\"]", "[\"0\",\"abc\",\"Xy\",\"\"]", "[\"a\",\"\xC3\xA9\"]"},
     {"[\"a\"]", "[\"a\",\"a\"]", "[\"a\",\"abcd\"]"}},
    {"{\"type\":\"array\",\"items\":{\"type\":\"string\",\"pattern\":\"^#[0-9]+$\"},"
     "\"uniqueItems\":true}",
     {"[]", "[\"#1\",\"#20\"]"},
     {"[\"#1\",\"#1\"]"}},
    {"{\"type\":\"array\",\"items\":{\"type\":\"integer\",\"minimum\":1,\"maximum\":6},"
     "\"uniqueItems\":true,\"minItems\":2}",
     {"[1,6]", "[1,2,3,4,5,6]"},
     {"[1]", "[1,1]", "[6,7]"}},
    {"{\"type\":\"array\",\"items\":{\"type\":\"boolean\",\"not\":{\"const\":true}},"
     "\"uniqueItems\":true}",
     {"[]", "[false]"},
     {"[true]", "[false,false]"}},
    {"{\"type\":\"array\",\"items\":{\"type\":\"integer\",\"maximum\":9},\"contains\":{\"const\":5}"
     ",\"maxItems\":3}",
     {"[5]", "[1,5]", "[1,5,5]"},
     {"[]", "[1]", "[1,2,3]"}},
    /* one thing that depends on another */
    {"{\"properties\":{\"k\":{\"enum\":[\"x\",\"y\"]},\"v\":{}},\"required\":[\"k\",\"v\"],\"if\":{"
     "\"properties\":{\"k\":{\"const\":\"x\"}}},\"then\":{\"properties\":{\"v\":{\"type\":\"null\"}"
     "}},\"else\":{\"properties\":{\"v\":{\"type\":\"boolean\"}}}}",
     {"{\"k\":\"x\",\"v\":null}", "{\"k\":\"y\",\"v\":true}"},
     {"{\"k\":\"x\",\"v\":true}", "{\"k\":\"y\",\"v\":null}"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"const\":1},\"b\":{\"const\":2}},"
     "\"dependentRequired\":{\"a\":[\"b\"]}}",
     {"{}", "{\"b\":2}", "{\"a\":1,\"b\":2}"},
     {"{\"a\":1}"}},
    {"{\"type\":\"object\",\"not\":{\"required\":[\"a\",\"b\"]},\"properties\":{\"a\":{\"const\":1}"
     ",\"b\":{\"const\":2}},\"additionalProperties\":false}",
     {"{}", "{\"a\":1}", "{\"b\":2}"},
     {"{\"a\":1,\"b\":2}"}},
    {"{\"not\":{\"type\":[\"string\",\"object\"]}}", {"1", "[]", "null"}, {"\"a\"", "{}"}},
    {"{\"oneOf\":[{\"type\":\"integer\",\"minimum\":0},{\"type\":\"integer\",\"maximum\":10}]}",
     {"-1", "11"},
     {"0", "10"}},
    {"{\"oneOf\":[{\"type\":\"string\",\"required\":[\"a\"],\"properties\":{\"a\":{\"const\":1}}},{"
     "\"required\":[\"a\"],\"properties\":{\"a\":{\"const\":2}}}]}",
     {"{\"a\":2}"},
     {"\"x\"", "{\"a\":1}"}},
    {"{\"anyOf\":[{\"type\":\"object\",\"nullable\":true,\"properties\":{\"t\":{\"const\":\"a\"}},"
     "\"required\":[\"t\"]},{\"type\":\"null\"}],\"discriminator\":{\"propertyName\":\"t\"}}",
     {"{\"t\":\"a\"}", "null"},
     {"{}", "{\"t\":\"b\"}"}},
    {"{\"properties\":{\"a\":{\"not\":{}},\"b\":{\"const\":1}}}",
     {"{}", "{\"b\":1}"},
     {"{\"a\":1}"}},
    {"{\"type\":[\"integer\",\"array\"],\"minimum\":3,\"maximum\":2}", {"[]"}, {"2", "3"}},
    {"{\"allOf\":[{\"properties\":{\"a\":{\"const\":1}}}],\"properties\":{\"b\":{\"const\":2}},"
     "\"unevaluatedProperties\":false,\"type\":\"object\"}",
     {"{}", "{\"b\":2}", "{\"a\":1}"},
     {"{\"c\":1}", "{\"a\":2}"}},
    {"{}",
     {"{\"a\": [1, -2.5e+10, \"\\u12aF\"]}", "null", "0.5", "\"\"", "[]"},
     {"01", "-", "[,]", "nul", "1."}},
};

static void test_schemas(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof schemas / sizeof schemas[0]; i++) {
        subject s;
        gw_program *program = NULL;
        ok(gw_json_schema_compile(schemas[i].schema, strlen(schemas[i].schema), &program));
        open_program(&s, program);
        for (int want = 0; want < 2; want++) {
            const char *const *list = want ? schemas[i].whole : schemas[i].wrong;
            for (size_t k = 0; k < 6 && list[k] != NULL; k++) {
                int got = judge(s.m, list[k], strlen(list[k]));
                if ((got == 2) != want) {
                    fail_msg("%s: %s: %d", schemas[i].schema, list[k], got);
                }
            }
        }
        close_subject(&s);
    }
}

static const struct {
    const char *schema, *words;
    gw_status status;
} bad_schemas[] = {
    {"{\"type\":\"object\"", "JSON, line 1", GW_E_SYNTAX},
    {"[]", "at #: a schema is an object", GW_E_TYPE},
    {"{\"type\":\"objekt\"}", "at #: \"type\" must be", GW_E_TYPE},
    {"{\"properties\":{\"a/b\":{\"$dynamicRef\":\"#x\"}}}",
     "at #/properties/a~1b: \"$dynamicRef\" is not supported", GW_E_UNSUPPORTED},
    {"{\"anyOf\":[{\"type\":\"null\"},{\"patternProperties\":[]}]}",
     "at #/anyOf/1: \"patternProperties\"", GW_E_TYPE},
    {"{\"patternProperties\":{\"(\":{}}}", "at #/patternProperties/(: '(' without its ')'",
     GW_E_UNSUPPORTED},
    {"{\"type\":\"string\",\"format\":7}", "\"format\" must be a text", GW_E_TYPE},
    {"{\"type\":\"number\",\"minimum\":\"1\"}", "\"minimum\" must be a number", GW_E_TYPE},
    {"{\"type\":\"integer\",\"minimum\":2,\"maximum\":1}", "no number is within its bounds",
     GW_E_METADATA},
    {"{\"minLength\":3,\"maxLength\":2}", "the most is less than the least", GW_E_METADATA},
    {"{\"minLength\":1000000}", "at #: \"minLength\" is above 100000", GW_E_LIMIT},
    {"{\"minItems\":-1}", "at #: \"minItems\" must be a whole number", GW_E_TYPE},
    {"{\"pattern\":\"abcd\",\"maxLength\":3}", "no text is as long, and like its pattern",
     GW_E_METADATA},
    {"{\"pattern\":\"(?=a)\"}", "at #/pattern: a look ahead that does not stand behind the '^'",
     GW_E_UNSUPPORTED},
    {"{\"pattern\":\"(?<=a)b\"}", "at #/pattern: this kind of group is not supported, character 2",
     GW_E_UNSUPPORTED},
    {"{\"pattern\":\"\\\\p{Script=Greek}\"}", "this property", GW_E_UNSUPPORTED},
    {"{\"pattern\":\"(a)\\\\1\"}", "this escape is not supported", GW_E_UNSUPPORTED},
    {"{\"pattern\":\"[a\"}", "a class without its ']'", GW_E_UNSUPPORTED},
    {"{\"pattern\":\"a^b\"}", "no text is as long, and like its pattern", GW_E_METADATA},
    {"{\"pattern\":\"^(([a-c]{0,30}){0,30}){0,20}$\"}", "at #/pattern: too large a pattern",
     GW_E_LIMIT},
    {"{\"pattern\":\"*\"}", "a repetition of nothing", GW_E_UNSUPPORTED},
    {"{\"$ref\":\"other.json\"}", "is no JSON pointer into this schema", GW_E_UNSUPPORTED},
    {"{\"$ref\":\"#/$defs/x\"}", "there is no schema at '#/$defs/x'", GW_E_METADATA},
    {"{\"$ref\":\"#\"}", "again and again", GW_E_METADATA},
    {"{\"anyOf\":[{\"$ref\":\"#\"},{\"type\":\"null\"}]}", "again and again", GW_E_METADATA},
    {"{\"properties\":{\"a\":{\"$ref\":\"#\"}},\"required\":[\"a\"]}", "again and again",
     GW_E_METADATA},
    {"{\"allOf\":[{\"$ref\":\"#\"}]}", "refers to itself", GW_E_METADATA},
    {"{\"allOf\":[{\"type\":\"null\"},{\"type\":\"string\"}]}", "nothing fits both \"type\"",
     GW_E_METADATA},
    {"{\"allOf\":[{\"pattern\":\"^a\"},{\"pattern\":\"^b\"}]}",
     "no text is as long, and like its pattern", GW_E_METADATA},
    {"{\"allOf\":[{\"contains\":{\"const\":1},\"minContains\":2},{\"contains\":{\"const\":2}}]}",
     "at #/allOf/1: two schemas that hold at once have different \"contains\"", GW_E_UNSUPPORTED},
    {"{\"oneOf\":[{\"format\":\"date\"},{\"format\":\"time\"}]}",
     "at #: \"oneOf\": a value may be of both 0 and 1", GW_E_UNSUPPORTED},
    {"{\"not\":{\"format\":\"date\"}}", "at #/not: the opposite of these keywords is not supported",
     GW_E_UNSUPPORTED},
    {"{\"unevaluatedProperties\":false,\"not\":{\"required\":[\"a\"]}}",
     "at #: \"not\", \"if\" or \"else\" beside \"unevaluated...\"", GW_E_UNSUPPORTED},
    {"{\"items\":{\"type\":\"string\"},\"uniqueItems\":true,\"contains\":{\"const\":\"a\"}}",
     "\"uniqueItems\" and \"contains\" together", GW_E_UNSUPPORTED},
    {"{\"items\":{\"type\":\"string\"},\"uniqueItems\":true,\"minItems\":38}",
     "at #: \"uniqueItems\" with \"minItems\" above 37", GW_E_LIMIT},
    {"{\"multipleOf\":0}", "\"multipleOf\" must be above 0", GW_E_TYPE},
    {"{\"multipleOf\":12345.678}", "\"multipleOf\" with so many remainders", GW_E_UNSUPPORTED},
    {"{\"type\":\"object\",\"minProperties\":2,\"additionalProperties\":false,"
     "\"patternProperties\":{"
     "\"^[0-9]$\":{}}}",
     "there are too few names of different lengths", GW_E_METADATA},
    {"false", "at #: no value is possible", GW_E_METADATA},
    {"3", "at #: a schema is an object, true or false", GW_E_TYPE},
    {"{\"enum\":[]}", "the list has no value", GW_E_METADATA},
    {"{\"enum\":[1],\"minimum\":2}", "the list has no value", GW_E_METADATA},
    {"{\"enum\":[[1]],\"minItems\":1}", "\"enum\" together with other conditions",
     GW_E_UNSUPPORTED},
    {"{\"required\":[\"a\"],\"additionalProperties\":false}", "rules out", GW_E_METADATA},
    {"{\"properties\":{\"a\":3}}", "at #/properties/a: not a schema", GW_E_TYPE},
    {"{\"properties\":{\"a\":false},\"required\":[\"a\"]}",
     "at #/properties/a: no value is possible", GW_E_METADATA},
    {"{\"type\":\"string\\u0000\"}", "at #: \"type\": \\u0000 is not", GW_E_UNSUPPORTED},
    {"{\"type\":[\"null\",\"string\\u0000\"]}", "at #: \"type\": \\u0000", GW_E_UNSUPPORTED},
    {"{\"format\":\"date\\u0000\"}", "at #: \"format\": \\u0000 is not", GW_E_UNSUPPORTED},
    {"{\"items\":{\"required\":[\"a\\u0000\"]}}", "at #/items: \"required\": \\u0000",
     GW_E_UNSUPPORTED},
    {"{\"$ref\":\"#/$defs/a\\u0000b\",\"$defs\":{\"a\":{}}}", "at #: \"$ref\": \\u0000",
     GW_E_UNSUPPORTED},
    {"{\"allOf\":[{\"type\":\"number\\u0000\"},{\"type\":\"integer\"}]}",
     "at #/allOf/0: \"type\": \\u0000", GW_E_UNSUPPORTED},
    {"{\"properties\":{\"a\\u0000\":{}}}", "line 1 column", GW_E_ENCODING},
    {"{\"const\":[{\"a\\u0000\":1}]}", "\\u0000 is not supported in the name of a member",
     GW_E_ENCODING},
    {"{\"pattern\":\"\\\\\\u0000\"}", "this escape is not supported", GW_E_UNSUPPORTED},
    {"{\"$ref\":\"#/$defs/a%00b\",\"$defs\":{\"a\":{},\"a%00b\":{}}}", "there is no schema at",
     GW_E_METADATA},
};

static void test_bad_schemas(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof bad_schemas / sizeof bad_schemas[0]; i++) {
        gw_program *program = NULL;
        const char *text = bad_schemas[i].schema;
        gw_status status = gw_json_schema_compile(text, strlen(text), &program);
        if (status != bad_schemas[i].status ||
            strstr(gw_error_text(), bad_schemas[i].words) == NULL || program != NULL) {
            fail_msg("%s: %s: '%s'", text, gw_status_name(status),
                     status != GW_OK ? gw_error_text() : "");
        }
    }
}

/* A pointer of many bytes leads where all of it says, not where its beginning does. */
static void test_long_references(void **state) {
    (void)state;
    static const size_t lengths[] = {256, 1000, 1100};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        char name[1101], text[4000];
        size_t n = lengths[i];
        memset(name, 'd', n);
        name[n] = '\0';
        int bytes = snprintf(text, sizeof text,
                             "{\"$defs\":{\"%s\":{\"const\":1},\"%.255s\":{\"const\":2}},"
                             "\"$ref\":\"#/$defs/%s\"}",
                             name, name, name);
        subject s;
        gw_program *program = NULL;
        gw_status status = gw_json_schema_compile(text, (size_t)bytes, &program);
        if (n == 1100) {
            assert_int_equal(status, GW_E_LIMIT);
            assert_non_null(strstr(gw_error_text(), "at #: \"$ref\" has more than 1023 bytes"));
            continue;
        }
        ok(status);
        open_program(&s, program);
        assert_int_equal(judge(s.m, "1", 1), 2);
        assert_int_not_equal(judge(s.m, "2", 1), 2);
        close_subject(&s);
    }
}

/* Schemas that double at every step, are deep, or very wide. */
static void test_hostile_schemas(void **state) {
    (void)state;
    char *list[4];
    size_t n[4];
    list[0] = filled("\"d%d\":{\"allOf\":[{\"$ref\":\"#/$defs/d%d\"},{\"$ref\":\"#/$defs/d%d\"}]},",
                     31, &n[0]);
    list[1] = filled("\"d%d\":{\"properties\":{\"a\":{\"$ref\":\"#/$defs/d%d\"}}},\"e%d\":{},",
                     3000, &n[1]);
    list[2] = filled("\"d%d\":{\"enum\":[%d,%d]},", 15000, &n[2]);
    list[3] = filled("\"d%d\":{\"minLength\":99,\"maxLength\":90%d},\"e%d\":{},", 3000, &n[3]);
    for (int i = 0; i < 4; i++) {
        char *text = malloc(n[i] + 200);
        assert_non_null(text);
        size_t at = (size_t)sprintf(text, i < 2 ? "{\"$ref\":\"#/$defs/d0\",\"$defs\":{"
                                                : "{\"properties\":{");
        memcpy(text + at, list[i], n[i]);
        const char *last = i == 0 ? ",\"d31\":{}" : "";
        at += n[i] + (size_t)sprintf(text + at + n[i], "\"last\":{}%s}}", last);
        double start = seconds();
        gw_program *program = NULL;
        gw_status status = gw_json_schema_compile(text, at, &program);
        print_message("schema %d: %s, %.3f s\n", i, gw_status_name(status), seconds() - start);
        if (status != GW_OK && status != GW_E_LIMIT && status != GW_E_METADATA) {
            fail_msg("%s", gw_error_text());
        }
        assert_true(seconds() - start < 1.0 * SLOWER);
        gw_program_free(program);
        free(text);
        free(list[i]);
    }
}

/* Long lists: time and memory in proportion to them, whatever else holds. */
static void test_long_lists(void **state) {
    (void)state;
    static const struct {
        const char *before, *value, *after;
        int fits; /* else a limit may be named */
    } lists[] = {
        {"{\"enum\":[", "%d,", "0]}", 1},
        {"{\"enum\":[", "\"%d-abc\",", "0]}", 1},
        {"{\"enum\":[", "%d.25,", "0]}", 1},
        {"{\"type\":\"array\",\"uniqueItems\":true,\"items\":{\"enum\":[", "%d,", "0]}}", 1},
        {"{\"allOf\":[{\"enum\":[1,2,70000]},{\"enum\":[", "%d,", "0]}]}", 1},
        {"{\"type\":\"string\",\"maxLength\":4,\"pattern\":\"1\",\"enum\":[", "\"%d\",", "0]}", 1},
        {"{\"type\":\"string\",\"not\":{\"enum\":[", "\"%d\",", "0]}}", 0},
        {"{\"type\":\"integer\",\"not\":{\"enum\":[", "%d,", "0]}}", 0},
    };
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        size_t n, at;
        char *values = filled(lists[i].value, 40000 / SLOWER, &n);
        char *text = malloc(n + 200);
        assert_non_null(text);
        at = (size_t)sprintf(text, "%s", lists[i].before);
        memcpy(text + at, values, n);
        at += n + (size_t)sprintf(text + at + n, "%s", lists[i].after);
        double start = seconds();
        gw_program *program = NULL;
        gw_status status = gw_json_schema_compile(text, at, &program);
        print_message("list %zu: %s, %.3f s\n", i, gw_status_name(status), seconds() - start);
        if (status != GW_OK && (lists[i].fits || status != GW_E_LIMIT)) {
            fail_msg("list %zu: %s", i, gw_error_text());
        }
        /* What a limit ends has cost what the limit allows, of a list of any length. */
        assert_true(seconds() - start < 2.0 * (status == GW_OK ? 1 : SLOWER));
        gw_program_free(program);
        free(text);
        free(values);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_long_lists),      cmocka_unit_test(test_schemas),
        cmocka_unit_test(test_bad_schemas),     cmocka_unit_test(test_long_references),
        cmocka_unit_test(test_hostile_schemas),
    };
    return cmocka_run_group_tests_name("json schema", tests, open_model, close_model);
}
