/* ground.c - shortest proofs, and best values over all proofs, of a ground program given as flat
 * arrays.
 * Owns: the order in which instances of rules are processed, and in which those of a proof are
 * visited. Never: keeps anything after a call, or
 * reads a relation.
 * Both are Knuth's generalisation of Dijkstra's algorithm from paths to proofs (1977). Steps that
 * cost 1 or 0, and ranks that are small integers, make its heap two lists and a bucket sort: each
 * premise of each instance is visited once. */
#include "internal.h"

#define KB_DISCOVERED 1               /* states of an instance in a search; 0: not seen yet */
#define KB_PICKED 2

typedef struct kb_solver {
    const kb_ground *ground;
    uint32_t *starts;                 /* nodes + 1: start of the users of each node */
    uint32_t *users;                  /* by node, the instances that have it as a premise */
    uint32_t *waiting;                /* by instance, premises that have no proof yet */
} kb_solver;

static int is_well_formed(const kb_ground *g)
{
    uint32_t before = 0;

    if (g == NULL || (g->count != 0 && (g->heads == NULL || g->ends == NULL)) || g->free > g->count)
        return 0;
    for (uint32_t i = 0; i < g->count; i++) {
        if (g->heads[i] >= g->nodes || g->ends[i] < before)
            return 0;
        before = g->ends[i];
    }
    if (before != g->premise_count || (before != 0 && g->premises == NULL))
        return 0;
    for (uint32_t i = 0; i < before; i++)
        if (g->premises[i] >= g->nodes)
            return 0;
    return 1;
}

static void solver_free(kb_engine *engine, kb_solver *solver)
{
    kb_release(&engine->heap, solver->starts);
    kb_release(&engine->heap, solver->users);
    kb_release(&engine->heap, solver->waiting);
}

static kb_status solver_init(kb_engine *engine, const kb_ground *g, kb_solver *solver)
{
    uint32_t sum = 0;

    memset(solver, 0, sizeof *solver);
    if (engine == NULL || !is_well_formed(g))
        return KB_MISUSE;
    solver->ground = g;
    solver->starts = kb_alloc(&engine->heap, (size_t)g->nodes + 2, sizeof *solver->starts);
    solver->users = kb_alloc(&engine->heap, (size_t)g->premise_count + 1, sizeof *solver->users);
    solver->waiting = kb_alloc(&engine->heap, (size_t)g->count + 1, sizeof *solver->waiting);
    if (solver->starts == NULL || solver->users == NULL || solver->waiting == NULL) {
        solver_free(engine, solver);
        return KB_NOMEM;
    }
    /* Counts are stored two places further on, so that filling moves each start to that of the next
     * node: one array less. */
    for (uint32_t i = 0; i < g->premise_count; i++)
        solver->starts[g->premises[i] + 2]++;
    for (uint32_t node = 0; node < g->nodes + 1; node++) {
        sum += solver->starts[node + 1];
        solver->starts[node + 1] = sum;
    }
    for (uint32_t i = 0; i < g->count; i++) {
        solver->waiting[i] = g->ends[i] - kb_first_premise(g->ends, i);
        for (uint32_t at = kb_first_premise(g->ends, i); at < g->ends[i]; at++)
            solver->users[solver->starts[g->premises[at] + 1]++] = i;
    }
    return KB_OK;
}

/* Return the height of the conclusion by this instance, KB_NO_NODE if some premise has no proof. */
static uint32_t height_by(const kb_ground *g, const uint32_t *heights, uint32_t instance, uint32_t *circular)
{
    uint32_t highest = 0;

    *circular = 0;
    for (uint32_t at = kb_first_premise(g->ends, instance); at < g->ends[instance]; at++) {
        uint32_t height = heights[g->premises[at]];

        *circular |= g->premises[at] == g->heads[instance];
        highest = height > highest ? height : highest;
    }
    return highest == KB_NO_NODE ? KB_NO_NODE : highest + (instance >= g->free);
}

/* Fire an instance whose premises all have proofs: its conclusion is due at this level if it is
 * free, otherwise at the next. */
static void fire(const kb_ground *g, uint32_t instance, uint32_t **due, uint32_t *counts)
{
    uint32_t later = instance >= g->free;

    due[later][counts[later]++] = g->heads[instance];
}

static void compute_heights(const kb_solver *s, uint32_t *heights, uint32_t **due, uint32_t *counts)
{
    const kb_ground *g = s->ground;

    for (uint32_t i = 0; i < g->count; i++)
        if (s->waiting[i] == 0)
            fire(g, i, due, counts);
    for (uint32_t level = 0; counts[0] + counts[1] > 0; level++) {
        uint32_t *spare = due[0];

        while (counts[0] > 0) {
            uint32_t node = due[0][--counts[0]];

            if (heights[node] != KB_NO_NODE)
                continue;
            heights[node] = level;
            for (uint32_t at = s->starts[node]; at < s->starts[node + 1]; at++)
                if (--s->waiting[s->users[at]] == 0)
                    fire(g, s->users[at], due, counts);
        }
        due[0] = due[1];
        due[1] = spare;
        counts[0] = counts[1];
        counts[1] = 0;
    }
}

