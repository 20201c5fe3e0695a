/* instants.c - functions of time: instants are texts of ISO 8601.
 * Owns: the grammar of instants, and the calendar. Never: asks a clock, or takes a text that is no
 * instant for one. The reference implementation in Python is instants.py. */
#include "run/machine.h"
#include <math.h>

#define DAY INT64_C(86400)
#define SECOND_NS 1000000000
#define FIRST_DAY INT64_C(-719162)    /* 0001-01-01, from 1970-01-01 */
#define LAST_DAY INT64_C(2932896)     /* 9999-12-31 */
#define DATE_CHARS 10u

typedef struct kb_moment { int64_t seconds, nanos; } kb_moment;   /* since 1970 in UTC */

/* day: from 1970-01-01, and second: from midnight, as they are written */
typedef struct kb_instant { kb_moment moment; int64_t day, second; int year, month, day_of_month; } kb_instant;

/* Days of the proleptic Gregorian calendar: Hinnant, "chrono-Compatible Low-Level Date Algorithms"
 * (2013). Years are positive here. */
static int64_t day_number(int year, int month, int day)
{
    int64_t shifted = year - (month <= 2), era = shifted / 400, year_of_era = shifted - era * 400;
    int64_t day_of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;

    return era * 146097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719468;
}

/* Write the date of a day from FIRST_DAY to LAST_DAY. */
static void write_date(int64_t day, char *out)
{
    int64_t shifted = day + 719468, era = shifted / 146097, day_of_era = shifted - era * 146097;
    int64_t year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
    int64_t day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    int64_t shifted_month = (5 * day_of_year + 2) / 153, month = shifted_month < 10 ? shifted_month + 3 : shifted_month - 9;
    int64_t year = year_of_era + era * 400 + (month <= 2), of_month = day_of_year - (153 * shifted_month + 2) / 5 + 1;

    for (int i = 3; i >= 0; i--, year /= 10)
        out[i] = (char)('0' + year % 10);
    out[4] = out[7] = '-';
    out[5] = (char)('0' + month / 10);
    out[6] = (char)('0' + month % 10);
    out[8] = (char)('0' + of_month / 10);
    out[9] = (char)('0' + of_month % 10);
}

static int days_of_month(int year, int month)
{
    static const uint8_t days[] = { 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31 };

    return days[month - 1] + (month == 2 && (year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)));
}

/* Read `count` digits and move past them; -1 without them. */
static int read_digits(const char **at, const char *end, int count)
{
    int value = 0;

    if (end - *at < count)
        return -1;
    for (int i = 0; i < count; i++) {
        char c = (*at)[i];

        if (c < '0' || c > '9')
            return -1;
        value = value * 10 + (c - '0');
    }
    *at += count;
    return value;
}

/* Return one of these characters and move past it; 0 if the text goes on with another one. */
static char take(const char **at, const char *end, const char *one_of)
{
    if (*at == end || **at == '\0' || strchr(one_of, **at) == NULL)
        return 0;
    return *(*at)++;
}

static int read_fraction(const char **at, const char *end, int64_t *nanos)
{
    int64_t unit = SECOND_NS;
    const char *start = *at;

    for (*nanos = 0; *at < end && **at >= '0' && **at <= '9'; (*at)++) {
        if (*at - start == 9)
            return 0;
        unit /= 10;
        *nanos += unit * (**at - '0');
    }
    return *at > start;
}

/* Read hours, minutes and what follows them. Return 0 if that is no time of day. */
static int read_time(const char **at, const char *end, kb_instant *out)
{
    int hour = read_digits(at, end, 2), minute = -1, second = 0;
    int64_t offset = 0;
    char sign;

    if (hour < 0 || hour > 23 || !take(at, end, ":") || (minute = read_digits(at, end, 2)) < 0 || minute > 59)
        return 0;
    if (take(at, end, ":")) {
        if ((second = read_digits(at, end, 2)) < 0 || second > 59)
            return 0;
        if (take(at, end, ".,") && !read_fraction(at, end, &out->moment.nanos))
            return 0;
    }
    if ((sign = take(at, end, "+-")) != 0) {
        int hours = read_digits(at, end, 2), minutes = 0, has_colon;

        if (hours < 0)
            return 0;
        has_colon = take(at, end, ":") != 0;
        if ((has_colon || *at < end) && (minutes = read_digits(at, end, 2)) < 0)
            return 0;
        offset = hours * 3600 + minutes * 60;
        if (minutes > 59 || offset >= DAY)
            return 0;
    } else {
        take(at, end, "Zz");
    }
    out->second = hour * 3600 + minute * 60 + second;
    out->moment.seconds = out->day * DAY + out->second + (sign == '-' ? offset : -offset);
    return 1;
}

