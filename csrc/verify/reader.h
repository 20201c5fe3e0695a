/* reader.h - reads words of the bytecode, for decode.c and operands.c.
 * Owns: nothing. Never: reads past the end. The first word at fault is recorded. */
#ifndef KB_READER_H
#define KB_READER_H
#include "run/machine.h"

/* the step that set a register */
typedef struct kb_written { uint32_t rule, step; uint16_t column; } kb_written;

typedef struct kb_reader {
    const kb_word *code;
    size_t words, at, bad;
    kb_plan *plan;
    kb_written *written;              /* by register; `rule` and `step` count from 1 */
    uint32_t *mark_of;                /* by slot: its mark in this component, if not below
                                       * first_mark */
    kb_status status;
} kb_reader;

static inline int kb_read_refuse(kb_reader *reader, size_t word)
{
    reader->status = KB_BADPLAN;
    reader->bad = word;
    return 0;
}

static inline int kb_read_out_of_memory(kb_reader *reader)
{
    reader->status = KB_NOMEM;
    return 0;
}

static inline int kb_read_next(kb_reader *reader, kb_word *out)
{
    if (reader->at >= reader->words)
        return kb_read_refuse(reader, reader->words);
    *out = reader->code[reader->at++];
    return 1;
}

/* Read a word that must be below `bound`. */
static inline int kb_read_below(kb_reader *reader, uint32_t bound, uint32_t *out)
{
    return kb_read_next(reader, out) && (*out < bound || kb_read_refuse(reader, reader->at - 1));
}

/* Add a zeroed item at the end of a growing array. Return NULL if out of memory. */
static inline void *kb_read_push(void *array, uint32_t *count, size_t size)
{
    char **items = array;
    size_t have = *items == NULL ? 0 : kb_capacity(*items) / size;

    if (*count >= have) {
        char *block = kb_resize(NULL, *items, (size_t)kb_grow_capacity(have, *count + 1u, 4), size);

        if (block == NULL)
            return NULL;
        *items = block;
    }
    memset(*items + *count * size, 0, size);
    return *items + size * (*count)++;
}

/* operands.c: 0 where refused */
int kb_step_decode(kb_reader *reader, kb_rule *rule, uint32_t *back, int *ended);

#endif
