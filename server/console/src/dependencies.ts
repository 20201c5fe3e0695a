// Which predicates depend on which, from the rules, and the strata in which they can be evaluated.

export interface RuleLike {
  head: Atom;
  body: readonly Atom[];
}

interface Atom {
  predicate?: string;
  builtin?: unknown;
  args: readonly string[];
  negated: boolean;
  polarity?: string;
}

export interface Dependency {
  /** The predicate that a rule derives, and the one that its condition names. */
  from: string;
  to: string;
  /** The condition needs all facts of the predicate first: `not`, or an aggregate in the head. */
  isStrict: boolean;
}

export interface Dependencies {
  /** Name and number of arguments of each predicate, `~` before those of explicit negatives. */
  predicates: readonly string[];
  edges: readonly Dependency[];
  /** The stratum of each predicate, from 1: those that no rule derives. */
  strata: ReadonlyMap<string, number>;
  /** Predicates that depend on themselves. */
  recursive: ReadonlySet<string>;
  /** Predicates that depend on themselves through `not` or an aggregate: they have no stratum of their own. */
  unstratified: ReadonlySet<string>;
}

const COMPARISON = /^[=!<>]/;
const AGGREGATE = /^(?:count|sum|min|max|avg|representative)\(/;

export function dependenciesOf(rules: readonly RuleLike[]): Dependencies {
  const edges = new Map<string, Dependency>();
  const names = new Set<string>();
  for (const { head, body } of rules) {
    const from = nameOf(head);
    if (from === null) continue;
    names.add(from);
    const hasAggregate = head.args.some((argument) => AGGREGATE.test(argument));
    for (const atom of body) {
      const to = nameOf(atom);
      if (to === null) continue;
      names.add(to);
      const isStrict = hasAggregate || (atom.negated && atom.polarity !== "negative");
      const key = `${from}\n${to}`;
      edges.set(key, { from, to, isStrict: isStrict || edges.get(key)?.isStrict === true });
    }
  }
  const all = [...edges.values()];
  const targets = new Map<string, Dependency[]>();
  for (const edge of all) targets.set(edge.from, [...(targets.get(edge.from) ?? []), edge]);
  const components = componentsOf([...names], (name) => (targets.get(name) ?? []).map(({ to }) => to));
  const strata = new Map<string, number>();
  const recursive = new Set<string>();
  const unstratified = new Set<string>();
  // A component comes after all that it depends on.
  for (const component of components) {
    const members = new Set(component);
    const out = component.flatMap((name) => targets.get(name) ?? []);
    const inner = out.filter(({ to }) => members.has(to));
    const stratum = Math.max(component.some((name) => targets.has(name)) ? 2 : 1, ...out.filter(({ to }) => !members.has(to)).map(({ to, isStrict }) => (strata.get(to) ?? 1) + (isStrict ? 1 : 0)));
    for (const name of component) {
      strata.set(name, stratum);
      if (inner.length > 0) recursive.add(name);
      if (inner.some(({ isStrict }) => isStrict)) unstratified.add(name);
    }
  }
  return { predicates: [...names].sort(), edges: all, strata, recursive, unstratified };
}

/** Return the part of dependencies that a predicate depends on, or that depends on it. */
export function around(dependencies: Dependencies, name: string): Dependencies {
  const reached = new Set([...reach(dependencies.edges, name, "from", "to"), ...reach(dependencies.edges, name, "to", "from")]);
  return {
    ...dependencies,
    predicates: dependencies.predicates.filter((each) => reached.has(each)),
    edges: dependencies.edges.filter(({ from, to }) => reached.has(from) && reached.has(to)),
  };
}

function reach(edges: readonly Dependency[], name: string, near: "from" | "to", far: "from" | "to"): Set<string> {
  const reached = new Set([name]);
  for (const each of reached) for (const edge of edges) if (edge[near] === each) reached.add(edge[far]);
  return reached;
}

function nameOf({ predicate, builtin, args, polarity }: Atom): string | null {
  if (predicate === undefined || COMPARISON.test(predicate) || (builtin !== undefined && builtin !== false)) return null;
  return `${polarity === "negative" ? "~" : ""}${predicate}/${args.length}`;
}

/** Return the strongly connected components, each after those that it leads to (Tarjan). */
function componentsOf(names: readonly string[], next: (name: string) => readonly string[]): string[][] {
  const order = new Map<string, number>();
  const low = new Map<string, number>();
  const stack: string[] = [];
  const open = new Set<string>();
  const components: string[][] = [];
  const lower = (name: string, value: number) => low.set(name, Math.min(low.get(name) ?? value, value));
  for (const root of names) {
    if (order.has(root)) continue;
    // A list in place of recursion: chains of rules can be longer than the stack of a browser.
    const work: { name: string; children: readonly string[]; at: number }[] = [];
    const enter = (name: string) => {
      order.set(name, order.size);
      low.set(name, order.get(name) ?? 0);
      stack.push(name);
      open.add(name);
      work.push({ name, children: next(name), at: 0 });
    };
    enter(root);
    for (let top = work.at(-1); top !== undefined; top = work.at(-1)) {
      const child = top.children[top.at];
      if (child !== undefined) {
        top.at += 1;
        if (!order.has(child)) enter(child);
        else if (open.has(child)) lower(top.name, order.get(child) ?? 0);
        continue;
      }
      work.pop();
      const parent = work.at(-1);
      if (parent !== undefined) lower(parent.name, low.get(top.name) ?? 0);
      if (low.get(top.name) !== order.get(top.name)) continue;
      const component: string[] = [];
      for (let member = stack.pop(); member !== undefined; member = stack.pop()) {
        open.delete(member);
        component.push(member);
        if (member === top.name) break;
      }
      components.push(component);
    }
  }
  return components;
}
