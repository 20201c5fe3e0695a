// The facts around some constants as the nodes and edges of a drawing.

export interface Fact {
  predicate: string;
  args: string[];
  negated: boolean;
  scope?: string | null;
}

export interface DrawnNode {
  id: string;
  label: string;
  /** The constant of the node; null for the node of a fact with three or more arguments. */
  constant: string | null;
  predicate: string | null;
}

export interface DrawnEdge {
  id: string;
  source: string;
  target: string;
  predicate: string;
}

/** Return the facts without repetition, in the order in which they first occur. */
export function distinct(facts: readonly Fact[]): Fact[] {
  return [...new Map(facts.map((fact) => [keyOf(fact), fact])).values()];
}

/** Return the drawing: an edge for two arguments, a node with an edge to each argument for more. */
export function drawingOf(facts: readonly Fact[], center: string): { nodes: DrawnNode[]; edges: DrawnEdge[] } {
  const nodes = new Map<string, DrawnNode>();
  const edges: DrawnEdge[] = [];
  const nodeOf = (constant: string) => {
    const id = `c${constant}`;
    if (!nodes.has(id)) nodes.set(id, { id, label: constant, constant, predicate: null });
    return id;
  };
  nodeOf(center);
  for (const fact of facts) {
    const key = keyOf(fact);
    const ids = fact.args.map(nodeOf);
    const [first, second] = ids;
    if (ids.length === 2 && first !== undefined && second !== undefined) edges.push({ id: `e${key}`, source: first, target: second, predicate: fact.predicate });
    if (ids.length > 2) {
      nodes.set(`f${key}`, { id: `f${key}`, label: fact.predicate, constant: null, predicate: fact.predicate });
      ids.forEach((id, index) => edges.push({ id: `e${index}${key}`, source: `f${key}`, target: id, predicate: fact.predicate }));
    }
  }
  return { nodes: [...nodes.values()], edges };
}

function keyOf({ predicate, args, negated, scope = null }: Fact): string {
  return JSON.stringify([predicate, args, negated, scope]);
}
