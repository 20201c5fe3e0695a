/* reader.h - the words of a plan one after the other, and what is known of registers on the way.
 * Owns: the place in the code and the first error. Never: knows an instruction; that is decode.c, its only user. */
#ifndef KB_READER_H
#define KB_READER_H
#include "machine.h"

typedef struct kb_written { uint32_t rule, step; uint16_t column; } kb_written;   /* where a register got its value */

typedef struct kb_reader {
    const kb_word *code;
    size_t words, at, bad;
    kb_plan *plan;
    kb_written *written;              /* by register; `rule` and `step` count from 1 */
    uint32_t *mark_of;                /* by slot: its mark in this component, if not below first_mark */
    kb_status status;
} kb_reader;

static inline int refuse(kb_reader *reader, size_t word)
{
    reader->status = KB_BADPLAN;
    reader->bad = word;
    return 0;
}

static inline int no_room(kb_reader *reader)
{
    reader->status = KB_NOMEM;
    return 0;
}

static inline int next(kb_reader *reader, kb_word *out)
{
    if (reader->at >= reader->words)
        return refuse(reader, reader->words);
    *out = reader->code[reader->at++];
    return 1;
}

/* A word that has to lie below `bound`. */
static inline int below(kb_reader *reader, uint32_t bound, uint32_t *out)
{
    return next(reader, out) && (*out < bound || refuse(reader, reader->at - 1));
}

/* Room for one more item at the end of a growing array; NULL when there is none. */
static inline void *push(void *array, uint32_t *count, size_t size)
{
    char **items = array;
    size_t have = *items == NULL ? 0 : kb_capacity(*items) / size;

    if (*count >= have) {
        char *block = kb_resize(NULL, *items, (size_t)kb_grown(have, *count + 1u, 4), size);

        if (block == NULL)
            return NULL;
        *items = block;
    }
    memset(*items + *count * size, 0, size);
    return *items + size * (*count)++;
}

static inline int is_param(const kb_reader *reader, uint32_t reg)
{
    return reg < reader->plan->param_count;
}

/* A register that got its value in an earlier step of this rule, or is a parameter. */
static inline int has_value(const kb_reader *reader, uint32_t reg)
{
    const kb_written *written = reader->written + reg;

    return is_param(reader, reg)
           || (written->rule == reader->plan->rule_count && written->step != reader->plan->step_count);
}

static inline int readable(kb_reader *reader, uint32_t *out)
{
    return below(reader, reader->plan->register_count, out)
           && (has_value(reader, *out) || refuse(reader, reader->at - 1));
}

/* A register that gets its value here, the word read last: no parameter, and only one value in a rule. */
static inline int write_register(kb_reader *reader, uint32_t reg, uint32_t column)
{
    const kb_plan *plan = reader->plan;

    if (is_param(reader, reg) || reader->written[reg].rule == plan->rule_count)
        return refuse(reader, reader->at - 1);
    reader->written[reg].rule = plan->rule_count;
    reader->written[reg].step = plan->step_count;
    reader->written[reg].column = (uint16_t)column;
    return 1;
}

static inline int add_pair(kb_reader *reader, uint32_t column, uint32_t with)
{
    kb_pair *pair = push(&reader->plan->pairs, &reader->plan->pair_count, sizeof *pair);

    if (pair == NULL)
        return no_room(reader);
    pair->column = (uint16_t)column;
    pair->with = (uint16_t)with;
    return 1;
}

#endif
