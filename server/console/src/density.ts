// How close the rows of tables are: a choice of the reader, which this browser keeps.
import { useCallback, useEffect, useSyncExternalStore } from "react";

const KEY = "kbcore.density";
const CHANGED = "kbcore.density.changed";

/** Return whether tables are dense, and a function that changes that. */
export function useDensity(): [boolean, () => void] {
  const isDense = useSyncExternalStore(subscribe, () => localStorage.getItem(KEY) === "dense");
  useEffect(() => {
    document.documentElement.dataset["density"] = isDense ? "dense" : "normal";
  }, [isDense]);
  const toggle = useCallback(() => {
    localStorage.setItem(KEY, isDense ? "normal" : "dense");
    dispatchEvent(new Event(CHANGED));
  }, [isDense]);
  return [isDense, toggle];
}

function subscribe(listener: () => void): () => void {
  addEventListener(CHANGED, listener);
  addEventListener("storage", listener);
  return () => {
    removeEventListener(CHANGED, listener);
    removeEventListener("storage", listener);
  };
}
