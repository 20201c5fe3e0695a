// Proof graphs: what the outline and the drawing show of them.
import { atomText } from "./language/atom";
import type { Schemas } from "./api/client";

export type ProofGraphData = Schemas["Graph"];
export type ProofNodeData = Schemas["GraphNode"];

/** A line of the outline: a node of the graph below one of its conclusions. */
export interface OutlineLine {
  /** Path of node names from the root, joined by `/`: unique for each line. */
  path: string;
  name: string;
  level: number;
  /** True if the line has premises; false for facts and tests. */
  expandable: boolean;
  expanded: boolean;
}

/** Return what a node says: its fact, or the text of a test or an absence. */
export function nodeText(node: ProofNodeData): string {
  if (node.text != null && node.text !== "") return node.text;
  const { fact } = node;
  return atomText({ predicate: fact.predicate, args: fact.args, negated: fact.negated ?? false });
}

/** Words for the kinds of nodes. */
export const KIND_NAMES: Record<string, string> = {
  asserted: "stored fact",
  explicit_negative: "stored negative fact",
  derived: "by rule",
  absent: "no such fact",
  builtin: "test",
  external: "from a plugin",
  aggregate: "aggregate",
  elided: "not shown",
};

/** Return the visible lines of the outline. Only expanded nodes are walked, so a large proof costs what it shows. */
export function outlineLines(graph: ProofGraphData, expanded: ReadonlySet<string>): OutlineLine[] {
  const lines: OutlineLine[] = [];
  const stack: { path: string; name: string; level: number }[] = [{ path: graph.root, name: graph.root, level: 0 }];
  for (let line = stack.pop(); line !== undefined; line = stack.pop()) {
    const node = graph.nodes[line.name];
    if (node === undefined) continue;
    const expandable = node.premises.length > 0;
    const isExpanded = expandable && expanded.has(line.path);
    lines.push({ ...line, expandable, expanded: isExpanded });
    if (!isExpanded) continue;
    for (const premise of [...node.premises].reverse()) {
      stack.push({ path: `${line.path}/${premise}`, name: premise, level: line.level + 1 });
    }
  }
  return lines;
}

/** Return the nodes to draw: breadth first from the root, at most `limit`, through the nodes that are not collapsed. */
export function visibleNodes(graph: ProofGraphData, collapsed: ReadonlySet<string>, limit: number): string[] {
  const names: string[] = [];
  const seen = new Set([graph.root]);
  const queue = [graph.root];
  for (let name = queue.shift(); name !== undefined && names.length < limit; name = queue.shift()) {
    const node = graph.nodes[name];
    if (node === undefined) continue;
    names.push(name);
    if (collapsed.has(name)) continue;
    for (const premise of node.premises) {
      if (!seen.has(premise)) {
        seen.add(premise);
        queue.push(premise);
      }
    }
  }
  return names;
}
