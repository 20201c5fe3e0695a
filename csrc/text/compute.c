/* compute.c - CALL: values of operators and functions, interned as symbols during a run.
 * Owns: arithmetic: integers of 64 bits exactly, other numbers as doubles; longer whole numbers are
 * only compared. Never: traps; a call without a value fails its literal and is counted. The
 * reference implementation in Python is compute.py. */
#include "run/machine.h"
#include <math.h>

#define MAX_PLACES 15                 /* decimal places of ROUND, at most */

static int add(int64_t a, int64_t b, int64_t *out)
{
    if (b > 0 ? a > INT64_MAX - b : a < INT64_MIN - b)
        return 0;
    *out = a + b;
    return 1;
}

static int subtract(int64_t a, int64_t b, int64_t *out)
{
    if (b > 0 ? a < INT64_MIN + b : a > INT64_MAX + b)
        return 0;
    *out = a - b;
    return 1;
}

static int multiply(int64_t a, int64_t b, int64_t *out)
{
    if (a > 0 ? (b > 0 ? a > INT64_MAX / b : b < INT64_MIN / a)
              : (b > 0 ? a < INT64_MIN / b : a != 0 && b < INT64_MAX / a))
        return 0;
    *out = a * b;
    return 1;
}

/* The remainder has the sign of the divisor; the quotient is rounded down. */
static int64_t floor_mod(int64_t a, int64_t b)
{
    int64_t rest = b == -1 ? 0 : a % b;

    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

static int integer_value(uint32_t function, int64_t a, int64_t b, kb_number *out)
{
    out->kind = KB_KIND_INTEGER;
    switch (function) {
    case KB_FUNCTION_ADD: return add(a, b, &out->integer);
    case KB_FUNCTION_SUBTRACT: return subtract(a, b, &out->integer);
    case KB_FUNCTION_MULTIPLY: return multiply(a, b, &out->integer);
    case KB_FUNCTION_MOD:
        out->integer = b == 0 ? 0 : floor_mod(a, b);
        return b != 0;
    default:                          /* DIVIDE without a remainder, and DIV */
        if (b == 0 || (a == INT64_MIN && b == -1))
            return 0;
        out->integer = a / b - (a % b != 0 && (a % b < 0) != (b < 0));
        return 1;
    }
}

static double real_mod(double a, double b)
{
    double rest = fmod(a, b);

    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

static double real_div(double a, double b)
{
    double rest = fmod(a, b), quotient = (a - rest) / b, down;

    if (rest != 0 && (rest < 0) != (b < 0))
        quotient -= 1.0;
    down = floor(quotient);
    return quotient - down > 0.5 ? down + 1.0 : down;
}

static int real_value(uint32_t function, double a, double b, kb_number *out)
{
    out->kind = KB_KIND_POWER;
    if (b == 0.0 && (function == KB_FUNCTION_DIVIDE || function == KB_FUNCTION_DIV || function == KB_FUNCTION_MOD))
        return 0;
    switch (function) {
    case KB_FUNCTION_ADD: out->real = a + b; break;
    case KB_FUNCTION_SUBTRACT: out->real = a - b; break;
    case KB_FUNCTION_MULTIPLY: out->real = a * b; break;
    case KB_FUNCTION_DIVIDE: out->real = a / b; break;
    case KB_FUNCTION_DIV: out->real = real_div(a, b); break;
    default: out->real = real_mod(a, b); break;
    }
    return 1;
}

static int is_whole(uint32_t function, const kb_number *a, const kb_number *b)
{
    return a->kind == KB_KIND_INTEGER && b->kind == KB_KIND_INTEGER
           && (function != KB_FUNCTION_DIVIDE || b->integer == 0 || floor_mod(a->integer, b->integer) == 0);
}

static int absolute(const kb_number *a, kb_number *out)
{
    *out = *a;
    if (a->kind == KB_KIND_INTEGER && a->integer < 0) {
        out->integer = a->integer == INT64_MIN ? 0 : -a->integer;
        return a->integer != INT64_MIN;
    }
    if (a->kind != KB_KIND_INTEGER)
        out->real = fabs(a->real);
    return 1;
}

/* Return 1 if arithmetic takes the number. */
static int has_arithmetic(const kb_number *number)
{
    return number->kind == KB_KIND_INTEGER || (number->kind != KB_KIND_TEXT && number->kind != KB_KIND_LONG && isfinite(number->real));
}

/* Return 0 if there is no value. ABS has one argument. */
static int arithmetic(uint32_t function, const kb_number *values, uint32_t count, kb_number *out)
{
    for (uint32_t i = 0; i < count; i++)
        if (!has_arithmetic(values + i))
            return 0;
    if (function == KB_FUNCTION_ABS)
        return absolute(values, out);
    if (is_whole(function, values, values + 1))
        return integer_value(function, values[0].integer, values[1].integer, out);
    return real_value(function, values[0].real, values[1].real, out) && isfinite(out->real);
}

/* Write a number as computed values are written. Long whole numbers keep their digits; a decimal
 * beyond the doubles has no value. */
static kb_status write_canonical(kb_run *run, const kb_arg *value, kb_text *out)
{
    if (value->number.kind == KB_KIND_LONG) {
        *out = value->text;
        return KB_OK;
    }
    return has_arithmetic(&value->number) ? kb_number_value(run, &value->number, out) : KB_DONE;
}

static int is_plain_whole(const kb_arg *value)
{
    return value->number.kind == KB_KIND_INTEGER || value->number.kind == KB_KIND_LONG;
}

const kb_arg *kb_extreme(int sign, const kb_arg *values, uint32_t count)
{
    const kb_arg *best = values;
    int are_instants = values[0].number.kind == KB_KIND_INSTANT;

    for (uint32_t i = 0; i < count; i++) {
        const kb_arg *value = values + i;
        int order;

        if (value->number.kind == KB_KIND_TEXT || are_instants != (value->number.kind == KB_KIND_INSTANT))
            return NULL;
        order = sign * (are_instants ? kb_value_text_order(value, best) : kb_value_order(value, best));
        if (order > 0 || (order == 0 && is_plain_whole(value)))
            best = value;
    }
    return best;
}

kb_status kb_value_extreme(const kb_call *call, kb_text *out)
{
    kb_arg values[KB_MAX_ARITY];
    const kb_arg *best;

    memset(values, 0, sizeof *values);   /* there is at least one */
    for (uint32_t i = 0; i < call->count; i++) {
        values[i] = call->args[i];
        if (values[i].number.kind == KB_KIND_TEXT)
            kb_instant_read(&values[i].text, &values[i].number);
    }
    if ((best = kb_extreme(call->function == KB_FUNCTION_MIN ? -1 : 1, values, call->count)) == NULL)
        return KB_DONE;
    if (best->number.kind != KB_KIND_INSTANT)
        return write_canonical(call->run, best, out);
    *out = best->text;
    return KB_OK;
}

kb_status kb_value_round(const kb_call *call, kb_text *out)
{
    kb_number value = call->args[0].number;
    int64_t places = 0;

    if (!has_arithmetic(&value) || (call->count == 2 && !kb_number_whole(call->args + 1, &places)) || places < 0 || places > MAX_PLACES)
        return KB_DONE;
    if (value.kind != KB_KIND_INTEGER)
        value.real = kb_round_decimal(value.real, (uint32_t)places);
    return kb_number_value(call->run, &value, out);
}

/* By number of the function: minimum and maximum of arguments, and the body of a function of
 * texts. */
static const struct { uint8_t least, most; kb_text_function *body; } functions[KB_FUNCTIONS] = {
    [KB_FUNCTION_ADD] = { 2, 2, NULL },
    [KB_FUNCTION_SUBTRACT] = { 2, 2, NULL },
    [KB_FUNCTION_MULTIPLY] = { 2, 2, NULL },
    [KB_FUNCTION_DIVIDE] = { 2, 2, NULL },
    [KB_FUNCTION_DIV] = { 2, 2, NULL },
    [KB_FUNCTION_MOD] = { 2, 2, NULL },
    [KB_FUNCTION_ABS] = { 1, 1, NULL },
    [KB_FUNCTION_MIN] = { 1, KB_MAX_ARITY, kb_value_extreme },
    [KB_FUNCTION_MAX] = { 1, KB_MAX_ARITY, kb_value_extreme },
    [KB_FUNCTION_ROUND] = { 1, 2, kb_value_round },
    [KB_FUNCTION_CONCAT] = { 1, KB_MAX_ARITY, kb_text_concat },
    [KB_FUNCTION_LOWER] = { 1, 1, kb_text_lower },
    [KB_FUNCTION_UPPER] = { 1, 1, kb_text_upper },
    [KB_FUNCTION_LENGTH] = { 1, 1, kb_text_length },
    [KB_FUNCTION_QUOTED] = { 1, 1, kb_text_quoted },
    [KB_FUNCTION_TRIM] = { 1, 1, kb_text_trim },
    [KB_FUNCTION_SUBSTRING] = { 2, 3, kb_text_substring },
    [KB_FUNCTION_REPLACE] = { 3, 3, kb_text_replace },
    [KB_FUNCTION_JOIN] = { 2, KB_MAX_ARITY, kb_text_join },
    [KB_FUNCTION_CAPTURE] = { 1, 0, NULL },
    [KB_FUNCTION_BEFORE] = { 2, 2, kb_time_order },
    [KB_FUNCTION_AFTER] = { 2, 2, kb_time_order },
    [KB_FUNCTION_DAYS_BETWEEN] = { 2, 2, kb_time_between },
    [KB_FUNCTION_SECONDS_BETWEEN] = { 2, 2, kb_time_between },
    [KB_FUNCTION_ADD_DAYS] = { 2, 2, kb_time_add_days },
    [KB_FUNCTION_ADD_SECONDS] = { 2, 2, kb_time_add_seconds },
    [KB_FUNCTION_YEAR] = { 1, 1, kb_time_part },
    [KB_FUNCTION_MONTH] = { 1, 1, kb_time_part },
    [KB_FUNCTION_DAY] = { 1, 1, kb_time_part },
    [KB_FUNCTION_WEEKDAY] = { 1, 1, kb_time_part },
    [KB_FUNCTION_NOW] = { 1, 0, NULL },
    [KB_FUNCTION_PRECEDES] = { 4, 4, kb_time_intervals },
    [KB_FUNCTION_PRECEDED_BY] = { 4, 4, kb_time_intervals },
    [KB_FUNCTION_MEETS] = { 4, 4, kb_time_intervals },
    [KB_FUNCTION_MET_BY] = { 4, 4, kb_time_intervals },
    [KB_FUNCTION_OVERLAPS] = { 4, 4, kb_time_intervals },
    [KB_FUNCTION_OVERLAPPED_BY] = { 4, 4, kb_time_intervals },
    [KB_FUNCTION_STARTS] = { 4, 4, kb_time_intervals },
    [KB_FUNCTION_STARTED_BY] = { 4, 4, kb_time_intervals },
    [KB_FUNCTION_DURING] = { 4, 4, kb_time_intervals },
    [KB_FUNCTION_INCLUDES] = { 4, 4, kb_time_intervals },
    [KB_FUNCTION_FINISHES] = { 4, 4, kb_time_intervals },
    [KB_FUNCTION_FINISHED_BY] = { 4, 4, kb_time_intervals },
    [KB_FUNCTION_EQUALS_INTERVAL] = { 4, 4, kb_time_intervals },
    [KB_FUNCTION_INTERSECTS] = { 4, 4, kb_time_intervals },
    [KB_FUNCTION_JARO_WINKLER] = { 2, 2, kb_text_jaro_winkler },
    [KB_FUNCTION_TRIGRAM] = { 2, 2, kb_text_trigram },
    [KB_FUNCTION_IS_MEMBER] = { 2, KB_MAX_CALL, kb_test_member },
    [KB_FUNCTION_IS_IN_RANGE] = { 3, 3, kb_test_range },
    [KB_FUNCTION_IS_PART] = { 3, 3, kb_test_part },
};

int kb_function_takes(uint32_t function, uint32_t count)
{
    return count >= functions[function].least && count <= functions[function].most;
}

/* Set the register to a value. Interning may move the texts of the symbols, so a part of one is
 * copied before. */
static kb_status make(kb_run *run, uint32_t reg, const kb_text *value)
{
    const char *bytes = value->bytes;

    if (value->len != 0 && bytes != run->scratch) {
        char *copy = kb_scratch(run, value->len, 1);

        if (copy == NULL)
            return KB_NOMEM;
        memcpy(copy, bytes, value->len);
        bytes = copy;
    }
    return kb_symbol_make(run->engine, run, &run->heap, bytes, value->len, run->registers + reg);
}

kb_status kb_make_text(kb_run *run, uint32_t reg, const kb_text *value, int *has_value)
{
    run->left -= (int64_t)(value->len / KB_BYTES_PER_STEP);
    *has_value = value->len <= KB_MAX_TEXT_BYTES;
    return *has_value ? make(run, reg, value) : KB_OK;
}

static kb_status compute_text(kb_run *run, const kb_step *step, const kb_sym *syms, int *has_value)
{
    kb_arg args[KB_MAX_CALL];
    kb_text value = { NULL, 0 };
    kb_call call;
    kb_status status;
    size_t len = 0;

    for (uint32_t i = 0; i < step->keys; i++) {
        kb_symbol_get(&run->engine->symbols, syms[i], &args[i].text.bytes, &args[i].text.len, &args[i].number);
        len += args[i].text.len;
    }
    run->left -= (int64_t)(len / KB_BYTES_PER_STEP);
    call.run = run;
    call.args = args;
    call.count = step->keys;
    call.function = step->compare;
    status = functions[step->compare].body(&call, &value);
    *has_value = 0;
    return status == KB_OK ? kb_make_text(run, step->a, &value, has_value) : status == KB_DONE ? KB_OK : status;
}

int kb_number_compute(uint32_t function, const kb_number *values, kb_number *out)
{
    if (!arithmetic(function, values, 2, out))
        return 0;
    if (out->kind == KB_KIND_INTEGER)
        out->real = (double)out->integer;
    return 1;
}

kb_status kb_compute(kb_run *run, const kb_step *step, int *has_value)
{
    kb_number values[2] = { { 0, 0, 0.0 }, { 0, 0, 0.0 } }, value;
    kb_sym args[KB_MAX_CALL];
    char text[KB_NUMBER_TEXT];

    kb_gather(run, step, args);
    run->left--;
    run->stats.probes++;
    if (functions[step->compare].body != NULL) {
        kb_status status = compute_text(run, step, args, has_value);

        run->stats.warnings += status == KB_OK && !*has_value;
        return status;
    }
    for (uint32_t i = 0; i < step->keys; i++) {
        const char *bytes;
        size_t len;

        kb_symbol_get(&run->engine->symbols, args[i], &bytes, &len, values + i);
    }
    *has_value = arithmetic(step->compare, values, step->keys, &value);
    if (!*has_value) {
        run->stats.warnings++;
        return KB_OK;
    }
    return kb_symbol_make(run->engine, run, &run->heap, text, kb_number_text(&value, text), run->registers + step->a);
}
