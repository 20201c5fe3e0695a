// JSON whose numbers keep all their digits, for what is shown or sent back: `JSON.parse` rounds them to doubles.

/** A number with its digits; `JSON.stringify` writes them. Browsers without `JSON.rawJSON` keep the double. */
type RawNumber = object;

interface WithRawNumbers {
  rawJSON?: (text: string) => RawNumber;
}

/** Return the value of a JSON text; numbers that doubles cannot write as they stand are kept as raw JSON. */
export function parseExactly(text: string): unknown {
  const { rawJSON } = JSON as WithRawNumbers;
  if (rawJSON === undefined) return JSON.parse(text);
  const exact = (_key: string, value: unknown, context?: { source?: string }): unknown => {
    const source = context?.source;
    return typeof value === "number" && source !== undefined && String(value) !== source ? rawJSON(source) : value;
  };
  return JSON.parse(text, exact as (key: string, value: unknown) => unknown);
}
