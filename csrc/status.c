/* status.c - a status as a sentence.
 * Owns: the texts. Never: state. */
#include "internal.h"

const char *kb_status_text(int status)
{
    switch (status) {
    case KB_OK: return "ok";
    case KB_DONE: return "the run reached its fixpoint";
    case KB_PAUSED: return "the run used up its fuel";
    case KB_STALE: return "what the run read has changed";
    case KB_NOMEM: return "no more memory";
    case KB_LIMIT: return "a budget of the run is spent";
    case KB_MISUSE: return "bad handle, arity or argument";
    case KB_BADPLAN: return "the bytecode was refused";
    case KB_BUSY: return "a paused run reads this relation";
    case KB_CANCELLED: return "the run was cancelled";
    default: return "unknown status";
    }
}
