// Goals that were run, for this browser tab, and goals that were saved, for this browser.
import { useCallback, useSyncExternalStore } from "react";

import { useConnection } from "./connection";

const MAX_RECENT = 12;
const CHANGED = "kbcore.goals.changed";

/** Return the recent and the saved goals of the tenant, and functions that change them. */
export function useGoals() {
  const { connection } = useConnection();
  const key = `kbcore.goals ${connection.database} ${connection.tenant}`;
  const recent = parsed(useStored(sessionStorage, key));
  const saved = parsed(useStored(localStorage, key));
  const remember = useCallback((goal: string) => write(sessionStorage, key, [goal, ...read(sessionStorage, key).filter((each) => each !== goal)].slice(0, MAX_RECENT)), [key]);
  const toggle = useCallback(
    (goal: string) => {
      const before = read(localStorage, key);
      write(localStorage, key, before.includes(goal) ? before.filter((each) => each !== goal) : [...before, goal]);
    },
    [key],
  );
  return { recent, saved, remember, toggle };
}

function useStored(storage: Storage, key: string): string {
  return useSyncExternalStore(
    (listener) => {
      addEventListener(CHANGED, listener);
      addEventListener("storage", listener);
      return () => {
        removeEventListener(CHANGED, listener);
        removeEventListener("storage", listener);
      };
    },
    () => storage.getItem(key) ?? "[]",
  );
}

function read(storage: Storage, key: string): string[] {
  return parsed(storage.getItem(key) ?? "[]");
}

function write(storage: Storage, key: string, goals: readonly string[]): void {
  storage.setItem(key, JSON.stringify(goals));
  dispatchEvent(new Event(CHANGED));
}

/** Return the goals of a stored text; none if something else has written it. */
function parsed(text: string): string[] {
  try {
    const value: unknown = JSON.parse(text);
    return Array.isArray(value) ? value.filter((each) => typeof each === "string") : [];
  } catch (error) {
    if (error instanceof SyntaxError) return [];
    throw error;
  }
}
