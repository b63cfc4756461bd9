/* See sweep.h: which errors which calls can give. The matrix of docs/reliability.md. */
#include "tests/sim/sweep.h"

#include <errno.h>
#include <string.h>

typedef struct Error {
    SimCall call;
    const char *name;
    SimFault fault;
    bool once_only; /* for ever it would be no fault of the disk, or the engine tries for ever as it shall */
    int file;       /* that kind only; -1: all */
    SimFault also;  /* what fails besides from then on */
} Error;

#define FAIL(call, errno_)                                                                                             \
    {                                                                                                                  \
        call, #errno_, { .kind = SIM_FAIL, .error = -errno_ }, false, -1,                                              \
        {                                                                                                              \
            0                                                                                                          \
        }                                                                                                              \
    }
#define FAIL_ONCE(call, errno_)                                                                                        \
    {                                                                                                                  \
        call, #errno_, { .kind = SIM_FAIL, .error = -errno_ }, true, -1,                                               \
        {                                                                                                              \
            0                                                                                                          \
        }                                                                                                              \
    }
#define SHORT(call, name, by)                                                                                          \
    {                                                                                                                  \
        call, name, { .kind = SIM_SHORT, .short_by = by }, true, -1,                                                   \
        {                                                                                                              \
            0                                                                                                          \
        }                                                                                                              \
    }

