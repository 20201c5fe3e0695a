/* wellfounded.c - the well-founded model of a ground program: true, false and undefined nodes.
 * Owns: the state of one such computation, except borrowed arrays. Never: uses relations, symbols
 * or plans.
 *
 * Decided nodes are propagated to the instances that use them, each use once (Dowling and Gallier,
 * "Linear-time algorithms for testing the satisfiability of propositional Horn formulae", 1984).
 * Nodes that then support only each other are an unfounded set and false (Van Gelder, Ross,
 * Schlipf, "The well-founded semantics for general logic programs", 1991). Every undecided node has
 * a source: an instance that can still hold, whose positive premises have sources that do not lead
 * back to the node. Only nodes that lost their source are examined again, with those that depend on
 * them (as in Simons, Niemelae, Soininen, "Extending and implementing the stable model semantics",
 * 2002). */
#include "internal.h"

#define CHUNK 4096u                   /* steps between two checks of the cancel flag and the
                                       * budget */

enum { OUTSIDE, INSIDE, LEAVING };    /* `place` of a node while an unfounded set is searched for */

/* In this order; PROPAGATE to FALSIFY repeat until no source is lost. */
typedef enum phase {
    COUNT, PLACE, SUPPORT_FIRST, SUPPORT, HOLD_FIRST, FAIL_FIRST, PROPAGATE, GATHER, SPREAD, COUNT_INSIDE, LEAVE, FALSIFY, PHASES
} phase;

struct kb_model {
    kb_engine *engine;
    kb_heap heap;
    kb_limits limits;
    kb_stats stats;
    const uint32_t *heads, *ends, *premises;   /* borrowed from the caller */
    uint32_t nodes, instances, premise_count;
    uint32_t *uses_from, *uses;       /* by literal (2 * node + negated): the instances with this
                                       * premise */
    uint32_t *owned_from, *owned;     /* by node: the instances that conclude it */
    uint32_t *waiting;                /* by instance: premises not known to hold yet; KB_NONE: one
                                       * is false */
    uint32_t *missing;                /* by instance: positive premises without support, during the
                                       * search for support */
    uint32_t *alive, *source;         /* by node: instances that can still hold; one of them, or
                                       * KB_NONE */
    /* nodes: decided; without source; examined together; about to leave that set */
    uint32_t *queue, *lost, *set, *leaving;
    uint8_t *values, *place;
    uint32_t decided, lost_count, set_count, leaving_count, propagated, at;
    const uint32_t *lengths[PHASES];  /* number of items of the phase, which may grow during it */
    phase phase;
    kb_status status;
    atomic_int cancelled;
};

static size_t literal_of(uint32_t premise)
{
    return 2 * (size_t)(premise & ~KB_NEGATED) + (premise >> 31);
}

/* Count the items of each list at its place. The lists are then filled from their ends, which
 * leaves the start of each list at its place. */
static kb_status count(kb_model *m, uint32_t instance, uint64_t *work)
{
    uint32_t from = kb_first_premise(m->ends, instance), to = m->ends[instance];

    if (m->heads[instance] >= m->nodes || to < from || to > m->premise_count)
        return KB_MISUSE;
    m->owned_from[m->heads[instance]]++;
    m->alive[m->heads[instance]]++;
    for (uint32_t i = from; i < to; i++) {
        if (m->premises[i] == KB_NONE)
            continue;
        if ((m->premises[i] & ~KB_NEGATED) >= m->nodes)
            return KB_MISUSE;
        m->uses_from[literal_of(m->premises[i])]++;
        m->waiting[instance]++;
        m->missing[instance] += m->premises[i] >> 31 ^ 1;
    }
    *work += to - from;
    return KB_OK;
}

static void sum(uint32_t *counts, size_t lists)
{
    for (size_t i = 1; i <= lists; i++)
        counts[i] += counts[i - 1];
}

