/* The engine against a broker in plain arrays (broker.c), over long runs of random steps.
 *
 *   model --seed S --steps N    a run; exit code 1 and a line that says what differs, or 0
 *   model --seed S --steps N --print    its steps, one a line, and nothing else
 *   model --steps-from FILE     the steps in a file
 *
 * scripts/model runs it and shortens the list of a run that fails. */
#include "world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int seed = 1, n_steps = 2000;
static gboolean print;
static char *steps_from;

static const GOptionEntry entries[] = {
    { "seed", 0, 0, G_OPTION_ARG_INT, &seed, "which run", "S" },
    { "steps", 0, 0, G_OPTION_ARG_INT, &n_steps, "how long", "N" },
    { "print", 0, 0, G_OPTION_ARG_NONE, &print, "print the steps only", NULL },
    { "steps-from", 0, 0, G_OPTION_ARG_FILENAME, &steps_from, "the steps in a file", "FILE" },
    G_OPTION_ENTRY_NULL,
};

static GArray *read_steps(const char *path)
{
    GArray *steps = g_array_new(FALSE, FALSE, sizeof(Step));
    g_autofree char *text = NULL;
    if (!g_file_get_contents(path, &text, NULL, NULL)) {
        fprintf(stderr, "cannot read %s\n", path);
        exit(2);
    }
    g_auto(GStrv) lines = g_strsplit(text, "\n", -1);
    for (char **line = lines; *line; line++) {
        Step step;
        if (**line == '\0')
            continue;
        if (!step_parse(*line, &step)) {
            fprintf(stderr, "%s is no step\n", *line);
            exit(2);
        }
        g_array_append_val(steps, step);
    }
    return steps;
}

static GArray *make_steps(void)
{
    GArray *steps = g_array_new(FALSE, FALSE, sizeof(Step));
    for (int i = 0; i < n_steps; i++) {
        Step step = step_of_seed((uint32_t)seed, (unsigned)i);
        g_array_append_val(steps, step);
    }
    return steps;
}

/* In a run of some length every kind of step has found something to do. */
static int summarize(const World *w)
{
    int missing = 0;
    for (int kind = 0; kind < N_STEP_KINDS; kind++) {
        g_autofree char *text = step_text(&(Step){ .kind = (StepKind)kind });
        printf("%s%.*s %u", kind ? ", " : "", (int)strcspn(text, " "), text, w->done[kind]);
        missing += w->done[kind] == 0 && kind != STEP_COPY_SICK; /* a child has to keep its parent, see below */
    }
    printf("\n%u late copies, %u segments over their bound of bytes, %u failed commits (%u of them poison)\n",
           w->n_late, w->n_by_bytes, w->n_sick, w->n_poisoned);
    printf("failed also: %u commits of topics, %u copies, %u settlings, %u settings\n", w->n_sick_topics,
           w->n_sick_copies, w->n_sick_settlings, w->n_sick_settings);
    if (w->n_steps >= 3000)
        missing += w->n_sick_topics == 0 || w->n_sick_settlings == 0 || w->n_sick_settings == 0 || w->n_by_bytes == 0 ||
                   w->n_poisoned == 0 || w->n_sick == w->n_poisoned;
    if (w->n_steps >= 20000) /* a child has to keep its parent for that long */
        missing += w->n_late == 0 || w->n_sick_copies == 0;
    printf("%u steps, %u records: no difference\n", w->n_steps, w->n_records);
    return missing > 0 && w->n_steps >= 1500 ? 1 : 0;
}

int main(int argc, char **argv)
{
    g_autoptr(GOptionContext) context = g_option_context_new("- the engine against a model");
    World w;
    g_option_context_add_main_entries(context, entries, NULL);
    if (!g_option_context_parse(context, &argc, &argv, NULL))
        return 2;
    g_autoptr(GArray) steps = steps_from ? read_steps(steps_from) : make_steps();
    if (!print)
        world_start(&w);
    for (guint i = 0; i < steps->len; i++) {
        const Step *step = &g_array_index(steps, Step, i);
        g_autofree char *text = step_text(step);
        if (print)
            printf("%s\n", text);
        else
            world_do(&w, step);
    }
    if (print)
        return 0;
    world_end(&w);
    return summarize(&w);
}
