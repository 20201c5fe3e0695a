// The requests of the screen "Rule sets".
import { useQuery } from "@tanstack/react-query";

import { dataOf, type Schemas } from "../../api/client";
import { useHasAccess } from "../../api/queries";
import { useConnection } from "../../connection";

export type RuleSet = Schemas["RuleSet"];
export type Version = Schemas["RuleSetVersion"];
/** What differs between two versions, or between a version and an edited text. */
export type Difference = Pick<Schemas["RuleSetDiff"], "added" | "changed" | "removed" | "facts">;

/** Return the query for the rule sets of the scope; in the base, for those of every scope. */
export function useRuleSets() {
  const { connection, client } = useConnection();
  const enabled = useHasAccess();
  return useQuery({
    queryKey: ["rule sets", connection],
    enabled,
    queryFn: async ({ signal }) =>
      (await dataOf(client.GET("/rulesets", { params: { query: connection.scope === null ? {} : { scope: connection.scope } } as never, signal }))).ruleSets,
  });
}

/** Return the query for the kept versions of a rule set, the newest first. */
export function useVersions(set: RuleSet) {
  const { connection, client } = useConnection();
  return useQuery({
    queryKey: ["rule set versions", connection, set],
    queryFn: async ({ signal }) => (await dataOf(client.GET("/rulesets/{name}/versions", { params: paramsOf(set) as never, signal }))).versions,
  });
}

/** Return the query for the difference of two versions; version 0 is empty. */
export function useDifference(set: RuleSet, from: number, to: number) {
  const { connection, client } = useConnection();
  return useQuery({
    queryKey: ["rule set diff", connection, set, from, to],
    queryFn: ({ signal }) => dataOf(client.GET("/rulesets/{name}/diff", { params: paramsOf(set, { from, to }) as never, signal })),
  });
}

/** Return the query for the contents of a rule set as text, a statement a line. */
export function useContents(set: RuleSet) {
  const { connection, client } = useConnection();
  return useQuery({
    queryKey: ["rule set contents", connection, set],
    queryFn: async ({ signal }) => (await dataOf(client.GET("/rulesets/{name}", { params: paramsOf(set) as never, signal }))).statements.map((each) => `${each}\n`).join(""),
  });
}

function paramsOf({ name, scope }: RuleSet, query: Record<string, unknown> = {}) {
  return { path: { name }, query: scope === null ? query : { ...query, scope } };
}

export function timeText(ms: number): string {
  return new Date(ms).toLocaleString("en-GB");
}