static void place(kb_model *m, uint32_t instance, uint64_t *work)
{
    uint32_t to = m->ends[instance];

    m->owned[--m->owned_from[m->heads[instance]]] = instance;
    for (uint32_t i = kb_first_premise(m->ends, instance); i < to; i++)
        if (m->premises[i] != KB_NONE)
            m->uses[--m->uses_from[literal_of(m->premises[i])]] = instance;
    *work += m->waiting[instance];
}

static void decide(kb_model *m, uint32_t node, uint8_t value)
{
    if (m->values[node] == KB_UNDEFINED) {
        m->values[node] = value;
        m->queue[m->decided++] = node;
    }
}

/* Return the end of the instances with this premise: m->uses[*from] to m->uses[end - 1]. */
static uint32_t users(const kb_model *m, size_t literal, uint32_t *from, uint64_t *work)
{
    *from = m->uses_from[literal];
    *work += m->uses_from[literal + 1] - *from;
    return m->uses_from[literal + 1];
}

static void support_by(kb_model *m, uint32_t instance)
{
    uint32_t node = m->heads[instance];

    if (m->missing[instance] == 0 && m->source[node] == KB_NONE) {
        m->source[node] = instance;
        m->set[m->set_count++] = node;
    }
}

static void support_users(kb_model *m, uint32_t node, uint64_t *work)
{
    uint32_t i, to = users(m, 2 * (size_t)node, &i, work);

    for (; i < to; i++) {
        m->missing[m->uses[i]]--;
        support_by(m, m->uses[i]);
    }
}

static void propagate(kb_model *m, uint32_t node, uint64_t *work)
{
    size_t holds = 2 * (size_t)node + (m->values[node] == KB_FALSE);
    uint32_t i, to = users(m, holds, &i, work);

    for (; i < to; i++)
        if (m->waiting[m->uses[i]] != KB_NONE && --m->waiting[m->uses[i]] == 0)
            decide(m, m->heads[m->uses[i]], KB_TRUE);
    for (to = users(m, holds ^ 1, &i, work); i < to; i++) {
        uint32_t instance = m->uses[i], head = m->heads[instance];

        if (m->waiting[instance] == KB_NONE)
            continue;
        m->waiting[instance] = KB_NONE;
        if (--m->alive[head] == 0) {
            decide(m, head, KB_FALSE);
        } else if (m->source[head] == instance) {
            m->source[head] = KB_NONE;
            m->lost[m->lost_count++] = head;
        }
    }
}

static void add_to_set(kb_model *m, uint32_t node)
{
    if (m->values[node] == KB_UNDEFINED && m->place[node] == OUTSIDE) {
        m->place[node] = INSIDE;
        m->set[m->set_count++] = node;
    }
}

/* Add the nodes whose source is in this node of the set. */
static void spread(kb_model *m, uint32_t node, uint64_t *work)
{
    uint32_t i, to = users(m, 2 * (size_t)node, &i, work);

    for (; i < to; i++)
        if (m->source[m->heads[m->uses[i]]] == m->uses[i])
            add_to_set(m, m->heads[m->uses[i]]);
}

static void try_source(kb_model *m, uint32_t instance)
{
    uint32_t node = m->heads[instance];

    if (m->missing[instance] == 0 && m->place[node] == INSIDE) {
        m->place[node] = LEAVING;
        m->source[node] = instance;
        m->leaving[m->leaving_count++] = node;
    }
}

/* Count the premises of each instance that are in the set; a node about to leave still is. */
static void count_inside(kb_model *m, uint32_t node, uint64_t *work)
{
    for (uint32_t i = m->owned_from[node]; i < m->owned_from[node + 1]; i++) {
        uint32_t instance = m->owned[i], p = kb_first_premise(m->ends, instance);

        if (m->waiting[instance] == KB_NONE)
            continue;
        *work += m->ends[instance] - p + 1;
        m->missing[instance] = 0;
        for (; p < m->ends[instance]; p++)
            m->missing[instance] += (m->premises[p] & KB_NEGATED) == 0 && m->place[m->premises[p]] != OUTSIDE;
        try_source(m, instance);
    }
}