static const Error errors[] = {
    FAIL(SIM_OPEN_ROOT, EMFILE),
    FAIL(SIM_OPEN, EIO),
    FAIL(SIM_OPEN, EMFILE),
    FAIL(SIM_CREATE, ENOSPC),
    FAIL(SIM_CREATE, EMFILE),
    FAIL(SIM_CREATE, EIO),
    FAIL_ONCE(SIM_CREATE, EEXIST),
    FAIL(SIM_CLOSE, EIO),
    FAIL_ONCE(SIM_CLOSE, EINTR),
    FAIL(SIM_PREAD, EIO),
    FAIL_ONCE(SIM_PREAD, EINTR),
    SHORT(SIM_PREAD, "half", SIM_SHORT_HALF),
    /* a bit that is turned on its way, once; nothing of it may be left when the next read is right */
    { SIM_PREAD, "flip", { .kind = SIM_FLIP, .bit = 8 * 60 }, true, -1, { 0 } },
    { SIM_PREAD,
      "flip7",
      { .kind = SIM_FLIP, .bit = 8 * 7 },
      true,
      -1,
      { 0 } }, /* the last byte of hwm, consumer.offset */
    /* the next read of such a file is wrong, too, elsewhere */
    { SIM_PREAD,
      "flip+flip",
      { .kind = SIM_FLIP, .bit = 8 * 60 },
      true,
      -1,
      { .kind = SIM_FLIP, .call = SIM_PREAD, .bit = 8 * 9 + 2 } },
    { SIM_PREAD, "flip3", { .kind = SIM_FLIP, .bit = 8 * 3 + 7 }, true, -1, { 0 } },
    FAIL(SIM_PWRITEV, EIO),
    FAIL(SIM_PWRITEV, ENOSPC),
    FAIL(SIM_PWRITEV, EDQUOT),
    FAIL(SIM_PWRITEV, EFBIG),
    FAIL_ONCE(SIM_PWRITEV, EINTR),
    SHORT(SIM_PWRITEV, "short1", 1),
    /* by a frame's header */
    { SIM_PWRITEV, "short27", { .kind = SIM_SHORT, .short_by = 27 }, true, SITE_LOG, { 0 } },
    SHORT(SIM_PWRITEV, "half", SIM_SHORT_HALF),
    SHORT(SIM_PWRITEV, "one", SIM_SHORT_ALL_BUT_ONE),
    { SIM_PWRITEV,
      "half+ENOSPC",
      { .kind = SIM_FAIL, .error = -ENOSPC, .short_by = SIM_SHORT_HALF },
      false,
      -1,
      { 0 } },
    { SIM_PWRITEV, "short1+EIO", { .kind = SIM_FAIL, .error = -EIO, .short_by = 1 }, false, -1, { 0 } },
    { SIM_FDATASYNC, "EIO", { .kind = SIM_FAIL, .error = -EIO, .reached = SIM_REACHED_NONE }, false, -1, { 0 } },
    { SIM_FDATASYNC, "EIO+some", { .kind = SIM_FAIL, .error = -EIO, .reached = SIM_REACHED_SOME }, false, -1, { 0 } },
    { SIM_FDATASYNC, "ENOSPC", { .kind = SIM_FAIL, .error = -ENOSPC, .reached = SIM_REACHED_SOME }, false, -1, { 0 } },
    { SIM_FDATASYNC,
      "EDQUOT+all",
      { .kind = SIM_FAIL, .error = -EDQUOT, .reached = SIM_REACHED_ALL },
      false,
      -1,
      { 0 } },
    { SIM_FDATASYNC, "EINTR", { .kind = SIM_FAIL, .error = -EINTR, .keeps_dirty = true }, false, -1, { 0 } },
    { SIM_FSYNC, "EIO", { .kind = SIM_FAIL, .error = -EIO, .reached = SIM_REACHED_NONE }, false, -1, { 0 } },
    { SIM_FSYNC, "EIO+some", { .kind = SIM_FAIL, .error = -EIO, .reached = SIM_REACHED_SOME }, false, -1, { 0 } },
    { SIM_FSYNC, "EINTR", { .kind = SIM_FAIL, .error = -EINTR, .keeps_dirty = true }, false, -1, { 0 } },
    { SIM_FSYNC_DIR, "EIO", { .kind = SIM_FAIL, .error = -EIO, .reached = SIM_REACHED_NONE }, false, -1, { 0 } },
    { SIM_FSYNC_DIR, "EIO+all", { .kind = SIM_FAIL, .error = -EIO, .reached = SIM_REACHED_ALL }, false, -1, { 0 } },
    /* what a failed write has left cannot be cut */
    { SIM_PWRITEV,
      "half+ENOSPC+ftruncate",
      { .kind = SIM_FAIL, .error = -ENOSPC, .short_by = SIM_SHORT_HALF },
      true,
      SITE_LOG,
      { .kind = SIM_FAIL, .call = SIM_FTRUNCATE, .error = -EIO, .stays = true } },
    { SIM_PWRITEV,
      "ENOSPC+fdatasync",
      { .kind = SIM_FAIL, .error = -ENOSPC },
      true,
      SITE_LOG,
      { .kind = SIM_FAIL, .call = SIM_FDATASYNC, .error = -EIO, .stays = true } },
    { SIM_PWRITEV,
      "half+ENOSPC+ftruncate",
      { .kind = SIM_FAIL, .error = -ENOSPC, .short_by = SIM_SHORT_HALF },
      true,
      SITE_WAL,
      { .kind = SIM_FAIL, .call = SIM_FTRUNCATE, .error = -EIO, .stays = true } },
    { SIM_FDATASYNC,
      "EIO+ftruncate",
      { .kind = SIM_FAIL, .error = -EIO },
      true,
      SITE_LOG,
      { .kind = SIM_FAIL, .call = SIM_FTRUNCATE, .error = -EIO, .stays = true } },
    FAIL(SIM_FTRUNCATE, EIO),
    FAIL(SIM_FTRUNCATE, EROFS),
    FAIL(SIM_PUNCH, EOPNOTSUPP),
    FAIL(SIM_PUNCH, EIO),
    FAIL(SIM_SET_MTIME, EIO),
    FAIL(SIM_FSTAT, EIO),
    FAIL(SIM_FSTATAT, EIO),
    FAIL(SIM_MKDIR, ENOSPC),
    FAIL(SIM_MKDIR, EIO),
    FAIL(SIM_RENAME, ENOSPC),
    FAIL(SIM_RENAME, EACCES),
    FAIL(SIM_RENAME, EPERM),
    FAIL_ONCE(SIM_RENAME, EEXIST),
    FAIL(SIM_UNLINK, EIO),
    FAIL(SIM_UNLINK, EPERM),
    FAIL(SIM_UNLINK, EBUSY),
    FAIL(SIM_RMDIR, EIO),
    FAIL(SIM_LIST, EIO),
    { SIM_LIST, "half+EIO", { .kind = SIM_FAIL, .error = -EIO, .short_by = SIM_SHORT_HALF }, false, -1, { 0 } },
    { SIM_LIST, "one+EIO", { .kind = SIM_FAIL, .error = -EIO, .short_by = SIM_SHORT_ALL_BUT_ONE }, false, -1, { 0 } },
    FAIL(SIM_LIST, ENOMEM),
    FAIL(SIM_LIST, EMFILE),
    FAIL(SIM_DROP_CACHE, EIO),
    FAIL(SIM_LOCK, EIO),
    FAIL(SIM_FSTATVFS, EIO),
    FAIL(SIM_MAP, ENOMEM),
    FAIL(SIM_MAP, EIO),
};

