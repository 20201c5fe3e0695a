// Reads that several screens share.
import { useQuery } from "@tanstack/react-query";
import { useCallback, useMemo } from "react";

import { useConnection } from "../connection";
import { nearest } from "../matching";
import { ApiError, clientOf, dataOf, send, type Schemas, type TextError } from "./client";

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
    queryKey: ["scopes", { ...connection, scope: null, view: null }],
    enabled,
    queryFn: async ({ signal }) => (await dataOf(client.GET("/scopes", { params: {} as never, signal }))).scopes,
  });
}

/** Return the query for the labels that the tenant declares: levels and groups. */
export function useDimensions() {
  const { connection } = useConnection();
  const enabled = useHasAccess();
  const whole = { ...connection, scope: null, view: null, time: null };
  return useQuery({
    queryKey: ["dimensions", whole],
    enabled,
    queryFn: async ({ signal }) =>
      (await dataOf(clientOf(whole).GET("/rules", { params: { query: { limit: 1 } } as never, signal }))).dimensions ?? [],
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

/** Return true if facts and rules can be changed: by the key of the connection, and now. False while that is not known. */
export function useMayWrite(): boolean {
  const { connection } = useConnection();
  const role = useWhoAmI().data?.role;
  return connection.time === null && (role === "writer" || role === "admin");
}

/** Return the names of the databases that the key may see; null if that is not known. */
export function useDatabases(): string[] | null {
  const { connection, client } = useConnection();
  const who = useWhoAmI().data;
  const databases = useQuery({
    queryKey: ["databases", connection.key],
    enabled: who?.role === "admin" && who.databases.length === 0 && who.tenants.length === 0,
    queryFn: ({ signal }) => dataOf(client.GET("/admin/databases", { params: {} as never, signal })),
    retry: false,
  });
  if (who !== undefined && who.databases.length > 0) return who.databases;
  return databases.data?.map(({ name }) => name) ?? null;
}

/** Return the names of the tenants of the database that the key may see, null if that is not known; and for a name that is none of them, the one that is meant. */
export function useTenants(): { names: string[] | null; suggestion: string | null } {
  const { connection, client } = useConnection();
  const who = useWhoAmI().data;
  const tenants = useQuery({
    queryKey: ["tenants", connection.key, connection.database],
    enabled: who?.role === "admin" && who.tenants.length === 0,
    queryFn: ({ signal }) => dataOf(client.GET("/admin/databases/{name}/tenants", { params: { path: { name: connection.database } } as never, signal })),
    retry: false,
  });
  const names = who !== undefined && who.tenants.length > 0 ? who.tenants : (tenants.data ?? null);
  const suggestion = useMemo(() => (names === null || names.includes(connection.tenant) ? null : nearest(names, connection.tenant)), [names, connection.tenant]);
  return { names, suggestion };
}

/** Return constants of the facts that matter most, the most frequent first: what fields offer while someone types. */
export function useConstants(enabled = true): string[] {
  const { connection, client } = useConnection();
  const salient = useQuery({
    queryKey: ["constants", connection],
    enabled,
    staleTime: 60_000,
    queryFn: async ({ signal }) => {
      const rows = await dataOf(client.POST("/memory/query/salient", { body: { limit: 500, scope: connection.scope } as never, params: {} as never, signal }));
      const counts = new Map<string, number>();
      for (const { predicate, args } of rows as unknown as { predicate: string; args: string[] }[]) {
        if (predicate !== "said") for (const constant of args) counts.set(constant, (counts.get(constant) ?? 0) + 1);
      }
      return [...counts].filter(([constant]) => constant.length <= 80).sort(([, first], [, second]) => second - first).map(([constant]) => constant);
    },
    retry: false,
  });
  return salient.data ?? [];
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