/* Remove a node from the set, which may give others a source. */
static void leave_set(kb_model *m, uint32_t node, uint64_t *work)
{
    uint32_t i, to = users(m, 2 * (size_t)node, &i, work);

    m->place[node] = OUTSIDE;
    for (; i < to; i++)
        if (m->waiting[m->uses[i]] != KB_NONE && m->place[m->heads[m->uses[i]]] == INSIDE) {
            m->missing[m->uses[i]]--;
            try_source(m, m->uses[i]);
        }
}

static kb_status work_item(kb_model *m, uint64_t *work)
{
    uint32_t at = m->at++;

    (*work)++;
    switch (m->phase) {
    case COUNT: return count(m, at, work);
    /* from the last: lists are ascending */
    case PLACE: place(m, m->instances - 1 - at, work); break;
    case SUPPORT_FIRST: support_by(m, at); break;
    case SUPPORT: support_users(m, m->set[at], work); break;
    case HOLD_FIRST: if (m->waiting[at] == 0) decide(m, m->heads[at], KB_TRUE); break;
    case FAIL_FIRST: if (m->source[at] == KB_NONE) decide(m, at, KB_FALSE); break;
    case PROPAGATE: propagate(m, m->queue[at], work); break;
    case GATHER: add_to_set(m, m->lost[at]); break;
    case SPREAD: spread(m, m->set[at], work); break;
    case COUNT_INSIDE: count_inside(m, m->set[at], work); break;
    case LEAVE: leave_set(m, m->leaving[at], work); break;
    case FALSIFY:
        if (m->place[m->set[at]] == INSIDE) {
            m->place[m->set[at]] = OUTSIDE;
            decide(m, m->set[at], KB_FALSE);
        }
        break;
    case PHASES: break;
    }
    return KB_OK;
}

/* Start the next phase. Return KB_DONE after the last one. */
static kb_status next_phase(kb_model *m)
{
    switch (m->phase) {
    case COUNT:
        sum(m->uses_from, 2 * (size_t)m->nodes);
        sum(m->owned_from, m->nodes);
        break;
    case SUPPORT: m->set_count = 0; break;
    case PROPAGATE:
        m->propagated = m->decided;
        if (m->lost_count == 0)
            return KB_DONE;
        break;
    case FALSIFY:
        m->lost_count = m->set_count = m->leaving_count = 0;
        m->phase = PROPAGATE;
        m->at = m->propagated;
        return KB_OK;
    default: break;
    }
    m->phase++;
    m->at = 0;
    return KB_OK;
}

static kb_status work_chunk(kb_model *m, uint64_t chunk)
{
    uint64_t work = 0;
    kb_status status = KB_OK;

    while (status == KB_OK) {
        const uint32_t *length = m->lengths[m->phase];

        while (m->at < *length && work < chunk && status == KB_OK)
            status = work_item(m, &work);
        if (status == KB_OK)
            status = m->at < *length ? KB_PAUSED : next_phase(m);
    }
    m->stats.steps += work;
    return status;
}

static kb_status open_arrays(kb_model *m)
{
    size_t nodes = m->nodes, instances = m->instances;
    uint32_t **arrays[] = { &m->uses_from, &m->uses, &m->owned_from, &m->owned, &m->waiting, &m->missing, &m->alive,
                            &m->source, &m->queue, &m->lost, &m->set, &m->leaving };
    size_t sizes[] = { 2 * nodes + 1, m->premise_count, nodes + 1, instances, instances, instances, nodes,
                       nodes, nodes, nodes, nodes, nodes };

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if ((*arrays[i] = kb_alloc(&m->heap, sizes[i], sizeof(uint32_t))) == NULL)
            return KB_NOMEM;
    m->values = kb_alloc(&m->heap, nodes, 1);
    m->place = kb_alloc(&m->heap, nodes, 1);
    if (m->values == NULL || m->place == NULL)
        return KB_NOMEM;
    memset(m->source, 0xFF, nodes * sizeof *m->source);
    return KB_OK;
}

