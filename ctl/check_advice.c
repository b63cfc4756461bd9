/* What a person should do next, by the kind of error; printed once, at the end. docs/operations.md has it by message. */
#include "ctl/check.h"
#include "ctl/cli.h"

#include <stdio.h>
#include <string.h>

typedef struct Advice {
    const char *kind;
    const char *text;
} Advice;

/* Every kind that an error can have. In the order in which things are to be done. */
static const Advice advice[] = {
    { "layout", "no daemon starts on this directory: put what is named right, or back from a backup, and check again" },
    { "orphan",
      "before any start, as each line says: put the topic's record back into meta/ from a backup, give the folder "
      "its name, or move it away; if the topic was deleted, start: the start finishes that" },
    { "topic",
      "put the topic's record back from a backup, an old copy does; nothing of the topic is deleted meanwhile" },
    { "incarnation",
      "before any start: put the marker right, or the folder or record that belongs there in its place" },
    { "folder",
      "before any start: put folders that are missing back from a backup, without one they are made anew, empty (what "
      "was committed to such a one since has the offsets of the old one's records: export it before that is put back); "
      "raise `partitions` of a topic that has more folders than partitions; where one was made anew, write `reopen` "
      "to the partition's ctl" },
    { "read",
      "move away what stands in the place of a file, and put the file back from a backup; when the disk cannot be "
      "read, copy the data directory to another disk" },
    { "segment", "move away what stands in the segment's place, and put the segment back from a backup" },
    { "missing",
      "put the segment's file back from a backup, with the daemon stopped; without one the records are lost, "
      "and the others are served" },
    { "frame", "look at the disk; put the segment's file back from a backup, with the daemon stopped; without one the "
               "records are lost, and the others are served" },
    { "hwm", "remove that hwm with the daemon stopped: a start finds where the records end, and writes it anew" },
    { "time", "nothing has to be done: retention goes by what the records say; it tells of a clock or of a foreign "
              "file, and an "
              "export takes the records as they are" },
    { "ingress", "start: what is whole is committed; what is damaged its producers have to send again" },
    { "checkpoint", "start: it is written anew; look for records that come twice" },
    { "frontier", "start: consumers get again what is not known to be settled; `seek` in a partition's ctl sets it by "
                  "hand" },
    { "cursor", "start: what was committed since the child was attached is copied to it again" },
};

void nrd_check_advise(NrdCheck *check, const char *kind)
{
    size_t i = 0;
    while (i < G_N_ELEMENTS(advice) && strcmp(advice[i].kind, kind) != 0)
        i++;
    g_assert(i < G_N_ELEMENTS(advice));
    check->advised |= UINT64_C(1) << i;
}

static void print_json(NrdJson *json, const Advice *one)
{
    nrd_json_object(json, NULL);
    nrd_json_string(json, "kind", one->kind);
    nrd_json_string(json, "do", one->text);
    nrd_json_object_end(json);
}

void nrd_check_print_advice(const NrdCheck *check)
{
    if (check->json)
        nrd_json_array(check->json, "advice");
    else if (check->advised != 0)
        puts("what to do next, in this order (docs/operations.md has more):");
    for (size_t i = 0; i < G_N_ELEMENTS(advice); i++) {
        if ((check->advised & (UINT64_C(1) << i)) == 0)
            continue;
        if (check->json)
            print_json(check->json, &advice[i]);
        else
            printf("  %s: %s\n", advice[i].kind, advice[i].text);
    }
    if (check->json)
        nrd_json_array_end(check->json);
}
