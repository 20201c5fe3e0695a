// The screens, in the order in which people need them. Names only: app.tsx has what they show.
import type { IconName } from "./components/Icon";
import type { TimeKind } from "./time";

export interface Part {
  title: string;
  screen: string;
  parameters?: Record<string, string>;
  /** The times besides now that the part can show. */
  times: readonly TimeKind[];
}

export interface ScreenGroup {
  title: string;
  icon: IconName;
  /** The addresses of the screen; the link of the navigation leads to the first. */
  parts: readonly [Part, ...Part[]];
}

const BOTH = ["asOf", "knownAt"] as const;
const KNOWN = ["knownAt"] as const;

export const SCREENS: readonly ScreenGroup[] = [
  {
    title: "Memory",
    icon: "memory",
    parts: [
      { title: "Conversations", screen: "memory", times: KNOWN },
      { title: "Timeline", screen: "memory", parameters: { part: "timeline" }, times: [] },
      { title: "Contradictions", screen: "memory", parameters: { part: "contradictions" }, times: BOTH },
      { title: "Window composer", screen: "window", times: KNOWN },
    ],
  },
  { title: "Playground", icon: "playground", parts: [{ title: "Playground", screen: "playground", times: BOTH }] },
  { title: "Facts", icon: "facts", parts: [{ title: "Facts", screen: "facts", times: BOTH }] },
  {
    title: "Rules",
    icon: "rules",
    parts: [
      { title: "Rule sets", screen: "rulesets", times: KNOWN },
      { title: "Single rules", screen: "facts", parameters: { view: "rules" }, times: KNOWN },
      { title: "Dependencies", screen: "rulesets", parameters: { part: "dependencies" }, times: KNOWN },
    ],
  },
  { title: "Graph", icon: "graph", parts: [{ title: "Graph", screen: "graph", times: BOTH }] },
  { title: "Scopes", icon: "scopes", parts: [{ title: "Scopes", screen: "scopes", times: KNOWN }] },
  { title: "Operations", icon: "operations", parts: [{ title: "Operations", screen: "operations", times: [] }] },
  { title: "Examples", icon: "examples", parts: [{ title: "Examples", screen: "start", times: [] }] },
];

/** Return the screen and the part of an address; null where it names none. */
export function partOf(location: string, search: URLSearchParams): { group: ScreenGroup; part: Part } | null {
  const screen = location.replace(/^\//, "");
  let best: { group: ScreenGroup; part: Part } | null = null;
  for (const group of SCREENS) {
    for (const part of group.parts) {
      const parameters = Object.entries(part.parameters ?? {});
      if (part.screen !== screen || !parameters.every(([name, value]) => search.get(name) === value)) continue;
      if (best === null || parameters.length > Object.keys(best.part.parameters ?? {}).length) best = { group, part };
    }
  }
  return best;
}