static void free_arrays(kb_model *m)
{
    void *arrays[] = { m->uses_from, m->uses, m->owned_from, m->owned, m->waiting, m->missing, m->alive,
                       m->source, m->queue, m->lost, m->set, m->leaving, m->values, m->place };

    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        kb_release(&m->heap, arrays[i]);
}

kb_status kb_model_open(kb_engine *engine, const kb_ground *ground, const kb_limits *limits, kb_model **out)
{
    kb_model *m;

    if (engine == NULL || engine->closed || out == NULL || ground == NULL || ground->nodes >= KB_NEGATED
        || ground->count == KB_NONE || (ground->count != 0 && (ground->heads == NULL || ground->ends == NULL))
        || (ground->premise_count != 0 && ground->premises == NULL))
        return KB_MISUSE;
    if ((m = kb_alloc(&engine->heap, 1, sizeof *m)) == NULL)
        return KB_NOMEM;
    m->engine = engine;
    m->heap.parent = &engine->heap;
    if (limits != NULL) {
        m->limits = *limits;
        m->heap.max = limits->max_bytes;
    }
    m->nodes = ground->nodes;
    m->instances = ground->count;
    m->premise_count = ground->premise_count;
    m->heads = ground->heads;
    m->ends = ground->ends;
    m->premises = ground->premises;
    m->lengths[COUNT] = m->lengths[PLACE] = m->lengths[SUPPORT_FIRST] = m->lengths[HOLD_FIRST] = &m->instances;
    m->lengths[FAIL_FIRST] = &m->nodes;
    m->lengths[SUPPORT] = m->lengths[SPREAD] = m->lengths[COUNT_INSIDE] = m->lengths[FALSIFY] = &m->set_count;
    m->lengths[PROPAGATE] = &m->decided;
    m->lengths[GATHER] = &m->lost_count;
    m->lengths[LEAVE] = &m->leaving_count;
    atomic_init(&m->cancelled, 0);
    if (open_arrays(m) < 0) {
        kb_status status = m->heap.refused ? KB_LIMIT : KB_NOMEM;

        free_arrays(m);
        kb_release(&engine->heap, m);
        return status;
    }
    engine->open_runs++;
    *out = m;
    return KB_OK;
}

kb_status kb_model_step(kb_model *m, uint64_t fuel)
{
    if (m == NULL)
        return KB_MISUSE;
    for (uint64_t until = m->stats.steps + fuel; m->status != KB_DONE && m->status >= 0;) {
        if (atomic_load_explicit(&m->cancelled, memory_order_relaxed)) {
            m->status = KB_CANCELLED;
        } else if (m->limits.max_steps != 0 && m->stats.steps >= m->limits.max_steps) {
            m->stats.budget = KB_BUDGET_STEPS;
            m->status = KB_LIMIT;
        } else {
            m->status = work_chunk(m, CHUNK);
            if (m->status == KB_PAUSED && m->stats.steps >= until)
                return KB_PAUSED;
        }
    }
    return m->status;
}

kb_status kb_model_values(const kb_model *m, uint8_t *out)
{
    if (m == NULL || out == NULL || m->status != KB_DONE)
        return KB_MISUSE;
    memcpy(out, m->values, m->nodes);
    return KB_OK;
}

void kb_model_stats(const kb_model *m, kb_stats *out)
{
    if (m == NULL || out == NULL)
        return;
    *out = m->stats;
    out->bytes = m->heap.used;
}

void kb_model_cancel(kb_model *m)
{
    if (m != NULL)
        atomic_store_explicit(&m->cancelled, 1, memory_order_relaxed);
}

void kb_model_close(kb_model *m)
{
    kb_engine *engine;

    if (m == NULL)
        return;
    engine = m->engine;
    free_arrays(m);
    kb_release(&engine->heap, m);
    kb_engine_release(engine);
}
