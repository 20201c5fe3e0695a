/* status.c - a sentence for each status.
 * Owns: the sentences. Never: state. */
#include "internal.h"

const char *kb_status_text(int status)
{
    switch (status) {
    case KB_OK: return "ok";
    case KB_DONE: return "the run reached its fixpoint";
    case KB_PAUSED: return "the run used up its fuel";
    case KB_STALE: return "relations that the run read have changed";
    case KB_NOMEM: return "out of memory";
    case KB_LIMIT: return "a budget of the run is spent";
    case KB_MISUSE: return "bad handle, arity or argument";
    case KB_BADPLAN: return "the verifier rejected the bytecode";
    case KB_BUSY: return "a paused run reads this relation";
    case KB_CANCELLED: return "the run was cancelled";
    default: return "unknown status";
    }
}
