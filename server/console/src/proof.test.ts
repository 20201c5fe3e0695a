import { expect, test } from "vitest";

import { outlineLines, visibleNodes, type ProofGraphData } from "./proof";

const node = (premises: string[]) => ({ fact: { predicate: "p", args: [] }, kind: "derived", depth: 0, premises });
const graph = {
  root: "a",
  truncated: false,
  nodes: { a: node(["b", "c"]), b: node(["d"]), c: node(["d"]), d: node([]) },
} as unknown as ProofGraphData;

test("only expanded nodes show their premises; a shared node has a line under each conclusion", () => {
  const paths = (...expanded: string[]) => outlineLines(graph, new Set(expanded)).map((line) => line.path);
  expect(paths()).toEqual(["a"]);
  expect(paths("a")).toEqual(["a", "a/b", "a/c"]);
  expect(paths("a", "a/b", "a/c")).toEqual(["a", "a/b", "a/b/d", "a/c", "a/c/d"]);
});

test("drawn nodes are counted once, nearest first, without what is collapsed", () => {
  expect(visibleNodes(graph, new Set(), 10)).toEqual(["a", "b", "c", "d"]);
  expect(visibleNodes(graph, new Set(), 2)).toEqual(["a", "b"]);
  expect(visibleNodes(graph, new Set(["b", "c"]), 10)).toEqual(["a", "b", "c"]);
});
