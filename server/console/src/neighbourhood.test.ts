import { expect, test } from "vitest";

import { distinct, drawingOf, type Box, type Fact } from "./neighbourhood";

function fact(predicate: string, ...args: string[]): Fact {
  return { predicate, args, negated: false };
}

function overlap(first: Box, second: Box): boolean {
  return Math.abs(first.x - second.x) < (first.width + second.width) / 2 && Math.abs(first.y - second.y) < (first.height + second.height) / 2;
}

test("facts that occur twice are drawn once", () => {
  expect(distinct([fact("p", "a"), fact("p", "b"), fact("p", "a")])).toEqual([fact("p", "a"), fact("p", "b")]);
});

test("a fact is a labelled box with a line to each argument", () => {
  const { boxes, lines } = drawingOf([fact("lives_in", "mia", "Berlin"), fact("gave", "mia", "ben", "book"), fact("calm", "mia")], "mia", 1.5);
  expect(boxes.map(({ label }) => label).sort()).toEqual(["Berlin", "ben", "book", "calm", "gave", "lives in", "mia"]);
  const ends = lines.map(({ from, to, hasArrow }) => `${from.label} ${hasArrow ? "->" : "-"} ${to.label}`);
  expect(ends).toEqual(["mia - lives in", "lives in -> Berlin", "gave - mia", "gave - ben", "gave - book", "calm - mia"]);
});

test("a denied fact says so, and a constant without facts is drawn alone", () => {
  expect(drawingOf([{ ...fact("likes", "mia", "tea"), negated: true }], "mia", 1).boxes.map(({ label }) => label)).toContain("not likes");
  expect(drawingOf([], "zoe", 1).boxes.map(({ label }) => label)).toEqual(["zoe"]);
});

test.each([1, 5, 40, 100])("no two of the boxes of %i facts overlap", (count) => {
  const facts = Array.from({ length: count }, (_, index) => fact(index % 3 === 0 ? "is_a_friend_of" : "p", index % 4 === 0 ? `node number ${index % 9}` : "hub", `value ${index}`));
  const { boxes } = drawingOf(facts, "hub", 1.6);
  const pairs = boxes.flatMap((first, index) => boxes.slice(index + 1).filter((second) => overlap(first, second)).map((second) => [first.label, second.label]));
  expect(pairs).toEqual([]);
  expect(drawingOf(facts, "hub", 1.6).boxes).toEqual(boxes);
});
