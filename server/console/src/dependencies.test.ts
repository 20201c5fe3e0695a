import { expect, test } from "vitest";

import { around, dependenciesOf, type RuleLike } from "./dependencies";

const atom = (text: string) => {
  const [, not, name = "", args = ""] = /^(not )?(.+?)\((.*)\)$/.exec(text) ?? [];
  return { predicate: name.replace("~", ""), args: args.split(";"), negated: not !== undefined, ...(name.startsWith("~") ? { polarity: "negative" } : {}) };
};
const rule = (head: string, ...body: string[]): RuleLike => ({ head: atom(head), body: body.map(atom) });
const strataOf = (...rules: RuleLike[]) => Object.fromEntries(dependenciesOf(rules).strata);

test("conclusions are above stored facts, and above what they negate", () => {
  expect(strataOf(rule("may(?x)", "member(?x)", "not banned(?x)"), rule("banned(?x)", "reported(?x)"))).toEqual({ "may/1": 3, "member/1": 1, "banned/1": 2, "reported/1": 1 });
});

test("an aggregate needs all facts first", () => {
  expect(strataOf(rule("size(count(?x))", "big(?x)"), rule("big(?x)", "p(?x)"))).toEqual({ "p/1": 1, "big/1": 2, "size/1": 3 });
});

test("recursion is one stratum, and through a negation it is none", () => {
  const path = dependenciesOf([rule("path(?x;?y)", "edge(?x;?y)"), rule("path(?x;?z)", "path(?x;?y)", "edge(?y;?z)")]);
  expect([path.strata.get("path/2"), [...path.recursive], [...path.unstratified]]).toEqual([2, ["path/2"], []]);
  const win = dependenciesOf([rule("win(?x)", "move(?x;?y)", "not win(?y)")]);
  expect([...win.unstratified]).toEqual(["win/1"]);
});

test("explicit negatives are predicates of their own, comparisons are none", () => {
  const { predicates, edges } = dependenciesOf([{ head: atom("p(?x)"), body: [atom("~q(?x)"), { predicate: "<", args: ["?x", "3"], negated: false }] }]);
  expect(predicates).toEqual(["p/1", "~q/1"]);
  expect(edges).toEqual([{ from: "p/1", to: "~q/1", isStrict: false }]);
});

test("what is around a predicate", () => {
  const all = dependenciesOf([rule("a(?x)", "b(?x)"), rule("b(?x)", "c(?x)"), rule("d(?x)", "c(?x)"), rule("e(?x)", "f(?x)")]);
  expect(around(all, "b/1").predicates).toEqual(["a/1", "b/1", "c/1"]);
});

test("a chain of ten thousand rules", () => {
  const rules = Array.from({ length: 10_000 }, (_, index) => rule(`p${index + 1}(?x)`, `p${index}(?x)`));
  expect(dependenciesOf(rules).strata.get("p10000/1")).toBe(2);
});
