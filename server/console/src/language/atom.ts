// Constants and atoms as text, without the parser of the rule language.

/** Return a constant as it is written in the rule language, quoted where necessary. */
export function constantText(value: string): string {
  const isWord = /^\p{L}[\p{L}\p{N}_]*(?:(?:-+|:+)[\p{L}\p{N}_]+)*$/u.test(value) && !["not", "div", "mod"].includes(value);
  const isNumber = /^-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?$/.test(value);
  return isWord || isNumber ? value : JSON.stringify(value);
}

/** Return an atom as text. */
export function atomText(atom: { predicate: string; args: readonly string[]; negated?: boolean | null }): string {
  const name = /^\p{L}/u.test(atom.predicate) ? constantText(atom.predicate) : JSON.stringify(atom.predicate);
  const args = atom.args.length > 0 ? `(${atom.args.map(constantText).join(", ")})` : "";
  return `${atom.negated === true ? "~" : ""}${name}${args}`;
}
