// What would make a goal true, as a sentence.

/** Facts to add and to remove. */
export interface Proposal {
  readonly add: readonly string[];
  readonly remove: readonly string[];
}

/** Return the beginning of a sentence about a goal and the facts that follow, each behind its word. A goal about a right is allowed. */
export function conditionText(goal: string, { add, remove }: Proposal): { begin: string; conditions: { word: string; fact: string }[] } {
  const isRight = /^(?:can|may|allow|permit)/.test(goal.trim());
  const conditions = [
    ...add.map((fact, index) => ({ word: index === 0 ? "if" : "and", fact })),
    ...remove.map((fact, index) => ({ word: index === 0 ? "without" : "and", fact })),
  ];
  return { begin: isRight ? "It would be allowed" : "It would hold", conditions };
}

const STRING = /"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'/g;
const OPEN_LITERAL = /^\s*(\w+)\([^()]*(?:\?|\b_\b)[^()]*\)\s*\.?\s*$/;

/** Return whether a change only stores the goal itself, with any constants for its variables: it explains nothing. */
export function isGuess(goal: string, { add, remove }: Proposal): boolean {
  const [, name] = OPEN_LITERAL.exec(goal.replace(STRING, "s")) ?? [];
  return name !== undefined && remove.length === 0 && add.length === 1 && add[0]?.startsWith(`${name}(`) === true;
}

/** Changes that differ in their constants only: a variable for each place that differs, and its values. */
export interface Pattern extends Proposal {
  readonly values: readonly { readonly variable: string; readonly constants: readonly string[] }[];
}

const TOKEN = /"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s,()"']+|[\s,()]/g;
const SEPARATOR = "\n";
const NAMES = ["x", "y", "z", "u", "v", "w"];

/**
 * Return changes with those in one that differ in their constants only. The server fills what nothing determines with
 * each known constant in turn, the last place first: places that differ, and those with the first constant of such a
 * place, become variables. Constants of the goal stay.
 */
export function patternsOf(goal: string, proposals: readonly Proposal[]): Pattern[] {
  const groups: { adds: number; parts: string[][] }[] = [];
  for (const { add, remove } of proposals) {
    const parts = [...add, ...remove].join(SEPARATOR).match(TOKEN) ?? [];
    const group = groups.find((each) => each.adds === add.length && isLike(each.parts[0] ?? [], parts));
    if (group === undefined) groups.push({ adds: add.length, parts: [parts] });
    else group.parts.push(parts);
  }
  return groups.map(({ adds, parts }) => {
    const [first = []] = parts;
    const columns = first.map((_, place) => parts.map((each) => each[place] ?? ""));
    const isVaried = columns.map((values) => new Set(values).size > 1);
    const inGoal = new Set(goal.match(TOKEN));
    const begin = new Set(first.filter((_, place) => isVaried[place]));
    const names = new Map<string, { variable: string; constants: string[] }>();
    const generic = first.map((value, place) => {
      const isConstant = first[place + 1] !== "(" && !/^[\s,()~]$/.test(value);
      if (!isConstant || !(isVaried[place] || (begin.has(value) && !inGoal.has(value)))) return value;
      const key = JSON.stringify(columns[place]);
      const name = names.get(key) ?? { variable: `?${NAMES[names.size] ?? `x${names.size}`}`, constants: [...new Set(columns[place])] };
      names.set(key, name);
      return name.variable;
    });
    const texts = generic.join("").split(SEPARATOR);
    return { add: texts.slice(0, adds), remove: texts.slice(adds), values: [...names.values()] };
  });
}

/** Return whether two changes have the same predicates and numbers of arguments. */
function isLike(left: readonly string[], right: readonly string[]): boolean {
  if (left.length !== right.length) return false;
  return left.every((part, place) => part === right[place] || (left[place + 1] !== "(" && !/^[\s,()]$/.test(part) && !/^[\s,()]$/.test(right[place] ?? "")));
}
