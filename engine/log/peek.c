/* What a log left when it was closed; see log.h. */
#include "engine/log/log.h"

int nrd_log_peek(int root_fd, const char *dir, NrdLogStats *ret_stats, bool *ret_known)
{
    (void)root_fd;
    (void)dir;
    (void)ret_stats;
    *ret_known = false;
    return 0;
}
