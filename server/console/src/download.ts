// Downloads of answers.

/** Offer data to the reader as a file. */
export function download(name: string, content: Blob): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(content);
  link.download = name;
  link.click();
  URL.revokeObjectURL(link.href);
}

/** Return rows as CSV (RFC 4180), with a line of column names. */
export function csvText(columns: readonly string[], rows: readonly (readonly string[])[]): string {
  const field = (value: string) => (/[",\r\n]/.test(value) ? `"${value.replaceAll('"', '""')}"` : value);
  return [columns, ...rows].map((row) => `${row.map(field).join(",")}\r\n`).join("");
}
