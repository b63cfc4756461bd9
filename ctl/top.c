/* naradctl top [MNT]: what the topics do, again and again. */
#include "ctl/cli.h"
#include "ctl/top_page.h"
#include "ctl/verbs.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#define ENTER_SCREEN "\033[?1049h\033[?25l"
#define LEAVE_SCREEN "\033[?25h\033[?1049l"
#define HOME_AND_CLEAR "\033[H\033[J"

#define NOT_GIVEN INT_MIN /* --number: pages without an end, or one where there is no terminal */

static const NrdCliVerb verb = {
    .arguments = "[MNT]",
    .summary =
        "Shows what each topic does: records produced and settled a second, lag, what is in flight. On a terminal\n"
        "a page that renews itself until q is pressed; elsewhere, or with -n, plain text.",
    .n_least = 0,
    .n_most = 1,
};

static struct termios saved_mode;

/* Once, before anything is said or at exit. */
static void leave_screen(void)
{
    static bool left;
    if (left)
        return;
    left = true;
    (void)!write(STDOUT_FILENO, LEAVE_SCREEN, strlen(LEAVE_SCREEN));
    tcsetattr(STDIN_FILENO, TCSANOW, &saved_mode);
}

/* Keys come one by one and unseen; the screen is given back at exit. */
static bool enter_screen(void)
{
    struct termios mode;
    if (tcgetattr(STDIN_FILENO, &saved_mode) < 0)
        return false;
    mode = saved_mode;
    mode.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    if (tcsetattr(STDIN_FILENO, TCSANOW, &mode) < 0)
        return false;
    fputs(ENTER_SCREEN, stdout);
    atexit(leave_screen);
    return true;
}

static void screen_size(unsigned *ret_rows, unsigned *ret_columns)
{
    struct winsize size;
    bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 4 && size.ws_col > 8;
    *ret_rows = known ? size.ws_row : 24;
    *ret_columns = known ? size.ws_col : 80;
}

static void show(const NrdTopSample *before, const NrdTopSample *now, bool live)
{
    unsigned n_rows = UINT32_MAX, width = 4096;
    if (live) {
        screen_size(&n_rows, &width);
        n_rows -= 4; /* sums, head, an empty line, the last line */
        fputs(HOME_AND_CLEAR, stdout);
    }
    GString *page = nrd_top_page(before, now, n_rows, width);
    fputs(page->str, stdout);
    if (live)
        fputs("\nq quits", stdout);
    fflush(stdout);
    g_string_free(page, TRUE);
}

/* Waits for the next sample; false when it is over: q, an end of input, an interruption. */
static bool wait_next(double seconds, bool live)
{
    int64_t until = g_get_monotonic_time() + (int64_t)(seconds * 1e6);
    while (!nrd_cli_interrupted()) {
        int64_t left_us = until - g_get_monotonic_time();
        struct pollfd input = { .fd = live ? STDIN_FILENO : -1, .events = POLLIN };
        char key;
        if (left_us <= 0)
            return true;
        if (poll(&input, 1, (int)(left_us / 1000) + 1) <= 0 || input.revents == 0)
            continue;
        if (read(STDIN_FILENO, &key, 1) <= 0 || key == 'q' || key == 'Q')
            return false;
    }
    return false;
}

/* False, after a sentence for each, when topics of the last page could not be read in full. */
static bool tell_unread(const char *mnt, const NrdTopSample *sample)
{
    bool whole = true;
    for (guint i = 0; sample->topics && i < sample->topics->len; i++) {
        const NrdTopTopic *topic = &g_array_index(sample->topics, NrdTopTopic, i);
        if (topic->sums.error == 0)
            continue;
        nrd_cli_say("%s/topics/%s could not be read in full: %s", mnt, topic->name, g_strerror(-topic->sums.error));
        whole = false;
    }
    return whole;
}

/* False, after a sentence, when something could not be read. */
static bool run(const char *mnt, double seconds, int n_pages, bool live)
{
    NrdTopSample before = { .topics = NULL }, now = { .topics = NULL };
    int rc = nrd_top_sample(mnt, &before);
    if (rc == 0 && live)
        show(&before, &before, live);
    for (int page = 0; rc == 0 && (n_pages == NOT_GIVEN || page < n_pages) && wait_next(seconds, live); page++) {
        rc = nrd_top_sample(mnt, &now);
        if (rc < 0)
            break;
        show(&before, &now, live);
        nrd_top_sample_clear(&before);
        before = now;
        now.topics = NULL;
    }
    if (live)
        leave_screen();
    if (rc < 0)
        nrd_cli_say("the topics of %s cannot be listed: %s", mnt, g_strerror(-rc));
    bool whole = tell_unread(mnt, &before) && rc == 0;
    nrd_top_sample_clear(&before);
    return whole;
}

int nrd_verb_top(int argc, char **argv)
{
    double seconds = 1;
    int n_pages = NOT_GIVEN;
    const GOptionEntry entries[] = {
        { "delay", 'd', 0, G_OPTION_ARG_DOUBLE, &seconds, "Seconds between looks (1)", "SECONDS" },
        { "number", 'n', 0, G_OPTION_ARG_INT, &n_pages, "So many pages, as plain text", "N" },
        G_OPTION_ENTRY_NULL,
    };
    g_autofree char *mnt = NULL;
    g_autofree char *why = NULL;
    if (!nrd_cli_parse(&verb, entries, &argc, &argv))
        return NRD_EXIT_USAGE;
    if (!(seconds >= 0.05 && seconds <= 86400) || (n_pages != NOT_GIVEN && n_pages < 1)) {
        nrd_cli_say("--delay takes 0.05 to 86400 seconds, --number a number from 1 up");
        return NRD_EXIT_USAGE;
    }
    if (nrd_tree_find(argc > 1 ? argv[1] : NULL, &mnt, &why) < 0) {
        nrd_cli_say("%s", why);
        return NRD_EXIT_FAILED;
    }
    bool terminal = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
    nrd_cli_catch_interrupts();
    bool live = n_pages == NOT_GIVEN && terminal && enter_screen();
    bool whole = run(mnt, seconds, n_pages == NOT_GIVEN && !live ? 1 : n_pages, live);
    return nrd_cli_flush() && whole ? NRD_EXIT_GOOD : NRD_EXIT_FAILED;
}
