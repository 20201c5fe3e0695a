// Rows of a spreadsheet as facts: cells are separated by tabs, as spreadsheets copy them.

/** What a column of a sheet is: an argument, or a detail of each fact. */
const DETAILS: Record<string, "confidence" | "validFrom" | "validUntil"> = {
  confidence: "confidence",
  since: "validFrom",
  "valid from": "validFrom",
  until: "validUntil",
  "valid until": "validUntil",
};

export interface SheetFact {
  predicate: string;
  args: string[];
  confidence?: number;
  validFrom?: number;
  validUntil?: number;
}

export interface SheetFacts {
  facts: SheetFact[];
  /** What is wrong, with the number of the row in the sheet. */
  mistakes: string[];
}

/** Return the rows of a text as cells. A cell in double quotes may have tabs, line breaks and doubled quotes in it. */
export function cellsOf(text: string): string[][] {
  const rows: string[][] = [];
  const pattern = /(?:"((?:[^"]|"")*)"(?=[\t\r\n]|$)|([^\t\r\n]*))(\t|\r\n|\n|\r|$)/y;
  let row: string[] = [];
  for (let at = 0; at < text.length; ) {
    pattern.lastIndex = at;
    const match = pattern.exec(text);
    if (match === null) break;
    const [whole, quoted, plain = "", end = ""] = match;
    row.push((quoted?.replaceAll('""', '"') ?? plain).trim());
    at += whole.length;
    if (end === "\t" && at < text.length) continue;
    if (end === "\t") row.push("");
    rows.push(row);
    row = [];
  }
  return rows.filter((cells) => cells.some((cell) => cell !== ""));
}

/** Return whether the first row names the columns: with the names of the arguments, or of a detail. */
export function hasNames(rows: readonly string[][], declared: readonly string[]): boolean {
  const names = rows[0]?.map((cell) => cell.toLowerCase()) ?? [];
  return names.some((name) => name in DETAILS) || (declared.length > 0 && names.some((name) => declared.map((each) => each.toLowerCase()).includes(name)));
}

/** Return the facts of rows. With `named` the first row has the names of the columns: those of arguments give their order. */
export function factsOf(rows: readonly string[][], predicate: string, named: boolean, declared: readonly string[] = []): SheetFacts {
  const names = named ? (rows[0] ?? []).map((name) => name.toLowerCase()) : [];
  const body = named ? rows.slice(1) : rows;
  const width = Math.max(0, ...body.map((cells) => cells.length), names.length);
  const columns = Array.from({ length: width }, (_, column) => column).filter((column) => !((names[column] ?? "") in DETAILS));
  const place = (column: number) => {
    const found = declared.findIndex((name) => name.toLowerCase() === names[column]);
    return found < 0 ? declared.length + column : found;
  };
  columns.sort((left, right) => place(left) - place(right));
  const mistakes: string[] = [];
  const facts = body.map((cells, index): SheetFact => {
    const number = index + (named ? 2 : 1);
    const fact: SheetFact = { predicate, args: columns.map((column) => cells[column] ?? "") };
    const missing = columns.filter((column) => (cells[column] ?? "") === "");
    if (missing.length > 0) mistakes.push(`Row ${number} has no value in column ${missing.map((column) => column + 1).join(", ")}.`);
    names.forEach((name, column) => {
      const detail = DETAILS[name];
      const cell = cells[column] ?? "";
      if (detail === undefined || cell === "") return;
      const value = detail === "confidence" ? Number(cell.replace(",", ".")) : Date.parse(cell);
      if (Number.isNaN(value) || (detail === "confidence" && (value < 0 || value > 1))) mistakes.push(`Row ${number}: “${cell}” is no ${detail === "confidence" ? "confidence from 0 to 1" : "date"}.`);
      else fact[detail] = value;
    });
    return fact;
  });
  return { facts, mistakes };
}