kb_status kb_ground_shortest(kb_engine *engine, const kb_ground *g, uint32_t *heights, uint32_t *chosen, uint32_t *counts)
{
    kb_solver s;
    uint32_t *due[2], waiting[2] = { 0, 0 };
    kb_status status = solver_init(engine, g, &s);

    if (status != KB_OK)
        return status;
    /* Every instance fires at most once. */
    due[0] = kb_alloc(&engine->heap, (size_t)g->count + 1, sizeof *due[0]);
    due[1] = kb_alloc(&engine->heap, (size_t)g->count + 1, sizeof *due[1]);
    if (due[0] == NULL || due[1] == NULL) {
        kb_release(&engine->heap, due[0]);
        kb_release(&engine->heap, due[1]);
        solver_free(engine, &s);
        return KB_NOMEM;
    }
    for (uint32_t node = 0; node < g->nodes; node++) {
        heights[node] = chosen[node] = KB_NO_NODE;
        counts[node] = 0;
    }
    compute_heights(&s, heights, due, waiting);
    for (uint32_t i = 0; i < g->count; i++) {
        uint32_t node = g->heads[i], circular, height = height_by(g, heights, i, &circular);

        counts[node] += !circular;
        if (chosen[node] == KB_NO_NODE && height != KB_NO_NODE && height == heights[node])
            chosen[node] = i;
    }
    kb_release(&engine->heap, due[0]);
    kb_release(&engine->heap, due[1]);
    solver_free(engine, &s);
    return KB_OK;
}

/* Add the instances that prove the premises of an instance to the queue. Returns its new end,
 * KB_NO_NODE if an array is malformed. */
static uint32_t discover(const kb_ground *g, const kb_search *s, uint32_t instance, uint32_t end)
{
    uint32_t at = kb_first_premise(g->ends, instance), stop = g->ends[instance];

    if (stop > g->premise_count)
        return KB_NO_NODE;
    for (; at < stop && end != KB_NO_NODE; at++) {
        uint32_t node = g->premises[at], below = node < g->nodes ? s->chosen[node] : KB_NO_NODE;

        if (below >= g->count)
            return KB_NO_NODE;
        if (below < s->parts) {       /* parts are no deeper than the body of their rule */
            end = discover(g, s, below, end);
        } else if (s->heights[node] != 0 && below >= g->free && s->seen[below] == 0) {
            s->seen[below] = KB_DISCOVERED;
            s->queue[end++] = below;
        }
    }
    return end;
}

kb_status kb_ground_pick(const kb_ground *g, kb_search *search, uint32_t first, uint32_t limit, uint32_t *picked, uint32_t *count)
{
    /* Instances discovered by this call come before those of earlier calls, which are between
     * `start` and `fresh`. The queue has space for all: each is added at most once. */
    uint32_t start, fresh, next = first;

    *count = 0;
    if (g == NULL || search == NULL || first >= g->count || search->start > search->end || search->end > g->count)
        return KB_MISUSE;
    start = search->start;
    fresh = search->end;
    while (limit != 0) {
        if (search->seen[next] != KB_PICKED) {
            search->seen[next] = KB_PICKED;
            picked[(*count)++] = next;
            search->end = discover(g, search, next, search->end);
            if (search->end == KB_NO_NODE)
                return KB_MISUSE;
        }
        /* before an instance is taken off the queue, which would be lost */
        if (*count == limit)
            break;
        if (fresh < search->end)
            next = search->queue[fresh++];
        else if (start < fresh)
            next = search->queue[start++];
        else
            break;
    }
    search->start = start;
    return KB_OK;
}

/* Sort the instances that have a rank, highest first; `places` has one item more than there are
 * ranks. */
static uint32_t by_rank(const uint32_t *ranks, uint32_t count, uint32_t *places, uint32_t *order)
{
    uint32_t sum = 0;

    for (uint32_t i = 0; i < count; i++)
        places[ranks[i]]++;
    for (uint32_t rank = count; rank > 0; rank--) {
        uint32_t here = places[rank];

        places[rank] = sum;
        sum += here;
    }
    for (uint32_t i = 0; i < count; i++)
        if (ranks[i] != 0)
            order[places[ranks[i]]++] = i;
    return sum;
}

kb_status kb_ground_widest(kb_engine *engine, const kb_ground *g, const uint32_t *ranks, uint32_t *best)
{
    kb_solver s;
    uint32_t *places, *order, *stack, ordered;
    kb_status status = solver_init(engine, g, &s);

    if (status != KB_OK)
        return status;
    for (uint32_t i = 0; i < g->count; i++)
        if (ranks[i] > g->count) {
            solver_free(engine, &s);
            return KB_MISUSE;
        }
    places = kb_alloc(&engine->heap, (size_t)g->count + 1, sizeof *places);
    order = kb_alloc(&engine->heap, (size_t)g->count + 1, sizeof *order);
    stack = kb_alloc(&engine->heap, (size_t)g->count + 1, sizeof *stack);
    if (places == NULL || order == NULL || stack == NULL) {
        status = KB_NOMEM;
        goto end;
    }
    for (uint32_t node = 0; node < g->nodes; node++)
        best[node] = 0;
    ordered = by_rank(ranks, g->count, places, order);
    for (uint32_t i = 0; i < ordered; i++) {
        uint32_t rank = ranks[order[i]], top = 0;

        if (s.waiting[order[i]] == 0)
            stack[top++] = order[i];
        while (top > 0) {
            uint32_t node = g->heads[stack[--top]];

            if (best[node] != 0)
                continue;
            best[node] = rank;
            for (uint32_t at = s.starts[node]; at < s.starts[node + 1]; at++)
                /* an instance of a lower rank is processed when its rank is reached */
                if (--s.waiting[s.users[at]] == 0 && ranks[s.users[at]] >= rank)
                    stack[top++] = s.users[at];
        }
    }
end:
    kb_release(&engine->heap, places);
    kb_release(&engine->heap, order);
    kb_release(&engine->heap, stack);
    solver_free(engine, &s);
    return status;
}
