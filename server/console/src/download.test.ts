import { expect, test } from "vitest";

import { csvText } from "./download";

test("fields with commas, quotes and line breaks are quoted", () => {
  expect(csvText(["a", "b"], [["1,2", 'say "x"'], ["line\nbreak", "plain"]])).toBe('a,b\r\n"1,2","say ""x"""\r\n"line\nbreak",plain\r\n');
});
