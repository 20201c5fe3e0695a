// Reads that several screens share.
import { useQuery } from "@tanstack/react-query";
import { useCallback } from "react";

import { useConnection } from "../connection";
import { ApiError, dataOf, send, type Schemas, type TextError } from "./client";

/** Return the predicates of the scope; none while they load or when the key may not read them. */
export function usePredicates(): Schemas["Predicate"][] {
  return usePredicateQuery().data?.predicates ?? [];
}

/** Return the query behind `usePredicates`, for screens that show its state. */
export function usePredicateQuery() {
  const { connection, client } = useConnection();
  return useQuery({
    queryKey: ["predicates", connection],
    queryFn: ({ signal }) =>
      dataOf(client.GET("/predicates", { params: { query: connection.scope === null ? {} : { scope: connection.scope } } as never, signal })),
  });
}

/** Return the query for the names of the scopes, without the base. */
export function useScopes() {
  const { connection, client } = useConnection();
  const enabled = useHasAccess();
  return useQuery({
    queryKey: ["scopes", { ...connection, scope: null }],
    enabled,
    queryFn: async ({ signal }) => (await dataOf(client.GET("/scopes", { params: {} as never, signal }))).scopes,
  });
}

/** Return the query for the mode of authentication. */
export function useAuthStatus() {
  const { client } = useConnection();
  return useQuery({
    queryKey: ["auth", "status"],
    queryFn: ({ signal }) => dataOf(client.GET("/auth/status", { signal })),
    staleTime: Infinity,
  });
}

/** Return true once it is known that requests need no key, or that there is one. */
export function useHasAccess(): boolean {
  const { connection } = useConnection();
  const status = useAuthStatus();
  return status.data !== undefined && (status.data.mode === "disabled" || connection.key !== null);
}

/** Return the query for what the key of the connection may do. */
export function useWhoAmI() {
  const { connection, client } = useConnection();
  const enabled = useHasAccess();
  return useQuery({
    queryKey: ["auth", "whoami", connection.key],
    queryFn: ({ signal }) => dataOf(client.GET("/auth/whoami", { signal })),
    enabled,
    retry: false,
  });
}

/** Return true if the key of the connection may change facts and rules; false while that is not known. */
export function useMayWrite(): boolean {
  const role = useWhoAmI().data?.role;
  return role === "writer" || role === "admin";
}

/** Return a function that returns the mistakes in a text of statements (`program`) or in a goal. */
export function useCheck(kind: "program" | "goal"): (text: string) => Promise<TextError[]> {
  const { connection } = useConnection();
  return useCallback(
    async (text: string) => {
      try {
        const response = await send(connection, "/check", { body: { text, kind, scope: connection.scope } });
        return ((await response.json()) as { diagnostics: TextError[] }).diagnostics;
      } catch (error) {
        // The screen shows the error when the text is sent; typing is not interrupted by it.
        if (error instanceof ApiError) return [];
        throw error;
      }
    },
    [connection, kind],
  );
}
