/* reader.h - what decode.c and operands.c share: a place in the bytecode, and how a word is taken from there.
 * Owns: nothing. Never: looks past the end; the first word at fault is kept. */
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

static inline int kb_read_refuse(kb_reader *reader, size_t word)
{
    reader->status = KB_BADPLAN;
    reader->bad = word;
    return 0;
}

static inline int kb_read_no_room(kb_reader *reader)
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

/* A word that has to lie below `bound`. */
static inline int kb_read_below(kb_reader *reader, uint32_t bound, uint32_t *out)
{
    return kb_read_next(reader, out) && (*out < bound || kb_read_refuse(reader, reader->at - 1));
}

/* Room for one more item at the end of a growing array; NULL when out of memory. */
static inline void *kb_read_push(void *array, uint32_t *count, size_t size)
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

int kb_step_decode(kb_reader *reader, kb_rule *rule, uint32_t *back, int *ended);   /* operands.c: 0 where refused */

#endif