/* Return 0 if the text is no instant. */
static int read_instant(const kb_text *text, kb_instant *out)
{
    const char *at = text->bytes, *end = at + text->len;

    memset(out, 0, sizeof *out);
    if ((out->year = read_digits(&at, end, 4)) < 1 || !take(&at, end, "-") || (out->month = read_digits(&at, end, 2)) < 1
        || out->month > 12 || !take(&at, end, "-") || (out->day_of_month = read_digits(&at, end, 2)) < 1
        || out->day_of_month > days_of_month(out->year, out->month))
        return 0;
    out->day = day_number(out->year, out->month, out->day_of_month);
    out->moment.seconds = out->day * DAY;
    if (at == end)
        return 1;
    return take(&at, end, "Tt ") && read_time(&at, end, out) && at == end;
}

int kb_instant_read(const kb_text *text, kb_number *out)
{
    kb_instant instant;

    if (!read_instant(text, &instant))
        return 0;
    out->kind = KB_KIND_INSTANT;
    out->integer = instant.moment.nanos;
    out->real = (double)instant.moment.seconds;   /* exact */
    return 1;
}

static int order_of(const kb_moment *a, const kb_moment *b)
{
    if (a->seconds != b->seconds)
        return a->seconds < b->seconds ? -1 : 1;
    return a->nanos < b->nanos ? -1 : a->nanos > b->nanos;
}

static kb_status truth(int value, kb_text *out)
{
    out->bytes = value ? "true" : "false";
    out->len = value ? 4 : 5;
    return KB_OK;
}

kb_status kb_time_order(const kb_call *call, kb_text *out)
{
    kb_instant a, b;

    if (!read_instant(&call->args[0].text, &a) || !read_instant(&call->args[1].text, &b))
        return KB_DONE;
    return truth(order_of(&a.moment, &b.moment) == (call->function == KB_FUNCTION_BEFORE ? -1 : 1), out);
}

/* Return the double nearest to (seconds + nanos / 10^9) / unit, neither of which is negative. */
static double quotient(int64_t seconds, int64_t nanos, int64_t unit)
{
    uint64_t bits = (uint64_t)(seconds / unit), of = (uint64_t)unit * SECOND_NS;
    uint64_t rest = (uint64_t)(seconds % unit) * SECOND_NS + (uint64_t)nanos;
    int scale = 0;

    for (; bits >> 62 == 0; scale++) {   /* long division, to 63 bits */
        rest *= 2;
        bits = bits * 2 + (rest >= of);
        rest -= rest >= of ? of : 0;
    }
    return ldexp((double)(bits | (rest != 0)), -scale);   /* what is left decides a tie */
}

kb_status kb_time_between(const kb_call *call, kb_text *out)
{
    kb_number value = { KB_KIND_INTEGER, 0, 0.0 };
    kb_instant from, to;
    int64_t seconds, rest, unit = call->function == KB_FUNCTION_DAYS_BETWEEN ? DAY : 1;

    if (!read_instant(&call->args[0].text, &from) || !read_instant(&call->args[1].text, &to))
        return KB_DONE;
    seconds = to.moment.seconds - from.moment.seconds;
    rest = to.moment.nanos - from.moment.nanos;
    if (seconds > 0 && rest < 0) {
        seconds--;
        rest += SECOND_NS;
    } else if (seconds < 0 && rest > 0) {
        seconds++;
        rest -= SECOND_NS;
    }
    if (rest == 0 && seconds % unit == 0) {
        value.integer = seconds / unit;
    } else {
        value.kind = KB_KIND_DECIMAL;
        value.real = seconds < 0 || rest < 0 ? -quotient(-seconds, -rest, unit) : quotient(seconds, rest, unit);
    }
    return kb_number_value(call->run, &value, out);
}

/* Write the text of an instant with another date, and return scratch memory with space for more. */
static char *with_date(const kb_call *call, int64_t day, kb_text *out)
{
    const kb_text *text = &call->args[0].text;
    char *copy;

    if ((copy = kb_scratch(call->run, text->len + DATE_CHARS, 1)) == NULL)
        return NULL;
    memcpy(copy, text->bytes, text->len);
    write_date(day, copy);
    out->bytes = copy;
    out->len = text->len;
    return copy;
}

kb_status kb_time_add_days(const kb_call *call, kb_text *out)
{
    kb_instant start;
    int64_t days;

    if (!read_instant(&call->args[0].text, &start) || !kb_number_whole(call->args + 1, &days) || days < FIRST_DAY - start.day
        || days > LAST_DAY - start.day)
        return KB_DONE;
    return with_date(call, start.day + days, out) == NULL ? KB_NOMEM : KB_OK;
}

static void write_two(int64_t value, char *out)
{
    out[0] = (char)('0' + value / 10);
    out[1] = (char)('0' + value % 10);
}

