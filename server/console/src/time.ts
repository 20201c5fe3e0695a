// The time that all screens show: now, what was valid at an instant, or what was known at one.

/** `asOf`: what was valid then, as far as is known today. `knownAt`: what the knowledge base held then. */
export type TimeKind = "asOf" | "knownAt";

export interface Time {
  kind: TimeKind;
  /** ISO 8601, in UTC. */
  at: string;
}

const WITH_BOTH = ["/ask", "/infer", "/explain", "/query", "/neighbours", "/aggregate"];
const WITH_KNOWN_AT = ["/memory/context", "/context/summary", "/memory/query/salient", "/scope/diff"];
const READ_WITH_KNOWN_AT = ["/rules", "/predicates", "/scopes", "/episodes", "/episodes/{id}", "/rulesets"];

/** Return how a request to a path says the time: as a member of its body, in its query string, or not at all. */
export function placeOfTime(method: string, path: string, { kind }: Time): "body" | "query" | null {
  if (method === "GET") return kind === "knownAt" && READ_WITH_KNOWN_AT.includes(path) ? "query" : null;
  return WITH_BOTH.includes(path) || (kind === "knownAt" && WITH_KNOWN_AT.includes(path)) ? "body" : null;
}

/** Return a time as it is read, in UTC. */
export function timeText({ kind, at }: Time): string {
  return `${kind === "asOf" ? "as of" : "known at"} ${instantText(at)}`;
}

/** Return an instant as it is read, in UTC: the day, and the time of day unless it is midnight. */
export function instantText(at: string | number): string {
  const date = new Date(at);
  if (Number.isNaN(date.getTime())) return String(at);
  const day = dayText(date.getTime());
  const clock = date.toISOString().slice(11, 16);
  return clock === "00:00" ? day : `${day}, ${clock} UTC`;
}

/** Return a day as it is read: "13 Nov 2026". */
export function dayText(at: number): string {
  return new Date(at).toLocaleDateString("en-GB", { day: "numeric", month: "short", year: "numeric", timeZone: "UTC" });
}
