// Times between requests (epoch milliseconds) and fields of the page (local time, to the second).

/** Return a time as the value of a field `datetime-local`, in the time zone of the browser. */
export function inputTime(ms: number | null): string {
  if (ms === null) return "";
  const local = new Date(ms - new Date(ms).getTimezoneOffset() * 60_000);
  return Number.isNaN(local.getTime()) ? "" : local.toISOString().slice(0, 19);
}

/** Return the time of a field `datetime-local` in epoch milliseconds; null for an empty field. */
export function timeOf(value: string): number | null {
  const ms = value === "" ? NaN : new Date(value).getTime();
  return Number.isNaN(ms) ? null : ms;
}
