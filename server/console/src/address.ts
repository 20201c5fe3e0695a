// The state of a screen in its address, so that a link reproduces it.
import { useCallback } from "react";
import { useSearchParams } from "wouter";

/** The parameters that all screens share: the connection without its key, its view and time, and the step of the tour. */
export const SHARED = ["tenant", "database", "scope", "only", "asof", "known", "tour"] as const;

/** Return the value of a parameter of the address and a function to change it; null or "" removes it. */
export function useAddress(name: string): [string | null, (value: string | null, options?: { replace?: boolean }) => void] {
  const [search, setSearch] = useSearchParams();
  const change = useCallback(
    (value: string | null, { replace = true } = {}) => {
      setSearch(
        (previous) => {
          const next = new URLSearchParams(previous);
          if (value === null || value === "") next.delete(name);
          else next.set(name, value);
          return next;
        },
        { replace },
      );
    },
    [name, setSearch],
  );
  return [search.get(name), change];
}

/** Return the parameters of the address and a function to change several of them at once; null or "" removes one. */
export function useAddressParts(): [URLSearchParams, (parts: Record<string, string | null>, options?: { replace?: boolean }) => void] {
  const [search, setSearch] = useSearchParams();
  const change = useCallback(
    (parts: Record<string, string | null>, { replace = true } = {}) => {
      setSearch(
        (previous) => {
          const next = new URLSearchParams(previous);
          for (const [name, value] of Object.entries(parts)) {
            if (value === null || value === "") next.delete(name);
            else next.set(name, value);
          }
          return next;
        },
        { replace },
      );
    },
    [setSearch],
  );
  return [search, change];
}

/** Return a link to a screen of the same tenant, database, scope and step of the tour. */
export function linkTo(screen: string, current: URLSearchParams, parameters: Record<string, string> = {}): string {
  const next = new URLSearchParams();
  for (const name of SHARED) {
    const value = current.get(name);
    if (value !== null) next.set(name, value);
  }
  for (const [name, value] of Object.entries(parameters)) next.set(name, value);
  const query = next.toString();
  return query === "" ? `/${screen}` : `/${screen}?${query}`;
}
