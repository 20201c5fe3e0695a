/* blocks.c - the set of a derived relation as a bitmap.
 * Owns: the table of blocks, and the choice between it, a rectangle of bits (matrix.c) and the
 * table of row ids. Never: holds the set of a base relation, whose rows are looked up by id and may
 * be deleted.
 * A block has one bit for each of 64 neighbouring values of the last column, under one value of the
 * first. Names that are interned together get neighbouring symbols, so a closure fills its blocks,
 * and a membership test reads one slot instead of two, in a table that is many times smaller. Where
 * the blocks stay nearly empty, the table of ids is smaller and is kept. */
#include "internal.h"

#define MIN_ROWS_PER_BLOCK 4u         /* rows per block that make the change to blocks pay */
#define LOW_ROWS_PER_BLOCK 2u         /* with fewer the change is reverted */
#define MAX_WORDS_PER_BLOCK 4u        /* words that a rectangle may have for each block */

/* Double the table; its first size is 64. */
static kb_status grow(kb_relation *relation)
{
    uint64_t size = relation->blocks == NULL ? 64 : (relation->block_mask + UINT64_C(1)) * 2;
    kb_block *old = relation->blocks;
    uint32_t count = old == NULL ? 0 : relation->block_mask + 1;
    kb_block *blocks;

    if (size > UINT64_C(0x80000000) || (blocks = kb_alloc(relation->heap, (size_t)size, sizeof *blocks)) == NULL)
        return KB_NOMEM;
    relation->blocks = blocks;
    relation->block_mask = (uint32_t)(size - 1);
    for (uint32_t i = 0; i < count; i++)
        if (old[i].key != 0)
            *kb_block_seek(relation, old[i].key) = old[i];
    kb_release(relation->heap, old);
    return KB_OK;
}

/* Change the blocks to a rectangle of words if they fill one. Return 0 otherwise, and if out of
 * memory. */
static int try_matrix(kb_relation *relation)
{
    uint32_t low_a = UINT32_MAX, high_a = 0, low_b = UINT32_MAX, high_b = 0;
    kb_matrix edges;

    for (uint32_t i = 0; i <= relation->block_mask; i++) {
        uint32_t a = (uint32_t)(relation->blocks[i].key >> 32), b = (uint32_t)relation->blocks[i].key;

        if (a == 0)
            continue;
        low_a = a < low_a ? a : low_a;
        high_a = a > high_a ? a : high_a;
        low_b = b < low_b ? b : low_b;
        high_b = b > high_b ? b : high_b;
    }
    memset(&edges, 0, sizeof edges);
    edges.top = low_a;
    edges.left = low_b;
    edges.height = high_a - low_a + 1;
    edges.width = high_b - low_b + 1;
    return (uint64_t)edges.height * edges.width / MAX_WORDS_PER_BLOCK <= relation->block_count && kb_matrix_make(relation, edges) == KB_OK;
}

void kb_blocks_free(kb_relation *relation)
{
    kb_release(relation->heap, relation->blocks);
    relation->blocks = NULL;
    relation->block_mask = relation->block_count = 0;
}

/* Reserve space for one more block, in any representation. */
static kb_status reserve_block(kb_relation *relation)
{
    if (relation->block_count < (relation->block_mask + UINT64_C(1)) / 2 || try_matrix(relation))
        return KB_OK;
    if (relation->rows / LOW_ROWS_PER_BLOCK < relation->block_count && kb_relation_place(relation) == KB_OK) {
        kb_blocks_free(relation);
        return KB_OK;
    }
    return grow(relation);
}

/* Set bits; space for their block is reserved. */
static void add_block(kb_relation *relation, uint64_t key, uint64_t bits)
{
    kb_block *block = kb_block_seek(relation, key);

    relation->block_count += block->key == 0;
    block->key = key;
    block->bits |= bits;
}

kb_status kb_blocks_from_matrix(kb_relation *relation)
{
    const kb_matrix *matrix = &relation->matrix;

    while (relation->blocks == NULL || matrix->filled >= (relation->block_mask + UINT64_C(1)) / 2)
        if (grow(relation) < 0) {
            kb_blocks_free(relation);
            return KB_NOMEM;
        }
    for (uint32_t i = 0; i < matrix->height; i++)
        for (uint32_t j = 0; j < matrix->width; j++) {
            uint64_t bits = matrix->words[(size_t)i * matrix->width + j];

            if (bits != 0)
                add_block(relation, (uint64_t)(matrix->top + i) << 32 | (matrix->left + j), bits);
        }
    kb_matrix_free(relation);
    return KB_OK;
}

void kb_bits_add(kb_relation *relation, const kb_sym *row)
{
    uint64_t key = kb_block_key(row, relation->key), bit = kb_block_bit(row, relation->key);
    uint64_t *word;

    if (relation->blocks != NULL) {
        add_block(relation, key, bit);
        return;
    }
    word = kb_matrix_word(&relation->matrix, (uint32_t)(key >> 32), (uint32_t)key);
    relation->matrix.filled += *word == 0;
    *word |= bit;
}

void kb_bits_remove(kb_relation *relation, const kb_sym *row)
{
    uint64_t key = kb_block_key(row, relation->key), bit = kb_block_bit(row, relation->key);
    uint64_t *word;

    if (relation->blocks != NULL) {
        kb_block_seek(relation, key)->bits &= ~bit;
        return;
    }
    word = kb_matrix_word(&relation->matrix, (uint32_t)(key >> 32), (uint32_t)key);
    *word &= ~bit;
    relation->matrix.filled -= *word == 0;
}

kb_status kb_bits_reserve(kb_relation *relation, const kb_sym *row)
{
    uint64_t key = kb_block_key(row, relation->key);

    if (relation->blocks != NULL && reserve_block(relation) < 0)
        return KB_NOMEM;
    if (relation->matrix.words != NULL && kb_matrix_reserve(relation, (uint32_t)(key >> 32), (uint32_t)key) < 0)
        return KB_NOMEM;
    return KB_OK;
}

void kb_bits_free(kb_relation *relation)
{
    kb_blocks_free(relation);
    kb_matrix_free(relation);
}

kb_status kb_bits_forbid(kb_relation *relation)
{
    if (kb_is_bits(relation) && kb_relation_place(relation) < 0)
        return KB_NOMEM;
    relation->by_id = 1;
    kb_bits_free(relation);
    return KB_OK;
}

int kb_bits_try(kb_relation *relation)
{
    if (!relation->owned || relation->by_id || relation->key == 0 || relation->key > 2)
        return 0;
    for (uint32_t id = 0; id < relation->rows; id++) {
        const kb_sym *row = kb_row(relation, id);

        if (relation->blocks == NULL || relation->block_count >= (relation->block_mask + UINT64_C(1)) / 2)
            if (grow(relation) < 0) {
                kb_blocks_free(relation);
                return 0;
            }
        add_block(relation, kb_block_key(row, relation->key), kb_block_bit(row, relation->key));
        if (relation->block_count > relation->rows / MIN_ROWS_PER_BLOCK) {
            kb_blocks_free(relation);
            return 0;
        }
    }
    kb_release(relation->heap, relation->slots);
    relation->slots = NULL;
    relation->slot_mask = relation->placed = 0;
    try_matrix(relation);
    return 1;
}
