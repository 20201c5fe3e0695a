import { expect, test } from "vitest";

import { cellsOf, factsOf, hasNames } from "./sheet";

test.each([
  ["a\tb\nc\td\n", [["a", "b"], ["c", "d"]]],
  ["a\tb\r\n\r\nc\t\r\n", [["a", "b"], ["c", ""]]],
  ['"a ""b""\tc"\td', [['a "b"\tc', "d"]]],
  ['"two\nlines"\tx', [["two\nlines", "x"]]],
  ['5" pipe\tx', [['5" pipe', "x"]]],
  ["", []],
])("the cells of %j", (text, cells) => {
  expect(cellsOf(text)).toEqual(cells);
});

test("each row is a fact", () => {
  expect(factsOf([["ann", "bob"], ["bob", "cleo"]], "parent", false)).toEqual({ facts: [{ predicate: "parent", args: ["ann", "bob"] }, { predicate: "parent", args: ["bob", "cleo"] }], mistakes: [] });
});

test("names of columns give the order of arguments and the details", () => {
  const rows = [["Since", "place", "PERSON", "confidence"], ["2026-03-01", "Berlin", "mia", "0,8"]];
  expect(hasNames(rows, ["person", "place"])).toBe(true);
  expect(factsOf(rows, "lives_in", true, ["person", "place"]).facts).toEqual([{ predicate: "lives_in", args: ["mia", "Berlin"], validFrom: Date.UTC(2026, 2, 1), confidence: 0.8 }]);
  expect(hasNames([["ann", "bob"]], ["person", "place"])).toBe(false);
});

test("mistakes name their rows", () => {
  const rows = [["person", "place", "until", "confidence"], ["mia", "", "soon", "2"]];
  expect(factsOf(rows, "lives_in", true).mistakes).toEqual(["Row 2 has no value in column 2.", "Row 2: “soon” is no date.", "Row 2: “2” is no confidence from 0 to 1."]);
});
