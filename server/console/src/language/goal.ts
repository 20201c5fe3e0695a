// The structure of a goal that the answer table needs: its literals and variables.
import type { SyntaxNode } from "@lezer/common";

import { parser } from "./kb.grammar.js";

/** A column of the answers: a variable, and where its values are in the arguments of a row. */
export interface Column {
  name: string;
  argument: number;
}

/** The parts of a goal text. */
export interface ParsedGoal {
  /** How many literals the goal is a conjunction of; 0 where the text is not a goal. */
  literals: number;
  /** For a goal of one atom: a column for each distinct variable, in order of appearance. */
  columns: Column[];
  /** Every named variable of the goal, in order of appearance, without its question mark. */
  variables: string[];
}

/** Parse the text of a goal, with or without `?-` and its final dot. */
export function parseGoal(text: string): ParsedGoal {
  const tree = parser.parse(text);
  const goal = tree.topNode.getChild("Goal") ?? tree.topNode.getChild("BareGoal") ?? tree.topNode.getChild("Clause");
  if (goal === null) return { literals: 0, columns: [], variables: [] };
  const literals = childrenOf(goal).filter((node) => ["Literal", "Negation", "Denial"].includes(node.name));
  const variables: string[] = [];
  goal.cursor().iterate((node) => {
    if (node.name !== "Variable") return;
    const name = text.slice(node.from + 1, node.to);
    if (!variables.includes(name)) variables.push(name);
  });
  const [first] = literals;
  const columns = literals.length === 1 && first !== undefined ? columnsOf(first, text) : [];
  return { literals: literals.length, columns, variables };
}

function columnsOf(literal: SyntaxNode, text: string): Column[] {
  let atom = literal;
  for (let inner = inside(atom); inner !== null; inner = inside(atom)) atom = inner;
  const args = atom.getChild("Call")?.getChild("Arguments");
  if (args == null) return [];
  const columns: Column[] = [];
  childrenOf(args)
    .filter((node) => node.name !== ",")
    .forEach((node, argument) => {
      if (node.name !== "Variable") return;
      const name = text.slice(node.from + 1, node.to);
      if (!columns.some((column) => column.name === name)) columns.push({ name, argument });
    });
  return columns;
}

function inside(node: SyntaxNode): SyntaxNode | null {
  if (node.name === "Literal") return null;
  return node.getChild("Literal") ?? node.getChild("Denial");
}

function childrenOf(node: SyntaxNode): SyntaxNode[] {
  const children: SyntaxNode[] = [];
  for (let child = node.firstChild; child !== null; child = child.nextSibling) children.push(child);
  return children;
}
