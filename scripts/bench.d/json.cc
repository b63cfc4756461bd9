// Compares the JSON libraries of Debian 12 on lines like those of produce.jsonl: how fast each says whether a line is one
// valid object, and how fast naradfs makes a record of it. Those that are not installed are left out. C++ for simdjson;
// json-c's names are jansson's too, so it is measured by a program of its own, with -DJSON_C.
//
//   gcc -O2 -D_GNU_SOURCE -I. $(pkg-config --cflags glib-2.0) -c fs/jsonl_in.c fs/json_check.c fs/json_object.c fs/base64.c
//   g++ -O2 -std=c++17 -I. $(pkg-config --cflags glib-2.0) scripts/bench.d/json.cc *.o -o json
//       -lyajl -lglib-2.0 -ljansson -ljson-c -lcjson -lsimdjson
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>

extern "C" {
#include "fs/json_check.h"
#include "fs/jsonl_in.h"
}
#if !defined(JSON_C) && __has_include(<jansson.h>)
#include <jansson.h>
#endif
#if defined(JSON_C) && __has_include(<json-c/json.h>)
#include <json-c/json.h>
#endif
#if __has_include(<cjson/cJSON.h>)
#include <cjson/cJSON.h>
#endif
#if __has_include(<simdjson.h>)
#include <simdjson.h>
#endif

using Check = std::function<bool(const std::string &)>;

static void measure(const Check &check, const std::string &line)
{
    using clock = std::chrono::steady_clock;
    double best = 0;
    bool valid = true;
    for (int round = 0; round < 5; round++) {
        long n = 0;
        auto start = clock::now();
        std::chrono::duration<double> passed{};
        do {
            for (int i = 0; i < 16; i++)
                valid = check(line) && valid;
            n += 16;
            passed = clock::now() - start;
        } while (passed.count() < 0.2);
        best = std::max(best, (double)n * (double)line.size() / passed.count() / 1e6);
    }
    std::printf(" %8.0f%s", best, valid ? "" : "!");
    std::fflush(stdout);
}

static bool yajl_check(const std::string &line)
{
    return nrd_json_valid((const uint8_t *)line.data(), line.size());
}

static bool record_check(const std::string &line)
{
    NrdJsonlLine parsed;
    const char *why;
    if (nrd_jsonl_parse((const uint8_t *)line.data(), line.size(), 1 << 20, &parsed, &why) < 0)
        return false;
    g_free(parsed.decoded);
    return true;
}

int main()
{
    std::string orders = R"({"key":"order-4711","payload":{"id":4711,"item":"lamp","price":12.50,"paid":true,"tags":["a","b"]}})";
    std::string items = R"({"key":"k","payload":[)";
    for (int i = 0; i < 20; i++)
        items += (i ? "," : "") + std::string(R"({"id":17,"name":"caf\u00e9","price":1.5e3,"ok":null})");
    items += "]}";
    std::string text = R"({"key":"k","payload":")" + std::string(100000, 'x') + "\"}";
    std::string base64 = R"({"payload_encoding":"base64","payload":")" + std::string(100000, 'Q') + "\"}";
    std::string numbers = R"({"payload":[0)";
    for (int i = 0; i < 20000; i++)
        numbers += ",-12.75";
    numbers += "]}";

    std::pair<const char *, Check> checks[] = {
        { "yajl", yajl_check },
#if !defined(JSON_C) && __has_include(<jansson.h>)
        { "jansson",
          [](const std::string &line) {
              json_t *json = json_loadb(line.data(), line.size(), JSON_ALLOW_NUL, NULL);
              json_decref(json);
              return json != NULL;
          } },
#endif
#if defined(JSON_C) && __has_include(<json-c/json.h>)
        { "json-c",
          [](const std::string &line) {
              json_tokener *tokener = json_tokener_new();
              json_object *json = json_tokener_parse_ex(tokener, line.data(), (int)line.size());
              bool valid = json != NULL;
              json_object_put(json);
              json_tokener_free(tokener);
              return valid;
          } },
#endif
#if __has_include(<cjson/cJSON.h>)
        { "cJSON",
          [](const std::string &line) {
              cJSON *json = cJSON_ParseWithLength(line.data(), line.size());
              cJSON_Delete(json);
              return json != NULL;
          } },
#endif
#if __has_include(<simdjson.h>)
        { "simdjson",
          [](const std::string &line) {
              static simdjson::dom::parser parser;
              return parser.parse(line.data(), line.size()).error() == simdjson::SUCCESS;
          } },
#endif
        { "record", record_check },
    };
    std::printf("%-10s %8s %8s %8s %8s %8s   MB/s\n", "", "100 B", "1 KB", "text", "base64", "numbers");
    for (auto &[name, check] : checks) {
        std::printf("%-10s", name);
        for (const std::string *line : { &orders, &items, &text, &base64, &numbers })
            measure(check, *line);
        std::printf("\n");
    }
}
