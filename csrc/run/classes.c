/* classes.c - relations of names and the representatives of their classes: union-find by
 * relabelling.
 * Owns: the members of the classes. Never: reads a row; to all other files this is a relation of
 * two columns, whose rows best.c buries.
 *
 * A pair that is emitted unites two classes: every name of the smaller one gets a new row with the
 * representative of the larger one, and its old row is marked dead. A name changes its class at
 * most log2(n) times (Galler, Fischer: "An improved equivalence algorithm", 1964; here without
 * paths, since rules read representatives by an index). As for best rows, new rows are part of the
 * next DELTA: a rule joins them with all rows of their class, so that it misses no pair. */
#include "run/machine.h"

/* Return the member of a name, which is added as a class of its own if it is new. */
static kb_status need_member(kb_run *run, kb_relation *relation, kb_sym name, uint32_t *out)
{
    kb_group_slot *slot;
    kb_member *members;
    kb_sym row[2] = { name, name };

    if (relation->groups == NULL || relation->group_count > relation->group_mask / 2)
        if (kb_groups_grow(relation) < 0)
            return KB_NOMEM;
    slot = kb_group_find(relation, name);
    if (slot->row != 0) {
        *out = slot->row - 1;
        return KB_OK;
    }
    if (kb_rows_left(run) == 0) {
        run->stats.budget = KB_BUDGET_ROWS;
        return KB_LIMIT;
    }
    if (relation->group_count == relation->member_capacity) {
        uint64_t capacity = kb_grow_capacity(relation->member_capacity, relation->group_count + UINT64_C(1), 64);

        if (capacity > UINT32_MAX || (members = kb_resize(relation->heap, relation->members, (size_t)capacity, sizeof *members)) == NULL)
            return KB_NOMEM;
        relation->members = members;
        relation->member_capacity = (uint32_t)capacity;
    }
    if (kb_best_append(relation, row) < 0)
        return KB_NOMEM;
    *out = relation->group_count++;
    members = relation->members + *out;
    members->name = name;
    members->root = members->next = *out;
    members->size = 1;
    members->row = relation->rows - 1;
    slot->row = *out + 1;
    slot->tag = name;
    run->stats.rows_made++;
    return KB_OK;
}

/* Give each member of a class the representative of another, and unite them. */
static kb_status relabel(kb_run *run, kb_relation *relation, uint32_t from, uint32_t to)
{
    kb_member *members = relation->members;
    uint32_t at = from, next;

    if (kb_rows_left(run) < members[from].size) {
        run->stats.budget = KB_BUDGET_ROWS;
        return KB_LIMIT;
    }
    do {
        kb_sym row[2] = { members[at].name, members[to].name };

        if (kb_best_bury(relation, members[at].row) < 0 || kb_best_append(relation, row) < 0)
            return KB_NOMEM;
        members[at].row = relation->rows - 1;
        members[at].root = to;
        run->stats.rows_made++;
        run->left--;
        at = members[at].next;
    } while (at != from);
    members[to].size += members[from].size;
    next = members[from].next;        /* two circles become one */
    members[from].next = members[to].next;
    members[to].next = next;
    return KB_OK;
}

kb_status kb_classes_add(kb_run *run, const kb_sym *pairs, uint32_t count)
{
    kb_relation *relation = run->target;
    kb_status status = KB_OK;

    for (uint32_t i = 0; i < count && status == KB_OK; i++) {
        uint32_t one, other;

        if ((status = need_member(run, relation, pairs[2 * i], &one)) < 0
            || (status = need_member(run, relation, pairs[2 * i + 1], &other)) < 0)
            return status;
        one = relation->members[one].root;
        other = relation->members[other].root;
        if (one == other)
            continue;
        if (relation->members[one].size < relation->members[other].size)
            status = relabel(run, relation, one, other);
        else
            status = relabel(run, relation, other, one);
    }
    return status;
}
