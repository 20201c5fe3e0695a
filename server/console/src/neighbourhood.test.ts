import { expect, test } from "vitest";

import { distinct, drawingOf } from "./neighbourhood";

const fact = (predicate: string, ...args: string[]) => ({ predicate, args, negated: false });

test("facts without repetition, in order", () => {
  const facts = [fact("p", "a", "b"), fact("q", "a"), fact("p", "a", "b"), { ...fact("q", "a"), negated: true }];
  expect(distinct(facts).map(({ predicate, negated }) => [predicate, negated])).toEqual([["p", false], ["q", false], ["q", true]]);
});

test("an edge for two arguments, a node for three, none for one", () => {
  const { nodes, edges } = drawingOf([fact("p", "a", "b"), fact("q", "a"), fact("r", "a", "c", "c")], "a");
  expect(nodes.map(({ label, constant }) => [label, constant])).toEqual([["a", "a"], ["b", "b"], ["c", "c"], ["r", null]]);
  expect(edges.map(({ source, target }) => [source[0], target])).toEqual([["c", "cb"], ["f", "ca"], ["f", "cc"], ["f", "cc"]]);
  expect(new Set(edges.map(({ id }) => id)).size).toBe(4);
});

test("the centre is drawn without facts", () => {
  expect(drawingOf([], "x").nodes.map(({ label }) => label)).toEqual(["x"]);
});
