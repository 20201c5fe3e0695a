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
