/* ask.c - answers a small goal in one call: demand in, answers out.
 * Owns: the order of the calls. Never: evaluates or stores anything itself. */
#include "run/machine.h"

/* Return 1 if the pattern binds every column: the set then has the answer, and no row is read. */
static int is_ground(const kb_sym *pattern, uint32_t arity)
{
    for (uint32_t i = 0; i < arity; i++)
        if (pattern[i] == 0 || (pattern[i] & KB_SAME))
            return 0;
    return 1;
}

kb_status kb_run_ask(kb_run *run, const kb_sym *seed, const kb_limits *limits, uint64_t fuel, uint32_t slot,
                     const kb_sym *pattern, kb_sym *rows, size_t room, kb_answer *out)
{
    kb_relation *relation;
    uint64_t cursor = 0;
    size_t count = 0;
    uint32_t evaluated = 0;
    kb_status status;

    if (run == NULL || limits == NULL || out == NULL || rows == NULL || room == 0 || slot >= run->plan->slot_count)
        return KB_MISUSE;
    relation = run->slots[slot];
    if (!run->plan->slots[slot].derived || (pattern == NULL && relation->arity != 0))
        return KB_MISUSE;
    if (seed != NULL && (status = kb_run_seed(run, seed, 1)) < 0)
        return status;
    if ((status = kb_run_check(run)) == KB_OK) {
        kb_run_limits(run, limits);
        status = kb_run_step(run, fuel);
        evaluated = 1;
    }
    if (status != KB_DONE)
        return status;
    if (relation->arity != 0 && is_ground(pattern, relation->arity)) {
        if (kb_relation_ready(relation) < 0)
            return KB_NOMEM;
        count = (size_t)kb_relation_has(relation, pattern);
        memcpy(rows, pattern, relation->arity * sizeof *rows);
    } else if ((status = kb_relation_match(run->engine, relation, pattern, 0, &cursor, rows, NULL, room, &count)) < 0) {
        return status;
    }
    if (count == room && cursor < relation->rows)
        count++;                      /* there may be more: kb_match will return them */
    else if (count > 1 && (status = kb_sort_rows(run->engine, rows, relation->arity, count)) < 0)
        return status;
    out->count = count;
    out->bytes = run->heap.used;
    out->warnings = run->stats.warnings;
    out->rows_made = run->stats.rows_made;
    out->evaluated = evaluated;
    return KB_DONE;
}
