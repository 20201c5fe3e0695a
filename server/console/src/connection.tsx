// The connection of the page: tenant, database, scope, view and time are in its address, the key in the session.
import { createContext, useCallback, useContext, useMemo, useState, type ReactNode } from "react";
import { useSearchParams } from "wouter";

import { clientOf, type Client, type Connection } from "./api/client";
import type { Time } from "./time";

const KEY = "kbcore.key";

interface ConnectionState {
  connection: Connection;
  client: Client;
  /** Change a part of the connection; the address changes with it. */
  update: (part: Partial<Connection>) => void;
}

const ConnectionContext = createContext<ConnectionState | null>(null);

export function ConnectionProvider({ children }: { children: ReactNode }) {
  const [search, setSearch] = useSearchParams();
  const [key, setKey] = useState(() => sessionStorage.getItem(KEY));
  const tenant = search.get("tenant") ?? "default";
  const database = search.get("database") ?? "default";
  const scope = search.get("scope");
  const view = search.get("only");
  const asOf = search.get("asof");
  const knownAt = search.get("known");
  const update = useCallback(
    (part: Partial<Connection>) => {
      if (part.key !== undefined) {
        if (part.key === null) sessionStorage.removeItem(KEY);
        else sessionStorage.setItem(KEY, part.key);
        setKey(part.key);
      }
      setSearch((previous) => {
        const next = new URLSearchParams(previous);
        for (const [field, name] of [["tenant", "tenant"], ["database", "database"], ["scope", "scope"], ["view", "only"]] as const) {
          const value = part[field];
          if (value === undefined) continue;
          if (value === null || ((name === "tenant" || name === "database") && value === "default")) next.delete(name);
          else next.set(name, value);
        }
        if (part.time !== undefined) {
          next.delete("asof");
          next.delete("known");
          if (part.time !== null) next.set(part.time.kind === "asOf" ? "asof" : "known", part.time.at);
        }
        return next;
      });
    },
    [setSearch],
  );
  const state = useMemo(() => {
    const time: Time | null = knownAt !== null ? { kind: "knownAt", at: knownAt } : asOf !== null ? { kind: "asOf", at: asOf } : null;
    const connection: Connection = { tenant, database, scope, key, view, time };
    return { connection, client: clientOf(connection), update };
  }, [tenant, database, scope, key, view, asOf, knownAt, update]);
  return <ConnectionContext.Provider value={state}>{children}</ConnectionContext.Provider>;
}

export function useConnection(): ConnectionState {
  const state = useContext(ConnectionContext);
  if (state === null) throw new Error("useConnection outside a ConnectionProvider");
  return state;
}
