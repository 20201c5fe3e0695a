import { expect, test } from "vitest";

import { matching, nearest } from "./matching";

test("every word is in the text, and beginnings come first", () => {
  const names = ["north-mia", "mia", "ben", "mia-2"];
  expect(matching(names, "mia", (name) => name)).toEqual(["mia", "mia-2", "north-mia"]);
  expect(matching(names, "mia no", (name) => name)).toEqual(["north-mia"]);
  expect(matching(names, "", (name) => name)).toEqual(names);
});

test("a typo has a nearest name, another word has none", () => {
  expect(nearest(["mia", "ben"], "mai")).toBe("mia");
  expect(nearest(["production", "staging"], "prodution")).toBe("production");
  expect(nearest(["mia", "ben"], "zoe")).toBeNull();
});