/* The text is yyyy-mm-ddThh:mm, then perhaps :ss and a fraction, then perhaps an offset. */
kb_status kb_time_add_seconds(const kb_call *call, kb_text *out)
{
    const kb_text *text = &call->args[0].text;
    kb_instant start;
    int64_t seconds, day, second;
    char *copy;

    if (!read_instant(text, &start) || !kb_number_whole(call->args + 1, &seconds) || seconds / DAY < FIRST_DAY - start.day - 1
        || seconds / DAY > LAST_DAY - start.day + 1)
        return KB_DONE;
    day = start.day + (start.second + seconds) / DAY;
    second = (start.second + seconds) % DAY;
    if (second < 0) {
        second += DAY;
        day--;
    }
    if (day < FIRST_DAY || day > LAST_DAY)
        return KB_DONE;
    if ((copy = with_date(call, day, out)) == NULL)
        return KB_NOMEM;
    if (text->len == DATE_CHARS) {
        memcpy(copy + DATE_CHARS, "T00:00:00Z", 10);
        out->len = 20;
    } else if ((text->len == 16 || copy[16] != ':') && second % 60 != 0) {
        memmove(copy + 19, copy + 16, text->len - 16);
        memcpy(copy + 16, ":00", 3);
        out->len = text->len + 3;
    }
    write_two(second / 3600, copy + 11);
    write_two(second / 60 % 60, copy + 14);
    if (out->len > 16 && copy[16] == ':')
        write_two(second % 60, copy + 17);
    return KB_OK;
}

kb_status kb_time_part(const kb_call *call, kb_text *out)
{
    kb_number value = { KB_KIND_INTEGER, 0, 0.0 };
    kb_instant instant;

    if (!read_instant(&call->args[0].text, &instant))
        return KB_DONE;
    switch (call->function) {
    case KB_FUNCTION_YEAR: value.integer = instant.year; break;
    case KB_FUNCTION_MONTH: value.integer = instant.month; break;
    case KB_FUNCTION_DAY: value.integer = instant.day_of_month; break;
    /* 0001-01-01 was a Monday */
    default: value.integer = (instant.day - FIRST_DAY) % 7 + 1; break;
    }
    return kb_number_value(call->run, &value, out);
}

typedef struct kb_interval { kb_moment start, end; } kb_interval;

/* ".." is an open end. */
static int read_end(const kb_text *text, int64_t open_end, kb_moment *out)
{
    kb_instant instant;

    if (text->len == 2 && text->bytes[0] == '.' && text->bytes[1] == '.') {
        out->seconds = open_end;
        out->nanos = 0;
        return 1;
    }
    if (!read_instant(text, &instant))
        return 0;
    *out = instant.moment;
    return 1;
}

static int read_interval(const kb_arg *args, kb_interval *out)
{
    return read_end(&args[0].text, INT64_MIN, &out->start) && read_end(&args[1].text, INT64_MAX, &out->end)
           && order_of(&out->start, &out->end) < 0;
}

/* Return the one relation of two intervals that holds: Allen, "Maintaining knowledge about temporal
 * intervals" (1983). */
static uint32_t relation_of(const kb_interval *a, const kb_interval *b)
{
    int before = order_of(&a->end, &b->start), after = order_of(&b->end, &a->start);
    int starts = order_of(&a->start, &b->start), ends = order_of(&a->end, &b->end);

    if (before <= 0)
        return before == 0 ? KB_FUNCTION_MEETS : KB_FUNCTION_PRECEDES;
    if (after <= 0)
        return after == 0 ? KB_FUNCTION_MET_BY : KB_FUNCTION_PRECEDED_BY;
    if (starts == 0)
        return ends == 0 ? KB_FUNCTION_EQUALS_INTERVAL : ends < 0 ? KB_FUNCTION_STARTS : KB_FUNCTION_STARTED_BY;
    if (ends == 0)
        return starts > 0 ? KB_FUNCTION_FINISHES : KB_FUNCTION_FINISHED_BY;
    if (starts < 0)
        return ends > 0 ? KB_FUNCTION_INCLUDES : KB_FUNCTION_OVERLAPS;
    return ends < 0 ? KB_FUNCTION_DURING : KB_FUNCTION_OVERLAPPED_BY;
}

kb_status kb_time_intervals(const kb_call *call, kb_text *out)
{
    kb_interval a, b;
    uint32_t relation;

    if (!read_interval(call->args, &a) || !read_interval(call->args + 2, &b))
        return KB_DONE;
    relation = relation_of(&a, &b);
    if (call->function == KB_FUNCTION_INTERSECTS)
        return truth(relation != KB_FUNCTION_PRECEDES && relation != KB_FUNCTION_PRECEDED_BY
                     && relation != KB_FUNCTION_MEETS && relation != KB_FUNCTION_MET_BY, out);
    return truth(relation == call->function, out);
}
