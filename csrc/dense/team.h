/* team.h - threads that work on the parts of one job after the other.
 * Owns: the interface of team.c. Never: knows what a job is. */
#ifndef KB_TEAM_H
#define KB_TEAM_H
#include <stdatomic.h>
#include <stdint.h>
#ifndef _WIN32
#include <pthread.h>
#endif

#define KB_TEAM_THREADS 64u           /* threads of a team, at most */

/* Works on part `part` of `parts`, as thread number `thread`. Parts must not write to the same
 * memory. */
typedef void kb_team_part(void *context, uint32_t thread, uint32_t part, uint32_t parts);

#ifdef _WIN32
typedef struct kb_team { uint32_t threads; } kb_team;
#else
typedef struct kb_team_member { struct kb_team *team; uint32_t number; pthread_t thread; } kb_team_member;

typedef struct kb_team {              /* team.c; the caller provides the memory */
    uint32_t threads;                 /* including the caller of kb_team_start */
    int started;                      /* the others exist: from the first job on */
    pthread_mutex_t mutex;
    pthread_cond_t begins, ends;      /* a job begins; the last thread leaves a job */
    atomic_uint job;                  /* number of the current job */
    atomic_uint active;               /* threads in a job, without the caller */
    atomic_uint next;                 /* the next part of the job */
    atomic_int open, stopping;        /* open: threads may enter the job */
    kb_team_part *work;               /* of an open job, like the next two */
    void *context;
    uint32_t parts;
    kb_team_member members[KB_TEAM_THREADS];
} kb_team;
#endif

/* Form a team of `threads`, of which the caller is one. The others start with the first job; there
 * are fewer where the system refuses them. */
void kb_team_start(kb_team *team, uint32_t threads);
/* Work on all parts of a job and wait for their end. A thread that the system does not run is not
 * waited for: the others take its parts. */
void kb_team_run(kb_team *team, kb_team_part *work, void *context, uint32_t parts);
void kb_team_stop(kb_team *team);

#endif
