// The requests of the memory screen.
import { keepPreviousData, useQueries, useQuery } from "@tanstack/react-query";

import { clientOf, dataOf, type Client, type Schemas } from "../../api/client";
import { useConnection } from "../../connection";

export type Episode = Schemas["StoredEpisode"];
export type Row = Schemas["Row"];
export type HistoryEvent = Schemas["HistoryEvent"];

export const PAGE_SIZE = 20;
const MAX_EVENTS = 500;
const MAX_SOURCES = 30;

export interface EpisodePage {
  episodes: Episode[];
  total: number;
  /** From 1. */
  page: number;
}

/** Return the query for a page of messages, the oldest first; the last page for null. */
export function useEpisodes(filter: { session: string; speaker: string }, page: number | null) {
  const { connection, client } = useConnection();
  return useQuery({
    queryKey: ["episodes", connection, filter, page],
    placeholderData: keepPreviousData,
    queryFn: async ({ signal }): Promise<EpisodePage> => {
      const named = Object.fromEntries(Object.entries(filter).filter(([, value]) => value !== ""));
      const read = (limit: number, offset: number) => dataOf(client.GET("/episodes", { params: { query: { ...named, limit, offset } } as never, signal }));
      const last = (total: number) => Math.max(1, Math.ceil(total / PAGE_SIZE));
      const first = await read(PAGE_SIZE, ((page ?? 1) - 1) * PAGE_SIZE);
      const wanted = Math.min(page ?? last(first.total), last(first.total));
      if (wanted === (page ?? 1)) return { ...first, page: wanted };
      return { ...(await read(PAGE_SIZE, (wanted - 1) * PAGE_SIZE)), page: wanted };
    },
  });
}

/** Return, by the id of each message, the message with the facts that it is evidence of; undefined while one loads. */
export function useEpisodeFacts(ids: readonly string[]): { messages: Map<string, Schemas["EpisodeWithFacts"]>; error: unknown } {
  const { connection, client } = useConnection();
  return useQueries({
    queries: [...new Set(ids)].slice(0, MAX_SOURCES).map((id) => episodeQuery(client, connection, id)),
    combine: (results) => ({
      messages: new Map(results.flatMap(({ data }) => (data === undefined ? [] : [[data.id, data] as const]))),
      error: results.find(({ error }) => error !== null)?.error ?? null,
    }),
  });
}

function episodeQuery(client: Client, connection: object, id: string) {
  return {
    queryKey: ["episode", connection, id],
    queryFn: ({ signal }: { signal: AbortSignal }) => dataOf(client.GET("/episodes/{id}", { params: { path: { id }, query: { limit: 100 } } as never, signal })),
  };
}

/** Return the query for the changes of facts, the newest first. `about` is a fact, a pattern, or a predicate. */
export function useHistory(about: string) {
  const { connection } = useConnection();
  // The history is always that of the present.
  const now = { ...connection, time: null };
  return useQuery({
    queryKey: ["history", now, about],
    enabled: about !== "",
    placeholderData: keepPreviousData,
    queryFn: ({ signal }) => {
      const client = clientOf(now);
      if (about.includes("(")) return dataOf(client.GET("/memory/history", { params: { query: { about, limit: MAX_EVENTS } } as never, signal }));
      const scope = connection.scope === null ? {} : { scope: connection.scope };
      const [predicate] = about.replace(/^~/, "").split("/");
      return dataOf(client.GET("/facts/history", { params: { query: { predicate, order: "newest", limit: MAX_EVENTS, ...scope } } as never, signal }));
    },
  });
}
