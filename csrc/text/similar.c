/* similar.c - functions of two texts that say how similar they are, as a number from 0 to 1.
 * Owns: nothing. Never: compares texts of more than KB_MAX_SIMILAR characters, which have no value.
 * All steps are integer arithmetic, so that values.similar in Python gives the same digits. */
#include "run/machine.h"
#include <stdlib.h>

#define KB_MAX_SIMILAR 256u           /* characters of a text, at most */
#define SCALE 10000u                  /* values are rounded to four decimal places */
#define BOOST_FROM 7u                 /* tenths: from here on Winkler counts the common prefix */
#define MAX_PREFIX 4u
#define MAX_TRIGRAMS (2 * KB_MAX_SIMILAR)

/* Read the characters of a text. Return 0 if there are too many. */
static int read_points(const kb_text *text, uint32_t *points, uint32_t *count)
{
    const char *at = text->bytes, *end = at + text->len;

    for (*count = 0; at < end; (*count)++) {
        if (*count == KB_MAX_SIMILAR)
            return 0;
        points[*count] = kb_read_point(&at, end);
    }
    return 1;
}

/* The value of part / whole, rounded half up. */
static kb_status share(kb_run *run, uint64_t part, uint64_t whole, kb_text *out)
{
    kb_number value;
    uint64_t scaled = (part * (2 * SCALE) + whole) / (2 * whole);

    value.kind = scaled % SCALE == 0 ? KB_KIND_INTEGER : KB_KIND_DECIMAL;
    value.integer = (int64_t)(scaled / SCALE);
    value.real = (double)scaled / SCALE;
    return kb_number_value(run, &value, out);
}

static uint32_t matched(const uint32_t *a, uint32_t in_a, const uint32_t *b, uint32_t in_b, uint8_t *of_a, uint8_t *of_b)
{
    uint32_t longer = in_a > in_b ? in_a : in_b, window = longer / 2 > 0 ? longer / 2 - 1 : 0, matches = 0;

    memset(of_a, 0, in_a);
    memset(of_b, 0, in_b);
    for (uint32_t i = 0; i < in_a; i++) {
        uint32_t first = i > window ? i - window : 0, last = i + window + 1 < in_b ? i + window + 1 : in_b;

        for (uint32_t j = first; j < last; j++)
            if (!of_b[j] && a[i] == b[j]) {
                of_a[i] = of_b[j] = 1;
                matches++;
                break;
            }
    }
    return matches;
}

/* Return the number of matched characters that are at another place in the order of matches. */
static uint32_t out_of_order(const uint32_t *a, uint32_t in_a, const uint32_t *b, const uint8_t *of_a, const uint8_t *of_b)
{
    uint32_t count = 0;

    for (uint32_t i = 0, j = 0; i < in_a; i++) {
        if (!of_a[i])
            continue;
        while (!of_b[j])
            j++;
        count += a[i] != b[j++];
    }
    return count;
}

/* Winkler, "String Comparator Metrics and Enhanced Decision Rules in the Fellegi-Sunter Model of
 * Record Linkage" (1990). */
kb_status kb_text_jaro_winkler(const kb_call *call, kb_text *out)
{
    uint32_t a[KB_MAX_SIMILAR], b[KB_MAX_SIMILAR], in_a, in_b, matches, prefix = 0;
    uint8_t of_a[KB_MAX_SIMILAR], of_b[KB_MAX_SIMILAR];
    uint64_t part, whole;

    if (!read_points(&call->args[0].text, a, &in_a) || !read_points(&call->args[1].text, b, &in_b))
        return KB_DONE;
    if (in_a == 0 || in_b == 0)
        return share(call->run, in_a == in_b, 1, out);
    call->run->left -= (int64_t)(in_a * in_b / KB_BYTES_PER_STEP);
    matches = matched(a, in_a, b, in_b, of_a, of_b);
    if (matches == 0)
        return share(call->run, 0, 1, out);
    part = (uint64_t)matches * matches * (in_a + in_b)
           + (uint64_t)(matches - out_of_order(a, in_a, b, of_a, of_b) / 2) * in_a * in_b;
    whole = 3 * (uint64_t)matches * in_a * in_b;
    if (part * 10 > whole * BOOST_FROM) {
        while (prefix < MAX_PREFIX && prefix < in_a && prefix < in_b && a[prefix] == b[prefix])
            prefix++;
        part = 10 * part + prefix * (whole - part);
        whole *= 10;
    }
    return share(call->run, part, whole, out);
}

static int by_value(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;

    return (a > b) - (a < b);
}

/* Collect the distinct trigrams of the words of a text, in ascending order; a word begins with two
 * spaces and ends with one. */
static uint32_t trigrams(const uint32_t *points, uint32_t count, uint64_t *found)
{
    uint32_t size = 0, distinct = 0;

    for (uint32_t i = 0; i < count; i++) {
        uint64_t one = ' ', two = ' ';

        if (points[i] == ' ')
            continue;
        for (; i < count && points[i] != ' '; i++) {
            found[size++] = one << 42 | two << 21 | points[i];
            one = two;
            two = points[i];
        }
        found[size++] = one << 42 | two << 21 | ' ';
    }
    qsort(found, size, sizeof *found, by_value);
    for (uint32_t i = 0; i < size; i++)
        if (i == 0 || found[i] != found[i - 1])
            found[distinct++] = found[i];
    return distinct;
}

kb_status kb_text_trigram(const kb_call *call, kb_text *out)
{
    uint32_t points[KB_MAX_SIMILAR], count, in_a, in_b, common = 0;
    uint64_t a[MAX_TRIGRAMS], b[MAX_TRIGRAMS];

    if (!read_points(&call->args[0].text, points, &count))
        return KB_DONE;
    in_a = trigrams(points, count, a);
    if (!read_points(&call->args[1].text, points, &count))
        return KB_DONE;
    in_b = trigrams(points, count, b);
    call->run->left -= (int64_t)((in_a + in_b) / KB_BYTES_PER_STEP);
    if (in_a == 0 || in_b == 0)
        return share(call->run, in_a == in_b, 1, out);
    for (uint32_t i = 0, j = 0; i < in_a && j < in_b;) {
        uint64_t left = a[i], right = b[j];

        common += left == right;
        i += left <= right;
        j += right <= left;
    }
    return share(call->run, common, in_a + in_b - common, out);
}
