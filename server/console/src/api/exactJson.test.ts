import { expect, test } from "vitest";

import { parseExactly } from "./exactJson";

const TEXT = '{"a":28857836529306024611912,"b":2.50,"c":[1,-0.5,9007199254740993],"d":"1.0","e":1e400}';

test("numbers keep their digits where the browser can, and are doubles elsewhere", () => {
  const can = "rawJSON" in JSON;
  expect(JSON.stringify(parseExactly(TEXT))).toBe(can ? TEXT : JSON.stringify(JSON.parse(TEXT)));
});

test("other values are those of JSON", () => {
  const text = '{"a":[1,true,null,"x",-0.5],"b":{}}';
  expect(parseExactly(text)).toEqual(JSON.parse(text));
});