static void add(GArray *jobs, Job job, const char *how)
{
    static const char *const kinds[JOB_N_KINDS] = { "fault", "crash", "lie", "memory" };
    if (job.kind == JOB_MEMORY)
        g_snprintf(job.name, sizeof job.name, "%s:%s:%u:%s", kinds[job.kind], job.workload->name, job.nth, how);
    else
        g_snprintf(job.name, sizeof job.name, "%s:%s:%s:%s:%u%s%s", kinds[job.kind], job.workload->name,
                   sim_call_name(job.site.call), site_file_name(job.site.file), job.nth, how[0] ? ":" : "", how);
    g_array_append_val(jobs, job);
}

static void add_error(GArray *jobs, Job job, const Error *error)
{
    static const struct {
        const char *name;
        bool stays;
        WorkloadMode mode;
    } ways[] = { { "once", false, WORKLOAD_RETRY },
                 { "stays", true, WORKLOAD_RETRY },
                 { "stays-restart", true, WORKLOAD_RESTART } };
    job.kind = JOB_FAULT;
    for (size_t i = 0; i < (error->once_only ? 1 : G_N_ELEMENTS(ways)); i++) {
        g_autofree char *how = g_strconcat(error->name, ":", ways[i].name, NULL);
        job.fault = error->fault;
        job.also = error->also;
        job.fault.stays = ways[i].stays;
        job.mode = ways[i].mode;
        add(jobs, job, how);
    }
}

static bool applies(const Error *error, const Job *job)
{
    return error->call == job->site.call && (error->file < 0 || error->file == (int)job->site.file);
}

static void list_call(GArray *jobs, Job job)
{
    for (size_t i = 0; i < G_N_ELEMENTS(errors); i++) {
        if (applies(&errors[i], &job))
            add_error(jobs, job, &errors[i]);
    }
    if (site_changes(job.site.call)) {
        job.kind = JOB_CRASH;
        add(jobs, job, "");
    }
    if (site_syncs(job.site.call)) {
        job.kind = JOB_LIE;
        for (int forgets = 0; forgets < 2; forgets++) {
            job.fault = (SimFault){ .kind = SIM_LIE, .forgets = forgets };
            add(jobs, job, forgets ? "forgets" : "late");
        }
    }
}

void sweep_list(const Workload *workload, const Scouted *scouted, GArray *jobs)
{
    Job job = { .workload = workload };
    for (int call = 0; call < SIM_N_CALLS; call++) {
        for (int file = 0; file < SITE_N_FILES; file++) {
            job.site = (Site){ (SimCall)call, (SiteFile)file };
            for (job.nth = 1; job.nth <= scouted->n[call][file]; job.nth++)
                list_call(jobs, job);
        }
    }
    job.kind = JOB_MEMORY;
    for (job.nth = 1; job.nth <= scouted->n_allocations; job.nth++) {
        job.fault = (SimFault){ .stays = false };
        add(jobs, job, "once");
        job.fault.stays = true;
        add(jobs, job, "stays");
    }
}
