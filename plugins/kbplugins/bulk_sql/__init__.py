"""SQL of bulk runs and of conditions, as expression trees of sqlglot: no other package imports it.

Tables: `kb_text` has the constants (`id`, `text`; for numbers the nearest double as `real`, the
exact integer as `whole` and their difference as `yield_now`). A relation has a column of ids for
each argument, `c0`, `c1`, ..., and derived relations have `kb_round`, the number of the round that
added a row. A function table such as `fn_add_2` has the arguments and the value of each call.
"""
