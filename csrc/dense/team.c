/* team.c - threads that work on the parts of one job after the other.
 * Owns: threads, from the start of a team to its end. Never: knows what a job is, or keeps a thread
 * between two calls of the engine.
 * A thread that waits spins for some microseconds first, because jobs follow each other closely. */
#define _POSIX_C_SOURCE 200809L
#include "dense/team.h"

#ifdef _WIN32

void kb_team_start(kb_team *team, uint32_t threads)
{
    (void)threads;
    team->threads = 1;
}

void kb_team_run(kb_team *team, kb_team_part *work, void *context, uint32_t parts)
{
    (void)team;
    for (uint32_t part = 0; part < parts; part++)
        work(context, 0, part, parts);
}

void kb_team_stop(kb_team *team)
{
    (void)team;
}

#else
#include <signal.h>
#include <stddef.h>

#define SPINS 1000u                   /* tests before a thread sleeps */

static inline void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

/* Wait until another job than `last` has begun; return its number. */
static unsigned next_job(kb_team *team, unsigned last)
{
    unsigned job = last;

    for (uint32_t i = 0; i < SPINS && job == last; i++) {
        job = atomic_load_explicit(&team->job, memory_order_acquire);
        relax();
    }
    if (job != last)
        return job;
    pthread_mutex_lock(&team->mutex);
    while ((job = atomic_load_explicit(&team->job, memory_order_acquire)) == last)
        pthread_cond_wait(&team->begins, &team->mutex);
    pthread_mutex_unlock(&team->mutex);
    return job;
}

static void take_parts(kb_team *team, uint32_t thread)
{
    uint32_t part;

    while ((part = atomic_fetch_add_explicit(&team->next, 1, memory_order_relaxed)) < team->parts)
        team->work(team->context, thread, part, team->parts);
}

/* Either a thread that enters finds the job closed, or the caller, who closes it, finds the thread
 * active: both use sequentially consistent operations. */
static void *follow(void *context)
{
    const kb_team_member *member = context;
    kb_team *team = member->team;

    for (unsigned job = 0;;) {
        job = next_job(team, job);
        if (atomic_load(&team->stopping))
            return NULL;
        atomic_fetch_add(&team->active, 1);
        if (atomic_load(&team->open))
            take_parts(team, member->number);
        if (atomic_fetch_sub(&team->active, 1) == 1) {
            pthread_mutex_lock(&team->mutex);
            pthread_cond_signal(&team->ends);
            pthread_mutex_unlock(&team->mutex);
        }
    }
}

static void wake(kb_team *team)
{
    pthread_mutex_lock(&team->mutex);
    atomic_fetch_add_explicit(&team->job, 1, memory_order_release);
    pthread_cond_broadcast(&team->begins);
    pthread_mutex_unlock(&team->mutex);
}

static void release(kb_team *team)
{
    pthread_cond_destroy(&team->ends);
    pthread_cond_destroy(&team->begins);
    pthread_mutex_destroy(&team->mutex);
}

static void start_threads(kb_team *team)
{
    uint32_t wanted = team->threads;
    sigset_t all, before;

    pthread_mutex_init(&team->mutex, NULL);
    pthread_cond_init(&team->begins, NULL);
    pthread_cond_init(&team->ends, NULL);
    atomic_init(&team->job, 0);
    atomic_init(&team->active, 0);
    atomic_init(&team->open, 0);
    atomic_init(&team->stopping, 0);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);   /* signals are for the threads of the caller */
    for (team->threads = 1; team->threads < wanted; team->threads++) {
        kb_team_member *member = team->members + team->threads;

        member->team = team;
        member->number = team->threads;
        if (pthread_create(&member->thread, NULL, follow, member) != 0)
            break;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    team->started = team->threads > 1;
    if (!team->started)
        release(team);
}

void kb_team_start(kb_team *team, uint32_t threads)
{
    team->threads = threads < KB_TEAM_THREADS ? threads : KB_TEAM_THREADS;
    team->started = 0;
}

void kb_team_run(kb_team *team, kb_team_part *work, void *context, uint32_t parts)
{
    if (team->threads > 1 && !team->started)
        start_threads(team);
    if (team->threads == 1) {
        for (uint32_t part = 0; part < parts; part++)
            work(context, 0, part, parts);
        return;
    }
    team->work = work;
    team->context = context;
    team->parts = parts;
    atomic_store_explicit(&team->next, 0, memory_order_relaxed);
    atomic_store(&team->open, 1);
    wake(team);
    take_parts(team, 0);
    atomic_store(&team->open, 0);
    for (uint32_t i = 0; i < SPINS && atomic_load(&team->active) != 0; i++)
        relax();
    pthread_mutex_lock(&team->mutex);
    while (atomic_load(&team->active) != 0)
        pthread_cond_wait(&team->ends, &team->mutex);
    pthread_mutex_unlock(&team->mutex);
}

void kb_team_stop(kb_team *team)
{
    if (!team->started)
        return;
    atomic_store(&team->stopping, 1);
    wake(team);
    for (uint32_t i = 1; i < team->threads; i++)
        pthread_join(team->members[i].thread, NULL);
    release(team);
}

#endif
