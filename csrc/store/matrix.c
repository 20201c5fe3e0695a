/* matrix.c - the set of a derived relation as a rectangle of bits.
 * Owns: the rectangle and its edges. Never: decides when blocks are dense enough for it; that is
 * blocks.c.
 * Its rows are values of the first column, its words 64 neighbouring values of the last. It
 * replaces the table of blocks where that would hold most words of the rectangle: finding a word is
 * then a multiplication, and the row of an outer value is computed once for all heads of a loop. */
#include "internal.h"

#define MAX_EMPTY_SHARE 8u            /* words for each word that is not 0, at most */
#define FREE_WORDS 1024u              /* words that are always allowed */

static void widen(uint32_t *start, uint32_t *count, uint32_t value)
{
    uint32_t slack = *count / 4, end = *start + *count;   /* values are below 2^31 */

    if (value < *start) {
        *start = value > slack ? value - slack : 0;
        *count = end - *start;
    } else if (value >= end) {
        *count = value + slack + 1 - *start;
    }
}

kb_status kb_matrix_make(kb_relation *relation, kb_matrix edges)
{
    edges.words = kb_alloc(relation->heap, (size_t)edges.height * edges.width, sizeof *edges.words);
    if (edges.words == NULL)
        return KB_NOMEM;
    edges.filled = relation->block_count;
    for (uint32_t i = 0; i <= relation->block_mask; i++) {
        const kb_block *block = relation->blocks + i;

        if (block->key != 0)
            *kb_matrix_word(&edges, (uint32_t)(block->key >> 32), (uint32_t)block->key) = block->bits;
        edges.filled -= block->key != 0 && block->bits == 0;
    }
    kb_blocks_free(relation);
    relation->matrix = edges;
    return KB_OK;
}

int kb_matrix_may_have(const kb_matrix *matrix, const kb_sym *values)
{
    uint32_t top = matrix->top, end = matrix->top + matrix->height;

    if (values[0] != 0 && values[0] - matrix->top >= matrix->height)
        return 0;
    if (values[0] != 0)
        end = (top = values[0]) + 1;
    if (values[1] != 0 && (values[1] >> 6) - matrix->left >= matrix->width)
        return 0;
    for (uint32_t a = top; a < end; a++) {
        const uint64_t *words = matrix->words + (size_t)(a - matrix->top) * matrix->width;

        if (values[1] != 0 && (words[(values[1] >> 6) - matrix->left] >> (values[1] & 63) & 1))
            return 1;
        for (uint32_t i = 0; values[1] == 0 && i < matrix->width; i++)
            if (words[i] != 0)
                return 1;
    }
    return 0;
}

void kb_matrix_free(kb_relation *relation)
{
    kb_release(relation->heap, relation->matrix.words);
    memset(&relation->matrix, 0, sizeof relation->matrix);
}

/* Enlarge the rectangle, or change to a table of blocks where it would be nearly empty. */
kb_status kb_matrix_reserve(kb_relation *relation, uint32_t a, uint32_t b)
{
    const kb_matrix *old = &relation->matrix;
    kb_matrix wide = *old;
    uint64_t size;

    if (kb_matrix_word(old, a, b) != NULL)
        return KB_OK;
    widen(&wide.top, &wide.height, a);
    widen(&wide.left, &wide.width, b);
    size = (uint64_t)wide.height * wide.width;
    if (size > FREE_WORDS && size / MAX_EMPTY_SHARE > old->filled)
        return kb_blocks_from_matrix(relation);
    if ((wide.words = kb_alloc(relation->heap, (size_t)size, sizeof *wide.words)) == NULL)
        return KB_NOMEM;
    for (uint32_t i = 0; i < old->height; i++)
        memcpy(kb_matrix_word(&wide, old->top + i, old->left), old->words + (size_t)i * old->width,
               old->width * sizeof *old->words);
    kb_matrix_free(relation);
    relation->matrix = wide;
    return KB_OK;
}
