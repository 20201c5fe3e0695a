// The connection of the page: tenant, database and scope are in its address, the key in the session.
import { createContext, useCallback, useContext, useMemo, useState, type ReactNode } from "react";
import { useSearchParams } from "wouter";

import { clientOf, type Client, type Connection } from "./api/client";

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
  const update = useCallback(
    (part: Partial<Connection>) => {
      if (part.key !== undefined) {
        if (part.key === null) sessionStorage.removeItem(KEY);
        else sessionStorage.setItem(KEY, part.key);
        setKey(part.key);
      }
      setSearch((previous) => {
        const next = new URLSearchParams(previous);
        for (const name of ["tenant", "database", "scope"] as const) {
          const value = part[name];
          if (value === undefined) continue;
          if (value === null || (name !== "scope" && value === "default")) next.delete(name);
          else next.set(name, value);
        }
        return next;
      });
    },
    [setSearch],
  );
  const state = useMemo(() => {
    const connection: Connection = { tenant, database, scope, key };
    return { connection, client: clientOf(connection), update };
  }, [tenant, database, scope, key, update]);
  return <ConnectionContext.Provider value={state}>{children}</ConnectionContext.Provider>;
}

export function useConnection(): ConnectionState {
  const state = useContext(ConnectionContext);
  if (state === null) throw new Error("useConnection outside a ConnectionProvider");
  return state;
}
