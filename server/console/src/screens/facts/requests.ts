// The requests of the screen "Facts and rules".
import { keepPreviousData, useQuery, useQueryClient } from "@tanstack/react-query";
import { useCallback } from "react";

import { ApiError, outcomeOf, send, type Client, type Connection, type Schemas } from "../../api/client";
import { parseExactly } from "../../api/exactJson";
import { useConnection } from "../../connection";

export const PAGE_SIZE = 100;

export type StoredFact = Schemas["StoredRow"];

/** A pattern of stored facts. An empty text in `args` matches any value; `negated` null matches both signs. */
export interface Pattern {
  predicate: string;
  args: readonly string[];
  negated: boolean | null;
  /** Text that an argument contains; empty for every fact. */
  contains: string;
}

export interface FactPage {
  rows: StoredFact[];
  /** The page that the rows are of, from 1: the last one if the requested page does not exist. */
  page: number;
  /** The number of facts that match, on all pages. */
  total: number;
}

/** Return the query for a page of the stored facts that match a pattern. */
export function useFactPage(pattern: Pattern, page: number) {
  const { connection, client } = useConnection();
  return useQuery({
    queryKey: ["facts", connection, pattern, page],
    placeholderData: keepPreviousData,
    queryFn: async ({ signal }): Promise<FactPage> => {
      const request = { client, connection, pattern, signal };
      const requested = await requestPage(request, page);
      const last = Math.max(1, Math.ceil(requested.total / PAGE_SIZE));
      // Facts may have been retracted since the address was made.
      return page > last ? requestPage(request, last) : requested;
    },
  });
}

interface PageRequest {
  client: Client;
  connection: Connection;
  pattern: Pattern;
  signal: AbortSignal;
}

async function requestPage({ client, connection, pattern, signal }: PageRequest, page: number): Promise<FactPage> {
  const { predicate, args, negated, contains } = pattern;
  const body = {
    predicate,
    args: args.map((value) => (value === "" ? "?" : value)),
    negated,
    contains,
    scope: connection.scope,
    offset: (page - 1) * PAGE_SIZE,
    limit: PAGE_SIZE,
  };
  const { data, response } = await outcomeOf(client.POST("/query", { body: body as never, params: {} as never, signal, parseAs: "text" }));
  return { rows: parseExactly(data) as StoredFact[], page, total: Number(response.headers.get("X-Total-Count")) };
}

/** Return the query for the rules of the scope; in the base, for those of every scope. */
export function useRules() {
  const { connection, client } = useConnection();
  return useQuery({
    queryKey: ["rules", connection],
    queryFn: async ({ signal }) =>
      (await outcomeOf(client.GET("/rules", { params: { query: connection.scope === null ? {} : { scope: connection.scope } } as never, signal }))).data,
  });
}

/**
 * Return a function that reads everything again that a write may have changed, but not the messages that it has deleted. The preview of the
 * write is over: its rule may be gone.
 */
export function useRefresh(): (deleted?: readonly string[]) => Promise<void> {
  const queries = useQueryClient();
  return useCallback(
    (deleted = []) =>
      queries.invalidateQueries({
        predicate: ({ queryKey: [kind, , id] }) => !["auth", "preview"].includes(String(kind)) && !(kind === "episode" && deleted.includes(String(id))),
      }),
    [queries],
  );
}

/** Return the fields that name a fact in a request: without its confidence, times and metadata. */
export function atomOf({ predicate, args, negated, scope }: Pick<StoredFact, "predicate" | "args" | "negated" | "scope">) {
  return { predicate, args, negated, scope };
}

/** Return the fields that assert a fact as it is stored, in place of which some may be others. */
export function assertionOf(fact: StoredFact) {
  return {
    ...atomOf(fact),
    confidence: fact.confidence,
    metadata: fact.metadata as Record<string, unknown>,
    // Without `validFrom` a fact holds from its assertion on: that time is not copied, as it would become fixed.
    validFrom: fact.validFrom === fact.createdAt ? null : fact.validFrom,
    validUntil: fact.validUntil,
  };
}

/** Send writes as one transaction, with the header to add to each of them. A failure rolls all of them back. */
export async function inTransaction(connection: Connection, writes: (headers: Record<string, string>) => Promise<void>): Promise<void> {
  const id = (await (await send(connection, "/tx/begin", { method: "POST" })).text()).trim();
  try {
    await writes({ "X-Transaction-ID": id });
  } catch (error) {
    await send(connection, `/tx/rollback/${encodeURIComponent(id)}`, { method: "POST" });
    throw error;
  }
  await send(connection, `/tx/commit/${encodeURIComponent(id)}`, { method: "POST" });
}

/** Replace a stored fact by another. */
export async function replaceFact(connection: Connection, before: StoredFact, after: ReturnType<typeof assertionOf>): Promise<void> {
  await inTransaction(connection, async (headers) => {
    const retracted = await send(connection, "/retract", { body: { ...atomOf(before), count: false }, headers });
    if (retracted.headers.get("X-Retracted-Count") === "0") {
      throw new ApiError(409, "CONFLICT", "The fact is not stored any more: another client has retracted it.");
    }
    await send(connection, "/tell", { body: after, headers });
  });
}

/** Return the time of the server in epoch milliseconds, or of this machine where they agree to 2 seconds. */
export function serverTime(response: Response): number {
  const here = Date.now();
  const there = Date.parse(response.headers.get("Date") ?? "");
  return Number.isNaN(there) || Math.abs(there - here) < 2000 ? here : there;
}
