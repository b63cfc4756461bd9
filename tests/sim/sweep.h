/* The sweeps: which runs there are, and how one is made.
 *
 * A job is one fault run (a call fails, or an allocation), or one moment at which the process dies or the power goes, with
 * each of the states that may be left, or one sync that lies. Jobs have names, by which one is made again. */
#ifndef NRD_TEST_SWEEP_H
#define NRD_TEST_SWEEP_H

#include "tests/sim/sweep_site.h"
#include "tests/sim/workload.h"

typedef enum JobKind { JOB_FAULT, JOB_CRASH, JOB_LIE, JOB_MEMORY, JOB_N_KINDS } JobKind;

typedef struct Job {
    JobKind kind;
    const Workload *workload;
    Site site;
    unsigned nth;   /* at the site, from 1; JOB_MEMORY: of all allocations */
    SimFault fault; /* JOB_FAULT, JOB_LIE: the rest of it */
    SimFault also;  /* JOB_FAULT: what fails besides in such files, from then on; error 0: nothing */
    WorkloadMode mode;
    char name[120];
} Job;

/* What a run without faults does, from its beginning on. */
typedef struct Scouted {
    unsigned n[SIM_N_CALLS][SITE_N_FILES];
    unsigned n_allocations;
} Scouted;

typedef struct JobResult {
    bool fired;
    unsigned n_states; /* states of the disk that were checked */
    char *why;         /* the violation; the process is to be ended then */
} JobResult;

/* All jobs of a workload, appended to jobs (of Job). */
void sweep_list(const Workload *workload, const Scouted *scouted, GArray *jobs);

/* Runs the workload on a well disk, and checks what it leaves: NULL or the violation. */
char *sweep_scout(const Workload *workload, uint32_t seed, Scouted *ret_scouted);

JobResult sweep_run(const Job *job, uint32_t seed);

#endif
